/* adaptive_pooling.c - _contrib_AdaptiveAvgPooling2D: means over windows, for an output of a given
** size. Window o of n covers elements floor(o in / n) to ceil((o + 1) in / n) - 1.
*/
#include "kernel/element/resample.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct adaptive_param { struct dims output_size; };
static const struct param adaptive_params[] = {
  { "output_size", P_SHAPE, offsetof(struct adaptive_param, output_size), "()",
    "height and width of the output, or one number for both; () is 1", NULL, SIZES_RANGE },
  { 0 }
};

/* Returns the output's size along axis 2 + i. */
static int64_t adaptive_size(const struct adaptive_param *p, int i)
{
  return p->output_size.n <= 0 ? 1 : p->output_size.d[p->output_size.n > 1 ? i : 0];
}

static int adaptive_shape(struct infer *s)
{
  ty_desc d = s->in[0];
  if (!d.ndim) return TY_OK;
  if (d.ndim != 4)
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "expected (batch, channels, height, width), got %d dimensions", d.ndim);
  for (int i = 0; i < 2; i++) {
    int64_t n = adaptive_size(s->param, i);
    if (n < 1)
      return infer_fail(
          s, TY_EVALUE, NULL, "output_size: expected positive numbers, got %lld", (long long)n);
    d.dim[2 + i] = n;
  }
  return shape_as(s, &s->out[0], &d);
}

struct adaptive {
  const struct vec_ops *r;
  const ty_desc *in, *out;
  const void *x;
  void *y;
  bool back;
};

/* Computes the mean of a window, or distributes its gradient. */
static void adaptive_window(const struct adaptive *p, int64_t plane, int64_t oy, int64_t ox)
{
  const struct vec_ops *r = p->r;
  int64_t h = p->in->dim[2], w = p->in->dim[3], oh = p->out->dim[2], ow = p->out->dim[3],
          cell = (plane * oh + oy) * ow + ox;
  int64_t y0 = window_from(oy, h, oh), y1 = window_to(oy, h, oh), x0 = window_from(ox, w, ow),
          x1 = window_to(ox, w, ow);
  double count = (double)((y1 - y0) * (x1 - x0)), sum = 0;
  for (int64_t y = y0; y < y1; y++) {
    int64_t line = (plane * h + y) * w + x0;
    if (p->back)
      r->affine(
          vec_at(r, p->y, line), vec_at(r, p->y, line), 1, r->get(p->x, cell) / count, x1 - x0);
    else
      sum += r->sum(vec_at(r, p->x, line), x1 - x0);
  }
  if (!p->back) r->set(p->y, cell, sum / count);
}

static void adaptive_body(int64_t begin, int64_t end, void *context)
{
  const struct adaptive *p = context;
  int64_t size = p->in->dim[2] * p->in->dim[3];
  for (int64_t i = begin; i < end; i++) {
    if (p->back) memset(vec_at(p->r, p->y, i * size), 0, p->r->size * (size_t)size);
    for (int64_t y = 0; y < p->out->dim[2]; y++)
      for (int64_t x = 0; x < p->out->dim[3]; x++) adaptive_window(p, i, y, x);
  }
}

static int adaptive_run(const ty_desc *in, const ty_desc *out, const void *x, void *y, bool back)
{
  struct adaptive p = { vec_ops_of(in->dtype), in, out, x, y, back };
  if (y)
    parallel_for(in->dim[0] * in->dim[1], elements_ns(in->dim[2] * in->dim[3]), adaptive_body, &p);
  return TY_OK;
}

static int adaptive_forward(struct call *c)
{
  return adaptive_run(&c->in[0].d, &c->out[0].d, c->in[0].p, c->out[0].p, false);
}
static int adaptive_backward(struct call *c)
{
  return adaptive_run(&c->out[0].d, &c->in[0].d, c->in[0].p, c->out[0].p, true);
}
static const struct kernel adaptive_cpu[] = { { "rows", adaptive_forward, T_FLOAT }, { 0 } };
static const struct kernel adaptive_back_cpu[] = { { "rows", adaptive_backward, T_FLOAT }, { 0 } };

const struct op op_adaptive_pooling[] = {
  { .name = "_contrib_AdaptiveAvgPooling2D", .in = "data",
    .doc = "Mean over windows chosen so that the output has output_size: (batch, channels, height, width).",
    .param = adaptive_params, .param_size = sizeof(struct adaptive_param), .shape = adaptive_shape, .grad = "g0",
    .cpu = adaptive_cpu, .back_cpu = adaptive_back_cpu },
  { 0 }
};
