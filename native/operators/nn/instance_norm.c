/* instance_norm.c - InstanceNorm, GroupNorm, L2Normalization, LRN.
**
** InstanceNorm and GroupNorm are one kernel: data is (batch, groups, members), a group's members
** are normalised together and scaled by the group's gamma and beta (InstanceNorm: a group is a
** channel).
*/
#include "kernel/vec/norm.h"
#include "op/op.h"

/* num_groups 0: InstanceNorm */
struct group_param { int64_t num_groups, output_mean_var; double eps; };
static const struct param instance_params[] = {
  { "eps",             P_FLOAT, offsetof(struct group_param, eps),             "0.001", "added to the variance" },
  { 0 }
};
static const struct param group_params[] = {
  { "num_groups",      P_INT,   offsetof(struct group_param, num_groups),      "1",
    "groups into which the channels are split", NULL, "[1,]" },
  { "eps",             P_FLOAT, offsetof(struct group_param, eps),             "1e-05", "added to the variance" },
  { "output_mean_var", P_BOOL,  offsetof(struct group_param, output_mean_var), "0",
    "mean and standard deviation are outputs" },
  { 0 }
};

static const char *group_out(const void *p)
{
  return ((const struct group_param *)p)->output_mean_var ? "output mean std"
                                                          : "output [mean] [std]";
}

static int group_shape(struct infer *s)
{
  const struct group_param *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc d = s->in[0];
  if (!d.ndim) return TY_OK;
  if (d.ndim < 3)
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "expected at least 3 dimensions (batch, channels, space), got %d", d.ndim);
  int64_t moments[2] = { d.dim[0], p->num_groups ? p->num_groups : d.dim[1] };
  if (p->num_groups && d.dim[1] % p->num_groups)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "%lld channels cannot be split into %lld groups",
        (long long)d.dim[1], (long long)p->num_groups);
  for (int i = 1; i < 3; i++) TRY(shape_is(s, &s->in[i], 1, &moments[1]));
  for (int i = 1; i < 3; i++) TRY(shape_is(s, &s->out[i], 2, moments));
  return TY_OK;
}

struct group_norm {
  const struct vec_ops *r;
  int64_t batch, groups, members;
  double  eps;
  /* the third output is sqrt(var + eps), not var */
  bool    std;
  const void *x, *gamma, *beta, *dy, *mean, *third;
  void   *y, *out_mean, *out_third, *dx, *dgamma, *dbeta;
};

static struct group_norm make_group_norm(const struct call *c, const ty_desc *d)
{
  const struct group_param *p = c->param;
  struct group_norm g = { .r = vec_ops_of(d->dtype),
    .batch = d->dim[0],
    .groups = p->num_groups ? p->num_groups : d->dim[1],
    .eps = p->eps,
    .std = p->num_groups };
  g.members = desc_count(d) / (g.batch * g.groups);
  return g;
}

static void group_forward_body(int64_t begin, int64_t end, void *context)
{
  const struct group_norm *g = context;
  const struct vec_ops *r = g->r;
  for (int64_t i = begin; i < end; i++) {
    void *x = vec_at(r, g->x, i * g->members);
    double mean = r->sum(x, g->members) / (double)g->members,
           var = r->sum_square(x, mean, g->members) / (double)g->members;
    double std = sqrt(var + g->eps), a = r->get(g->gamma, i % g->groups) / std;
    if (g->y)
      r->affine(vec_at(r, g->y, i * g->members), x, a, r->get(g->beta, i % g->groups) - mean * a,
          g->members);
    if (g->out_mean) r->set(g->out_mean, i, mean);
    if (g->out_third) r->set(g->out_third, i, g->std ? std : var);
  }
}

