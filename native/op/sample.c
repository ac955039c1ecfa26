/* sample.c - random numbers: _random_* (one law for a whole array), _random_*_like, _sample_* (parameters per element),
** _random_randint.
**
** Element i of a draw is a function of (seed, the draw's counter, node, i) alone (draw.h). A law either shifts and scales a
** standard variate, made a block at a time by vector loops, or makes one element from as many words as it needs. All is
** computed in double. Parameters are looked at before anything is written; bad ones fail the run. Sources: gamma
** Marsaglia and Tsang 2000, Poisson Hoermann 1993 (PTRS); both negative binomial laws are Poisson numbers with a gamma distributed mean.
*/
#include "draw.h"
#include "move.h"

/* -- words of one element ----------------------------------------------------------------------------------------------- */

struct stream { struct key key; uint64_t element; struct philox p; int used; };

static struct stream stream_of(const struct call *c, int64_t element)
{
  return (struct stream){ .key = key_of(c), .element = (uint64_t)element, .used = 4 };
}

static uint32_t word(struct stream *s)
{
  if (s->used == 4) {
    s->p = philox(s->key.seed, s->key.counter, s->key.node, s->element);
    s->element += 1ull << 40;                         /* where the next block lies */
    s->used = 0;
  }
  return s->p.w[s->used++];
}

static double unit(struct stream *s)                  /* [0, 1) */
{
  uint32_t a = word(s), b = word(s);
  return unit_f64(a, b);
}

/* -- laws ---------------------------------------------------------------------------------------------------------------- */

static double normal(struct stream *s)                /* mean 0, deviation 1 (Box and Muller) */
{
  double radius = sqrt(-2 * log1p(-unit(s)));
  return radius * cos(6.283185307179586 * unit(s));
}

static double draw_gamma(struct stream *s, double alpha, double beta)
{
  double boost = 1, d, k;
  if (alpha < 1) boost = pow(1 - unit(s), 1 / alpha), alpha += 1;
  d = alpha - 1 / 3.0;
  k = 1 / sqrt(9 * d);
  for (;;) {
    double x = normal(s), v = 1 + k * x;
    if (v <= 0) continue;
    v = v * v * v;
    double u = 1 - unit(s);                           /* the first test follows from the second and mostly spares it */
    if (u < 1 - 0.0331 * x * x * x * x || log(u) < 0.5 * x * x + d - d * v + d * log(v)) return boost * d * v * beta;
  }
}

static double few_events(struct stream *s, double lam)  /* counts factors until their product falls below e^-lam */
{
  double limit = exp(-lam), product = 1 - unit(s), n = 0;
  while (product > limit) product *= 1 - unit(s), n++;
  return n;
}

static double ln_factorial(double n)                   /* lgamma writes a global variable */
{
  int sign;
  return lgamma_r(n + 1, &sign);
}

static double draw_poisson(struct stream *s, double lam, double unused)
{
  if (lam < 12) return few_events(s, lam);
  double root = sqrt(lam), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b, inverse = 1.1239 + 1.1328 / (b - 3.4), level = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    double u = unit(s) - 0.5, v = 1 - unit(s), us = 0.5 - fabs(u), n = floor((2 * a / us + b) * u + lam + 0.43);
    if (us >= 0.07 && v <= level) return n;
    if (n < 0 || (us < 0.013 && v > us)) continue;
    if (log(v) + log(inverse) - log(a / (us * us) + b) <= n * log(lam) - lam - ln_factorial(n)) return n;
  }
}

static double draw_negative_binomial(struct stream *s, double k, double p)
{
  if (k == 0 || p == 1) return 0;
  return draw_poisson(s, draw_gamma(s, k, (1 - p) / p), 0);
}

static double draw_generalized_negative_binomial(struct stream *s, double mu, double alpha)
{
  if (mu == 0) return 0;
  return draw_poisson(s, isinf(1 / alpha) ? mu : draw_gamma(s, 1 / alpha, alpha * mu), 0);
}

