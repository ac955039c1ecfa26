/* batch_norm.c - BatchNorm, BatchNorm_v1, _contrib_SyncBatchNorm, _contrib_BatchNormWithReLU.
**
** Data is (outer, channels, inner). A unit of work is a strip of channels, summed down the rows,
** with inner = 1 (2-D or channel-last data); a block, if channels are in blocks (kernel/kernel.h);
** else a channel. The second and third output are the statistics that forward used: mean and
** 1 / sqrt(var + eps) (BatchNorm_v1: the variance), in inference the moving ones. Backward, when
** training on batch statistics, also moves moving_mean and moving_var (biased variance). Forward
** changes no input except a fixed gamma, which it sets to 1 if the gradient is computed, too. A
** fused relu is applied in the same loops, and so is its gradient, whose mask is recomputed from
** the data. Half types are converted to float32 chunk by chunk.
** Source of these rules: the reference's recorded cases.
*/
#include "base/cast.h"
#include "kernel/vec/norm.h"
#include "op/op.h"

struct norm_param {
  double eps, momentum, min_calib_range, max_calib_range;
  int64_t fix_gamma, use_global_stats, output_mean_var, axis, cudnn_off, ndev;
  const char *key;
  /* set by the check of BatchNorm_v1: the third output is the variance, not 1 / sqrt(var + eps) */
  bool gives_variance;
};
#define FIELD(f) offsetof(struct norm_param, f)
#define NORM_PARAMS \
  { "eps",              P_FLOAT, FIELD(eps),              "0.001", "added to the variance" }, \
  { "momentum",         P_FLOAT, FIELD(momentum),         "0.9", \
    "weight of the old moving statistics" }, \
  { "fix_gamma",        P_BOOL,  FIELD(fix_gamma),        "1", \
    "gamma is 1 and gets no gradient" }, \
  { "use_global_stats", P_BOOL,  FIELD(use_global_stats), "0", \
    "use the moving statistics in training too" }, \
  { "output_mean_var",  P_BOOL,  FIELD(output_mean_var),  "0",     "the statistics are outputs" }
#define AXIS_PARAMS \
  { "axis",             P_INT,   FIELD(axis),             "1", \
    "axis of the channels; negative counts from the end" }, \
  { "cudnn_off",        P_BOOL,  FIELD(cudnn_off),        "0",     "without effect on results" }, \
  { "min_calib_range",  P_FLOAT, FIELD(min_calib_range),  "None", \
    "for quantisation; without effect here", NULL, NULL, 1 }, \
  { "max_calib_range",  P_FLOAT, FIELD(max_calib_range),  "None", \
    "for quantisation; without effect here", NULL, NULL, 1 }

static const struct param norm_params[] = { NORM_PARAMS, AXIS_PARAMS, { 0 } };
static const struct param norm1_params[] = { NORM_PARAMS, { 0 } };
static const struct param sync_params[] = {
  NORM_PARAMS,
  { "ndev", P_INT,  FIELD(ndev), "1",  "devices that share statistics; 1 is supported" },
  { "key",  P_TEXT, FIELD(key),  NULL, "name that the devices share" },
  { 0 }
};

static int axis_one(void *param)
{
  ((struct norm_param *)param)->axis = 1;
  return TY_OK;
}

static int norm1_check(void *param)
{
  ((struct norm_param *)param)->gives_variance = true;
  return axis_one(param);
}

static int sync_check(void *param)
{
  struct norm_param *p = param;
  NEED(p->ndev == 1, TY_EUNSUPPORTED, "parameter ndev: only 1 is supported, got %lld",
      (long long)p->ndev);
  return axis_one(param);
}

