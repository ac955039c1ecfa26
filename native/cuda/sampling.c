/* sampling.c - BilinearSampler, GridGenerator, SpatialTransformer (kernels/sampler.cu), and the sum
** of taps (taps.h). */
#include "cuda/row.h"
#include "cuda/taps.h"
#include "kernel/vec/vec.h"

int cuda_add_taps(
    const struct call *c, int dtype, const struct cuda_taps *t, void *dx, const void *dy)
{
  void *keys = t->keys;
  TRY(cuda_sort_keys(c, &keys, t->space, t->taps, t->taps));
  return cuda_start_words(c, FAMILY_taps, "add_taps", t->taps * t->channels,
      (void *[]){ &dx, &dy, &keys, (void *)&t->weight, (void *)t }, "T=%s", cuda_type(dtype));
}

#define WORDS "T=$o0 REAL=T T_NAME(x)=x TEAM=256"

/* -- sampling ---------------------------------------------------------------------------------- */

/* Same as in kernels/sampler.cu. n: positions per image. */
struct sampler_args { int64_t images, c, h, w, n; };
static struct sampler_args make_args(const ty_desc *data, int64_t positions)
{
  return (struct sampler_args){ data->dim[0], data->dim[1], data->dim[2], data->dim[3], positions };
}

static int sample_grid(
    const struct call *c, const struct operand *x, void *grid, int64_t positions, void *y)
{
  struct sampler_args s = make_args(&x->d, positions);
  if (!y) return TY_OK;
  return cuda_start(c, FAMILY_sampler, "sample", WORDS, s.images * s.c * s.n,
      (void *[]){ &y, (void *)&x->p, &grid, &s });
}

/* Computes gradients of sampling; input 0 is the head gradient. dgrid and dx->p: NULL if unused;
** at: scratch for taps. */
static int sample_back(const struct call *c, const struct operand *x, void *grid, int64_t positions,
    const struct operand *dx, void *dgrid, char *at)
{
  struct sampler_args s = make_args(&x->d, positions);
  struct cuda_taps t = { 4 * s.images * s.n, s.c, s.n, 4, s.h * s.w };
  int dtype = x->d.dtype;
  if (dgrid)
    TRY(cuda_start(c, FAMILY_sampler, "sample_back_grid", WORDS, s.images * s.n,
        (void *[]){ &dgrid, &c->in[0].p, (void *)&x->p, &grid, &s }));
  if (!dx->p) return TY_OK;
  TRY(cuda_zero(c, dx));
  cuda_taps_divide(&t, dtype_size(dtype), &at);
  TRY(cuda_start(c, FAMILY_sampler, "list_corners", WORDS, s.images * s.n,
      (void *[]){ &t.keys, &t.weight, &grid, &s }));
  return cuda_add_taps(c, dtype, &t, dx->p, c->in[0].p);
}

static int64_t positions_of(const ty_desc *d) { return d->dim[2] * d->dim[3]; }

static size_t taps_scratch(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return cuda_taps_bytes(4 * d->dim[0] * positions_of(d), dtype_size(d->dtype));
}

static int sampler_forward(struct call *c)
{
  TRY(cuda_zero(c, &c->out[1]));
  return sample_grid(c, &c->in[0], c->in[1].p, positions_of(&c->in[1].d), c->out[0].p);
}

/* Computes the gradients; in: head gradient, data, grid. */
static int sampler_backward(struct call *c)
{
  return sample_back(c, &c->in[1], c->in[2].p, positions_of(&c->in[2].d), &c->out[0], c->out[1].p,
      c->tmp);
}

/* -- grids ------------------------------------------------------------------------------------- */

static int write_regular_grid(const struct call *c, void *grid, const ty_desc *d, bool pixels)
{
  int64_t h = d->dim[2], w = d->dim[3];
  int32_t in_pixels = pixels;
  if (!grid) return TY_OK;
  return cuda_start(c, FAMILY_sampler, "regular", WORDS, h * w,
      (void *[]){ &grid, &h, &w, &in_pixels });
}

