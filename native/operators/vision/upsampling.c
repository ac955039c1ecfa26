/* upsampling.c - UpSampling: images made larger by an integer factor.
**
** nearest: the pixels of each input are repeated to the output's size, then inputs are joined along
** the channels or added. bilinear: a transposed convolution of each channel with its own kernel, an
** argument, of size 2 scale - scale % 2, stride scale and pad ceil((scale - 1) / 2).
*/
#include "kernel/vec/sampler.h"
#include "op/op.h"

struct up_param { int64_t scale, num_filter, sample_type, multi_input_mode, num_args, workspace; };
enum { BILINEAR, NEAREST };
enum { JOIN, SUM };
#define FIELD(f) offsetof(struct up_param, f)
static const struct param up_params[] = {
  { "scale",            P_INT,  FIELD(scale),            NULL,     "factor", NULL, "[1,2147483647]" },
  { "num_filter",       P_INT,  FIELD(num_filter),       "0",      "channels, for bilinear" },
  { "sample_type",      P_ENUM, FIELD(sample_type),      NULL,     "how values between are found", "bilinear|nearest" },
  { "multi_input_mode", P_ENUM, FIELD(multi_input_mode), "concat",
    "several inputs of nearest: joined along channels, or added", "concat|sum" },
  { "num_args",         P_INT,  FIELD(num_args),         NULL,     "inputs", NULL, INPUTS_RANGE },
  { "workspace",        P_INT,  FIELD(workspace),        "512",    "without effect on results", NULL, "[0,]" },
  { 0 }
};

static const char *up_in(const void *p)
{
  return ((const struct up_param *)p)->sample_type == BILINEAR ? "data weight" : "arg*num_args";
}
static int64_t kernel_of(const struct up_param *p) { return 2 * p->scale - p->scale % 2; }

static int bilinear_shape(struct infer *s, ty_desc d)
{
  const struct up_param *p = s->param;
  if (d.dim[1] && p->num_filter != d.dim[1])
    return infer_fail(s, TY_ESHAPE, &s->in[0], "num_filter is %lld, but data has %lld channels",
        (long long)p->num_filter, (long long)d.dim[1]);
  int64_t k = kernel_of(p), weight[4] = { d.dim[1], 1, k, k };
  TRY(shape_is(s, &s->in[1], 4, weight));
  for (int i = 2; i < 4; i++) d.dim[i] *= p->scale;
  return shape_as(s, &s->out[0], &d);
}

static int nearest_shape(struct infer *s, ty_desc d)
{
  const struct up_param *p = s->param;
  int64_t channels = 0;
  bool known = true;
  for (int i = 2; i < 4; i++) d.dim[i] *= p->scale;
  for (int i = 0; i < s->nin; i++) {
    ty_desc *x = &s->in[i];
    if (!x->ndim) return TY_OK;
    if (x->ndim != 4)
      return infer_fail(
          s, TY_ESHAPE, x, "expected (batch, channels, height, width), got %d dimensions", x->ndim);
    TRY(shape_dim(s, x, 0, d.dim[0]));
    if (p->multi_input_mode == SUM) TRY(shape_dim(s, x, 1, d.dim[1]));
    for (int k = 2; k < 4; k++)
      if (x->dim[k] && d.dim[k] % x->dim[k])
        return infer_fail(s, TY_ESHAPE, x,
            "its size %lld does not divide the output's %lld on axis %d", (long long)x->dim[k],
            (long long)d.dim[k], k);
    channels += x->dim[1];
    known = known && x->dim[1];
  }
  if (p->multi_input_mode == JOIN) d.dim[1] = known ? channels : 0;
  return shape_as(s, &s->out[0], &d);
}

static int up_shape(struct infer *s)
{
  const struct up_param *p = s->param;
  ty_desc d = s->in[0];
  if (!d.ndim) return TY_OK;
  if (d.ndim != 4)
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "expected (batch, channels, height, width), got %d dimensions", d.ndim);
  return p->sample_type == BILINEAR ? bilinear_shape(s, d) : nearest_shape(s, d);
}

/* -- nearest ----------------------------------------------------------------------------------- */

