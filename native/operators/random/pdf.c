/* pdf.c - densities at given points: _random_pdf_*. `sample` has the dims of the parameters and
** then further ones, which form the block of samples of one element of the parameters. Parameters
** and samples of the Dirichlet law are vectors along the last axis.
**
** A law is given by its log density and the derivatives of the log density. The gradient is head
** gradient times derivative, and times the density unless is_log is set. Everything is computed in
** double, and sums over a block are taken in order. The laws of counts (Poisson and both negative
** binomial laws) have no gradient of sample. The gamma law takes a rate here, while the sampling
** operators take a scale. Parameters outside their range give NaN.
*/
#include "kernel/element/density.h"
#include "kernel/strided_copy.h"
#include "op/op.h"

/* -- laws -------------------------------------------------------------------------------------- */

struct density {
  double (*log)(double x, double a, double b);
  /* sets d to the derivatives of log by x, a and b; the caller has set d to 0 */
  void   (*slope)(double x, double a, double b, double d[3]);
};

/* -- densities of numbers ---------------------------------------------------------------------- */

struct pdf { int64_t is_log; };
static const struct param pdf_params[] = {
  { "is_log", P_BOOL, offsetof(struct pdf, is_log), "False", "the logarithm of the density instead" },
  { 0 }
};

/* The arrays of a call. Sample i has the parameters at index i / block. */
struct points {
  const struct density *law;
  const struct operand *x, *a;
  const struct operand *b;                            /* NULL: the law has one parameter */
  const struct operand *g, *y;                        /* backward: head gradient and density */
  const struct operand *out;
  int64_t block;                                      /* samples per parameter */
  bool    is_log;
};

static void store_number(const struct operand *y, int64_t i, double v)
{
  if (y->d.dtype == TY_F64)
    ((double *)y->p)[i] = v;
  else
    ((float *)y->p)[i] = (float)v;
}

static struct points make_points(
    const struct call *c, const struct density *law, const struct operand *in, int nin)
{
  const struct pdf *p = c->param;
  return (struct points){ .law = law,
    .x = in,
    .a = in + 1,
    .b = nin > 2 ? in + 2 : NULL,
    .out = c->out,
    .block = desc_count(&in[0].d) / desc_count(&in[1].d),
    .is_log = p->is_log };
}

static void density_part(int64_t begin, int64_t end, void *context)
{
  const struct points *p = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t k = i / p->block;
    double l = p->law->log(real_of(p->x, i), real_of(p->a, k), p->b ? real_of(p->b, k) : 0);
    store_number(p->out, i, p->is_log ? l : exp(l));
  }
}

static int density_run(struct call *c, const struct density *law)
{
  struct points p = make_points(c, law, c->in, c->nin);
  if (p.out->p) parallel_for_stoppable(desc_count(&p.x->d), NS_FUNCTION, density_part, &p);
  return TY_OK;
}

/* Computes the gradients of parameters begin .. end - 1 and of their samples. */
static void slope_part(int64_t begin, int64_t end, void *context)
{
  const struct points *p = context;
  for (int64_t k = begin; k < end; k++) {
    double a = real_of(p->a, k), b = p->b ? real_of(p->b, k) : 0, sum[3] = { 0 };
    for (int64_t i = k * p->block; i < (k + 1) * p->block; i++) {
      double d[3] = { 0 }, g = real_of(p->g, i) * (p->is_log ? 1 : real_of(p->y, i));
      p->law->slope(real_of(p->x, i), a, b, d);
      if (p->out[0].p) store_number(&p->out[0], i, g * d[0]);
      sum[1] += g * d[1];
      sum[2] += g * d[2];
    }
    for (int n = 1; n <= (p->b ? 2 : 1); n++)
      if (p->out[n].p) store_number(&p->out[n], k, sum[n]);
  }
}

/* Computes the gradients. in: head gradient, output, inputs. */
static int slope_run(
    struct call *c, const struct density *law)
{
  struct points p = make_points(c, law, c->in + 2, c->nin - 2);
  p.g = &c->in[0];
  p.y = &c->in[1];
  parallel_for_stoppable(desc_count(&p.a->d), cost_ns(NS_FUNCTION, p.block), slope_part, &p);
  return TY_OK;
}

/* Infers the shapes: all parameters have one shape, whose dims are the leading dims of sample. */
static int pdf_shape(struct infer *s)
{
  if (s->nin > 2) TRY(shape_both(s, &s->in[1], &s->in[2]));
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc *x = &s->in[0], *a = &s->in[1];
  char text[160];
  if (!x->ndim || !a->ndim) return TY_OK;
  text_shape(a, text, sizeof text);
  if (a->ndim > x->ndim)
    return infer_fail(
        s, TY_ESHAPE, x, "%d dims; expected first those of the parameters %s", x->ndim, text);
  for (int i = 0; i < a->ndim; i++) {
    TRY(shape_dim(s, x, i, a->dim[i]));
    for (int k = 1; k < s->nin; k++) TRY(shape_dim(s, &s->in[k], i, x->dim[i]));
  }
  return shape_both(s, x, &s->out[0]);
}

/* -- Dirichlet --------------------------------------------------------------------------------- */

/* Infers sample (a..., s..., K), alpha (a..., K), output (a..., s...). */
static int dirichlet_shape(struct infer *s)
{
  ty_desc *x = &s->in[0], *a = &s->in[1], *y = &s->out[0];
  char text[160];
  if (!x->ndim || !a->ndim) return TY_OK;
  text_shape(a, text, sizeof text);
  if (a->ndim > x->ndim || x->ndim < 2)
    return infer_fail(s, TY_ESHAPE, x,
        "%d dims; expected two or more, and no less than alpha %s has", x->ndim, text);
  for (int i = 0; i < a->ndim; i++) {
    int of = i + 1 < a->ndim ? i : x->ndim - 1;
    TRY(shape_dim(s, x, of, a->dim[i]));
    TRY(shape_dim(s, a, i, x->dim[of]));
  }
  TRY(shape_is(s, y, x->ndim - 1, x->dim));
  for (int i = 0; i < y->ndim; i++) TRY(shape_dim(s, x, i, y->dim[i]));
  return TY_OK;
}

