/* layer_norm.c - LayerNorm: normalisation over one axis with a gain and an offset per element of
** it; RMSNorm: the same with a mean of 0 and without an offset.
**
** Rows are along the axis; if it is not the last one, each outer block is first transposed in
** scratch. The gradients of gamma and beta are summed over a fixed number of parts of the rows, so
** that their bits do not depend on the number of threads. Half types are converted to float32 row
** by row if the axis is the last one.
*/
#include "base/cast.h"
#include "base/convert.h"
#include "kernel/vec/norm.h"
#include "op/op.h"

struct layer_param { int64_t axis, output_mean_var; double eps; };
static const struct param layer_params[] = {
  { "axis",            P_INT,   offsetof(struct layer_param, axis),            "-1",
    "axis that is normalised; negative counts from the end" },
  { "eps",             P_FLOAT, offsetof(struct layer_param, eps),             "1e-05", "added to the variance" },
  { "output_mean_var", P_BOOL,  offsetof(struct layer_param, output_mean_var), "0",
    "mean and standard deviation are outputs" },
  { 0 }
};

static const char *layer_out(const void *p)
{
  return ((const struct layer_param *)p)->output_mean_var ? "output mean std"
                                                          : "output [mean] [std]";
}

/* Infers the shapes: inputs after the data are vectors along the axis, outputs after the first are
** per row. */
static int layer_shape(struct infer *s)
{
  const struct layer_param *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc d = s->in[0];
  int axis;
  if (!d.ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, d.ndim, &axis));
  for (int i = 1; i < s->nin; i++) TRY(shape_is(s, &s->in[i], 1, &d.dim[axis]));
  d.dim[axis] = 1;
  for (int i = 1; i < s->nout; i++) TRY(shape_as(s, &s->out[i], &d));
  return TY_OK;
}

static const struct param rms_params[] = {
  { "axis", P_INT,   offsetof(struct layer_param, axis), "-1",    "axis that is normalised; negative counts from the end" },
  { "eps",  P_FLOAT, offsetof(struct layer_param, eps),  "1e-06", "added to the mean of squares" },
  { 0 }
};

/* -- kernels ----------------------------------------------------------------------------------- */

enum { PARTS = 16 };                                  /* parts of the rows in backward */
struct layer_norm {
  const struct vec_ops *r;
  struct split s;
  double eps;
  bool centered;                                      /* false: RMSNorm */
  const void *x;                                      /* transposed where inner > 1 */
  const void *gamma, *beta;
  const void *dy;                                     /* transposed as x */
  const void *mean, *std;
  void  *y, *out_mean, *out_std, *dx;
  /* gradients (PARTS, 2, k) of gamma and beta; NULL: not needed */
  void  *part;
  /* casts from and to the half type of x, dy, y, dx, out_mean and out_std; NULL: no half type */
  cast_fn widen, narrow;
  float *rows;                                        /* two per thread, or three per part */
};

static int64_t rows_in(const struct layer_norm *l) { return l->s.outer * l->s.inner; }

static uint16_t *half_at(const void *x, int64_t i) { return (uint16_t *)(uintptr_t)x + i; }

/* Stores a mean or deviation as element i of out, if out is not NULL. */
static void set_statistic(const struct layer_norm *l, void *out, int64_t i, double v)
{
  const float single = (float)v;
  if (!out) return;
  if (l->rows)
    l->narrow(half_at(out, i), &single, 1);
  else
    l->r->set(out, i, v);
}

static void forward_body(int64_t begin, int64_t end, void *context)
{
  const struct layer_norm *l = context;
  const struct vec_ops *r = l->r;
  const int64_t k = l->s.k;
  float *own = l->rows ? l->rows + 2 * k * parallel_index() : NULL;
  for (int64_t i = begin; i < end; i++) {
    const void *x = own ? own : vec_at(r, l->x, i * k);
    void *y = own ? own + k : vec_at(r, l->y, i * k);
    if (own) l->widen(own, half_at(l->x, i * k), k);
    double mean = l->centered ? r->sum(x, k) / (double)k : 0;
    double std = sqrt(r->sum_square(x, mean, k) / (double)k + l->eps);
    if (l->y) r->norm->norm(y, x, l->gamma, l->beta, mean, 1 / std, k);
    if (l->y && own) l->narrow(half_at(l->y, i * k), y, k);
    set_statistic(l, l->out_mean, i, mean);
    set_statistic(l, l->out_std, i, std);
  }
}

