/* norms.c - normalisation over rows (LayerNorm, InstanceNorm, GroupNorm, L2Normalization:
** kernels/norm_rows.cu) and over channels (BatchNorm and its like: kernels/channels.cu). */
#include "cuda/reduce.h"
#include "kernel/vec/vec.h"

/* -- rows -------------------------------------------------------------------------------------- */

enum { LAYER, INSTANCE, GROUP };
/* shared: one gain for a row; deviation: the third output is sqrt(var + eps) */
struct row_norm {
  struct { int64_t rows, k, inner, groups, parts; double eps; } args;
  bool shared, deviation;
  int dtype, team;
};

static struct row_norm rows_of(const struct call *c, const ty_desc *d)
{
  struct row_norm n = { .deviation = true, .dtype = d->dtype };
  n.args.groups = n.args.inner = 1;
  n.args.eps = cuda_number(c, "eps", 1e-5);
  if (cuda_what(c) == LAYER) {
    int axis = (int)cuda_number(c, "axis", -1);
    struct split s = split_at(d, axis_in(axis, d->ndim));
    n.args.rows = s.outer * s.inner;
    n.args.k = s.k;
    n.args.inner = s.inner;
  }
  else {
    n.shared = true;
    n.deviation = cuda_what(c) == GROUP;
    n.args.groups = n.deviation ? (int64_t)cuda_number(c, "num_groups", 1) : d->dim[1];
    n.args.rows = d->dim[0] * n.args.groups;
    n.args.k = desc_count(d) / n.args.rows;
  }
  n.args.parts = MAX(MIN(MIN(256, n.args.rows / 16), (1 << 17) / n.args.k), 1);
  n.team = cuda_team(n.args.rows, n.args.k, n.args.inner);
  return n;
}

static int rows_family(
    const struct call *c, const struct row_norm *n, const char *name, cu_function *f)
{
  return cuda_family(c->device, FAMILY_norm_rows, name, f, "T=%s SHARED=%d DEVIATION=%d TEAM=%d",
      cuda_type(n->dtype), n->shared, n->deviation, n->team);
}

static int rows_forward(struct call *c)
{
  struct row_norm n = rows_of(c, &c->in[0].d);
  cu_function f;
  TRY(rows_family(c, &n, "norm_rows", &f));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->out[2].p, &c->in[0].p, &c->in[1].p,
    &c->in[2].p, &n.args };
  return cuda_run(c, f, n.args.rows * n.team, params);
}

/* What is added to the gradients of gamma and beta, in parts that are then reduced: the rows of one
** sample, or the parts of all rows. */
static struct reduce gain_reduction(const struct row_norm *n)
{
  return n->shared ? cuda_reduce_all_but(TY_F64, n->args.rows / n->args.groups, n->args.groups, 1)
                   : cuda_reduce_all_but(TY_F64, n->args.parts, n->args.k, 1);
}

static size_t gain_bytes(const struct reduce *r)
{
  return align_up(sizeof(double) * (size_t)r->in, ALIGN);
}

static size_t rows_scratch(const struct call *c)
{
  struct row_norm n = rows_of(c, &c->in[1].d);
  struct reduce r = gain_reduction(&n);
  return 2 * gain_bytes(&r) + cuda_reduce_scratch(&r);
}

static int reduce_gains(
    struct call *c, const struct reduce *r, const struct operand *out, const void *parts, void *tmp)
{
  struct cuda_reduce f = { R_SUM, F_NONE, out->d.dtype, parts, .y = out->p };
  return out->p ? cuda_reduce(c->device, r, &f, tmp) : TY_OK;
}