struct nearest {                                      /* one input and its channels of the output */
  const struct vec_ops *r;
  const ty_desc *small, *large;
  void   *x;                                          /* of the small size */
  void   *y;                                          /* of the large size */
  int64_t first;                                      /* first channel in the output */
  bool    add, back;
};

/* Writes or, with `add`, adds the repeated pixels of one plane. in, out: indices of the planes. */
static void enlarge_plane(const struct nearest *u, int64_t in, int64_t out)
{
  const struct vec_ops *r = u->r;
  int64_t h = u->small->dim[2], w = u->small->dim[3], W = u->large->dim[3],
          by = u->large->dim[2] / h;
  for (int64_t y = 0; y < h * by; y++) {
    void *to = vec_at(r, u->y, out + y * W), *from = vec_at(r, u->x, in + y / by * w);
    if (u->add)
      for (int64_t x = 0; x < W / w; x++) r->axpy_out(vec_at(r, to, x), from, 1, W / w, w);
    else if (y % by)
      memcpy(to, vec_at(r, to, -W), r->size * (size_t)W);
    else
      r->sampler->repeat(to, from, W / w, w);
  }
}

/* Sums the head gradients of the pixels that repeat each pixel of a plane. */
static void shrink_plane(const struct nearest *u, int64_t in, int64_t out)
{
  const struct vec_ops *r = u->r;
  int64_t h = u->small->dim[2], w = u->small->dim[3], W = u->large->dim[3],
          by = u->large->dim[2] / h;
  memset(vec_at(r, u->x, in), 0, r->size * (size_t)(h * w));
  for (int64_t y = 0; y < h * by; y++)
    r->sampler->collect(vec_at(r, u->x, in + y / by * w), vec_at(r, u->y, out + y * W), W / w, w);
}

static void nearest_body(int64_t begin, int64_t end, void *context)
{
  const struct nearest *u = context;
  int64_t channels = u->small->dim[1], small = u->small->dim[2] * u->small->dim[3],
          large = u->large->dim[2] * u->large->dim[3];
  for (int64_t i = begin; i < end; i++) {
    int64_t out = i / channels * u->large->dim[1] + u->first + i % channels;
    if (u->back)
      shrink_plane(u, i * small, out * large);
    else
      enlarge_plane(u, i * small, out * large);
  }
}

static void nearest_run(const struct call *c, const struct operand *small, int n,
    const struct operand *large, bool back)
{
  const struct up_param *p = c->param;
  bool sum = p->multi_input_mode == SUM;
  int64_t first = 0;
  for (int i = 0; i < n; i++) {
    struct nearest u = { vec_ops_of(large->d.dtype), &small[i].d, &large->d, small[i].p, large->p,
      sum ? 0 : first, sum && i, back };
    if (small[i].p && large->p)
      parallel_for(small[i].d.dim[0] * small[i].d.dim[1],
          elements_ns(large->d.dim[2] * large->d.dim[3]), nearest_body, &u);
    first += small[i].d.dim[1];
  }
}

/* -- bilinear ---------------------------------------------------------------------------------- */

struct bilinear {
  const struct vec_ops *r;
  int64_t n, c, h, w, scale, k, pad;
  const void *x, *weight, *dy;
  void   *y, *dx, *dweight;
};

/* Processes tap (ky, kx) of a channel's kernel for one plane, forward or backward: input (iy, ix)
** belongs to output (iy scale + ky - pad, ix scale + kx - pad). */
static void bilinear_tap(
    const struct bilinear *u, int64_t plane, int64_t channel, int64_t ky, int64_t kx)
{
  const struct vec_ops *r = u->r;
  int64_t H = u->h * u->scale, W = u->w * u->scale, tap = (channel * u->k + ky) * u->k + kx,
          shift = u->pad - kx;
  int64_t from = shift > 0 ? (shift + u->scale - 1) / u->scale : 0,
          last = W - 1 + shift, to = last < 0 ? 0 : MIN(u->w, last / u->scale + 1);
  double a = r->get(u->weight, tap), slope = 0;
  for (int64_t iy = 0; iy < u->h && from < to; iy++) {
    int64_t oy = iy * u->scale + ky - u->pad;
    if (oy < 0 || oy >= H) continue;
    int64_t in = (plane * u->h + iy) * u->w + from,
            out = (plane * H + oy) * W + from * u->scale - shift;
    if (u->y) r->axpy_out(vec_at(r, u->y, out), vec_at(r, u->x, in), a, u->scale, to - from);
    if (u->dx) r->axpy_in(vec_at(r, u->dx, in), vec_at(r, u->dy, out), a, u->scale, to - from);
    if (u->dweight)
      slope += r->dot_out(vec_at(r, u->dy, out), vec_at(r, u->x, in), u->scale, to - from);
  }
  if (u->dweight) r->set(u->dweight, tap, r->get(u->dweight, tap) + slope);
}