/* Computes row i of dx, and adds to dgamma and dbeta, where these are not NULL. */
static void backward_row(const struct layer_norm *l, int64_t i, const void *dy, const void *x,
    void *dx, void *dgamma, void *dbeta)
{
  const struct vec_ops *r = l->r;
  int64_t k = l->s.k;
  double mean = l->centered ? r->get(l->mean, i) : 0, inverse = 1 / r->get(l->std, i), of[2];
  if (dgamma) r->norm->norm_params(dgamma, dbeta, dy, x, mean, inverse, k);
  if (!l->dx) return;
  r->norm->norm_sums(dy, x, l->gamma, mean, inverse, k, of);
  of[0] = l->centered ? of[0] / (double)k : 0;
  of[1] /= (double)k;
  r->norm->norm_back(dx, dy, x, l->gamma, mean, inverse, of, k);
}

static void backward_half_row(const struct layer_norm *l, int64_t i, float *rows, void *dgamma,
    void *dbeta)
{
  const int64_t k = l->s.k;
  l->widen(rows, half_at(l->dy, i * k), k);
  l->widen(rows + k, half_at(l->x, i * k), k);
  backward_row(l, i, rows, rows + k, rows + 2 * k, dgamma, dbeta);
  if (l->dx) l->narrow(half_at(l->dx, i * k), rows + 2 * k, k);
}

static void backward_body(int64_t begin, int64_t end, void *context)
{
  const struct layer_norm *l = context;
  const struct vec_ops *r = l->r;
  int64_t n = rows_in(l), k = l->s.k;
  for (int64_t p = begin; p < end; p++) {
    void *dgamma = vec_at(r, l->part, 2 * p * k),
         *dbeta = l->centered ? vec_at(r, l->part, (2 * p + 1) * k) : NULL;
    if (dgamma) memset(dgamma, 0, r->size * (size_t)(2 * k));
    for (int64_t i = p * n / PARTS; i < (p + 1) * n / PARTS; i++)
      if (l->rows)
        backward_half_row(l, i, l->rows + 3 * k * p, dgamma, dbeta);
      else
        backward_row(l, i, vec_at(r, l->dy, i * k), vec_at(r, l->x, i * k),
            vec_at(r, l->dx, i * k), dgamma, dbeta);
  }
}

/* Sets out to the sum over the parts of the gradient of gamma (which = 0) or beta (1). */
static void add_parts(const struct layer_norm *l, int which, void *out)
{
  const struct vec_ops *r = l->r;
  if (!out) return;
  memset(out, 0, r->size * (size_t)l->s.k);
  for (int p = 0; p < PARTS; p++) r->add(out, vec_at(r, l->part, (2 * p + which) * l->s.k), l->s.k);
}

/* Copies (outer, k, inner) to (outer, inner, k), or back. Returns y; NULL if x or y is NULL. */
static const void *transpose_axes(const struct layer_norm *l, const void *x, void *y, bool back)
{
  if (!x || !y) return NULL;
  int64_t n = l->s.k * l->s.inner;
  for (int64_t o = 0; o < l->s.outer; o++)
    l->r->transpose(vec_at(l->r, y, o * n), vec_at(l->r, x, o * n), back ? l->s.inner : l->s.k,
        back ? l->s.k : l->s.inner);
  return y;
}

static struct layer_norm make_layer_norm(const struct call *c, const ty_desc *d)
{
  const struct layer_param *p = c->param;
  return (struct layer_norm){ .r = vec_ops_of(d->dtype),
    .centered = true,
    .s = split_at(d, axis_in(p->axis, d->ndim)),
    .eps = p->eps };
}

static bool is_half(int dtype) { return dtype == TY_F16 || dtype == TY_BF16; }

/* Prepares l for half types. rows: scratch for its rows. */
static void use_halves(struct layer_norm *l, int dtype, float *rows)
{
  l->r = vec_ops_of(TY_F32);
  l->widen = cast_between(dtype, TY_F32);
  l->narrow = cast_between(TY_F32, dtype);
  l->rows = rows;
}

/* Widens n elements to *at, and advances *at. Returns the widened elements; NULL if x is NULL. */
static const float *widen_operand(const struct layer_norm *l, const void *x, int64_t n, float **at)
{
  float *to = *at;
  if (!x) return NULL;
  l->widen(to, x, n);
  *at += n;
  return to;
}

