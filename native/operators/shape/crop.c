/* crop.c - Crop: a window of the two last axes of (batch, channels, height, width), of given
** size or a second input's. */
#include "kernel/vec/vec.h"
#include "op/op.h"

struct crop_param { int64_t num_args, center_crop; struct dims offset, h_w; };
static const struct param crop_params[] = {
  { "num_args",    P_INT,   offsetof(struct crop_param, num_args),    NULL,
    "inputs: 1, or 2 to take the size from the second", NULL, "[1,3]" },
  { "offset",      P_SHAPE, offsetof(struct crop_param, offset),      "(0, 0)", "where the window begins", NULL, SIZES_RANGE },
  { "h_w",         P_SHAPE, offsetof(struct crop_param, h_w),         "(0, 0)", "size of the window, for one input", NULL, SIZES_RANGE },
  { "center_crop", P_BOOL,  offsetof(struct crop_param, center_crop), "0",
    "the window lies in the middle; offset has no effect" },
  { 0 }
};

static int crop_check(void *param)
{
  const struct crop_param *p = param;
  NEED(p->offset.n == 2, TY_EVALUE, "Crop: offset: expected 2 numbers, got %lld",
      (long long)p->offset.n);
  NEED(p->num_args > 1 || p->h_w.n == 2, TY_EVALUE, "Crop: h_w: expected 2 numbers, got %lld",
      (long long)p->h_w.n);
  NEED(p->num_args > 1 || (p->h_w.d[0] > 0 && p->h_w.d[1] > 0), TY_EVALUE,
      "Crop: h_w: expected positive numbers where there is no second input");
  return TY_OK;
}

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

struct crop {
  const ty_desc *whole, *part;
  size_t size;
  int64_t y, x;
  char *to;
  const char *from;
  bool back;
};

static struct crop crop_of(const struct call *c, const ty_desc *whole, const ty_desc *part)
{
  const struct crop_param *p = c->param;
  return (struct crop){ whole, part, dtype_size(whole->dtype),
    start_of(p, 0, whole->dim[2], part->dim[2]), start_of(p, 1, whole->dim[3], part->dim[3]), NULL,
    NULL, false };
}

static void crop_body(int64_t begin, int64_t end, void *context)
{
  const struct crop *k = context;
  int64_t h = k->whole->dim[2], w = k->whole->dim[3], ph = k->part->dim[2], pw = k->part->dim[3];
  for (int64_t i = begin; i < end; i++) {
    if (k->back) memset(k->to + (size_t)(i * h * w) * k->size, 0, (size_t)(h * w) * k->size);
    for (int64_t y = 0; y < ph; y++) {
      size_t whole = (size_t)((i * h + k->y + y) * w + k->x) * k->size,
             part = (size_t)((i * ph + y) * pw) * k->size;
      memcpy(k->to + (k->back ? whole : part), k->from + (k->back ? part : whole),
          (size_t)pw * k->size);
    }
  }
}

static int crop_forward(struct call *c)
{
  struct crop k = crop_of(c, &c->in[0].d, &c->out[0].d);
  k.to = c->out[0].p;
  k.from = c->in[0].p;
  if (k.to)
    parallel_for(k.whole->dim[0] * k.whole->dim[1], grain_of(k.part->dim[2] * k.part->dim[3]),
        crop_body, &k);
  return TY_OK;
}

static int crop_backward(struct call *c)
{
  struct crop k = crop_of(c, &c->out[0].d, &c->in[0].d);
  k.to = c->out[0].p;
  k.from = c->in[0].p;
  k.back = true;
  if (c->nout > 1 && c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  if (k.to)
    parallel_for(k.whole->dim[0] * k.whole->dim[1], grain_of(k.whole->dim[2] * k.whole->dim[3]),
        crop_body, &k);
  return TY_OK;
}

static const struct kernel crop_cpu[] = { { "rows", crop_forward, T_ANY }, { 0 } };
static const struct kernel crop_back_cpu[] = { { "rows", crop_backward, T_ANY }, { 0 } };

const struct op op_crop[] = {
  { .name = "Crop", .in = "arg*num_args",
    .doc = "A window of height and width h_w, or of the second input's, from offset or the middle of (batch, "
           "channels, height, width).",
    .param = crop_params, .param_size = sizeof(struct crop_param), .check = crop_check, .shape = crop_shape, .grad = "g0",
    .cpu = crop_cpu, .back_cpu = crop_back_cpu },
  { 0 }
};
