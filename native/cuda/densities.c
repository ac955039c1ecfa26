/* densities.c - _random_pdf_* (kernels/density.cu). */
#include "cuda/family.h"

enum { TEAM = 32 };
struct density_args { int64_t n, block, width, is_log; };

enum { UNIFORM, NORMAL, GAMMA, EXPONENTIAL, POISSON, NEGATIVE, GENERALIZED, DIRICHLET };
/* as kernels/density.cu calls those of numbers */
static const char *const laws[DIRICHLET + 1] = { "uniform", "normal", "gamma", "exponential",
  "poisson", "negative_binomial", "generalized_negative_binomial" };
static bool has_vectors(const struct call *c) { return cuda_what(c) == DIRICHLET; }

/* x: samples, then the parameters; n: densities */
static struct density_args args_of(const struct call *c, const struct operand *x, int64_t n)
{
  int64_t width = has_vectors(c) ? x->d.dim[x->d.ndim - 1] : 1;
  return (struct density_args){ n, n / (desc_count(&x[1].d) / width), width,
    cuda_flag(c, "is_log") };
}

static int density_family(const struct call *c, const char *name, cu_function *f)
{
  const char *type = cuda_type(c->in[0].d.dtype), *law = laws[cuda_what(c)];
  if (has_vectors(c)) return cuda_family(c->device, FAMILY_density, name, f, "T=%s TEAM=32", type);
  return cuda_family(c->device, FAMILY_density, name, f, "T=%s LAW=%s TEAM=32", type, law);
}

static int density_forward(struct call *c)
{
  struct density_args s = args_of(c, c->in, desc_count(&c->out[0].d));
  void *none = NULL, **b = c->nin > 2 ? &c->in[2].p : &none;
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(density_family(c, has_vectors(c) ? "dirichlet" : "density", &f));
  void *one[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, b, &s };
  void *many[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &s };
  return cuda_run(c, f, s.n, has_vectors(c) ? many : one);
}

static int dirichlet_back(struct call *c, struct density_args s)
{
  cu_function sample, parameter;
  void **g = &c->in[0].p, **y = &c->in[1].p, **x = &c->in[2].p, **a = &c->in[3].p;
  TRY(density_family(c, "dirichlet_sample", &sample));
  TRY(density_family(c, "dirichlet_parameter", &parameter));
  void *first[] = { &c->out[0].p, g, y, x, a, &s }, *second[] = { &c->out[1].p, g, y, x, a, &s };
  if (c->out[0].p) TRY(cuda_run(c, sample, s.n * s.width, first));
  if (!c->out[1].p) return TY_OK;
  return cuda_run(c, parameter, s.n / s.block * s.width * TEAM, second);
}

/* in: head gradient, densities, samples, parameters */
static int density_backward(struct call *c)
{
  struct density_args s = args_of(c, &c->in[2], desc_count(&c->in[0].d));
  void *none = NULL, **b = c->nin > 4 ? &c->in[4].p : &none;
  void **db = c->nout > 2 ? &c->out[2].p : &none, **da = &c->out[1].p;
  void **g = &c->in[0].p, **y = &c->in[1].p, **x = &c->in[2].p, **a = &c->in[3].p;
  cu_function sample, parameters;
  if (has_vectors(c)) return dirichlet_back(c, s);
  TRY(density_family(c, "slope_of_sample", &sample));
  TRY(density_family(c, "slope_of_parameters", &parameters));
  void *first[] = { &c->out[0].p, g, y, x, a, b, &s };
  void *second[] = { da, db, g, y, x, a, b, &s };
  if (c->out[0].p) TRY(cuda_run(c, sample, s.n, first));
  if (!*da && !*db) return TY_OK;
  return cuda_run(c, parameters, s.n / s.block * TEAM, second);
}

static const struct kernel densities[] = { { "density", density_forward, T_FLOAT }, { 0 } };
static const struct kernel slopes[] = { { "slope", density_backward, T_FLOAT }, { 0 } };

const struct op_kernels cuda_densities[] = {
  { "_random_pdf_uniform", densities, slopes, UNIFORM },
  { "_random_pdf_normal", densities, slopes, NORMAL },
  { "_random_pdf_gamma", densities, slopes, GAMMA },
  { "_random_pdf_exponential", densities, slopes, EXPONENTIAL },
  { "_random_pdf_poisson", densities, slopes, POISSON },
  { "_random_pdf_negative_binomial", densities, slopes, NEGATIVE },
  { "_random_pdf_generalized_negative_binomial", densities, slopes, GENERALIZED },
  { "_random_pdf_dirichlet", densities, slopes, DIRICHLET },
  { 0 }
};