static const char *half_refuse(const struct call *c)
{
  return make_layer_norm(c, &c->in[0].d).s.inner > 1 ? "the axis is not the last one" : NULL;
}

static size_t forward_scratch(const struct call *c)
{
  return make_layer_norm(c, &c->in[0].d).s.inner == 1 ? 0 : 2 * desc_bytes(&c->in[0].d);
}

/* Normalises rows into y. */
static int run_forward(const struct call *c, struct layer_norm l, void *y)
{
  int64_t n = desc_count(&c->in[0].d);
  bool turned = l.s.inner > 1;
  l.x = turned ? transpose_axes(&l, c->in[0].p, c->tmp, false) : c->in[0].p;
  l.y = !y ? NULL : turned ? vec_at(l.r, c->tmp, n) : y;
  parallel_for(rows_in(&l), elements_ns(4 * l.s.k), forward_body, &l);
  if (turned) transpose_axes(&l, l.y, y, true);
  return TY_OK;
}

/* Returns the bytes of gamma and beta, then of two rows per thread. */
static size_t half_forward_scratch(const struct call *c)
{
  const int64_t k = make_layer_norm(c, &c->in[0].d).s.k;
  return sizeof(float) * (size_t)((2 + 2 * parallel_threads()) * k);
}

/* Sets gamma, and beta unless it is NULL, and normalises. */
static int run_scaled(const struct call *c, struct layer_norm l, const void *beta)
{
  l.gamma = c->in[1].p;
  l.beta = beta;
  if (!is_half(c->in[0].d.dtype)) return run_forward(c, l, c->out[0].p);
  float *at = c->tmp;
  use_halves(&l, c->in[0].d.dtype, at + 2 * l.s.k);
  l.gamma = widen_operand(&l, l.gamma, l.s.k, &at);
  l.beta = widen_operand(&l, l.beta, l.s.k, &at);
  l.x = c->in[0].p;
  l.y = c->out[0].p;
  parallel_for(rows_in(&l), elements_ns(4 * l.s.k), forward_body, &l);
  return TY_OK;
}

static int layer_forward(struct call *c)
{
  struct layer_norm l = make_layer_norm(c, &c->in[0].d);
  l.out_mean = c->out[1].p;
  l.out_std = c->out[2].p;
  return run_scaled(c, l, c->in[2].p);
}

static int rms_forward(struct call *c)
{
  struct layer_norm l = make_layer_norm(c, &c->in[0].d);
  l.centered = false;
  l.out_std = c->out[1].p;
  return run_scaled(c, l, NULL);
}

static size_t backward_scratch(const struct call *c)
{
  struct layer_norm l = make_layer_norm(c, &c->in[1].d);
  return 2 * PARTS * l.r->size * (size_t)l.s.k + (l.s.inner == 1 ? 0 : 3 * desc_bytes(&c->in[1].d));
}

/* Returns the bytes of the parts' gradients, three rows per part, a sum of parts, gamma, mean and
** std. */
static size_t half_backward_scratch(const struct call *c)
{
  const struct layer_norm l = make_layer_norm(c, &c->in[1].d);
  return sizeof(float) * (size_t)((5 * PARTS + 2) * l.s.k + 2 * rows_in(&l));
}

/* Computes the gradients of half types, with sums in float32. Operands as in run_backward. */
static int run_half_backward(const struct call *c, struct layer_norm l, void *dgamma, void *dbeta)
{
  const int64_t k = l.s.k, n = rows_in(&l);
  float *part = c->tmp, *sum = part + 5 * PARTS * k, *at = sum + k;
  use_halves(&l, c->in[1].d.dtype, part + 2 * PARTS * k);
  l.part = dgamma || dbeta ? part : NULL;
  l.gamma = widen_operand(&l, c->in[2].p, k, &at);
  l.mean = widen_operand(&l, l.mean, n, &at);
  l.std = widen_operand(&l, l.std, n, &at);
  l.dy = c->in[0].p;
  l.x = c->in[1].p;
  l.dx = c->out[0].p;
  const bool one_chunk = elements_ns(n * k) <= PARALLEL_CHUNK_NS;
  parallel_chunks(PARTS, one_chunk ? PARTS : 1, backward_body, &l);
  for (int i = 0; i < 2; i++) {
    void *out = i ? dbeta : dgamma;
    if (!out) continue;
    add_parts(&l, i, sum);
    l.narrow(out, sum, k);
  }
  return TY_OK;
}