/* What is wrong with the parameters, as a format for the two of them; NULL: nothing. */
static const char *bad_uniform(double low, double high)
{
  return low <= high && isfinite(high - low) ? NULL : "low is %g, high is %g; expected finite numbers, low not above high";
}
static const char *bad_normal(double mu, double sigma) { return sigma >= 0 ? NULL : "with mean %g: scale is %g; expected 0 or more"; }
static const char *bad_gamma(double alpha, double beta)
{
  return alpha > 0 && beta > 0 && isfinite(alpha) ? NULL : "alpha is %g, beta is %g; expected finite numbers above 0";
}
static const char *bad_exponential(double lam, double unused) { return lam > 0 ? NULL : "lam is %g; expected more than 0"; }
static const char *bad_poisson(double lam, double unused) { return lam >= 0 && isfinite(lam) ? NULL : "lam is %g; expected a finite number, 0 or more"; }
static const char *bad_negative_binomial(double k, double p)
{
  return k >= 0 && isfinite(k) && p > 0 && p <= 1 ? NULL : "k is %g, p is %g; expected k of 0 or more and p above 0, at most 1";
}
static const char *bad_generalized_negative_binomial(double mu, double alpha)
{
  return mu >= 0 && alpha >= 0 && isfinite(mu) && isfinite(alpha) ? NULL : "mu is %g, alpha is %g; expected finite numbers, 0 or more";
}

struct affine { double offset, scale, limit; };       /* y = offset + scale z, at most limit */
struct law {
  const char *(*bad)(double a, double b);
  double        (*draw)(struct stream *s, double a, double b);               /* one element, or */
  draw_fn       (*standard)(int dtype);                                      /* a block of standard variates and */
  struct affine (*place)(double a, double b, int dtype);                     /* what becomes of them */
};

static struct affine uniform_place(double low, double high, int dtype)       /* rounding must not reach high itself */
{
  double below = dtype == TY_F64 ? nextafter(high, low) : nextafterf((float)high, (float)low);
  return (struct affine){ low, high - low, low < high ? below : high };
}
static struct affine normal_place(double mu, double sigma, int dtype) { return (struct affine){ mu, sigma, INFINITY }; }
static struct affine exponential_place(double lam, double unused, int dtype) { return (struct affine){ 0, 1 / lam, INFINITY }; }

static draw_fn uniform_standard(int dtype)     { return dtype == TY_F64 ? draws_here()->unit53 : draws_here()->unit24; }
static draw_fn normal_standard(int dtype)      { return draws_here()->normal; }
static draw_fn exponential_standard(int dtype) { return draws_here()->exponential; }

static const struct law
  uniform     = { bad_uniform,     NULL, uniform_standard,     uniform_place },
  normal_law  = { bad_normal,      NULL, normal_standard,      normal_place },
  exponential = { bad_exponential, NULL, exponential_standard, exponential_place },
  gamma_law   = { bad_gamma,       draw_gamma,   NULL, NULL },
  poisson     = { bad_poisson,     draw_poisson, NULL, NULL },
  negative_binomial = { bad_negative_binomial, draw_negative_binomial, NULL, NULL },
  generalized_negative_binomial = { bad_generalized_negative_binomial, draw_generalized_negative_binomial, NULL, NULL };

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
static int refuse(const char *what, double a, double b)
{
  char text[160];
  snprintf(text, sizeof text, what, a, b);
  return fail(TY_ERUN, "bad parameters: %s", text);
}
#pragma GCC diagnostic pop

/* -- filling arrays ---------------------------------------------------------------------------------------------------------- */

enum { BLOCK = 512, FEW = 1 << 10, MANY = 1 << 13 };    /* elements of a block, of a chunk of work */
struct filling { const struct call *c; const struct law *law; double a, b; const struct arr *pa, *pb; int64_t each; };   /* pa: parameters per `each` elements */