static const char *norm_in(const void *p)
{
  return ((const struct norm_param *)p)->fix_gamma ? "data gamma~ beta moving_mean! moving_var!"
                                                   : "data gamma beta moving_mean! moving_var!";
}
static const char *norm_out(const void *p)
{
  return ((const struct norm_param *)p)->output_mean_var ? "output mean var"
                                                         : "output [mean] [var]";
}
static const char *relu_out(const void *p)
{
  return ((const struct norm_param *)p)->output_mean_var ? "output mean var [mask]"
                                                         : "output [mean] [var] [mask]";
}

/* -- inference --------------------------------------------------------------------------------- */

static int norm_shape(struct infer *s)
{
  const struct norm_param *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  if (s->nout > 3) TRY(shape_as(s, &s->out[3], &s->in[0]));
  ty_desc d = s->in[0];
  int axis;
  if (!d.ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, d.ndim, &axis));
  for (int i = 1; i < 5; i++) TRY(shape_is(s, &s->in[i], 1, &d.dim[axis]));
  for (int i = 1; i < 3; i++) TRY(shape_is(s, &s->out[i], 1, &d.dim[axis]));
  return TY_OK;
}

/* Infers the types: parameters and statistics are float32 for half data, else of data's dtype. */
static int norm_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  if (s->nout > 3) TRY(type_is(s, &s->out[3], s->in[0].dtype));
  int dtype = s->in[0].dtype;
  if (dtype == TY_NODTYPE) return TY_OK;
  if (dtype == TY_F16 || dtype == TY_BF16) dtype = TY_F32;
  for (int i = 1; i < 5; i++) TRY(type_is(s, &s->in[i], dtype));
  for (int i = 1; i < 3; i++) TRY(type_is(s, &s->out[i], dtype));
  return TY_OK;
}

/* -- statistics -------------------------------------------------------------------------------- */

enum {
  /* channels of one unit of work when inner = 1 */
  STRIP      = 64,
  /* elements that stay in the first cache */
  CHUNK      = 2048,
  /* elements of each of several arrays that are converted to float32 */
  HALF_CHUNK = 1024,
};
struct batch_norm {
  const struct vec_ops *r;
  const struct norm_param *p;
  struct split s;                                     /* k: channels */
  /* channels in a block, 0: not in blocks */
  int    block;
  bool   relu;                                        /* y = max(y, 0) */
  bool   batch;                                       /* batch statistics */
  /* the third output is the variance (BatchNorm_v1) */
  bool   v1;
  const void *x, *gamma, *beta, *dy;
  void   *y, *mean, *third, *mask, *moving_mean, *moving_var;
  void   *dx, *dgamma, *dbeta;
  /* conversions from and to the half type of x, y, dy and dx; NULL: no half type */
  cast_fn widen, narrow;
};

static uint16_t *half_at(const void *x, int64_t i) { return (uint16_t *)(uintptr_t)x + i; }

/* Returns n elements of data or a head gradient from `at` on; half types are converted into
** `floats`. */
static const void *read_at(
    const struct batch_norm *b, const void *x, int64_t at, int64_t n, float *floats)
{
  if (!b->widen) return vec_at(b->r, x, at);
  b->widen(floats, half_at(x, at), n);
  return floats;
}

/* Returns memory for n results for `at`: in place, or for half types `floats`. */
static void *result_at(const struct batch_norm *b, void *y, int64_t at, float *floats)
{
  return b->widen ? floats : vec_at(b->r, y, at);
}

/* Stores results that are in `floats`, for half types. */
static void store_at(
    const struct batch_norm *b, void *y, int64_t at, int64_t n, const float *floats)
{
  if (b->widen) b->narrow(half_at(y, at), floats, n);
}

/* Returns the index of a channel's first element in outer part o. */
static int64_t piece_start(const struct batch_norm *b, int64_t o, int64_t channel)
{
  return (o * b->s.k + channel) * b->s.inner;
}
static double count_of(const struct batch_norm *b) { return (double)(b->s.outer * b->s.inner); }
static double gamma_of(const struct batch_norm *b, int64_t c)
{
  return b->p->fix_gamma ? 1 : b->r->get(b->gamma, c);
}

