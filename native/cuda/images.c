/* images.c - _image_to_tensor, _image_normalize, _cvcopyMakeBorder, _image_random_flip_*
** (kernels/images.cu). */
#include "cuda/row.h"
#include "kernel/vec/vec.h"
#include "op/registry.h"

/* Images (..., height, width, channels) and planes (..., channels, height, width). */
struct plane_args { int64_t n, pixels, channels; };
static int64_t plane_sizes(const struct call *c, const ty_desc *image, void *s)
{
  const int64_t *dim = image->dim + image->ndim - 3;
  *(struct plane_args *)s = (struct plane_args){ desc_count(image), dim[0] * dim[1], dim[2] };
  return desc_count(image);
}

static int64_t to_planes_sizes(const struct call *c, void *s)
{
  return plane_sizes(c, &c->in[0].d, s);
}

static int64_t to_planes_back_sizes(const struct call *c, void *s)
{
  return plane_sizes(c, &c->out[0].d, s);
}

/* Parameter `back` of the kernel, then its struct normalize_args. */
struct normalize_args {
  int64_t back, n, pixels, channels, one_mean, one_deviation;
  double  mean[128], deviation[128];
};
static int64_t normalize_sizes(const struct call *c, int64_t back, void *to)
{
  const ty_desc *d = &c->in[0].d;
  const int64_t *dim = d->dim + d->ndim - 3;
  const struct reals *mean = op_reals(c->op, c->param, "mean"),
                     *deviation = op_reals(c->op, c->param, "std");
  struct normalize_args *s = to;
  *s = (struct normalize_args){ back, desc_count(d), dim[1] * dim[2], dim[0], mean->n == 1,
    deviation->n == 1 };
  for (int i = 0; i < COUNT(s->mean); i++) {
    s->mean[i] = i < mean->n ? mean->d[i] : 0;
    s->deviation[i] = i < deviation->n ? deviation->d[i] : 1;
  }
  return s->n;
}

static int64_t forward_sizes(const struct call *c, void *s) { return normalize_sizes(c, 0, s); }
static int64_t backward_sizes(const struct call *c, void *s) { return normalize_sizes(c, 1, s); }

/* Refuses more than 128 channels. The operator accepts any number of them if mean and std have no
** effect. */
static const char *refuse_normalize(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return d->dim[d->ndim - 3] > 128 ? "more than 128 channels" : NULL;
}

/* -- one image --------------------------------------------------------------------------------- */

/* Same as in kernels/images.cu. */
struct border_args {
  int64_t n, h, w, channels, width, top, left;
  double value[4];
  int32_t kind;
};

static int64_t border_sizes(const struct call *c, void *to)
{
  const int64_t *in = c->in[0].d.dim, *out = c->out[0].d.dim;
  const struct reals *values = op_reals(c->op, c->param, "values");
  struct border_args *s = to;
  *s = (struct border_args){ desc_count(&c->out[0].d), in[0], in[1], in[2], out[1],
    (int64_t)cuda_number(c, "top", 0), (int64_t)cuda_number(c, "left", 0) };
  for (int i = 0; i < 4; i++)
    s->value[i] = i < values->n ? values->d[i] : values->n > 0 ? 0 : cuda_number(c, "value", 0);
  s->kind = (int32_t)cuda_number(c, "type", 0);
  return s->n;
}

/* Sizes of a flip. The axis is cuda_what. */
struct flip_args { int64_t n, size, inner; };
static int64_t flip_sizes(const struct call *c, void *s)
{
  struct split at = split_at(&c->in[0].d, cuda_what(c));
  int64_t n = desc_count(&c->in[0].d);
  *(struct flip_args *)s = (struct flip_args){ n, at.k, at.inner };
  return n;
}

#define ROW(table, shown, kernel_, words, arguments, sizes, ...) \
  static const struct kernel table[] = { \
    { shown, CUDA_ROW(FAMILY_images, kernel_, words, arguments, sizes), __VA_ARGS__ }, { 0 } };
ROW(tensors, "pixels", "to_planes", "T=$i0", "o0 i0 s0 s1 s2", to_planes_sizes, .types = T_ANY)
ROW(tensors_back, "pixels", "to_planes_back", "T=$o0", "o0 i0 s0 s1 s2", to_planes_back_sizes,
    .types = T_FLOAT)
ROW(normalized, "planes", "normalize", "T=$i0", "o0 i0 s0 s1", forward_sizes, .types = T_FLOAT,
    .refuse = refuse_normalize)
ROW(normalized_back, "planes", "normalize", "T=$i0", "o0 i0 s0 s1", backward_sizes,
    .types = T_FLOAT, .refuse = refuse_normalize)
ROW(borders, "pixels", "add_border", "T=$i0", "o0 i0 s", border_sizes,
    .types = T(TY_U8) | T(TY_F32))
ROW(flips, "pixels", "flip_at_random", "T=$i0", "o0 i0 s0 s1 s2 key", flip_sizes, .types = T_ANY,
    .flags = K_DRAWS_ON_DEVICE)

const struct op_kernels cuda_images[] = {
  { "_image_to_tensor", tensors, tensors_back },
  { "_image_normalize", normalized, normalized_back },
  { "_cvcopyMakeBorder", borders, NULL },
  { "_image_random_flip_top_bottom", flips, NULL, 0 },
  { "_image_random_flip_left_right", flips, NULL, 1 },
  { 0 }
};