static void group_backward_body(int64_t begin, int64_t end, void *context)
{
  const struct group_norm *g = context;
  const struct vec_ops *r = g->r;
  double n = (double)g->members;
  for (int64_t k = begin; k < end; k++) {
    double dgamma = 0, dbeta = 0, gamma = r->get(g->gamma, k), of[2];
    for (int64_t i = k; i < g->batch * g->groups; i += g->groups) {
      void *x = vec_at(r, g->x, i * g->members), *dy = vec_at(r, g->dy, i * g->members);
      double mean = r->get(g->mean, i), third = r->get(g->third, i),
             s = g->std ? 1 / third : 1 / sqrt(third + g->eps);
      r->sum_dot(dy, x, mean, g->members, of);
      dbeta += of[0];
      dgamma += of[1] * s;
      double a = gamma * s, b = -a * s * s * of[1] / n;
      if (g->dx)
        r->affine2(
            vec_at(r, g->dx, i * g->members), dy, x, a, b, -a * of[0] / n - b * mean, g->members);
    }
    if (g->dgamma) r->set(g->dgamma, k, dgamma);
    if (g->dbeta) r->set(g->dbeta, k, dbeta);
  }
}

static int group_forward(struct call *c)
{
  struct group_norm g = make_group_norm(c, &c->in[0].d);
  g.x = c->in[0].p;
  g.gamma = c->in[1].p;
  g.beta = c->in[2].p;
  g.y = c->out[0].p;
  g.out_mean = c->out[1].p;
  g.out_third = c->out[2].p;
  parallel_for(g.batch * g.groups, elements_ns(3 * g.members), group_forward_body, &g);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, data, gamma, mean, var or std. */
static int group_backward(struct call *c)
{
  struct group_norm g = make_group_norm(c, &c->in[1].d);
  g.dy = c->in[0].p;
  g.x = c->in[1].p;
  g.gamma = c->in[2].p;
  g.mean = c->in[3].p;
  g.third = c->in[4].p;
  g.dx = c->out[0].p;
  g.dgamma = c->out[1].p;
  g.dbeta = c->out[2].p;
  parallel_for(g.groups, elements_ns(3 * g.members * g.batch), group_backward_body, &g);
  return TY_OK;
}

static int group_lead(const struct call *c) { return 1; }

static const struct kernel group_cpu[] = {
  { "rows", group_forward, T_FLOAT, .lead = group_lead, .whole = 1 << 1 | 1 << 2 }, { 0 }
};
static const struct kernel group_back_cpu[] = { { "rows", group_backward, T_FLOAT }, { 0 } };

/* -- L2Normalization --------------------------------------------------------------------------- */

struct l2_param { double eps; int64_t mode; };
enum { L2_CHANNEL, L2_INSTANCE, L2_SPATIAL };
static const struct param l2_params[] = {
  { "eps",  P_FLOAT, offsetof(struct l2_param, eps),  "1e-10",    "added to the sum of squares" },
  { "mode", P_ENUM,  offsetof(struct l2_param, mode), "instance",
    "what is divided by its norm: each sample, each channel, or all channels of a place", "channel|instance|spatial" },
  { 0 }
};

static int l2_shape(struct infer *s)
{
  const struct l2_param *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc d = s->in[0], norm = d;
  if (!d.ndim) return TY_OK;
  if (p->mode != L2_INSTANCE && d.ndim < 3)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "mode %s needs at least 3 dimensions, got %d",
        p->mode == L2_CHANNEL ? "channel" : "spatial", d.ndim);
  if (p->mode == L2_CHANNEL)
    norm.dim[1] = 1;
  else
    norm.ndim = p->mode == L2_INSTANCE ? 1 : 2;
  return shape_as(s, &s->out[1], &norm);
}

/* (outer, k, inner): with inner = 1 rows of k elements, else columns. */
struct l2 {
  const struct vec_ops *r;
  struct split s;
  double eps;
  const void *x, *dy, *y, *norm;
  void *out, *out_norm;
};

static struct split l2_split(const ty_desc *d, int64_t mode)
{
  if (mode == L2_CHANNEL) return split_at(d, 1);
  int64_t outer = d->dim[0] * (mode == L2_SPATIAL ? d->dim[1] : 1);
  return (struct split){ outer, desc_count(d) / outer, 1 };
}

static void l2_row(const struct l2 *l, int64_t i)
{
  const struct vec_ops *r = l->r;
  int64_t k = l->s.k, start = i * k;
  if (l->dy) {
    double norm = r->get(l->norm, i),
           dot = r->dot(vec_at(r, l->dy, start), vec_at(r, l->y, start), k);
    r->affine2(vec_at(r, l->out, start), vec_at(r, l->dy, start), vec_at(r, l->y, start), 1 / norm,
        -dot / norm, 0, k);
    return;
  }
  double norm = sqrt(r->dot(vec_at(r, l->x, start), vec_at(r, l->x, start), k) + l->eps);
  if (l->out_norm) r->set(l->out_norm, i, norm);
  if (l->out) r->affine(vec_at(r, l->out, start), vec_at(r, l->x, start), 1 / norm, 0, k);
}