/* Computes mean and variance of channels c .. c + n - 1, with inner = 1. */
static void strip_moments(
    const struct batch_norm *b, int64_t c, int64_t n, double *mean, double *var)
{
  float floats[STRIP];
  memset(mean, 0, sizeof *mean * (size_t)n);
  memset(var, 0, sizeof *var * (size_t)n);
  for (int64_t o = 0; o < b->s.outer; o++)
    b->r->norm->col_sum(mean, read_at(b, b->x, piece_start(b, o, c), n, floats), n);
  for (int64_t i = 0; i < n; i++) mean[i] /= count_of(b);
  for (int64_t o = 0; o < b->s.outer; o++)
    b->r->norm->col_square(var, read_at(b, b->x, piece_start(b, o, c), n, floats), mean, n);
  for (int64_t i = 0; i < n; i++) var[i] /= count_of(b);
}

/* Computes mean and variance of channel c. */
static void channel_moments(const struct batch_norm *b, int64_t c, double *mean, double *var)
{
  const int64_t inner = b->s.inner, most = b->widen ? MIN(HALF_CHUNK, inner) : inner;
  float floats[HALF_CHUNK];
  double sum = 0, square = 0;
  for (int64_t o = 0; o < b->s.outer; o++)
    for (int64_t i = 0, n; i < inner; i += n) {
      n = MIN(most, inner - i);
      sum += b->r->sum(read_at(b, b->x, piece_start(b, o, c) + i, n, floats), n);
    }
  *mean = sum / count_of(b);
  for (int64_t o = 0; o < b->s.outer; o++)
    for (int64_t i = 0, n; i < inner; i += n) {
      n = MIN(most, inner - i);
      square += b->r->sum_square(read_at(b, b->x, piece_start(b, o, c) + i, n, floats), *mean, n);
    }
  *var = square / count_of(b);
}

/* Computes the moments of a block chunk by chunk in the cache, so that memory is read once. */
static void block_moments(const struct batch_norm *b, int64_t c, double *mean, double *var)
{
  enum { MOMENTS_CHUNK = 8192 };                      /* elements */
  const struct vec_ops *r = b->r;
  const int64_t all = b->s.inner * b->block;
  double seen = 0;
  memset(mean, 0, sizeof *mean * (size_t)b->block);
  memset(var, 0, sizeof *var * (size_t)b->block);
  for (int64_t o = 0; o < b->s.outer; o++)
    for (int64_t i = 0, n; i < all; i += n) {
      double here[16] = { 0 }, square[16] = { 0 }, rows;
      const void *x = vec_at(r, b->x, piece_start(b, o, c) + i);
      n = MIN(MOMENTS_CHUNK, all - i);
      rows = (double)(n / b->block);
      r->norm->block_sum(here, x, b->block, n);
      for (int k = 0; k < b->block; k++) here[k] /= rows;
      r->norm->block_square(square, x, here, b->block, n);
      for (int k = 0; k < b->block; k++) {
        double gap = here[k] - mean[k];
        var[k] += square[k] + gap * gap * seen * rows / (seen + rows);
        mean[k] += gap * rows / (seen + rows);
      }
      seen += rows;
    }
  for (int k = 0; k < b->block; k++) var[k] /= seen;
}

/* Sets mean and var of channels c .. c + n - 1 to batch or moving statistics. */
static void compute_moments(
    const struct batch_norm *b, int64_t c, int64_t n, double *mean, double *var)
{
  for (int64_t i = 0; !b->batch && i < n; i++)
    mean[i] = b->r->get(b->moving_mean, c + i), var[i] = b->r->get(b->moving_var, c + i);
  if (!b->batch) return;
  if (b->block)
    block_moments(b, c, mean, var);
  else if (b->s.inner == 1)
    strip_moments(b, c, n, mean, var);
  else
    for (int64_t i = 0; i < n; i++) channel_moments(b, c + i, &mean[i], &var[i]);
}

