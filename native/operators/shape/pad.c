/* pad.c - Pad: a border around the pixels of (N, C, H, W) or (N, C, D, H, W).
**
** The border is a constant, the nearest pixel (edge), or a mirror image that does not repeat the
** outermost pixel (reflect). With a constant the gradient is a part of the head gradient;
** otherwise the gradient of a pixel is the sum over its copies, in the order of the output. A unit
** of parallel work is an image plane.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

enum { CONSTANT, EDGE, REFLECT };
struct pad { int64_t mode; struct dims pad_width; double constant_value; };
static const struct param pad_params[] = {
  { "mode",           P_ENUM,  offsetof(struct pad, mode),           NULL, "what the border holds",
    "constant|edge|reflect" },
  { "pad_width",      P_SHAPE, offsetof(struct pad, pad_width),      NULL,
    "elements before and after each axis: two numbers per axis, the first four 0" },
  { "constant_value", P_FLOAT, offsetof(struct pad, constant_value), "0",  "value of a constant border" },
  { 0 }
};

static int pad_shape(struct infer *s)
{
  const struct pad *p = s->param;
  const ty_desc *in = &s->in[0];
  int ndim = (int)(p->pad_width.n / 2);
  int64_t dim[TY_MAXDIM] = { 0 };
  if ((ndim != 4 && ndim != 5) || p->pad_width.n % 2)
    return infer_fail(s, TY_EVALUE, NULL, "pad_width: expected 8 or 10 entries, got %lld",
        (long long)p->pad_width.n);
  for (int i = 0; i < 2 * ndim; i++) {
    if (p->pad_width.d[i] < 0)
      return infer_fail(s, TY_EVALUE, NULL, "pad_width: expected 0 or more, got %lld",
          (long long)p->pad_width.d[i]);
    if (i < 4 && p->pad_width.d[i])
      return infer_fail(s, TY_EVALUE, NULL,
          "pad_width: batch and channels (the first four entries) cannot be padded");
  }
  if (!in->ndim) return TY_OK;
  if (in->ndim != ndim)
    return infer_fail(
        s, TY_ESHAPE, in, "it has %d dimensions, pad_width is for %d", in->ndim, ndim);
  for (int i = 0; i < ndim; i++) {
    int64_t before = p->pad_width.d[2 * i], after = p->pad_width.d[2 * i + 1];
    if (!in->dim[i]) continue;
    if (p->mode == REFLECT && MAX(before, after) >= in->dim[i])
      return infer_fail(s, TY_ESHAPE, in, "axis %d has size %lld, too small to reflect %lld", i,
          (long long)in->dim[i], (long long)MAX(before, after));
    dim[i] = in->dim[i] + before + after;
  }
  TRY(shape_is(s, &s->out[0], ndim, dim));
  for (int i = 0; i < 2; i++) TRY(shape_dim(s, &s->in[0], i, s->out[0].dim[i]));
  return TY_OK;
}

/* -- one plane (D, H, W) at a time ------------------------------------------------------------- */

struct pad_planes {
  char *small;                                        /* without the border */
  char *large;                                        /* with it */
  int64_t n[3];                                       /* sizes without the border */
  int64_t m[3];                                       /* sizes with it */
  int64_t before[3];                                  /* border before the first element */
  int64_t mode;
  size_t size;
  int dtype;
};

static struct pad_planes make_pad_planes(
    const struct pad *p, const struct operand *small, const struct operand *large)
{
  struct pad_planes a = { small->p, large->p, { 1, 1, 1 }, { 1, 1, 1 }, { 0 }, p->mode,
    dtype_size(small->d.dtype), small->d.dtype };
  for (int i = 2; i < small->d.ndim; i++) {
    int k = i + 3 - small->d.ndim;
    a.n[k] = small->d.dim[i];
    a.m[k] = large->d.dim[i];
    a.before[k] = p->pad_width.d[2 * i];
  }
  return a;
}