static void l2_body(int64_t begin, int64_t end, void *context)
{
  const struct l2 *l = context;
  const struct vec_ops *r = l->r;
  int64_t strips = (l->s.inner + ROW_COLS - 1) / ROW_COLS;
  for (int64_t i = begin; i < end; i++) {
    int64_t o = i / strips, from = i % strips * ROW_COLS, start = o * l->s.k * l->s.inner + from,
            norm = o * l->s.inner + from;
    int64_t n = MIN(ROW_COLS, l->s.inner - from);
    if (l->s.inner == 1)
      l2_row(l, i);
    else if (l->dy)
      r->norm->l2_cols_back(vec_at(r, l->out, start), vec_at(r, l->dy, start),
          vec_at(r, l->y, start), vec_at(r, l->norm, norm), l->s.k, l->s.inner, n);
    else
      r->norm->l2_cols(vec_at(r, l->out, start), vec_at(r, l->out_norm, norm),
          vec_at(r, l->x, start), l->eps, l->s.k, l->s.inner, n);
  }
}

static int l2_run(const struct call *c, struct l2 *l, const ty_desc *d)
{
  const struct l2_param *p = c->param;
  l->r = vec_ops_of(d->dtype);
  l->s = l2_split(d, p->mode);
  l->eps = p->eps;
  if (l->out)
    parallel_for(l->s.outer * ((l->s.inner + ROW_COLS - 1) / ROW_COLS),
        elements_ns(2 * l->s.k * MIN(l->s.inner, ROW_COLS)), l2_body, l);
  return TY_OK;
}

static int l2_forward(struct call *c)
{
  struct l2 l = { .x = c->in[0].p, .out = c->out[0].p, .out_norm = c->out[1].p };
  return l2_run(c, &l, &c->in[0].d);
}

/* Computes the gradient. in: head gradient, output, norm. */
static int l2_backward(struct call *c)
{
  struct l2 l = { .dy = c->in[0].p, .y = c->in[1].p, .norm = c->in[2].p, .out = c->out[0].p };
  return l2_run(c, &l, &c->in[1].d);
}

static const struct kernel l2_cpu[] = { { "rows", l2_forward, T_FLOAT }, { 0 } };
static const struct kernel l2_back_cpu[] = { { "rows", l2_backward, T_FLOAT }, { 0 } };

/* -- LRN --------------------------------------------------------------------------------------- */

struct lrn_param { double alpha, beta, knorm; int64_t nsize; };
static const struct param lrn_params[] = {
  { "alpha", P_FLOAT, offsetof(struct lrn_param, alpha), "0.0001", "weight of the mean square of the window" },
  { "beta",  P_FLOAT, offsetof(struct lrn_param, beta),  "0.75",   "exponent" },
  { "knorm", P_FLOAT, offsetof(struct lrn_param, knorm), "2",      "added to it" },
  { "nsize", P_INT,   offsetof(struct lrn_param, nsize), NULL,     "channels of the window, an odd number" },
  { 0 }
};

static int lrn_check(void *param)
{
  const struct lrn_param *p = param;
  NEED(p->nsize > 0 && p->nsize % 2, TY_EVALUE, "parameter nsize: expected an odd number, got %lld",
      (long long)p->nsize);
  return TY_OK;
}

static int lrn_shape(struct infer *s)
{
  TRY(shape_all(s));
  const ty_desc *d = &s->in[0];
  if (d->ndim && d->ndim != 4)
    return infer_fail(
        s, TY_ESHAPE, d, "expected (batch, channels, height, width), got %d dimensions", d->ndim);
  return TY_OK;
}

struct local {
  const struct vec_ops *r;
  struct split s;
  struct lrn p;
  const void *x, *norm, *dy;
  void *y, *out_norm, *work;
};