/* -- forward ----------------------------------------------------------------------------------- */

/* Stores 0 where the output is 0, else 1, for n elements from `start` on. */
static void mask_piece(const struct batch_norm *b, int64_t start, int64_t n)
{
  float floats[HALF_CHUNK];
  for (int64_t i = start, m; i < start + n; i += m) {
    m = MIN(start + n - i, HALF_CHUNK);
    const void *y = read_at(b, b->y, i, m, floats);
    void *mask = result_at(b, b->mask, i, floats);
    for (int64_t k = 0; k < m; k++) b->r->set(mask, k, !(b->r->get(y, k) <= 0));
    store_at(b, b->mask, i, m, floats);
  }
}

/* Computes y = a x + d, a and d per element if `columns`, then relu. */
static void scale_row(const struct batch_norm *b, int64_t start, int64_t n, bool columns,
    const double *a, const double *d)
{
  const struct vec_ops *r = b->r;
  float floats[HALF_CHUNK];
  for (int64_t i = start, m; i < start + n; i += m) {
    m = MIN(start + n - i, b->widen ? HALF_CHUNK : CHUNK);
    const void *x = read_at(b, b->x, i, m, floats);
    void *y = result_at(b, b->y, i, floats);
    if (columns)
      r->norm->col_affine(y, x, a + (i - start), d + (i - start), m);
    else
      r->affine(y, x, *a, *d, m);
    if (b->relu) r->relu(y, m);
    store_at(b, b->y, i, m, floats);
  }
}

/* Computes y, and the mask if there is one, of channels c .. c + n - 1. */
static void scale_pieces(
    const struct batch_norm *b, int64_t c, int64_t n, const double *a, const double *d)
{
  const struct vec_ops *r = b->r;
  const int64_t inner = b->s.inner;
  for (int64_t o = 0; o < b->s.outer; o++) {
    int64_t start = piece_start(b, o, c);
    if (b->block)
      r->norm->block_affine(
          vec_at(r, b->y, start), vec_at(r, b->x, start), a, d, b->relu, b->block, n * inner);
    else if (inner == 1)
      scale_row(b, start, n, true, a, d);
    else
      for (int64_t i = 0; i < n; i++) scale_row(b, start + i * inner, inner, false, &a[i], &d[i]);
    if (b->mask) mask_piece(b, start, n * inner);
  }
}

/* Rounds a number to the data's dtype: backward must use the same number as forward. */
static double round_to_type(const struct batch_norm *b, double v)
{
  return b->r->dtype == TY_F32 ? (double)(float)v : v;
}

/* Sets *a and *d of y = a x + d for channel c. inverse: 1 / sqrt(var + eps). */
static void compute_affine(
    const struct batch_norm *b, int64_t c, double mean, double inverse, double *a, double *d)
{
  *a = gamma_of(b, c) * inverse;
  *d = b->r->get(b->beta, c) - mean * *a;
}

static void forward_strip(const struct batch_norm *b, int64_t c, int64_t n)
{
  double mean[STRIP], var[STRIP], a[STRIP], d[STRIP];
  compute_moments(b, c, n, mean, var);
  for (int64_t i = 0; i < n; i++) {
    if (b->v1) var[i] = round_to_type(b, var[i]);
    double inverse = 1 / sqrt(var[i] + b->p->eps);
    if (!b->v1 && b->batch) inverse = round_to_type(b, inverse);
    mean[i] = round_to_type(b, mean[i]);
    if (b->mean) b->r->set(b->mean, c + i, mean[i]);
    if (b->third) b->r->set(b->third, c + i, b->v1 ? var[i] : inverse);
    compute_affine(b, c + i, mean[i], inverse, &a[i], &d[i]);
  }
  if (b->y) scale_pieces(b, c, n, a, d);
}

