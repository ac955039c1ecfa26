/* reference.c - convolution by its definition, im2col and its adjoint. Tests compare the fast
** implementations with these. */
#include "kernel/conv/conv.h"

static double reference_get_number(int dtype, const void *p, int64_t i)
{
  return dtype == TY_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void reference_store_number(int dtype, void *p, int64_t i, double v, bool add)
{
  if (dtype == TY_F64)
    ((double *)p)[i] = v + (add ? ((double *)p)[i] : 0);
  else
    ((float *)p)[i] = (float)(v + (add ? ((float *)p)[i] : 0));
}

/* Returns the index, in a channel, of the element that position j reads through tap t; -1 if it is
** outside. */
static int64_t reference_find_element(const struct window *w, int64_t j, int64_t t)
{
  int64_t at = 0, position[3], tap[3];
  for (int a = 2; a >= 0; a--) {
    position[a] = j % w->out[a], j /= w->out[a];
    tap[a] = t % w->kernel[a], t /= w->kernel[a];
  }
  for (int a = 0; a < 3; a++) {
    int64_t i = position[a] * w->stride[a] - w->pad[a] + tap[a] * w->dilate[a];
    if (i < 0 || i >= w->in[a]) return -1;
    at = at * w->in[a] + i;
  }
  return at;
}

/* Input element x times weight w is a term of output element y. A visit_fn is called for each
** term. */
struct term { int64_t x, w, y; };
typedef void (*visit_fn)(const struct term *t, void *context);

static void reference_visit_all(const struct window *w, visit_fn visit, void *context)
{
  const int64_t taps = window_taps(w), in = window_in(w), out = window_out(w);
  for (int64_t i = 0; i < w->n * w->groups; i++)
    for (int64_t o = 0; o < w->filters; o++)
      for (int64_t j = 0; j < out; j++)
        for (int64_t c = 0; c < w->channels; c++)
          for (int64_t t = 0; t < taps; t++) {
            int64_t at = reference_find_element(w, j, t), filter = i % w->groups * w->filters + o;
            struct term term = { (i * w->channels + c) * in + at,
              (filter * w->channels + c) * taps + t, (i * w->filters + o) * out + j };
            if (at >= 0) visit(&term, context);
          }
}

struct reference_call { int dtype; const void *x, *w, *y; void *to; };

static void reference_add_forward(const struct term *t, void *context)
{
  const struct reference_call *p = context;
  reference_store_number(p->dtype, p->to, t->y,
      reference_get_number(p->dtype, p->x, t->x) * reference_get_number(p->dtype, p->w, t->w),
      true);
}

static void reference_add_data(const struct term *t, void *context)
{
  const struct reference_call *p = context;
  reference_store_number(p->dtype, p->to, t->x,
      reference_get_number(p->dtype, p->y, t->y) * reference_get_number(p->dtype, p->w, t->w),
      true);
}

static void reference_add_weight(const struct term *t, void *context)
{
  const struct reference_call *p = context;
  reference_store_number(p->dtype, p->to, t->w,
      reference_get_number(p->dtype, p->y, t->y) * reference_get_number(p->dtype, p->x, t->x),
      true);
}

static void reference_clear_numbers(int dtype, void *p, int64_t n)
{
  memset(p, 0, (size_t)n * dtype_size(dtype));
}

void convolve_reference(
    const struct window *w, const void *x, const void *weight, const void *bias, void *y, bool add)
{
  struct reference_call p = { w->dtype, x, weight, NULL, y };
  const int64_t out = window_out(w), filters = w->groups * w->filters;
  if (!add) reference_clear_numbers(w->dtype, y, w->n * filters * out);
  for (int64_t i = 0; bias && i < w->n * filters * out; i++)
    reference_store_number(
        w->dtype, y, i, reference_get_number(w->dtype, bias, i / out % filters), add);
  reference_visit_all(w, reference_add_forward, &p);
}

void convolve_reference_data(
    const struct window *w, const void *dy, const void *weight, void *dx, bool add)
{
  struct reference_call p = { w->dtype, NULL, weight, dy, dx };
  if (!add) reference_clear_numbers(w->dtype, dx, w->n * w->groups * w->channels * window_in(w));
  reference_visit_all(w, reference_add_data, &p);
}

void convolve_reference_weight(
    const struct window *w, const void *x, const void *dy, void *dw, bool add)
{
  struct reference_call p = { w->dtype, x, NULL, dy, dw };
  if (!add) reference_clear_numbers(w->dtype, dw, w->groups * w->filters * window_depth(w));
  reference_visit_all(w, reference_add_weight, &p);
}

/* -- columns ----------------------------------------------------------------------------------- */

void conv_im2col(const struct window *w, const void *x, void *columns, bool add)
{
  const int64_t taps = window_taps(w), in = window_in(w), out = window_out(w);
  for (int64_t row = 0; row < w->n * w->channels * taps; row++)
    for (int64_t j = 0; j < out; j++) {
      int64_t at = reference_find_element(w, j, row % taps);
      reference_store_number(w->dtype, columns, row * out + j,
          at < 0 ? 0 : reference_get_number(w->dtype, x, row / taps * in + at), add);
    }
}

void conv_col2im(const struct window *w, const void *columns, void *x, bool add)
{
  const int64_t taps = window_taps(w), in = window_in(w), out = window_out(w);
  if (!add) reference_clear_numbers(w->dtype, x, w->n * w->channels * in);
  for (int64_t row = 0; row < w->n * w->channels * taps; row++)
    for (int64_t j = 0; j < out; j++) {
      int64_t at = reference_find_element(w, j, row % taps);
      if (at >= 0)
        reference_store_number(w->dtype, x, row / taps * in + at,
            reference_get_number(w->dtype, columns, row * out + j), true);
    }
}
