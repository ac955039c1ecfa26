/* images.c - _image_to_tensor, _image_normalize (kernels/images.cu). */
#include "cuda/family.h"
#include "op/registry.h"

/* Images (..., height, width, channels) and planes (..., channels, height, width). */
static int planes(const struct call *c, const ty_desc *image, const char *name)
{
  const int64_t *dim = image->dim + image->ndim - 3;
  int64_t n = desc_count(image), pixels = dim[0] * dim[1], channels = dim[2];
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_images, name, &f, "T=%s", cuda_type(image->dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &n, &pixels, &channels };
  return cuda_run(c, f, n, params);
}

static int to_planes(struct call *c) { return planes(c, &c->in[0].d, "to_planes"); }
static int to_planes_back(struct call *c) { return planes(c, &c->out[0].d, "to_planes_back"); }

struct normalize_args {
  int64_t n, pixels, channels, one_mean, one_deviation;
  double  mean[128], deviation[128];
};
static int scale(const struct call *c, int32_t back)
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

static int normalize(struct call *c) { return scale(c, 0); }
static int normalize_back(struct call *c) { return scale(c, 1); }

/* neutral numbers serve any number of channels */
static const char *refuse(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return d->dim[d->ndim - 3] > 128 ? "more than 128 channels" : NULL;
}

static const struct kernel tensors[] = { { "pixels", to_planes, T_ANY }, { 0 } };
static const struct kernel tensors_back[] = { { "pixels", to_planes_back, T_FLOAT }, { 0 } };
static const struct kernel normalized[] = { { "planes", normalize, T_FLOAT, refuse }, { 0 } };
static const struct kernel normalized_back[] = {
  { "planes", normalize_back, T_FLOAT, refuse }, { 0 }
};

const struct op_kernels cuda_images[] = {
  { "_image_to_tensor", tensors, tensors_back },
  { "_image_normalize", normalized, normalized_back },
  { 0 }
};