/* -- backward ---------------------------------------------------------------------------------- */

/* Recovers the statistics that forward used from its outputs; the moving ones have not changed
** since. */
static void recall_statistics(
    const struct batch_norm *b, int64_t c, int64_t n, double *mean, double *var, double *inverse)
{
  for (int64_t i = 0; i < n; i++) {
    double third = b->r->get(b->batch ? b->third : b->moving_var, c + i);
    bool is_var = b->v1 || !b->batch;
    mean[i] = b->r->get(b->batch ? b->mean : b->moving_mean, c + i);
    inverse[i] = is_var ? 1 / sqrt(third + b->p->eps) : third;
    var[i] = is_var ? third : 1 / (third * third) - b->p->eps;
    if (var[i] < 0) var[i] = 0; /* not fmax, which hides NaN */
  }
}

/* State of a loop over a piece, chunk by chunk. If forward ended with relu, relu's gradient is
** computed in it: for channels in blocks by the loops themselves, else into a buffer. */
struct norm_chunk {
  const struct batch_norm *b;
  struct ramp relu;
  int64_t at, n;
  const void *dy, *x;
  char buffer[CHUNK * sizeof(double)];
  float dy_floats[HALF_CHUNK], x_floats[HALF_CHUNK];  /* of half types */
};

/* Loads n elements from `at` on. i: the channel, relative to the strip's first, of a piece with a
** single channel. */
static void take_chunk(struct norm_chunk *q, int64_t at_, int64_t n, int64_t i)
{
  const struct batch_norm *b = q->b;
  const struct vec_ops *r = b->r;
  const double *a = q->relu.a, *c = q->relu.c;
  q->at = at_;
  q->n = n;
  q->x = read_at(b, b->x, at_, n, q->x_floats);
  q->dy = read_at(b, b->dy, at_, n, q->dy_floats);
  if (!b->relu || b->block) return;
  if (b->s.inner != 1)
    r->relu_back(q->buffer, q->dy, q->x, a[i], c[i], n);
  else
    for (int64_t k = 0; k < n; k++)
      r->relu_back(vec_at(r, q->buffer, k), vec_at(r, q->dy, k), vec_at(r, q->x, k), a[k], c[k], 1);
  q->dy = q->buffer;
}

typedef void (*chunk_fn)(const struct norm_chunk *q, int64_t i, void *context);
/* Calls `each` for all chunks of a strip: whole rows of its channels, or pieces of one channel. */
static void all_chunks(const struct batch_norm *b, int64_t c, int64_t n, const struct ramp *relu,
    chunk_fn each, void *context)
{
  struct norm_chunk q;
  q.b = b;
  q.relu = *relu;
  const bool by_channel = !b->block && b->s.inner != 1;
  const int64_t size = by_channel ? b->s.inner : n * b->s.inner, pieces = by_channel ? n : 1,
                most = b->widen ? HALF_CHUNK : b->relu && !b->block ? CHUNK : size;
  for (int64_t o = 0; o < b->s.outer; o++)
    for (int64_t i = 0; i < pieces; i++)
      for (int64_t k = 0; k < size; k += q.n) {
        take_chunk(&q, piece_start(b, o, c + i) + k, MIN(most, size - k), i);
        each(&q, i, context);
      }
}

static const struct ramp *relu_of(const struct norm_chunk *q)
{
  return q->b->relu ? &q->relu : NULL;
}

struct gradient_sums { const double *mean; double *sum, *dot; };

static void add_chunk(const struct norm_chunk *q, int64_t i, void *context)
{
  const struct gradient_sums *s = context;
  const struct batch_norm *b = q->b;
  double part[2];
  if (b->block)
    b->r->norm->block_dot(s->sum, s->dot, q->dy, q->x, s->mean, relu_of(q), b->block, q->n);
  else if (b->s.inner == 1)
    b->r->norm->col_dot(s->sum, s->dot, q->dy, q->x, s->mean, q->n);
  else {
    b->r->sum_dot(q->dy, q->x, s->mean[i], q->n, part);
    s->sum[i] += part[0];
    s->dot[i] += part[1];
  }
}

