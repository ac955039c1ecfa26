/* sample.c - random numbers: _random_* (one law for a whole array), _random_*_like, _sample_*
** (parameters per element), _random_randint.
**
** Element i of a draw depends only on (seed, the draw's counter, node, i) (kernel/variates.h). A
** law either shifts and scales standard variates, which vector loops draw in blocks, or draws one
** element at a time from as many random words as it needs. Everything is computed in double
** (base/laws.h). Bad parameters fail the run; on the CPU they do so before anything is written.
*/
#include "kernel/primitives.h"
#include "kernel/variates.h"
#include "kernel/strided_copy.h"
#include "op/op.h"

/* -- laws -------------------------------------------------------------------------------------- */

static variate_fn uniform_standard(int dtype)
{
  return dtype == TY_F64 ? variates_here()->unit53 : variates_here()->unit24;
}
static variate_fn normal_standard(int dtype)  { return variates_here()->normal; }
static variate_fn wait_standard(int dtype)    { return variates_here()->exponential; }

/* A law has either `standard` and `affine` or `draw`; the others are NULL. */
struct distribution {
  const char *name;                                   /* prefix of its functions in base/laws.h */
  const char *a;                                      /* name of the first parameter */
  const char *b;                                      /* name of the second one; NULL: none */
  const char *want;                                   /* valid parameters, for errors */
  bool          (*good)(double a, double b);
  /* returns the function that draws the standard variates for results of a dtype */
  variate_fn       (*standard)(int dtype);
  /* returns what turns standard variates into the law's numbers; wide: float64 */
  struct law_affine (*affine)(double a, double b, bool wide);
  /* draws one element */
  double (*draw)(struct element_stream *s, double a, double b);
};
static const struct distribution
  uniform = { "law_uniform", "low", "high", "finite numbers, low not above high",
              law_uniform_valid, uniform_standard, law_uniform_affine, NULL },
  normal_law = { "law_normal", "loc", "scale", "a scale of 0 or more", law_normal_valid,
                 normal_standard, law_normal_affine, NULL },
  exponential = { "law_exponential", "lam", NULL, "a number above 0", law_exponential_valid,
                  wait_standard, law_exponential_affine, NULL },
  gamma_law = { "law_gamma", "alpha", "beta", "finite numbers above 0", law_gamma_valid,
                NULL, NULL, law_gamma },
  poisson = { "law_poisson", "lam", NULL, "a finite number, 0 or more", law_poisson_valid,
              NULL, NULL, law_poisson },
  negative_binomial = { "law_failures", "k", "p", "k of 0 or more, p above 0 and at most 1",
                        law_failures_valid, NULL, NULL, law_failures },
  generalized_negative_binomial = { "law_counts", "mu", "alpha", "finite numbers, 0 or more",
                                    law_counts_valid, NULL, NULL, law_counts };

/* Fails if a and b are not valid parameters of the law. */
static int look_at(const struct distribution *law, double a, double b)
{
  char second[64] = "";
  if (law->good(a, b)) return TY_OK;
  if (law->b) number_print(second, sizeof second, ", %s = %g", law->b, b);
  return fail(TY_ERUN, "bad parameters: %s = %g%s; expected %s", law->a, a, second, law->want);
}

/* -- filling arrays ---------------------------------------------------------------------------- */

enum { BLOCK_ELEMENTS = 512 };                        /* elements of a block */
/* nanoseconds per element drawn by vector loops: 1.2, an estimate */
#define STANDARD_NS (PARALLEL_CHUNK_NS / 8192)
struct filling {
  const struct call *c;
  const struct distribution *law;
  double a, b;
  /* arrays in place of a and b; NULL: a or b holds for all elements */
  const struct operand *pa, *pb;
  /* elements in a row that share an entry of pa and pb: element i has entry i / each */
  int64_t each;
};

static void store_number(const struct operand *y, int64_t i, double v)
{
  if (y->d.dtype == TY_F64)
    ((double *)y->p)[i] = v;
  else
    ((float *)y->p)[i] = (float)v;
}

static double parameter_at(const struct operand *p, double otherwise, int64_t i)
{
  return p ? real_of(p, i) : otherwise;
}