/* Computes the gradients. in: head gradient, data, gamma. dgamma, dbeta: NULL if unused. */
static int run_backward(const struct call *c, struct layer_norm l, void *dgamma, void *dbeta)
{
  if (is_half(c->in[1].d.dtype)) return run_half_backward(c, l, dgamma, dbeta);
  int64_t n = desc_count(&c->in[1].d);
  bool turned = l.s.inner > 1;
  char *more = (char *)c->tmp + 2 * PARTS * l.r->size * (size_t)l.s.k;
  l.part = dgamma || dbeta ? c->tmp : NULL;
  l.dy = turned ? transpose_axes(&l, c->in[0].p, more, false) : c->in[0].p;
  l.x = turned ? transpose_axes(&l, c->in[1].p, vec_at(l.r, more, n), false) : c->in[1].p;
  l.dx = !c->out[0].p ? NULL : turned ? vec_at(l.r, more, 2 * n) : c->out[0].p;
  l.gamma = c->in[2].p;
  const bool one_chunk = elements_ns(rows_in(&l) * l.s.k) <= PARALLEL_CHUNK_NS;
  parallel_chunks(PARTS, one_chunk ? PARTS : 1, backward_body, &l);
  add_parts(&l, 0, dgamma);
  add_parts(&l, 1, dbeta);
  if (turned) transpose_axes(&l, l.dx, c->out[0].p, true);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, data, gamma, mean, std. */
static int layer_backward(struct call *c)
{
  struct layer_norm l = make_layer_norm(c, &c->in[1].d);
  l.mean = c->in[3].p;
  l.std = c->in[4].p;
  return run_backward(c, l, c->out[1].p, c->out[2].p);
}

/* Computes the gradients. in: head gradient, data, gamma, root of the mean of squares. */
static int rms_backward(struct call *c)
{
  struct layer_norm l = make_layer_norm(c, &c->in[1].d);
  l.centered = false;
  l.std = c->in[3].p;
  return run_backward(c, l, c->out[1].p, NULL);
}

static int layer_lead(const struct call *c)
{
  return axis_in(((const struct layer_param *)c->param)->axis, c->in[0].d.ndim);
}

enum { HALVES = T(TY_F16) | T(TY_BF16) };
static const struct kernel layer_cpu[] = {
  { "half rows", layer_forward, HALVES, half_refuse, half_forward_scratch },
  { "rows", layer_forward, T_FLOAT, NULL, forward_scratch, .lead = layer_lead, .whole = 1 << 1 | 1 << 2 }, { 0 }
};
static const struct kernel layer_back_cpu[] = {
  { "half rows", layer_backward, HALVES, half_refuse, half_backward_scratch },
  { "rows", layer_backward, T_FLOAT, NULL, backward_scratch }, { 0 }
};
static const struct kernel rms_cpu[] = {
  { "half rows", rms_forward, HALVES, half_refuse, half_forward_scratch },
  { "rows", rms_forward, T_FLOAT, NULL, forward_scratch, .lead = layer_lead, .whole = 1 << 1 }, { 0 }
};
static const struct kernel rms_back_cpu[] = {
  { "half rows", rms_backward, HALVES, half_refuse, half_backward_scratch },
  { "rows", rms_backward, T_FLOAT, NULL, backward_scratch }, { 0 }
};

const struct op op_layer_norm[] = {
  { .name = "LayerNorm", .alias = "_npx_layer_norm", .in = "data gamma beta", .out_of = layer_out,
    .doc = "(x - mean) / sqrt(var + eps) gamma + beta with statistics over one axis; outputs mean and std = sqrt(var "
           "+ eps) pass no gradient.",
    .param = layer_params, .param_size = sizeof(struct layer_param), .shape = layer_shape, .grad = "g0 i0 i1 o1 o2",
    .cpu = layer_cpu, .back_cpu = layer_back_cpu },
  { .name = "_contrib_RMSNorm", .in = "data gamma", .out = "output [rms]",
    .doc = "data / rms gamma, rms = sqrt(mean of data^2 + eps) over one axis; output rms passes no gradient.",
    .param = rms_params, .param_size = sizeof(struct layer_param), .shape = layer_shape, .grad = "g0 i0 i1 o1",
    .cpu = rms_cpu, .back_cpu = rms_back_cpu },
  { 0 }
};
