/* spatial_transformer.c - SpatialTransformer, GridGenerator, BilinearSampler.
**
** A grid (batch, 2, h, w) holds for each position of the output the position in the input that it
** reads: x, then y; -1 and 1 are the centres of the outermost pixels. A regular grid holds the
** output's own positions.
*/
#include "kernel/vec/sampler.h"
#include "op/op.h"

enum { AFFINE, WARP };

/* Writes planes (h, w) of x, y and ones, x and y in -1 .. 1; with `pixels`, only x and y, in
** pixels. out: NULL: does nothing. */
static void regular_grid(const struct vec_ops *r, void *out, int64_t h, int64_t w, bool pixels)
{
  for (int64_t i = 0; out && i < h; i++)
    for (int64_t j = 0; j < w; j++) {
      double x = pixels ? (double)j : w > 1 ? -1 + 2 * (double)j / (double)(w - 1) : -1;
      double y = pixels ? (double)i : h > 1 ? -1 + 2 * (double)i / (double)(h - 1) : -1;
      r->set(out, i * w + j, x);
      r->set(out, (h + i) * w + j, y);
      if (!pixels) r->set(out, (2 * h + i) * w + j, 1);
    }
}

/* Checks that a shape, if known, has four dimensions. what: for the error. */
static int image_only(struct infer *s, const ty_desc *slot, const char *what)
{
  if (!slot->ndim || slot->ndim == 4) return TY_OK;
  return infer_fail(s, TY_ESHAPE, slot, "expected %s, got %d dimensions", what, slot->ndim);
}

static int positive_target(const struct dims *t)
{
  NEED(t->n == 2 && t->d[0] > 0 && t->d[1] > 0, TY_EVALUE,
      "parameter target_shape: expected two positive numbers");
  return TY_OK;
}

/* -- sampling ---------------------------------------------------------------------------------- */

/* Forward sets x, grid and y; backward sets x, grid, dy, dx and dgrid. */
struct sampling {
  const struct vec_ops *r;
  struct image s;
  const void *x, *grid, *dy;
  void *y, *dx, *dgrid;
};

static void sample_body(int64_t begin, int64_t end, void *context)
{
  const struct sampling *k = context;
  const struct vec_ops *r = k->r;
  int64_t in = k->s.c * k->s.h * k->s.w, out = k->s.c * k->s.n;
  for (int64_t i = begin; i < end; i++) {
    void *x = vec_at(r, k->x, i * in), *grid = vec_at(r, k->grid, i * 2 * k->s.n),
         *dx = vec_at(r, k->dx, i * in);
    if (k->y) r->sampler->sample(vec_at(r, k->y, i * out), x, grid, &k->s);
    if (dx) memset(dx, 0, r->size * (size_t)in);
    if (k->dy)
      r->sampler->sample_back(
          dx, vec_at(r, k->dgrid, i * 2 * k->s.n), vec_at(r, k->dy, i * out), x, grid, &k->s);
  }
}

static void sample_run(struct sampling *k, const ty_desc *data, int64_t positions)
{
  k->r = vec_ops_of(data->dtype);
  k->s = (struct image){ data->dim[1], data->dim[2], data->dim[3], positions };
  parallel_for(data->dim[0], elements_ns(8 * k->s.c * positions), sample_body, k);
}

static int sampler_shape(struct infer *s)
{
  ty_desc d = s->in[0], grid = s->in[1];
  TRY(image_only(s, &s->in[0], "(batch, channels, height, width)"));
  TRY(image_only(s, &s->in[1], "(batch, 2, height, width)"));
  if (!d.ndim || !grid.ndim) return TY_OK;
  TRY(shape_dim(s, &s->in[1], 0, d.dim[0]));
  TRY(shape_dim(s, &s->in[1], 1, 2));
  int64_t out[4] = { d.dim[0], d.dim[1], grid.dim[2], grid.dim[3] },
          tmp[4] = { d.dim[0], grid.dim[2], grid.dim[3], 2 };
  TRY(shape_is(s, &s->out[1], 4, tmp));
  return shape_is(s, &s->out[0], 4, out);
}