/* Computes elements i .. i + n - 1 from their standard variates z, in runs of elements that share
** their parameters. */
static void transform_rows(const struct filling *f, const double *z, int64_t i, int64_t n)
{
  const struct operand *y = &f->c->out[0];
  const struct variates *d = variates_here();
  for (int64_t end = i + n, m; i < end; i += m, z += m) {
    int64_t row = i / f->each;
    m = MIN(end, (row + 1) * f->each) - i;
    struct law_affine t = f->law->affine(
        parameter_at(f->pa, f->a, row), parameter_at(f->pb, f->b, row), y->d.dtype == TY_F64);
    void *to = elements_at(y->p, i, dtype_size(y->d.dtype));
    (y->d.dtype == TY_F64 ? d->store_f64 : d->store_f32)(to, z, t.offset, t.scale, t.limit, m);
  }
}

static void standard_body(int64_t begin, int64_t end, void *context)
{
  const struct filling *f = context;
  double z[BLOCK_ELEMENTS];
  struct rng_key key = make_rng_key(f->c);
  variate_fn standard = f->law->standard(f->c->out[0].d.dtype);
  for (int64_t i = begin; i < end; i += BLOCK_ELEMENTS) {
    int64_t n = MIN(BLOCK_ELEMENTS, end - i);
    standard(z, &key, (uint64_t)i, n);
    transform_rows(f, z, i, n);
  }
}

static void single_body(int64_t begin, int64_t end, void *context)
{
  const struct filling *f = context;
  for (int64_t i = begin; i < end; i++) {
    struct element_stream s = stream_of_element(make_rng_key(f->c), (uint64_t)i);
    int64_t row = i / f->each;
    store_number(&f->c->out[0], i,
        f->law->draw(&s, parameter_at(f->pa, f->a, row), parameter_at(f->pb, f->b, row)));
  }
}

/* Draws all elements with the device's own function, which checks the parameters in arrays. Scalar
** parameters of an affine law are passed as offset, scale and limit. */
static int fill_on_device(const struct filling *f, const struct primitives *other)
{
  const struct operand *y = &f->c->out[0];
  const struct distribution *law = f->law;
  struct random_numbers r = { .key = make_rng_key(f->c), .law = law->name,
    .draws = law->draw != NULL, .a = f->a, .b = f->b, .pa = f->pa, .pb = f->pb, .each = f->each,
    .call = f->c, .want = law->want };
  bool wide = y->d.dtype == TY_F64;
  if (law->affine && !f->pa) {
    struct law_affine t = law->affine(f->a, f->b, wide);
    r.a = t.offset, r.b = t.scale, r.limit = t.limit;
  }
  r.standard = law != &uniform ? law->name : wide ? "law_unit53" : "law_unit24";
  return other->random(f->c->device, &r, y->p, y->d.dtype, desc_count(&y->d));
}

static int fill_samples(struct filling *f)
{
  const struct operand *y = &f->c->out[0];
  const struct primitives *other = primitives_of(f->c->device);
  if (!y->p) return TY_OK;
  if (other) return fill_on_device(f, other);
  if (f->law->draw)
    parallel_for_stoppable(desc_count(&y->d), NS_FUNCTION, single_body, f);
  else
    parallel_for_stoppable(desc_count(&y->d), STANDARD_NS, standard_body, f);
  return TY_OK;
}

/* Fills the output with numbers of a law whose parameters are a and b. */
static int random_run(struct call *c, const struct distribution *law, double a, double b)
{
  struct filling f = { c, law, a, b, NULL, NULL, desc_count(&c->out[0].d) };
  TRY(look_at(law, a, b));
  return fill_samples(&f);
}

/* Fills the output with a block of numbers for each element of the parameters in c->in. */
static int sample_run(struct call *c, const struct distribution *law)
{
  const struct operand *pa = &c->in[0], *pb = c->nin > 1 ? &c->in[1] : NULL;
  int64_t n = desc_count(&pa->d);
  struct filling f = { c, law, 0, 0, pa, pb, desc_count(&c->out[0].d) / n };
  bool here = !primitives_of(c->device);
  for (int64_t i = 0; i < n && here; i++) TRY(look_at(law, real_of(pa, i), parameter_at(pb, 0, i)));
  return fill_samples(&f);
}

/* -- parameters and inference ------------------------------------------------------------------ */

struct random {
  double a, b;
  int64_t k, low, high;
  struct dims shape;
  const char *ctx;
  int64_t dtype;
};
#define REAL(name, field, init, doc) { name, P_FLOAT, offsetof(struct random, field), init, doc }
#define SHAPE(init) { "shape", P_SHAPE, offsetof(struct random, shape), init, \
  "shape of the result; 0 or nothing: as the readers need it", NULL, NULL, 1 }
#define CTX \
  { "ctx", P_TEXT, offsetof(struct random, ctx), "", "device of an imperative call, as text" }