/* dx = f dy + g x + h. With batch statistics and r = 1 / sqrt(var + eps) it is
** gamma r (dy - mean(dy) - (x - mean) r^2 mean(dy (x - mean))). */
struct line { double f[STRIP], g[STRIP], h[STRIP]; };

static void write_chunk(const struct norm_chunk *q, int64_t i, void *context)
{
  const struct line *l = context;
  const struct batch_norm *b = q->b;
  float floats[HALF_CHUNK];
  void *dx = result_at(b, b->dx, q->at, floats);
  if (b->block)
    b->r->norm->block_affine2(dx, q->dy, q->x, l->f, l->g, l->h, relu_of(q), b->block, q->n);
  else if (b->s.inner == 1)
    b->r->norm->col_affine2(dx, q->dy, q->x, l->f, l->g, l->h, q->n);
  else
    b->r->affine2(dx, q->dy, q->x, l->f[i], l->g[i], l->h[i], q->n);
  store_at(b, b->dx, q->at, q->n, floats);
}

static void move_average(
    void *moving, const struct vec_ops *r, int64_t c, double momentum, double now)
{
  r->set(moving, c, r->get(moving, c) * momentum + now * (1 - momentum));
}

/* Computes the gradients of n channels from channel c on, and updates their moving statistics. */
static void backward_strip(const struct batch_norm *b, int64_t c, int64_t n)
{
  double mean[STRIP], var[STRIP], inverse[STRIP], sum[STRIP] = { 0 }, dot[STRIP] = { 0 };
  double a[STRIP] = { 0 }, d[STRIP] = { 0 };
  const struct ramp relu = { a, d };
  struct line l;
  const struct vec_ops *r = b->r;
  recall_statistics(b, c, n, mean, var, inverse);
  for (int64_t i = 0; b->relu && i < n; i++)
    compute_affine(b, c + i, mean[i], inverse[i], &a[i], &d[i]);
  all_chunks(b, c, n, &relu, add_chunk, &(struct gradient_sums){ mean, sum, dot });
  for (int64_t i = 0; i < n; i++) {
    l.f[i] = gamma_of(b, c + i) * inverse[i];
    l.g[i] = b->batch ? -l.f[i] * inverse[i] * inverse[i] * dot[i] / count_of(b) : 0;
    l.h[i] = b->batch ? -l.f[i] * sum[i] / count_of(b) - l.g[i] * mean[i] : 0;
    if (b->dgamma) r->set(b->dgamma, c + i, b->p->fix_gamma ? 0 : dot[i] * inverse[i]);
    if (b->dbeta) r->set(b->dbeta, c + i, sum[i]);
    if (!b->batch) continue;
    move_average(b->moving_mean, r, c + i, b->p->momentum, mean[i]);
    move_average(b->moving_var, r, c + i, b->p->momentum, var[i]);
  }
  if (b->dx) all_chunks(b, c, n, &relu, write_chunk, &l);
}

/* -- kernels ----------------------------------------------------------------------------------- */

static int64_t strip_of(const struct batch_norm *b)
{
  return b->block ? b->block : b->s.inner == 1 ? STRIP : 1;
}

static void forward_body(int64_t begin, int64_t end, void *context)
{
  const struct batch_norm *b = context;
  int64_t strip = strip_of(b);
  for (int64_t i = begin; i < end; i++) forward_strip(b, i * strip, MIN(strip, b->s.k - i * strip));
}

static void backward_body(int64_t begin, int64_t end, void *context)
{
  const struct batch_norm *b = context;
  int64_t strip = strip_of(b);
  for (int64_t i = begin; i < end; i++)
    backward_strip(b, i * strip, MIN(strip, b->s.k - i * strip));
}