static int sampler_forward(struct call *c)
{
  struct sampling k = { .x = c->in[0].p, .grid = c->in[1].p, .y = c->out[0].p };
  if (c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  sample_run(&k, &c->in[0].d, c->in[1].d.dim[2] * c->in[1].d.dim[3]);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, data, grid. */
static int sampler_backward(struct call *c)
{
  struct sampling k = {
    .dy = c->in[0].p, .x = c->in[1].p, .grid = c->in[2].p, .dx = c->out[0].p, .dgrid = c->out[1].p
  };
  sample_run(&k, &c->in[1].d, c->in[2].d.dim[2] * c->in[2].d.dim[3]);
  return TY_OK;
}

struct sampler_param { int64_t cudnn_off; };
static const struct param sampler_params[] = {
  { "cudnn_off", P_BOOL, offsetof(struct sampler_param, cudnn_off), "None", "without effect on results", NULL, NULL, 1 },
  { 0 }
};
static const struct kernel sampler_cpu[] = { { "positions", sampler_forward, T_FLOAT }, { 0 } };
static const struct kernel sampler_back_cpu[] = { { "positions", sampler_backward, T_FLOAT }, { 0 } };

/* -- GridGenerator ----------------------------------------------------------------------------- */

struct grid_param { int64_t transform_type; struct dims target_shape; };
static const struct param grid_params[] = {
  { "transform_type", P_ENUM,  offsetof(struct grid_param, transform_type), NULL,
    "affine: data holds 2 x 3 matrices; warp: data holds shifts in pixels", "affine|warp" },
  { "target_shape",   P_SHAPE, offsetof(struct grid_param, target_shape),   "(0, 0)", "height and width of an affine grid",
    NULL, SIZES_RANGE },
  { 0 }
};

static int grid_check(void *param)
{
  const struct grid_param *p = param;
  return p->transform_type == AFFINE ? positive_target(&p->target_shape) : TY_OK;
}

static int grid_shape(struct infer *s)
{
  const struct grid_param *p = s->param;
  ty_desc d = s->in[0];
  const int64_t *t = p->target_shape.d;
  if (!d.ndim) return TY_OK;
  if (p->transform_type == WARP) {
    TRY(image_only(s, &s->in[0], "(batch, 2, height, width)"));
    TRY(shape_dim(s, &s->in[0], 1, 2));
    int64_t pixels[2] = { 2, d.dim[2] * d.dim[3] };
    TRY(shape_is(s, &s->out[1], 2, pixels));
    return shape_as(s, &s->out[0], &s->in[0]);
  }
  int64_t theta[2] = { d.dim[0], 6 }, regular[2] = { 3, t[0] * t[1] },
          out[4] = { d.dim[0], 2, t[0], t[1] };
  TRY(shape_is(s, &s->in[0], 2, theta));
  TRY(shape_is(s, &s->out[1], 2, regular));
  return shape_is(s, &s->out[0], 4, out);
}

/* Computes y = (x + pixel) / half - 1 from shifts x, where half is (size - 1) / 2 along an axis,
** or, if `back`, the gradient of the shifts from the head gradient x: y = x / half. */
static void warp_grid(const struct vec_ops *r, void *y, const void *x, const ty_desc *d, bool back)
{
  int64_t n = d->dim[2] * d->dim[3];
  for (int64_t i = 0; i < 2 * d->dim[0]; i++) {
    bool is_y = i % 2;
    double half = (double)(d->dim[is_y ? 2 : 3] - 1) / 2;
    if (back) r->affine(vec_at(r, y, i * n), vec_at(r, x, i * n), 1 / half, 0, n);
    for (int64_t k = 0; !back && k < n; k++)
      r->set(y, i * n + k,
          (r->get(x, i * n + k) + (double)(is_y ? k / d->dim[3] : k % d->dim[3])) / half - 1);
  }
}

static int grid_forward(struct call *c)
{
  const struct grid_param *p = c->param;
  const ty_desc *d = &c->out[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  regular_grid(r, c->out[1].p, d->dim[2], d->dim[3], p->transform_type == WARP);
  if (!c->out[0].p) return TY_OK;
  if (p->transform_type == WARP)
    warp_grid(r, c->out[0].p, c->in[0].p, d, false);
  else
    for (int64_t i = 0; i < d->dim[0]; i++)
      r->sampler->grid(vec_at(r, c->out[0].p, i * 2 * d->dim[2] * d->dim[3]),
          vec_at(r, c->in[0].p, 6 * i),
          d->dim[2], d->dim[3]);
  return TY_OK;
}

static int grid_backward(struct call *c)
{
  const struct grid_param *p = c->param;
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  if (!c->out[0].p) return TY_OK;
  if (p->transform_type == WARP)
    warp_grid(r, c->out[0].p, c->in[0].p, d, true);
  else
    for (int64_t i = 0; i < d->dim[0]; i++)
      r->sampler->grid_back(vec_at(r, c->out[0].p, 6 * i),
          vec_at(r, c->in[0].p, i * 2 * d->dim[2] * d->dim[3]), d->dim[2], d->dim[3]);
  return TY_OK;
}

static const struct kernel grid_cpu[] = { { "positions", grid_forward, T_FLOAT }, { 0 } };
static const struct kernel grid_back_cpu[] = { { "positions", grid_backward, T_FLOAT }, { 0 } };

/* -- SpatialTransformer ------------------------------------------------------------------------ */

struct transformer_param {
  struct dims target_shape;
  int64_t transform_type, sampler_type, cudnn_off;
};
static const struct param transformer_params[] = {
  { "target_shape",   P_SHAPE, offsetof(struct transformer_param, target_shape),   "(0, 0)", "height and width of the output",
    NULL, SIZES_RANGE },
  { "transform_type", P_ENUM,  offsetof(struct transformer_param, transform_type), NULL,     "affine is the only one", "affine" },
  { "sampler_type",   P_ENUM,  offsetof(struct transformer_param, sampler_type),   NULL,
    "bilinear is the only one", "bilinear" },
  { "cudnn_off",      P_BOOL,  offsetof(struct transformer_param, cudnn_off),      "None",
    "without effect on results", NULL, NULL, 1 },
  { 0 }
};

static int transformer_check(void *param)
{
  return positive_target(&((struct transformer_param *)param)->target_shape);
}

static int transformer_shape(struct infer *s)
{
  const struct transformer_param *p = s->param;
  ty_desc d = s->in[0];
  int64_t h = p->target_shape.d[0], w = p->target_shape.d[1];
  TRY(image_only(s, &s->in[0], "(batch, channels, height, width)"));
  if (!d.ndim) return TY_OK;
  int64_t loc[2] = { d.dim[0], 6 }, regular[2] = { 3, h * w }, grid[4] = { d.dim[0], 2, h, w },
          out[4] = { d.dim[0], d.dim[1], h, w };
  TRY(shape_is(s, &s->in[1], 2, loc));
  TRY(shape_is(s, &s->out[1], 2, regular));
  TRY(shape_is(s, &s->out[2], 4, grid));
  return shape_is(s, &s->out[0], 4, out);
}

static size_t grid_bytes(const struct vec_ops *r, const ty_desc *out)
{
  return r->size * (size_t)(2 * out->dim[0] * out->dim[2] * out->dim[3]);
}
static size_t transformer_scratch(const struct call *c)
{
  return grid_bytes(vec_ops_of(c->out[0].d.dtype), &c->out[0].d);
}
static size_t transformer_back_scratch(const struct call *c)
{
  return grid_bytes(vec_ops_of(c->in[0].d.dtype), &c->in[0].d);
}

static int transformer_forward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  int64_t h = d->dim[2], w = d->dim[3];
  void *grid = c->out[2].p ? c->out[2].p : c->tmp;
  struct sampling k = { .x = c->in[0].p, .grid = grid, .y = c->out[0].p };
  regular_grid(r, c->out[1].p, h, w, false);
  for (int64_t i = 0; i < d->dim[0]; i++)
    r->sampler->grid(vec_at(r, grid, i * 2 * h * w), vec_at(r, c->in[1].p, 6 * i), h, w);
  sample_run(&k, &c->in[0].d, h * w);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, data, grid_src. */
static int transformer_backward(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  int64_t h = d->dim[2], w = d->dim[3];
  struct sampling k = { .dy = c->in[0].p,
    .x = c->in[1].p,
    .grid = c->in[2].p,
    .dx = c->out[0].p,
    .dgrid = c->out[1].p ? c->tmp : NULL };
  sample_run(&k, &c->in[1].d, h * w);
  for (int64_t i = 0; c->out[1].p && i < d->dim[0]; i++)
    r->sampler->grid_back(vec_at(r, c->out[1].p, 6 * i), vec_at(r, c->tmp, i * 2 * h * w), h, w);
  return TY_OK;
}

static const struct kernel transformer_cpu[] = { { "positions", transformer_forward, T_FLOAT, NULL, transformer_scratch }, { 0 } };
static const struct kernel transformer_back_cpu[] = { { "positions", transformer_backward, T_FLOAT, NULL,
                                                        transformer_back_scratch }, { 0 } };

const struct op op_spatial_transformer[] = {
  { .name = "SpatialTransformer", .in = "data loc", .out = "output [grid_dst] [grid_src]",
    .doc = "Images (batch, channels, height, width) under the affine maps loc (batch, 6), sampled bilinearly at "
           "target_shape; 0 outside.",
    .param = transformer_params, .param_size = sizeof(struct transformer_param), .check = transformer_check,
    .shape = transformer_shape,
    .grad = "g0 i0 o2", .cpu = transformer_cpu, .back_cpu = transformer_back_cpu },
  { .name = "GridGenerator", .in = "data", .out = "output [grid_dst]",
    .doc = "Grids (batch, 2, height, width) for BilinearSampler from affine maps (batch, 6) or from shifts in pixels "
           "(batch, 2, height, width).",
    .param = grid_params, .param_size = sizeof(struct grid_param), .check = grid_check, .shape = grid_shape,
    .grad = "g0", .cpu = grid_cpu, .back_cpu = grid_back_cpu, .flags = OP_NAMED_INPUT },
  { .name = "BilinearSampler", .in = "data grid", .out = "output [tmp]",
    .doc = "Images sampled bilinearly at the positions of grid (batch, 2, height, width), -1 to 1; pixels outside count as 0.",
    .param = sampler_params, .param_size = sizeof(struct sampler_param), .shape = sampler_shape,
    .grad = "g0 i0 i1", .cpu = sampler_cpu, .back_cpu = sampler_back_cpu },
  { 0 }
};