static int map_grid(const struct call *c, const ty_desc *grid, void *to, const void *theta)
{
  int64_t images = grid->dim[0], h = grid->dim[2], w = grid->dim[3];
  return cuda_start(c, FAMILY_sampler, "affine", WORDS, images * 2 * h * w,
      (void *[]){ &to, &theta, &images, &h, &w });
}

static int map_back(const struct call *c, const ty_desc *grid, void *dtheta, const void *dgrid)
{
  int64_t images = grid->dim[0], h = grid->dim[2], w = grid->dim[3];
  return cuda_start(c, FAMILY_sampler, "affine_back", WORDS, images * 6 * CUDA_BLOCK,
      (void *[]){ &dtheta, &dgrid, &images, &h, &w });
}

static int warp_grid(const struct call *c, int32_t back)
{
  const ty_desc *d = &c->out[0].d;
  int64_t images = d->dim[0], h = d->dim[2], w = d->dim[3];
  return cuda_start(c, FAMILY_sampler, "warp", WORDS, desc_count(d),
      (void *[]){ &c->out[0].p, &c->in[0].p, &images, &h, &w, &back });
}

static bool is_warp(const struct call *c) { return cuda_word(c, "transform_type", "warp"); }

static int grid_forward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  TRY(write_regular_grid(c, c->out[1].p, d, is_warp(c)));
  if (!c->out[0].p) return TY_OK;
  return is_warp(c) ? warp_grid(c, 0) : map_grid(c, d, c->out[0].p, c->in[0].p);
}

static int grid_backward(struct call *c)
{
  if (!c->out[0].p) return TY_OK;
  return is_warp(c) ? warp_grid(c, 1) : map_back(c, &c->in[0].d, c->out[0].p, c->in[0].p);
}

/* -- SpatialTransformer ------------------------------------------------------------------------ */

static size_t grid_bytes(const ty_desc *image)
{
  size_t size = dtype_size(image->dtype);
  return align_up(size * (size_t)(2 * image->dim[0] * positions_of(image)), ALIGN);
}
static size_t transformer_scratch(const struct call *c) { return grid_bytes(&c->out[0].d); }
static size_t transformer_back_scratch(const struct call *c)
{
  return grid_bytes(&c->in[0].d) + taps_scratch(c);
}

static int transformer_forward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  void *grid = c->out[2].p ? c->out[2].p : c->tmp;
  TRY(write_regular_grid(c, c->out[1].p, d, false));
  TRY(map_grid(c, d, grid, c->in[1].p));
  return sample_grid(c, &c->in[0], grid, positions_of(d), c->out[0].p);
}

/* Computes the gradients; in: head gradient, data, grid. */
static int transformer_backward(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  char *at = c->tmp;
  void *dgrid = cuda_piece(&at, grid_bytes(d)), *dtheta = c->out[1].p;
  TRY(sample_back(
      c, &c->in[1], c->in[2].p, positions_of(d), &c->out[0], dtheta ? dgrid : NULL, at));
  return dtheta ? map_back(c, d, dtheta, dgrid) : TY_OK;
}

#define KERNEL(table, run, bytes) \
  static const struct kernel table[] = { { "positions", run, T_FLOAT, .scratch = bytes }, { 0 } };
KERNEL(samplers, sampler_forward, NULL)
KERNEL(samplers_back, sampler_backward, taps_scratch)
KERNEL(grids, grid_forward, NULL)
KERNEL(grids_back, grid_backward, NULL)
KERNEL(transformers, transformer_forward, transformer_scratch)
KERNEL(transformers_back, transformer_backward, transformer_back_scratch)

const struct op_kernels cuda_sampling[] = {
  { "BilinearSampler", samplers, samplers_back },
  { "GridGenerator", grids, grids_back },
  { "SpatialTransformer", transformers, transformers_back },
  { 0 }
};