static void norm_run(const struct batch_norm *b, void (*body)(int64_t, int64_t, void *))
{
  int64_t strip = strip_of(b);
  parallel_for((b->s.k + strip - 1) / strip, elements_ns(b->s.outer * b->s.inner * strip), body,
      (void *)(uintptr_t)b);
}

static struct batch_norm make_batch_norm(const struct call *c, const struct operand *x)
{
  const struct norm_param *p = c->param;
  const ty_desc *d = &x->d;
  const bool half = d->dtype == TY_F16 || d->dtype == TY_BF16;
  int axis = axis_in(p->axis, d->ndim);
  return (struct batch_norm){ .r = vec_ops_of(half ? TY_F32 : d->dtype),
    .widen = half ? cast_between(d->dtype, TY_F32) : NULL,
    .narrow = half ? cast_between(TY_F32, d->dtype) : NULL,
    .p = p,
    .s = split_at(d, axis),
    .batch = c->run->is_train && !p->use_global_stats,
    .block = x->block,
    .relu = find_fused(c, POST_ACT) || find_fused(c, PRE_ACT_GRAD),
    .v1 = p->gives_variance };
}

static int norm_forward(struct call *c)
{
  struct batch_norm b = make_batch_norm(c, &c->in[0]);
  b.x = c->in[0].p;
  b.gamma = c->in[1].p;
  b.beta = c->in[2].p;
  b.moving_mean = c->in[3].p;
  b.moving_var = c->in[4].p;
  b.y = c->out[0].p;
  b.mean = c->out[1].p;
  b.third = c->out[2].p;
  if (c->nout > 3) b.relu = true, b.mask = c->out[3].p;
  norm_run(&b, forward_body);
  if (b.p->fix_gamma && c->with_grad)
    vec_ops_of(c->in[1].d.dtype)->fill(c->in[1].p, 1, desc_count(&c->in[1].d));
  return TY_OK;
}

/* Computes the gradients. in: head gradient, data, gamma, mean, third output, moving_mean,
** moving_var, beta, and for an operator with relu the output, which is not read, since its zeros
** follow from the data. */
static int norm_backward(struct call *c)
{
  struct batch_norm b = make_batch_norm(c, &c->in[1]);
  b.dy = c->in[0].p;
  b.x = c->in[1].p;
  b.gamma = c->in[2].p;
  b.mean = c->in[3].p;
  b.third = c->in[4].p;
  b.moving_mean = c->in[5].p;
  b.moving_var = c->in[6].p;
  b.beta = c->in[7].p;
  b.dx = c->out[0].p;
  b.dgamma = c->out[1].p;
  b.dbeta = c->out[2].p;
  b.relu |= c->nin > 8;
  norm_run(&b, backward_body);
  return TY_OK;
}

/* Sets a and d of each channel if the statistics are fixed and channels are on axis 1
** (kernel.affine). */
static bool norm_affine(const struct call *c, double *a, double *d)
{
  struct batch_norm b = make_batch_norm(c, &c->in[0]);
  double mean, var;
  b.gamma = c->in[1].p;
  b.beta = c->in[2].p;
  b.moving_mean = c->in[3].p;
  b.moving_var = c->in[4].p;
  for (int64_t i = 0; a && !b.batch && i < b.s.k; i++) {
    compute_moments(&b, i, 1, &mean, &var);
    compute_affine(&b, i, mean, 1 / sqrt(var + b.p->eps), &a[i], &d[i]);
  }
  return !b.batch;
}

static const char *const OTHER_AXIS = "another axis is normalised";

/* Refuses all axes but 1: blocks hold channels of that axis. */
static const char *refuse_plain(const struct call *c)
{
  if (!c->in[0].block) return "channels are not in blocks";
  return ((const struct norm_param *)c->param)->axis == 1 ? NULL : OTHER_AXIS;
}