static void lrn_body(int64_t begin, int64_t end, void *context)
{
  const struct local *l = context;
  const struct vec_ops *r = l->r;
  int64_t strips = (l->s.inner + ROW_COLS - 1) / ROW_COLS;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i % strips * ROW_COLS, start = i / strips * l->s.k * l->s.inner + from,
            n = MIN(ROW_COLS, l->s.inner - from);
    void *y = vec_at(r, l->y, start), *x = vec_at(r, l->x, start);
    if (l->dy)
      r->norm->lrn_back(y, vec_at(r, l->work, start), vec_at(r, l->dy, start), x,
          vec_at(r, l->norm, start), &l->p, l->s.k, l->s.inner, n);
    else
      r->norm->lrn(y, vec_at(r, l->out_norm, start), x, &l->p, l->s.k, l->s.inner, n);
  }
}

static int lrn_run(const struct call *c, struct local *l, const ty_desc *d)
{
  const struct lrn_param *p = c->param;
  l->r = vec_ops_of(d->dtype);
  l->s = split_at(d, 1);
  l->p = (struct lrn){ p->alpha / (double)p->nsize, p->beta, p->knorm, p->nsize / 2 };
  if (l->y || l->out_norm)
    parallel_for(l->s.outer * ((l->s.inner + ROW_COLS - 1) / ROW_COLS),
        elements_ns(8 * l->s.k * MIN(l->s.inner, ROW_COLS)), lrn_body, l);
  return TY_OK;
}

static int lrn_forward(struct call *c)
{
  struct local l = { .x = c->in[0].p, .y = c->out[0].p, .out_norm = c->out[1].p };
  return lrn_run(c, &l, &c->in[0].d);
}

/* Computes the gradient. in: head gradient, data, tmp_norm. */
static int lrn_backward(struct call *c)
{
  struct local l = {
    .dy = c->in[0].p, .x = c->in[1].p, .norm = c->in[2].p, .y = c->out[0].p, .work = c->tmp
  };
  return lrn_run(c, &l, &c->in[1].d);
}

static size_t lrn_scratch(const struct call *c) { return desc_bytes(&c->in[1].d); }
static const struct kernel lrn_cpu[] = { { "rows", lrn_forward, T_FLOAT }, { 0 } };
static const struct kernel lrn_back_cpu[] = { { "rows", lrn_backward, T_FLOAT, NULL, lrn_scratch }, { 0 } };

const struct op op_instance_norm[] = {
  { .name = "InstanceNorm", .in = "data gamma beta", .out = "output [mean] [var]",
    .doc = "(x - mean) / sqrt(var + eps) gamma + beta with statistics over the space of each sample and channel.",
    .param = instance_params, .param_size = sizeof(struct group_param), .shape = group_shape, .grad = "g0 i0 i1 o1 o2",
    .cpu = group_cpu, .back_cpu = group_back_cpu },
  { .name = "GroupNorm", .in = "data gamma beta", .out_of = group_out,
    .doc = "(x - mean) / sqrt(var + eps) gamma + beta with statistics over each sample's groups of channels; gamma "
           "and beta have one entry per group.",
    .param = group_params, .param_size = sizeof(struct group_param), .shape = group_shape, .grad = "g0 i0 i1 o1 o2",
    .cpu = group_cpu, .back_cpu = group_back_cpu },
  { .name = "L2Normalization", .in = "data", .out = "output [norm]",
    .doc = "x / sqrt(sum of squares + eps) over each sample (instance), over its channels (channel), or over the "
           "space of each channel (spatial).",
    .param = l2_params, .param_size = sizeof(struct l2_param), .shape = l2_shape, .grad = "g0 o0 o1", .cpu = l2_cpu,
    .back_cpu = l2_back_cpu, .flags = OP_NAMED_INPUT },
  { .name = "LRN", .in = "data", .out = "output [tmp_norm]",
    .doc = "x (knorm + alpha / nsize * sum of squares over nsize neighbouring channels)^-beta for data (batch, "
           "channels, height, width).",
    .param = lrn_params, .param_size = sizeof(struct lrn_param), .check = lrn_check, .shape = lrn_shape, .grad = "g0 i0 o1",
    .cpu = lrn_cpu, .back_cpu = lrn_back_cpu, .flags = OP_NAMED_INPUT },
  { 0 }
};
