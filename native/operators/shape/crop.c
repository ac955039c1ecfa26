/* crop.c - Crop: a window of the two last axes of (batch, channels, height, width), whose size is
** given or that of a second input. */
#include "kernel/strided_copy.h"
#include "op/op.h"

struct crop_param { int64_t num_args, center_crop; struct dims offset, h_w; };
static const struct param crop_params[] = {
  { "num_args",    P_INT,   offsetof(struct crop_param, num_args),    NULL,
    "inputs: 1, or 2 to take the size from the second", NULL, "[1,3]" },
  { "offset",      P_SHAPE, offsetof(struct crop_param, offset),      "(0, 0)", "where the window begins", NULL, SIZES_RANGE },
  { "h_w",         P_SHAPE, offsetof(struct crop_param, h_w),         "(0, 0)", "size of the window, for one input", NULL, SIZES_RANGE },
  { "center_crop", P_BOOL,  offsetof(struct crop_param, center_crop), "0",
    "the window is in the middle; offset has no effect" },
  { 0 }
};

static int crop_check(void *param)
{
  const struct crop_param *p = param;
  NEED(p->offset.n == 2, TY_EVALUE, "parameter offset: expected 2 numbers, got %lld",
      (long long)p->offset.n);
  NEED(p->num_args > 1 || p->h_w.n == 2, TY_EVALUE, "parameter h_w: expected 2 numbers, got %lld",
      (long long)p->h_w.n);
  NEED(p->num_args > 1 || (p->h_w.d[0] > 0 && p->h_w.d[1] > 0), TY_EVALUE,
      "parameter h_w: expected positive numbers where there is no second input");
  return TY_OK;
}

/* Returns the first index of the window along axis 2 + i. */
static int64_t start_of(const struct crop_param *p, int i, int64_t from, int64_t to)
{
  return p->center_crop ? (from - to) / 2 : p->offset.d[i];
}

static int crop_shape(struct infer *s)
{
  const struct crop_param *p = s->param;
  ty_desc d = s->in[0];
  if (s->nin > 2) return infer_fail(s, TY_EVALUE, NULL, "expected 1 or 2 inputs, got %d", s->nin);
  if (!d.ndim || (s->nin > 1 && !s->in[1].ndim)) return TY_OK;
  for (int i = 0; i < s->nin; i++)
    if (s->in[i].ndim != 4)
      return infer_fail(s, TY_ESHAPE, &s->in[i], "expected 4 dimensions, got %d", s->in[i].ndim);
  for (int i = 0; i < 2; i++) {
    int64_t size = s->nin > 1 ? s->in[1].dim[2 + i] : p->h_w.d[i], from = d.dim[2 + i],
            start = start_of(p, i, from, size);
    if (from && size && (start < 0 || start + size > from))
      return infer_fail(s, TY_ESHAPE, &s->in[0],
          "a window of %lld from %lld does not fit in %lld on axis %d", (long long)size,
          (long long)start, (long long)from, 2 + i);
    d.dim[2 + i] = size;
  }
  return shape_as(s, &s->out[0], &d);
}

/* Copies the window of `whole` to `part` or, if `in`, `part` into the window. */
static int move_window(
    const struct call *c, const struct operand *whole, const struct operand *part, bool in)
{
  const struct crop_param *p = c->param;
  const int64_t *w = whole->d.dim, *n = part->d.dim;
  int64_t y = start_of(p, 0, w[2], n[2]), x = start_of(p, 1, w[3], n[3]);
  size_t size = dtype_size(whole->d.dtype);
  int64_t wide[3] = { w[2] * w[3], w[3], 1 }, dense[3] = { n[2] * n[3], n[3], 1 };
  int64_t dim[3] = { n[0] * n[1], n[2], n[3] };
  struct move m = { 0 };
  for (int i = 0; i < 3; i++)
    move_axis(&m, dim[i], in ? wide[i] : dense[i], in ? dense[i] : wide[i]);
  void *window = elements_at(whole->p, y * w[3] + x, size);
  return move_run(c->device, &m, in ? window : part->p, in ? part->p : window, size);
}

static int crop_forward(struct call *c)
{
  return c->out[0].p ? move_window(c, &c->in[0], &c->out[0], false) : TY_OK;
}

static int crop_backward(struct call *c)
{
  TRY(move_zeros(c, 1));
  TRY(move_zeros(c, 0));
  return c->out[0].p ? move_window(c, &c->out[0], &c->in[0], true) : TY_OK;
}

MOVE_ANYWHERE(crop_cpu, crop_forward)
MOVE_ANYWHERE(crop_back_cpu, crop_backward)

const struct op op_crop[] = {
  { .name = "Crop", .in = "arg*num_args",
    .doc = "A window of height and width h_w, or of the second input's, from offset or the middle of (batch, "
           "channels, height, width).",
    .param = crop_params, .param_size = sizeof(struct crop_param), .check = crop_check, .shape = crop_shape, .grad = "g0",
    .cpu = crop_cpu, .back_cpu = crop_back_cpu },
  { 0 }
};