/* Returns the index along axis k of the element that is copied to index i of the padded axis. */
static int64_t source_index(const struct pad_planes *a, int k, int64_t i)
{
  int64_t j = i - a->before[k], n = a->n[k];
  if (a->mode == EDGE) return j < 0 ? 0 : j >= n ? n - 1 : j;
  return j < 0 ? -j : j >= n ? 2 * (n - 1) - j : j;
}

/* Writes rows begin .. end - 1 of the padded planes. */
static void fill_body(int64_t begin, int64_t end, void *context)
{
  const struct pad_planes *a = context;
  int64_t small = a->n[0] * a->n[1] * a->n[2];
  for (int64_t r = begin; r < end; r++) {
    int64_t h = r % a->m[1], d = r / a->m[1] % a->m[0], plane = r / a->m[1] / a->m[0],
            left = a->before[2];
    const char *from = elements_at(a->small,
        plane * small + (source_index(a, 0, d) * a->n[1] + source_index(a, 1, h)) * a->n[2],
        a->size);
    char *to = elements_at(a->large, r * a->m[2], a->size);
    memcpy(elements_at(to, left, a->size), from, (size_t)a->n[2] * a->size);
    for (int64_t j = 0; j < left; j++)
      memcpy(
          elements_at(to, j, a->size), elements_at(from, source_index(a, 2, j), a->size), a->size);
    for (int64_t j = left + a->n[2]; j < a->m[2]; j++)
      memcpy(
          elements_at(to, j, a->size), elements_at(from, source_index(a, 2, j), a->size), a->size);
  }
}

#define GATHER(T) \
static void gather_##T(const struct pad_planes *a, int64_t plane) \
{ \
  int64_t large = a->m[0] * a->m[1] * a->m[2], small = a->n[0] * a->n[1] * a->n[2]; \
  T *dx = (T *)a->small + plane * small; \
  const T *g = (const T *)a->large + plane * large; \
  memset(dx, 0, sizeof(T) * (size_t)small); \
  for (int64_t d = 0; d < a->m[0]; d++) \
    for (int64_t h = 0; h < a->m[1]; h++) { \
      T *row = dx + (source_index(a, 0, d) * a->n[1] + source_index(a, 1, h)) * a->n[2]; \
      for (int64_t w = 0; w < a->m[2]; w++) row[source_index(a, 2, w)] += *g++; \
    } \
}
GATHER(float)
GATHER(double)

static void gather_body(int64_t begin, int64_t end, void *context)
{
  const struct pad_planes *a = context;
  for (int64_t p = begin; p < end; p++)
    if (a->dtype == TY_F64)
      gather_double(a, p);
    else
      gather_float(a, p);
}

/* Copies the small array into the middle of the large one (`in`), or back. */
static int copy_middle(int device, const struct pad_planes *a, int64_t planes, bool in)
{
  struct move m = { 0 };
  int64_t row = a->m[2], small = a->n[2],
          at = (a->before[0] * a->m[1] + a->before[1]) * row + a->before[2];
  int64_t large[4] = { a->m[0] * a->m[1] * row, a->m[1] * row, row, 1 },
          dense[4] = { a->n[0] * a->n[1] * small, a->n[1] * small, small, 1 };
  int64_t dim[4] = { planes, a->n[0], a->n[1], a->n[2] };
  for (int i = 0; i < 4; i++)
    move_axis(&m, dim[i], in ? large[i] : dense[i], in ? dense[i] : large[i]);
  void *middle = elements_at(a->large, at, a->size);
  return move_run(device, &m, in ? middle : a->small, in ? a->small : middle, a->size);
}

/* -- a constant border: moves ------------------------------------------------------------------ */

static int64_t plane_count(const ty_desc *d) { return d->dim[0] * d->dim[1]; }

static const char *refuse_border(const struct call *c)
{
  return ((const struct pad *)c->param)->mode == CONSTANT ? NULL : "a border made of pixels";
}

/* Sets n elements of `size` bytes to *value. */
static void frame_fill(char *to, int64_t n, const uint64_t *value, size_t size)
{
  if (!*value)
    memset(to, 0, (size_t)n * size);
  else
    for (int64_t i = 0; i < n; i++) memcpy(elements_at(to, i, size), value, size);
}