static void bilinear_body(int64_t begin, int64_t end, void *context)
{
  const struct bilinear *u = context;
  const struct vec_ops *r = u->r;
  int64_t in = u->h * u->w, out = in * u->scale * u->scale;
  for (int64_t c = begin; c < end; c++) {
    if (u->dweight)
      memset(vec_at(r, u->dweight, c * u->k * u->k), 0, r->size * (size_t)(u->k * u->k));
    for (int64_t i = 0; i < u->n; i++) {
      int64_t plane = i * u->c + c;
      if (u->y) memset(vec_at(r, u->y, plane * out), 0, r->size * (size_t)out);
      if (u->dx) memset(vec_at(r, u->dx, plane * in), 0, r->size * (size_t)in);
      for (int64_t tap = 0; tap < u->k * u->k; tap++)
        bilinear_tap(u, plane, c, tap / u->k, tap % u->k);
    }
  }
}

static void bilinear_run(const struct call *c, struct bilinear *u, const ty_desc *d)
{
  const struct up_param *p = c->param;
  u->r = vec_ops_of(d->dtype);
  u->n = d->dim[0];
  u->c = d->dim[1];
  u->h = d->dim[2];
  u->w = d->dim[3];
  u->scale = p->scale;
  u->k = kernel_of(p);
  u->pad = p->scale / 2; /* ceil((scale - 1) / 2) */
  parallel_for(u->c, elements_ns(u->n * u->h * u->w * u->k * u->k), bilinear_body, u);
}

/* -- kernels ----------------------------------------------------------------------------------- */

static bool is_bilinear(const struct call *c)
{
  return ((const struct up_param *)c->param)->sample_type == BILINEAR;
}

static int up_forward(struct call *c)
{
  struct bilinear u = {
    .x = c->in[0].p, .weight = is_bilinear(c) ? c->in[1].p : NULL, .y = c->out[0].p
  };
  if (is_bilinear(c))
    bilinear_run(c, &u, &c->in[0].d);
  else
    nearest_run(c, c->in, c->nin, &c->out[0], false);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, for bilinear also data and weight. */
static int up_backward(struct call *c)
{
  if (!is_bilinear(c)) return nearest_run(c, c->out, c->nout, &c->in[0], true), TY_OK;
  struct bilinear u = { .dy = c->in[0].p,
    .x = c->in[1].p,
    .weight = c->in[2].p,
    .dx = c->out[0].p,
    .dweight = c->out[1].p };
  bilinear_run(c, &u, &c->in[1].d);
  return TY_OK;
}

static const char *up_grad(const void *p)
{
  return ((const struct up_param *)p)->sample_type == BILINEAR ? "g0 i0 i1" : "g0";
}
static const struct kernel up_cpu[] = { { "rows", up_forward, T_FLOAT }, { 0 } };
static const struct kernel up_back_cpu[] = { { "rows", up_backward, T_FLOAT }, { 0 } };

const struct op op_upsampling[] = {
  { .name = "UpSampling", .in = "arg*num_args", .in_of = up_in,
    .doc = "Images (batch, channels, height, width) `scale` times as high and wide: repeated pixels, or a transposed "
           "convolution with weight.",
    .param = up_params, .param_size = sizeof(struct up_param), .shape = up_shape, .grad_of = up_grad, .cpu = up_cpu,
    .back_cpu = up_back_cpu },
  { 0 }
};