static void store(const struct arr *y, int64_t i, double v)
{
  if (y->d.dtype == TY_F64) ((double *)y->p)[i] = v;
  else ((float *)y->p)[i] = (float)v;
}

static double parameter(const struct arr *p, double otherwise, int64_t i) { return p ? real_of(p, i) : otherwise; }

/* Elements i .. i + n - 1 from their standard variates, a row of equal parameters at a time. */
static void place_rows(const struct filling *f, const double *z, int64_t i, int64_t n)
{
  const struct arr *y = &f->c->out[0];
  const struct draws *d = draws_here();
  for (int64_t end = i + n, m; i < end; i += m, z += m) {
    int64_t row = i / f->each;
    m = MIN(end, (row + 1) * f->each) - i;
    struct affine t = f->law->place(parameter(f->pa, f->a, row), parameter(f->pb, f->b, row), y->d.dtype);
    void *to = elements_at(y->p, i, dtype_size(y->d.dtype));
    (y->d.dtype == TY_F64 ? d->store_f64 : d->store_f32)(to, z, t.offset, t.scale, t.limit, m);
  }
}

static void standard_body(int64_t begin, int64_t end, void *context)
{
  const struct filling *f = context;
  double z[BLOCK];
  struct key key = key_of(f->c);
  draw_fn standard = f->law->standard(f->c->out[0].d.dtype);
  for (int64_t i = begin; i < end; i += BLOCK) {
    int64_t n = MIN(BLOCK, end - i);
    standard(z, &key, (uint64_t)i, n);
    place_rows(f, z, i, n);
  }
}

static void single_body(int64_t begin, int64_t end, void *context)
{
  const struct filling *f = context;
  for (int64_t i = begin; i < end; i++) {
    struct stream s = stream_of(f->c, i);
    int64_t row = i / f->each;
    store(&f->c->out[0], i, f->law->draw(&s, parameter(f->pa, f->a, row), parameter(f->pb, f->b, row)));
  }
}

static int fill(struct filling *f)
{
  const struct arr *y = &f->c->out[0];
  if (!y->p) return TY_OK;
  if (f->law->draw) parallel(desc_count(&y->d), FEW, single_body, f);
  else parallel(desc_count(&y->d), MANY, standard_body, f);
  return TY_OK;
}

static int random_run(struct call *c, const struct law *law, double a, double b)
{
  int64_t n = desc_count(&c->out[0].d);
  struct filling f = { c, law, a, b, NULL, NULL, n };
  return law->bad(a, b) ? refuse(law->bad(a, b), a, b) : fill(&f);
}

static int sample_run(struct call *c, const struct law *law)
{
  const struct arr *pa = &c->in[0], *pb = c->nin > 1 ? &c->in[1] : NULL;
  int64_t n = desc_count(&pa->d), total = desc_count(&c->out[0].d);
  struct filling f = { c, law, 0, 0, pa, pb, total / n };
  for (int64_t i = 0; i < n; i++) {
    double a = real_of(pa, i), b = parameter(pb, 0, i);
    if (law->bad(a, b)) return refuse(law->bad(a, b), a, b);
  }
  return fill(&f);
}

/* -- parameters and inference -------------------------------------------------------------------------------------------------- */

struct random { double a, b; int64_t k, low, high; struct dims shape; const char *ctx; int64_t dtype; };
#define REAL(name, field, init, doc) { name, P_FLOAT, offsetof(struct random, field), init, doc }
#define SHAPE(init) { "shape", P_SHAPE, offsetof(struct random, shape), init, "shape of the result; 0 or nothing: as the readers need it", NULL, NULL, 1 }
#define DTYPE(doc)  { "dtype", P_DTYPE, offsetof(struct random, dtype), "None", doc, NULL, NULL, 1 }
#define ARRAY SHAPE("None"), { "ctx", P_TEXT, offsetof(struct random, ctx), "", "device of an imperative call, as text" }, \
  DTYPE("float16, float32 or float64; None: float32")