/* Refuses a normalised axis other than the channels. */
static const char *refuse_axis(const struct call *c)
{
  return ((const struct norm_param *)c->param)->axis == 1 ? NULL : OTHER_AXIS;
}

/* Parameters and statistics of half types are float32 (norm_type). */
enum { T_HALVES = T(TY_F16) | T(TY_BF16) | T(TY_F32) };

static const char *refuse_single(const struct call *c)
{
  const int dtype = c->in[0].d.dtype;
  return dtype == TY_F16 || dtype == TY_BF16 ? NULL : "data is not of a half type";
}

static const struct kernel norm_cpu[] = {
  { "half rows", norm_forward, T_HALVES, refuse_single, .fuses = CAN(POST_ACT) },
  { "blocks", norm_forward,  T(TY_F32), refuse_plain, .flags = K_ALIKE,
    .blocks = IN_BLOCKS(1 | 1 << 5, 1), .affine = norm_affine,
    .fuses = CAN(POST_ACT) },
  { "planes", norm_forward,  T(TY_F32), refuse_axis, .affine = norm_affine,
    .fuses = CAN(POST_ACT) },
  { "rows",   norm_forward,  T_FLOAT, .fuses = CAN(POST_ACT) }, { 0 }
};
static const struct kernel norm_back_cpu[] = {
  { "half rows", norm_backward, T_HALVES, refuse_single, .fuses = CAN(PRE_ACT_GRAD) },
  { "blocks", norm_backward, T(TY_F32), refuse_plain, .flags = K_ALIKE,
    .blocks = IN_BLOCKS(3, 1), .fuses = CAN(PRE_ACT_GRAD) },
  { "rows",   norm_backward, T_FLOAT, .fuses = CAN(PRE_ACT_GRAD) }, { 0 }
};
static const struct kernel relu_cpu[] = {
  { "half rows", norm_forward, T_HALVES, refuse_single },
  { "rows",      norm_forward, T_FLOAT }, { 0 }
};
static const struct kernel relu_back_cpu[] = {
  { "half rows", norm_backward, T_HALVES, refuse_single },
  { "rows",      norm_backward, T_FLOAT }, { 0 }
};

#define SHARED \
  .in = "data gamma beta moving_mean! moving_var!", .in_of = norm_in, \
  .shown = "g0 o1 o2 i0 i1 i2 i3 i4", \
  .param_size = sizeof(struct norm_param), .shape = norm_shape, .type = norm_type
#define NORM \
  SHARED, .inplace = "0=0", .cpu = norm_cpu, .out_of = norm_out, \
  .grad = "g0 i0 i1 o1 o2 i3! i4! i2", .back_cpu = norm_back_cpu

const struct op op_batch_norm[] = {
  { .name = "BatchNorm", .alias = "_npx_batch_norm", NORM, .param = norm_params,
    .doc = "(x - mean) / sqrt(var + eps) gamma + beta per channel: batch statistics in training, moving ones otherwise; "
           "a training backward moves the moving statistics. Outputs mean and var are the mean and 1 / sqrt(var + eps)." },
  { .name = "BatchNorm_v1", NORM, .param = norm1_params, .check = norm1_check,
    .doc = "Older BatchNorm with channels on axis 1; its third output is the variance." },
  { .name = "_contrib_SyncBatchNorm", NORM, .param = sync_params, .check = sync_check,
    .doc = "BatchNorm whose statistics are meant to span devices; here of one device." },
  { .name = "_contrib_BatchNormWithReLU", SHARED, .out_of = relu_out, .param = norm_params,
    .grad = "g0 i0 i1 o1 o2 i3! i4! i2 o0", .cpu = relu_cpu, .back_cpu = relu_back_cpu,
    .doc = "max(BatchNorm(x), 0)." },
  { 0 }
};