/* in: head gradient, data, gamma, mean, third output */
static int rows_backward(struct call *c)
{
  struct row_norm n = rows_of(c, &c->in[1].d);
  struct reduce r = gain_reduction(&n);
  bool gains = c->out[1].p || c->out[2].p;
  char *at = c->tmp;
  void *dgamma = cuda_piece(&at, gain_bytes(&r)), *dbeta = cuda_piece(&at, gain_bytes(&r));
  void *none = NULL;
  cu_function f;
  if (c->out[0].p || (gains && n.shared)) {
    TRY(rows_family(c, &n, "norm_rows_back", &f));
    void *params[] = { &c->out[0].p, gains ? &dgamma : &none, &dbeta, &c->in[0].p, &c->in[1].p,
      &c->in[2].p, &c->in[3].p, &c->in[4].p, &n.args };
    TRY(cuda_run(c, f, n.args.rows * n.team, params));
  }
  if (!gains) return TY_OK;
  if (!n.shared) {
    TRY(rows_family(c, &n, "gain_parts", &f));
    void *params[] = { &dgamma, &dbeta, &c->in[0].p, &c->in[1].p, &c->in[3].p, &c->in[4].p,
      &n.args };
    TRY(cuda_run(c, f, r.in, params));
  }
  TRY(reduce_gains(c, &r, &c->out[1], dgamma, at));
  return reduce_gains(c, &r, &c->out[2], dbeta, at);
}

/* -- L2Normalization --------------------------------------------------------------------------- */

enum { L2_CHANNEL, L2_INSTANCE, L2_SPATIAL };

static struct row_norm l2_of(const struct call *c, const ty_desc *d)
{
  int mode = (int)cuda_number(c, "mode", L2_INSTANCE);
  int64_t outer = d->dim[0] * (mode == L2_SPATIAL ? d->dim[1] : 1);
  struct split s = { outer, desc_count(d) / outer, 1 };
  struct row_norm n = { .dtype = d->dtype };
  if (mode == L2_CHANNEL) s = split_at(d, 1);
  n.args.rows = s.outer * s.inner;
  n.args.k = s.k;
  n.args.inner = s.inner;
  n.args.eps = cuda_number(c, "eps", 1e-10);
  n.team = cuda_team(n.args.rows, s.k, s.inner);
  return n;
}

static int l2_forward(struct call *c)
{
  struct row_norm n = l2_of(c, &c->in[0].d);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(rows_family(c, &n, "l2_rows", &f));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->in[0].p, &n.args };
  return cuda_run(c, f, n.args.rows * n.team, params);
}