#define DTYPE(doc)  { "dtype", P_DTYPE, offsetof(struct random, dtype), "None", doc, NULL, NULL, 1 }
#define ARRAY       SHAPE("None"), CTX, DTYPE(FLOATS "float32")
#define FLOATS      "float16, float32 or float64; None: "

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
#define DISPERSION REAL("alpha", b, "1", "dispersion")

#define PARAMS(law, ...) \
static const struct param law##_params[] = { __VA_ARGS__, ARRAY, { 0 } }; \
static const struct param law##_like_params[] = { __VA_ARGS__, { 0 } };
PARAMS(uniform, LOW, HIGH)
PARAMS(normal, LOC, SCALE)
PARAMS(gamma, ALPHA, BETA)
PARAMS(exponential, LAM)
PARAMS(poisson, LAM)
PARAMS(negative_binomial, K, P)
PARAMS(generalized_negative_binomial, MU, DISPERSION)
static const struct param sample_params[] = { SHAPE("()"), DTYPE(FLOATS "that of the parameters"), { 0 } };

static int bad_dtype(int64_t dtype, const char *want)
{
  int code = fail(
      TY_EVALUE, "parameter dtype: expected %s or None, got %s", want, dtype_name((int)dtype));
  fail_argument("dtype", want, dtype_name((int)dtype));
  return code;
}

static int check_dtype(void *param)
{
  const struct random *p = param;
  if (p->dtype < 0 || dtype_float((int)p->dtype)) return TY_OK;
  return bad_dtype(p->dtype, "float16, float32, float64");
}