#define LOW    REAL("low", a, "0", "least possible value")
#define HIGH   REAL("high", b, "1", "end of the range, not itself possible")
#define LOC    REAL("loc", a, "0", "mean")
#define SCALE  REAL("scale", b, "1", "standard deviation")
#define ALPHA  REAL("alpha", a, "1", "shape of the law")
#define BETA   REAL("beta", b, "1", "scale of the law")
#define LAM    REAL("lam", a, "1", "rate (exponential) or mean (Poisson)")
#define K      { "k", P_INT, offsetof(struct random, k), "1", "successes to wait for" }
#define P      REAL("p", b, "1", "probability of a success")
#define MU     REAL("mu", a, "1", "mean")
#define SPREAD REAL("alpha", b, "1", "dispersion")

#define PARAMS(law, ...) \
static const struct param law##_params[] = { __VA_ARGS__, ARRAY, { 0 } }; \
static const struct param law##_like_params[] = { __VA_ARGS__, { 0 } };
PARAMS(uniform, LOW, HIGH)
PARAMS(normal, LOC, SCALE)
PARAMS(gamma, ALPHA, BETA)
PARAMS(exponential, LAM)
PARAMS(poisson, LAM)
PARAMS(negative_binomial, K, P)
PARAMS(generalized_negative_binomial, MU, SPREAD)
static const struct param sample_params[] = { SHAPE("()"), DTYPE("float16, float32 or float64; None: that of the parameters"), { 0 } };

static int check_dtype(void *param)
{
  const struct random *p = param;
  if (p->dtype < 0 || dtype_float((int)p->dtype)) return TY_OK;
  int code = fail(TY_EVALUE, "random numbers: parameter dtype: expected float16, float32, float64 or None, got %s", dtype_name((int)p->dtype));
  fail_argument("dtype", "float16, float32, float64 or None", dtype_name((int)p->dtype));
  return code;
}

static int check_shape(struct infer *s, const struct dims *shape)
{
  for (int i = 0; i < shape->n; i++)
    if (shape->d[i] < 0) return infer_fail(s, TY_EVALUE, NULL, "shape: expected dims of 0 or more, got %lld", (long long)shape->d[i]);
  return TY_OK;
}

static int random_shape(struct infer *s)
{
  const struct random *p = s->param;
  TRY(check_shape(s, &p->shape));
  return shape_is(s, &s->out[0], (int)MAX(p->shape.n, 0), p->shape.d);
}

static int random_type(struct infer *s)
{
  const struct random *p = s->param;
  if (p->dtype >= 0) return type_is(s, &s->out[0], (int)p->dtype);
  return s->out[0].dtype == TY_NODTYPE ? type_is(s, &s->out[0], TY_F32) : TY_OK;
}

static int sample_shape(struct infer *s)
{
  const struct random *p = s->param;
  int64_t dim[TY_MAXDIM + 16];
  TRY(check_shape(s, &p->shape));
  if (s->nin > 1) TRY(shape_both(s, &s->in[0], &s->in[1]));
  int n = s->in[0].ndim;
  if (!n) return TY_OK;
  memcpy(dim, s->in[0].dim, sizeof s->in[0].dim);
  for (int i = 0; i < p->shape.n; i++) dim[n++] = p->shape.d[i];
  return shape_is(s, &s->out[0], n, dim);
}

static int sample_type(struct infer *s)
{
  const struct random *p = s->param;
  if (s->nin > 1) TRY(type_both(s, &s->in[0], &s->in[1]));
  if (p->dtype >= 0) return type_is(s, &s->out[0], (int)p->dtype);
  int of = s->in[0].dtype;
  return of == TY_NODTYPE ? TY_OK : type_is(s, &s->out[0], dtype_float(of) ? of : TY_F32);
}

/* -- kernels --------------------------------------------------------------------------------------------------------------------- */

