/* densities.c - _random_pdf_* (kernels/density.cu). */
#include "cuda/row.h"

enum { TEAM = 32 };
struct density_args { int64_t n, block, width, is_log; };

enum { UNIFORM, NORMAL, GAMMA, EXPONENTIAL, POISSON, NEGATIVE, GENERALIZED, DIRICHLET };
/* Names of the laws of numbers in kernels/density.cu. */
static const char *const laws[DIRICHLET + 1] = { "uniform", "normal", "gamma", "exponential",
  "poisson", "negative_binomial", "generalized_negative_binomial" };
static bool has_vectors(const struct call *c) { return cuda_what(c) == DIRICHLET; }

/* Returns a kernel's arguments. x: samples, then the parameters; n: densities. */
static struct density_args make_args(const struct call *c, const struct operand *x, int64_t n)
{
  int64_t width = has_vectors(c) ? x->d.dim[x->d.ndim - 1] : 1;
  return (struct density_args){ n, n / (desc_count(&x[1].d) / width), width,
    cuda_flag(c, "is_log") };
}

/* Starts a kernel of densities, for the operator's law. */
static int start_density(const struct call *c, const char *name, int64_t n, void **params)
{
  char words[64];
  if (has_vectors(c)) return cuda_start(c, FAMILY_density, name, "T=$i0 TEAM=32", n, params);
  snprintf(words, sizeof words, "T=$i0 LAW=%s TEAM=32", laws[cuda_what(c)]);
  return cuda_start(c, FAMILY_density, name, words, n, params);
}

static int density_forward(struct call *c)
{
  struct density_args s = make_args(c, c->in, desc_count(&c->out[0].d));
  void *none = NULL, **b = c->nin > 2 ? &c->in[2].p : &none;
  if (!c->out[0].p) return TY_OK;
  if (has_vectors(c))
    return start_density(c, "dirichlet", s.n,
        (void *[]){ &c->out[0].p, &c->in[0].p, &c->in[1].p, &s });
  return start_density(c, "density", s.n,
      (void *[]){ &c->out[0].p, &c->in[0].p, &c->in[1].p, b, &s });
}

static int dirichlet_back(struct call *c, struct density_args s)
{
  void **g = &c->in[0].p, **y = &c->in[1].p, **x = &c->in[2].p, **a = &c->in[3].p;
  if (c->out[0].p)
    TRY(start_density(c, "dirichlet_sample", s.n * s.width,
        (void *[]){ &c->out[0].p, g, y, x, a, &s }));
  if (!c->out[1].p) return TY_OK;
  return start_density(c, "dirichlet_parameter", s.n / s.block * s.width * TEAM,
      (void *[]){ &c->out[1].p, g, y, x, a, &s });
}

/* Computes the gradients; in: head gradient, densities, samples, parameters. */
static int density_backward(struct call *c)
{
  struct density_args s = make_args(c, &c->in[2], desc_count(&c->in[0].d));
  void *none = NULL, **b = c->nin > 4 ? &c->in[4].p : &none;
  void **db = c->nout > 2 ? &c->out[2].p : &none, **da = &c->out[1].p;
  void **g = &c->in[0].p, **y = &c->in[1].p, **x = &c->in[2].p, **a = &c->in[3].p;
  if (has_vectors(c)) return dirichlet_back(c, s);
  if (c->out[0].p)
    TRY(start_density(c, "slope_of_sample", s.n,
        (void *[]){ &c->out[0].p, g, y, x, a, b, &s }));
  if (!*da && !*db) return TY_OK;
  return start_density(c, "slope_of_parameters", s.n / s.block * TEAM,
      (void *[]){ da, db, g, y, x, a, b, &s });
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