static int check_shape(struct infer *s, const struct dims *shape)
{
  for (int i = 0; i < shape->n; i++) {
    long long d = shape->d[i];
    if (d < 0)
      return infer_fail(s, TY_EVALUE, NULL, "shape: expected dims of 0 or more, got %lld", d);
  }
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

/* -- kernels ----------------------------------------------------------------------------------- */

#define PHILOX(table, function, types, how) \
static const struct kernel table[] = { { "philox", function, types, .flags = how }, { 0 } };
#define LAW(op, law, first) \
static int op##_random(struct call *c) \
{ \
  const struct random *p = c->param; \
  return random_run(c, &law, first, p->b); \
} \
static int op##_sample(struct call *c) { return sample_run(c, &law); } \
PHILOX(op##_random_kernels, op##_random, T_FLOAT, K_ANYWHERE) \
PHILOX(op##_sample_kernels, op##_sample, T_FLOAT | T_INT, K_ANYWHERE)
LAW(uniform,           uniform,           p->a)
LAW(normal,            normal_law,        p->a)
LAW(gamma,             gamma_law,         p->a)
LAW(exponential,       exponential,       p->a)
LAW(poisson,           poisson,           p->a)
LAW(negative_binomial, negative_binomial, (double)p->k)
LAW(generalized_negative_binomial, generalized_negative_binomial, p->a)

/* -- _random_randint --------------------------------------------------------------------------- */

static const struct param randint_params[] = {
  { "low",  P_INT, offsetof(struct random, low),  NULL, "least possible value" },
  { "high", P_INT, offsetof(struct random, high), NULL, "end of the range, not itself possible" },
  SHAPE("None"),
  CTX,
  DTYPE("int32 or int64; None: int32"),
  { 0 }
};

static int randint_check(void *param)
{
  int64_t dtype = ((const struct random *)param)->dtype;
  return dtype < 0 || dtype == TY_I32 || dtype == TY_I64 ? TY_OK : bad_dtype(dtype, "int32, int64");
}

static int randint_type(struct infer *s)
{
  const struct random *p = s->param;
  return type_is(s, &s->out[0],
      p->dtype >= 0                   ? (int)p->dtype
          : s->out[0].dtype == TY_I64 ? TY_I64
                                      : TY_I32);
}

static void randint_body(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct random *p = c->param;
  uint64_t span = (uint64_t)p->high - (uint64_t)p->low;
  for (int64_t i = begin; i < end; i++) {
    struct element_stream s = stream_of_element(make_rng_key(c), (uint64_t)i);
    uint64_t v = (uint64_t)p->low + law_below(&s, span);
    if (c->out[0].d.dtype == TY_I64)
      ((int64_t *)c->out[0].p)[i] = (int64_t)v;
    else
      ((int32_t *)c->out[0].p)[i] = (int32_t)(uint32_t)v;
  }
}

static int randint_run(struct call *c)
{
  const struct random *p = c->param;
  long long low = p->low, high = p->high;
  NEED(low < high, TY_ERUN, "bad parameters: low = %lld, high = %lld; expected low below high", low,
      high);
  NEED(c->out[0].d.dtype == TY_I64 || (low >= INT32_MIN && high - 1 <= INT32_MAX), TY_ERUN,
      "bad parameters: low = %lld, high = %lld; expected numbers that fit into int32", low, high);
  const struct operand *y = &c->out[0];
  const struct primitives *other = primitives_of(c->device);
  struct random_numbers r = { .key = make_rng_key(c), .low = low,
    .span = (uint64_t)high - (uint64_t)low };
  if (!y->p) return TY_OK;
  if (other) return other->random(c->device, &r, y->p, y->d.dtype, desc_count(&y->d));
  parallel_for_stoppable(desc_count(&y->d), NS_CALL, randint_body, c);
  return TY_OK;
}

PHILOX(randint_kernels, randint_run, T(TY_I32) | T(TY_I64), K_ANYWHERE)

/* -- rows -------------------------------------------------------------------------------------- */

#define PARAM(list) \
  .flags = OP_RANDOM | OP_ZERO_GRAD, .param = list, .param_size = sizeof(struct random)
#define RANDOM(law, alias_, doc_) \
  { .name = "_random_" #law, .alias = alias_, .doc = doc_, .in = "", PARAM(law##_params), \
    .check = check_dtype, .shape = random_shape, .type = random_type, .cpu = law##_random_kernels }
#define LIKE(law, doc_) \
  { .name = "_random_" #law "_like", .doc = doc_ " in the shape and dtype of data.", .in = "data", \
    PARAM(law##_like_params), .cpu = law##_random_kernels }
#define SAMPLE(law, in_, doc_) \
  { .name = "_sample_" #law, .alias = "sample_" #law, .doc = "A block of `shape` " doc_, \
    .in = in_, .flags = OP_RANDOM | OP_ZERO_GRAD | OP_MAY_FAIL, .param = sample_params, \
    .param_size = sizeof(struct random), .check = check_dtype, .shape = sample_shape, \
    .type = sample_type, .cpu = law##_sample_kernels }

const struct op op_sample[] = {
  RANDOM(uniform,     "uniform random_uniform", "Uniform numbers from low up to, but not including, high."),
  RANDOM(normal,      "normal random_normal", "Normal numbers with mean loc and standard deviation scale."),
  RANDOM(gamma,       "random_gamma", "Gamma distributed numbers of shape alpha and scale beta."),
  RANDOM(exponential, "random_exponential", "Exponentially distributed numbers of rate lam."),
  RANDOM(poisson,     "random_poisson", "Poisson distributed counts with mean lam, as floats."),
  RANDOM(negative_binomial, "random_negative_binomial",
         "How many failures come before the k-th success of probability p, as floats."),
  RANDOM(generalized_negative_binomial, "random_generalized_negative_binomial",
         "Negative binomial counts given by their mean mu and dispersion alpha, as floats."),
  LIKE(uniform,       "Uniform numbers"),
  LIKE(normal,        "Normal numbers"),
  LIKE(gamma,         "Gamma distributed numbers"),
  LIKE(exponential,   "Exponentially distributed numbers"),
  LIKE(poisson,       "Poisson distributed counts"),
  LIKE(negative_binomial,             "Negative binomial counts"),
  LIKE(generalized_negative_binomial, "Negative binomial counts of given mean and dispersion"),
  SAMPLE(uniform,     "low high",   "uniform numbers for each element of low and high."),
  SAMPLE(normal,      "mu sigma",   "normal numbers for each element of mu and sigma."),
  SAMPLE(gamma,       "alpha beta", "gamma distributed numbers for each shape alpha and scale beta."),
  SAMPLE(exponential, "lam",        "exponentially distributed numbers for each rate lam."),
  SAMPLE(poisson,     "lam",        "Poisson distributed counts for each mean lam."),
  SAMPLE(negative_binomial,             "k p",      "negative binomial counts for each k and p."),
  SAMPLE(generalized_negative_binomial, "mu alpha", "negative binomial counts for each mean mu and dispersion alpha."),
  { .name = "_random_randint", .alias = "random_randint _npi_random_randint", .in = "",
    PARAM(randint_params), .doc = "Whole numbers from low up to, but not including, high.",
    .check = randint_check, .shape = random_shape, .type = randint_type, .cpu = randint_kernels },
  { 0 }
};