struct frame { struct pad_planes a; uint64_t value; };

/* Writes rows begin .. end - 1 of the padded planes, each element once. */
static void frame_body(int64_t begin, int64_t end, void *context)
{
  const struct frame *f = context;
  const struct pad_planes *a = &f->a;
  for (int64_t r = begin; r < end; r++) {
    const int64_t h = r % a->m[1] - a->before[1], d = r / a->m[1] % a->m[0] - a->before[0],
                  plane = r / a->m[1] / a->m[0], left = a->before[2], right = left + a->n[2];
    char *to = elements_at(a->large, r * a->m[2], a->size);
    if (h < 0 || h >= a->n[1] || d < 0 || d >= a->n[0]) {
      frame_fill(to, a->m[2], &f->value, a->size);
      continue;
    }
    frame_fill(to, left, &f->value, a->size);
    memcpy(elements_at(to, left, a->size),
        elements_at(a->small, ((plane * a->n[0] + d) * a->n[1] + h) * a->n[2], a->size),
        (size_t)a->n[2] * a->size);
    frame_fill(elements_at(to, right, a->size), a->m[2] - right, &f->value, a->size);
  }
}

static int frame_run(struct call *c)
{
  const struct pad *p = c->param;
  struct pad_planes a = make_pad_planes(p, &c->in[0], &c->out[0]);
  uint64_t value = 0;
  set_number(&value, a.dtype, p->constant_value);
  if (c->device == TY_CPU) {
    struct frame f = { a, value };
    parallel_for(plane_count(&c->out[0].d) * a.m[0] * a.m[1], cost_ns(NS_MOVE, a.m[2]), frame_body,
        &f);
    return TY_OK;
  }
  TRY(move_fill(c->device, a.large, &value, a.size, desc_count(&c->out[0].d)));
  return copy_middle(c->device, &a, plane_count(&c->out[0].d), true);
}

static int frame_back(struct call *c)
{
  struct pad_planes a = make_pad_planes(c->param, &c->out[0], &c->in[0]);
  return a.small ? copy_middle(c->device, &a, plane_count(&c->in[0].d), false) : TY_OK;
}

/* -- a border made of pixels ------------------------------------------------------------------- */

static int border_run(struct call *c)
{
  struct pad_planes a = make_pad_planes(c->param, &c->in[0], &c->out[0]);
  int64_t rows = plane_count(&c->out[0].d) * a.m[0] * a.m[1];
  parallel_for(rows, cost_ns(NS_MOVE, a.m[2]), fill_body, &a);
  return TY_OK;
}

static int border_back(struct call *c)
{
  struct pad_planes a = make_pad_planes(c->param, &c->out[0], &c->in[0]);
  double ns = elements_ns(a.m[0] * a.m[1] * a.m[2]);
  if (a.small) parallel_for(plane_count(&c->in[0].d), ns, gather_body, &a);
  return TY_OK;
}

static const struct kernel pad_kernels[] = {
  { .name = "move", .run = frame_run, .types = T_ANY, .refuse = refuse_border, .flags = K_ANYWHERE },
  { .name = "move", .run = border_run, .types = T_ANY }, { 0 }
};
static const struct kernel pad_back_kernels[] = {
  { .name = "move", .run = frame_back, .types = T_ANY, .refuse = refuse_border, .flags = K_ANYWHERE },
  { .name = "gather", .run = border_back, .types = T_FLOAT }, { 0 }
};

const struct op op_pad[] = {
  { .name = "Pad", .alias = "pad",
    .doc = "Adds a border around the pixels of 4-D or 5-D data: a constant, the nearest pixel, or a mirror image. "
           "Pixels gather the gradients of their copies.",
    .in = "data", .param = pad_params, .param_size = sizeof(struct pad), .shape = pad_shape,
    .grad = "g0", .cpu = pad_kernels, .back_cpu = pad_back_kernels, .flags = OP_NAMED_INPUT },
  { 0 }
};