#define LAW(op, law, first) \
static int op##_random(struct call *c) \
{ \
  const struct random *p = c->param; \
  return random_run(c, &law, first, p->b); \
} \
static int op##_sample(struct call *c) { return sample_run(c, &law); } \
static const struct kernel op##_random_kernels[] = { { .name = "philox", .run = op##_random, .types = T_FLOAT }, { 0 } }; \
static const struct kernel op##_sample_kernels[] = { { .name = "philox", .run = op##_sample, .types = T_FLOAT | T_INT }, { 0 } };
LAW(uniform,           uniform,           p->a)
LAW(normal,            normal_law,        p->a)
LAW(gamma,             gamma_law,         p->a)
LAW(exponential,       exponential,       p->a)
LAW(poisson,           poisson,           p->a)
LAW(negative_binomial, negative_binomial, (double)p->k)
LAW(generalized_negative_binomial, generalized_negative_binomial, p->a)

/* -- _random_randint ---------------------------------------------------------------------------------------------------------------- */

static const struct param randint_params[] = {
  { "low",  P_INT, offsetof(struct random, low),  NULL, "least possible value" },
  { "high", P_INT, offsetof(struct random, high), NULL, "end of the range, not itself possible" },
  SHAPE("None"),
  { "ctx", P_TEXT, offsetof(struct random, ctx), "", "device of an imperative call, as text" },
  DTYPE("int32 or int64; None: int32"),
  { 0 }
};

static int randint_check(void *param)
{
  const struct random *p = param;
  if (p->dtype < 0 || p->dtype == TY_I32 || p->dtype == TY_I64) return TY_OK;
  int code = fail(TY_EVALUE, "_random_randint: parameter dtype: expected int32, int64 or None, got %s", dtype_name((int)p->dtype));
  fail_argument("dtype", "int32, int64 or None", dtype_name((int)p->dtype));
  return code;
}

static int randint_type(struct infer *s)
{
  const struct random *p = s->param;
  return type_is(s, &s->out[0], p->dtype >= 0 ? (int)p->dtype : s->out[0].dtype == TY_I64 ? TY_I64 : TY_I32);
}

static void randint_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct random *p = c->param;
  uint64_t span = (uint64_t)p->high - (uint64_t)p->low;
  for (int64_t i = begin; i < end; i++) {
    struct stream s = stream_of(c, i);
    uint64_t high = word(&s), w = high << 32 | word(&s);
    uint64_t v = (uint64_t)p->low + (uint64_t)(((unsigned __int128)w * span) >> 64);
    if (c->out[0].d.dtype == TY_I64) ((int64_t *)c->out[0].p)[i] = (int64_t)v;
    else ((int32_t *)c->out[0].p)[i] = (int32_t)(uint32_t)v;
  }
}

static int randint_run(struct call *c)
{
  const struct random *p = c->param;
  NEED(p->low < p->high, TY_ERUN, "bad parameters: low %lld is not below high %lld", (long long)p->low, (long long)p->high);
  NEED(c->out[0].d.dtype == TY_I64 || (p->low >= INT32_MIN && p->high - 1 <= INT32_MAX), TY_ERUN,
       "bad parameters: numbers from %lld up to %lld do not fit into int32", (long long)p->low, (long long)p->high);
  if (c->out[0].p) parallel(desc_count(&c->out[0].d), 4096, randint_body, c);
  return TY_OK;
}

static const struct kernel randint_kernels[] = { { .name = "philox", .run = randint_run, .types = T(TY_I32) | T(TY_I64) }, { 0 } };

/* -- rows -------------------------------------------------------------------------------------------------------------------------------- */