/* in: head gradient, output, norm */
static int l2_backward(struct call *c)
{
  struct row_norm n = l2_of(c, &c->in[1].d);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(rows_family(c, &n, "l2_rows_back", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &c->in[2].p, &n.args };
  return cuda_run(c, f, n.args.rows * n.team, params);
}

/* -- BatchNorm --------------------------------------------------------------------------------- */

enum { PLAIN, WITH_VARIANCE, WITH_RELU };
/* batch: by the statistics of the batch; variance: the third output is it */
struct channel_norm {
  struct split s;
  int64_t n;
  int dtype, params;
  bool relu;
  struct { int64_t k; double eps, momentum, count; int32_t fixed, batch, variance, ones; } args;
};

static struct channel_norm channels_of(const struct call *c, int data)
{
  const ty_desc *d = &c->in[data].d;
  int axis = (int)cuda_number(c, "axis", 1);
  struct channel_norm b = { .s = split_at(d, axis_in(axis, d->ndim)),
    .n = desc_count(d), .dtype = d->dtype, .params = c->in[data + 1].d.dtype,
    .relu = cuda_what(c) == WITH_RELU };
  if (c->in[data].block) b.s = (struct split){ b.n / b.s.k, b.s.k, 1 };
  b.args.k = b.s.k;
  b.args.eps = cuda_number(c, "eps", 1e-3);
  b.args.momentum = cuda_number(c, "momentum", 0.9);
  b.args.count = (double)(b.n / b.s.k);
  b.args.fixed = cuda_flag(c, "fix_gamma");
  b.args.batch = c->run && c->run->is_train && !cuda_flag(c, "use_global_stats");
  b.args.variance = cuda_what(c) == WITH_VARIANCE;
  return b;
}

static int channels_family(
    const struct call *c, const struct channel_norm *b, const char *name, cu_function *f)
{
  return cuda_family(c->device, FAMILY_channels, name, f, "T=%s P=%s RELU=%d INDEX=%s",
      cuda_type(b->dtype), cuda_type(b->params), b->relu, cuda_index(b->n));
}

static size_t channel_bytes(const struct channel_norm *b)
{
  return align_up(dtype_size(b->params) * (size_t)b->s.k, ALIGN);
}

static struct reduce channel_reduction(const struct channel_norm *b)
{
  return cuda_reduce_all_but(b->dtype, b->s.outer, b->s.k, b->s.inner);
}

static size_t batch_scratch(const struct call *c)
{
  struct channel_norm b = channels_of(c, 0);
  struct reduce r = channel_reduction(&b);
  return 4 * channel_bytes(&b) + cuda_reduce_scratch(&r);
}

static int batch_forward(struct call *c)
{
  struct channel_norm b = channels_of(c, 0);
  struct reduce r = channel_reduction(&b);
  size_t bytes = channel_bytes(&b);
  char *at = c->tmp;
  void *a = cuda_piece(&at, bytes), *d = cuda_piece(&at, bytes);
  void *mean = c->in[3].p, *var = c->in[4].p;
  cu_function f;
  if (b.args.batch) {
    struct cuda_reduce reduction = { R_SUM, F_MEAN, b.params, c->in[0].p };
    reduction.y = mean = cuda_piece(&at, bytes);
    var = cuda_piece(&at, bytes);
    TRY(cuda_reduce(c->device, &r, &reduction, at));
    reduction.kind = R_DEVIATION;
    reduction.centre = mean;
    reduction.y = var;
    TRY(cuda_reduce(c->device, &r, &reduction, at));
  }
  b.args.ones = b.args.fixed && c->with_grad;
  TRY(channels_family(c, &b, "batch_lines", &f));
  void *lines[] = { &a, &d, &c->out[1].p, &c->out[2].p, &mean, &var, &c->in[1].p, &c->in[2].p,
    &b.args };
  TRY(cuda_run(c, f, b.s.k, lines));
  if (!c->out[0].p) return TY_OK;
  void *mask = c->nout > 3 ? c->out[3].p : NULL;
  TRY(channels_family(c, &b, "channel_line", &f));
  void *params[] = { &c->out[0].p, &mask, &c->in[0].p, &a, &d, &b.n, &b.s.k, &b.s.inner };
  return cuda_run(c, f, b.n, params);
}

static size_t batch_back_scratch(const struct call *c)
{
  struct channel_norm b = channels_of(c, 1);
  struct reduce r = channel_reduction(&b);
  size_t masked = b.relu ? align_up(desc_bytes(&c->in[1].d), ALIGN) : 0;
  return masked + 5 * channel_bytes(&b) + cuda_reduce_scratch(&r);
}

/* in: head gradient, data, gamma, mean, third output, moving_mean, moving_var, beta, and the
** output with relu */
static int batch_backward(struct call *c)
{
  struct channel_norm b = channels_of(c, 1);
  struct reduce r = channel_reduction(&b);
  size_t bytes = channel_bytes(&b);
  char *at = c->tmp;
  void *sums = cuda_piece(&at, bytes), *dots = cuda_piece(&at, bytes), *line[3], *dy = c->in[0].p;
  void *mean = c->in[b.args.batch ? 3 : 5].p, *third = c->in[b.args.batch ? 4 : 6].p;
  cu_function f;
  for (int i = 0; i < 3; i++) line[i] = cuda_piece(&at, bytes);
  if (b.relu) {
    dy = cuda_piece(&at, desc_bytes(&c->in[1].d));
    TRY(channels_family(c, &b, "where_live", &f));
    void *params[] = { &dy, &c->in[0].p, &c->in[8].p, &b.n };
    TRY(cuda_run(c, f, b.n, params));
  }
  struct cuda_reduce sum = { R_SUM, F_NONE, b.params, dy, .y = sums };
  struct cuda_reduce dot = { R_DOT, F_NONE, b.params, dy, c->in[1].p, mean, dots };
  TRY(cuda_reduce(c->device, &r, &sum, at));
  TRY(cuda_reduce(c->device, &r, &dot, at));
  TRY(channels_family(c, &b, "batch_planes", &f));
  void *planes[] = { &line[0], &line[1], &line[2], &c->out[1].p, &c->out[2].p, &sums, &dots, &mean,
    &third, &c->in[2].p, &c->in[5].p, &c->in[6].p, &b.args };
  TRY(cuda_run(c, f, b.s.k, planes));
  if (!c->out[0].p) return TY_OK;
  TRY(channels_family(c, &b, "channel_plane", &f));
  void *params[] = { &c->out[0].p, &dy, &c->in[1].p, &line[0], &line[1], &line[2], &b.n, &b.s.k,
    &b.s.inner };
  return cuda_run(c, f, b.n, params);
}

/* -- IdentityAttachKLSparseReg ----------------------------------------------------------------- */

static struct channel_norm units_of(const struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  return (struct channel_norm){ .s = split_at(d, d->ndim > 1), .n = desc_count(d),
    .dtype = d->dtype, .params = c->in[2].d.dtype };
}

static size_t sparse_scratch(const struct call *c)
{
  struct channel_norm b = units_of(c);
  struct reduce r = channel_reduction(&b);
  return 3 * channel_bytes(&b) + cuda_reduce_scratch(&r);
}

/* in: head gradient, data, moving average */
static int sparse_backward(struct call *c)
{
  struct channel_norm b = units_of(c);
  struct reduce r = channel_reduction(&b);
  size_t bytes = channel_bytes(&b);
  char *at = c->tmp;
  void *a = cuda_piece(&at, bytes), *d = cuda_piece(&at, bytes), *none = NULL;
  void *mean = cuda_piece(&at, bytes);
  struct cuda_reduce reduction = { R_SUM, F_MEAN, b.params, c->in[1].p, .y = mean };
  double target = cuda_number(c, "sparseness_target", 0.1);
  double penalty = cuda_number(c, "penalty", 0.001), momentum = cuda_number(c, "momentum", 0.9);
  cu_function f;
  TRY(cuda_reduce(c->device, &r, &reduction, at));
  TRY(channels_family(c, &b, "sparse_lines", &f));
  void *lines[] = { &a, &d, &c->in[2].p, &mean, &b.s.k, &target, &penalty, &momentum };
  TRY(cuda_run(c, f, b.s.k, lines));
  if (!c->out[0].p) return TY_OK;
  TRY(channels_family(c, &b, "channel_line", &f));
  void *params[] = { &c->out[0].p, &none, &c->in[0].p, &a, &d, &b.n, &b.s.k, &b.s.inner };
  return cuda_run(c, f, b.n, params);
}

/* -- the table --------------------------------------------------------------------------------- */

static const struct kernel rows[] = { { "rows", rows_forward, T_FLOATS }, { 0 } };
static const struct kernel rows_back[] = {
  { "rows", rows_backward, T_FLOATS, .scratch = rows_scratch }, { 0 }
};
static const struct kernel lengths[] = { { "rows", l2_forward, T_FLOATS }, { 0 } };
static const struct kernel lengths_back[] = { { "rows", l2_backward, T_FLOATS }, { 0 } };
static const char *batch_refuse(const struct call *c)
{
  return in_blocks(c) && cuda_number(c, "axis", 1) != 1 ? "an axis of space" : NULL;
}
static const struct kernel batch[] = {
  { "channels", batch_forward, T_FLOATS, batch_refuse, batch_scratch, .flags = K_ALIKE,
    .blocks = IN_BLOCKS(1, 1 | 1 << 3) },
  { 0 }
};
static const struct kernel batch_back[] = {
  { "channels", batch_backward, T_FLOATS, batch_refuse, batch_back_scratch, .flags = K_ALIKE,
    .blocks = IN_BLOCKS(3 | 1 << 8, 1) },
  { 0 }
};
static const struct kernel sparse_back[] = {
  { "channels", sparse_backward, T_FLOATS, .scratch = sparse_scratch }, { 0 }
};

const struct op_kernels cuda_norms[] = {
  { "LayerNorm", rows, rows_back, LAYER },
  { "InstanceNorm", rows, rows_back, INSTANCE },
  { "GroupNorm", rows, rows_back, GROUP },
  { "L2Normalization", lengths, lengths_back },
  { "BatchNorm", batch, batch_back },
  { "BatchNorm_v1", batch, batch_back, WITH_VARIANCE },
  { "_contrib_SyncBatchNorm", batch, batch_back },
  { "_contrib_BatchNormWithReLU", batch, batch_back, WITH_RELU },
  { "IdentityAttachKLSparseReg", cuda_copies, sparse_back },
  { 0 }
};