static int64_t width_of(const struct points *p) { return p->x->d.dim[p->x->d.ndim - 1]; }

/* Returns the log density of sample i, a vector of n numbers. */
static double dirichlet_log(const struct points *p, int64_t i, int64_t n)
{
  double l = 0, sum = 0;
  for (int64_t j = 0; j < n; j++) {
    double alpha = real_of(p->a, i / p->block * n + j);
    l += times_log(alpha - 1, real_of(p->x, i * n + j)) - ln_gamma(alpha);
    sum += alpha;
  }
  return l + ln_gamma(sum);
}

static void dirichlet_part(int64_t begin, int64_t end, void *context)
{
  const struct points *p = context;
  for (int64_t i = begin; i < end; i++) {
    double l = dirichlet_log(p, i, width_of(p));
    store_number(p->out, i, p->is_log ? l : exp(l));
  }
}

static int dirichlet_run(struct call *c)
{
  struct points p = make_points(c, NULL, c->in, 2);
  if (p.out->p)
    parallel_for_stoppable(
        desc_count(&p.out->d), cost_ns(2 * NS_FUNCTION, width_of(&p)), dirichlet_part, &p);
  return TY_OK;
}

/* Computes the gradients of the vectors begin .. end - 1 of alpha and of their samples. */
static void dirichlet_slope_part(int64_t begin, int64_t end, void *context)
{
  const struct points *p = context;
  int64_t n = width_of(p);
  for (int64_t k = begin; k < end; k++) {
    double total = 0;
    for (int64_t j = 0; j < n; j++) total += real_of(p->a, k * n + j);
    for (int64_t j = 0; j < n; j++) {
      double alpha = real_of(p->a, k * n + j), mean_log = digamma(total) - digamma(alpha), sum = 0;
      for (int64_t i = k * p->block; i < (k + 1) * p->block; i++) {
        double x = real_of(p->x, i * n + j),
               g = real_of(p->g, i) * (p->is_log ? 1 : real_of(p->y, i));
        if (p->out[0].p) store_number(&p->out[0], i * n + j, g * (alpha - 1) / x);
        sum += g * (log(x) + mean_log);
      }
      if (p->out[1].p) store_number(&p->out[1], k * n + j, sum);
    }
  }
}

/* Computes the gradients. in: head gradient, output, sample, alpha. */
static int dirichlet_slope(struct call *c)
{
  struct points p = make_points(c, NULL, c->in + 2, 2);
  int64_t n = width_of(&p);
  p.g = &c->in[0];
  p.y = &c->in[1];
  parallel_for_stoppable(
      desc_count(&p.a->d) / n, cost_ns(2 * NS_FUNCTION, n * p.block), dirichlet_slope_part, &p);
  return TY_OK;
}

/* -- rows -------------------------------------------------------------------------------------- */

#define LAW(name) \
static const struct density name##_law = { name##_log, name##_slope }; \
static int name##_run(struct call *c) { return density_run(c, &name##_law); } \
static int name##_back(struct call *c) { return slope_run(c, &name##_law); } \
static const struct kernel name##_cpu[] = { { "density", name##_run, T_FLOAT }, { 0 } }; \
static const struct kernel name##_back_cpu[] = { { "slope", name##_back, T_FLOAT }, { 0 } };
LAW(uniform)
LAW(normal)
LAW(gamma)
LAW(exponential)
LAW(poisson)
LAW(negative_binomial)
LAW(generalized_negative_binomial)
static const struct kernel dirichlet_cpu[] = { { "density", dirichlet_run, T_FLOAT }, { 0 } };
static const struct kernel dirichlet_back_cpu[] = { { "slope", dirichlet_slope, T_FLOAT }, { 0 } };

#define ONE .grad = "g0 o0 i0 i1"
#define TWO .grad = "g0 o0 i0 i1 i2"
#define PDF(law, in_, grad_, shape_, doc_) \
  { .name = "_random_pdf_" #law, .alias = "random_pdf_" #law, .in = in_, grad_, .shape = shape_, \
    .param = pdf_params, .param_size = sizeof(struct pdf), .cpu = law##_cpu, \
    .back_cpu = law##_back_cpu, .doc = doc_ }

const struct op op_pdf[] = {
  PDF(uniform,     "sample low high",   TWO, pdf_shape, "1 / (high - low) for each sample, also outside low .. high."),
  PDF(normal,      "sample mu sigma",   TWO, pdf_shape, "Normal densities, of mean mu and deviation sigma."),
  PDF(gamma,       "sample alpha beta", TWO, pdf_shape, "Gamma densities, of shape alpha and rate beta."),
  PDF(exponential, "sample lam",        ONE, pdf_shape, "Exponential densities, of rate lam."),
  PDF(poisson,     "sample lam",        ONE, pdf_shape, "Poisson probabilities of mean lam. No gradient of sample."),
  PDF(negative_binomial, "sample k p",  TWO, pdf_shape,
      "Probabilities of so many failures before k successes of probability p. No gradient of sample."),
  PDF(generalized_negative_binomial, "sample mu alpha", TWO, pdf_shape,
      "Negative binomial probabilities of counts, of mean mu and dispersion alpha. No gradient of sample."),
  PDF(dirichlet,   "sample alpha",      ONE, dirichlet_shape, "Dirichlet densities of vectors along the last axis."),
  { 0 }
};