#define RANDOM(law, tier_, doc_) \
  { .name = "_random_" #law, .alias = "random_" #law, .tier = tier_, .doc = doc_, .in = "", .param = law##_params, .param_size = sizeof(struct random), \
    .check = check_dtype, .shape = random_shape, .type = random_type, .flags = OP_RANDOM | OP_ZERO_GRAD, .cpu = law##_random_kernels }
#define LIKE(law, doc_) \
  { .name = "_random_" #law "_like", .tier = 2, .doc = doc_, .in = "data", .param = law##_like_params, .param_size = sizeof(struct random), \
    .flags = OP_RANDOM | OP_ZERO_GRAD, .cpu = law##_random_kernels }
#define SAMPLE(law, in_, doc_) \
  { .name = "_sample_" #law, .alias = "sample_" #law, .tier = 2, .doc = doc_, .in = in_, .param = sample_params, .param_size = sizeof(struct random), \
    .check = check_dtype, .shape = sample_shape, .type = sample_type, .flags = OP_RANDOM | OP_ZERO_GRAD, .cpu = law##_sample_kernels }

const struct op op_sample[] = {
  { .name = "_random_uniform", .alias = "uniform random_uniform", .tier = 1, .doc = "Uniform numbers from low up to, but not including, high.", .in = "",
    .param = uniform_params, .param_size = sizeof(struct random), .check = check_dtype, .shape = random_shape, .type = random_type,
    .flags = OP_RANDOM | OP_ZERO_GRAD, .cpu = uniform_random_kernels },
  { .name = "_random_normal", .alias = "normal random_normal", .tier = 1, .doc = "Normal numbers with mean loc and standard deviation scale.", .in = "",
    .param = normal_params, .param_size = sizeof(struct random), .check = check_dtype, .shape = random_shape, .type = random_type,
    .flags = OP_RANDOM | OP_ZERO_GRAD, .cpu = normal_random_kernels },
  RANDOM(gamma,       2, "Gamma distributed numbers of shape alpha and scale beta."),
  RANDOM(exponential, 2, "Exponentially distributed numbers of rate lam."),
  RANDOM(poisson,     2, "Poisson distributed counts with mean lam, as floats."),
  RANDOM(negative_binomial, 2, "How many failures come before the k-th success of probability p, as floats."),
  RANDOM(generalized_negative_binomial, 2, "Negative binomial counts given by their mean mu and dispersion alpha, as floats."),
  LIKE(uniform,     "Uniform numbers in the shape and dtype of data."),
  LIKE(normal,      "Normal numbers in the shape and dtype of data."),
  LIKE(gamma,       "Gamma distributed numbers in the shape and dtype of data."),
  LIKE(exponential, "Exponentially distributed numbers in the shape and dtype of data."),
  LIKE(poisson,     "Poisson distributed counts in the shape and dtype of data."),
  LIKE(negative_binomial, "Negative binomial counts in the shape and dtype of data."),
  LIKE(generalized_negative_binomial, "Negative binomial counts of given mean and dispersion in the shape and dtype of data."),
  SAMPLE(uniform,     "low high",    "A block of `shape` uniform numbers for each element of low and high."),
  SAMPLE(normal,      "mu sigma",    "A block of `shape` normal numbers for each element of mu and sigma."),
  SAMPLE(gamma,       "alpha beta",  "A block of `shape` gamma distributed numbers for each shape alpha and scale beta."),
  SAMPLE(exponential, "lam",         "A block of `shape` exponentially distributed numbers for each rate lam."),
  SAMPLE(poisson,     "lam",         "A block of `shape` Poisson distributed counts for each mean lam."),
  SAMPLE(negative_binomial, "k p",   "A block of `shape` negative binomial counts for each k and p."),
  SAMPLE(generalized_negative_binomial, "mu alpha", "A block of `shape` negative binomial counts for each mean mu and dispersion alpha."),
  { .name = "_random_randint", .alias = "random_randint _npi_random_randint", .tier = 2, .doc = "Whole numbers from low up to, but not including, high.", .in = "",
    .param = randint_params, .param_size = sizeof(struct random), .check = randint_check, .shape = random_shape, .type = randint_type,
    .flags = OP_RANDOM | OP_ZERO_GRAD, .cpu = randint_kernels },
  { 0 }
};
