/* images.c - _image_to_tensor, _image_normalize, _cvcopyMakeBorder, _image_random_flip_*
** (kernels/images.cu). */
#include "cuda/family.h"
#include "kernel/vec/vec.h"
#include "op/registry.h"

/* Images (..., height, width, channels) and planes (..., channels, height, width). */
static int run_planes(const struct call *c, const ty_desc *image, const char *name)
{
  const int64_t *dim = image->dim + image->ndim - 3;
  int64_t n = desc_count(image), pixels = dim[0] * dim[1], channels = dim[2];
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_images, name, &f, "T=%s", cuda_type(image->dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &n, &pixels, &channels };
  return cuda_run(c, f, n, params);
}

static int to_planes(struct call *c) { return run_planes(c, &c->in[0].d, "to_planes"); }
static int to_planes_back(struct call *c) { return run_planes(c, &c->out[0].d, "to_planes_back"); }

struct normalize_args {
  int64_t n, pixels, channels, one_mean, one_deviation;
  double  mean[128], deviation[128];
};
static int scale_planes(const struct call *c, int32_t back)
{
  const ty_desc *d = &c->in[0].d;
  const int64_t *dim = d->dim + d->ndim - 3;
  const struct reals *mean = op_reals(c->op, c->param, "mean"),
                     *deviation = op_reals(c->op, c->param, "std");
  struct normalize_args s = { desc_count(d), dim[1] * dim[2], dim[0], mean->n == 1,
    deviation->n == 1 };
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  for (int i = 0; i < COUNT(s.mean); i++) {
    s.mean[i] = i < mean->n ? mean->d[i] : 0;
    s.deviation[i] = i < deviation->n ? deviation->d[i] : 1;
  }
  TRY(cuda_family(c->device, FAMILY_images, "normalize", &f, "T=%s", cuda_type(d->dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &back, &s };
  return cuda_run(c, f, s.n, params);
}

static int normalize_planes(struct call *c) { return scale_planes(c, 0); }
static int normalize_back(struct call *c) { return scale_planes(c, 1); }

/* neutral numbers serve any number of channels */
static const char *refuse_normalize(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return d->dim[d->ndim - 3] > 128 ? "more than 128 channels" : NULL;
}

/* -- one image --------------------------------------------------------------------------------- */

/* as kernels/images.cu has it */
struct border_args {
  int64_t n, h, w, channels, width, top, left;
  double value[4];
  int32_t kind;
};

static int add_border(struct call *c)
{
  const int64_t *from = c->in[0].d.dim, *to = c->out[0].d.dim;
  const struct reals *values = op_reals(c->op, c->param, "values");
  struct border_args s = { desc_count(&c->out[0].d), from[0], from[1], from[2], to[1],
    (int64_t)cuda_number(c, "top", 0), (int64_t)cuda_number(c, "left", 0) };
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  for (int i = 0; i < 4; i++)
    s.value[i] = i < values->n ? values->d[i] : values->n > 0 ? 0 : cuda_number(c, "value", 0);
  s.kind = (int32_t)cuda_number(c, "type", 0);
  TRY(cuda_family(c->device, FAMILY_images, "add_border", &f, "T=%s",
      cuda_type(c->in[0].d.dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &s };
  return cuda_run(c, f, s.n, params);
}

/* what: the axis */
static int flip_at_random(struct call *c)
{
  struct cuda_draw_key key = cuda_draw_key(c);
  struct split s = split_at(&c->in[0].d, cuda_what(c));
  int64_t n = desc_count(&c->in[0].d);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_images, "flip_at_random", &f, "T=%s",
      cuda_type(c->in[0].d.dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &n, &s.k, &s.inner, &key };
  return cuda_run(c, f, n, params);
}

static const struct kernel tensors[] = { { "pixels", to_planes, T_ANY }, { 0 } };
static const struct kernel tensors_back[] = { { "pixels", to_planes_back, T_FLOAT }, { 0 } };
static const struct kernel normalized[] = {
  { "planes", normalize_planes, T_FLOAT, refuse_normalize }, { 0 }
};
static const struct kernel normalized_back[] = {
  { "planes", normalize_back, T_FLOAT, refuse_normalize }, { 0 }
};

static const struct kernel borders[] = {
  { "pixels", add_border, T(TY_U8) | T(TY_F32) }, { 0 }
};
static const struct kernel flips[] = {
  { "pixels", flip_at_random, T_ANY, .flags = K_DRAWS_THERE }, { 0 }
};

const struct op_kernels cuda_images[] = {
  { "_image_to_tensor", tensors, tensors_back },
  { "_image_normalize", normalized, normalized_back },
  { "_cvcopyMakeBorder", borders, NULL },
  { "_image_random_flip_top_bottom", flips, NULL, 0 },
  { "_image_random_flip_left_right", flips, NULL, 1 },
  { 0 }
};
