/* sample.c - random arrays: _random_* (numbers as parameters), _random_*_like, _sample_* (arrays as parameters).
**
** Element i depends on the run's draw, the node and i alone (draw.h). A distribution is a `law`: either a scaled and
** shifted standard variate, made a block at a time, or a function of one element's words. Blocks are made in double and
** stored as float32 or float64. Parameters are checked before anything is written; a bad one fails the run.
** A 0 in `shape` is an unknown dim, which readers complete. `ctx` is for the caller: kernels do not look at it.
*/
#include "draw.h"

/* -- laws ------------------------------------------------------------------------------------------------------------ */

struct affine { double offset, scale, limit; };
struct law {
  const char *a, *b;                                  /* names of the parameters; NULL: has no second */
  const char *(*bad)(double a, double b);             /* what is wrong with them; NULL: nothing */
  draw_fn     (*standard)(int dtype);
  struct affine (*place)(double a, double b, int dtype);                    /* of the standard variate */
};

static struct affine uniform_place(double a, double b, int dtype)           /* rounding must not reach b itself */
{
  double below = dtype == TY_F64 ? nextafter(b, a) : nextafterf((float)b, (float)a);
  return (struct affine){ a, b - a, b > a ? below : b };
}

static struct affine normal_place(double a, double b, int dtype) { return (struct affine){ a, b, INFINITY }; }

static draw_fn uniform_standard(int dtype) { return dtype == TY_F64 ? draws_here()->unit53 : draws_here()->unit24; }
static draw_fn normal_standard(int dtype)  { return draws_here()->normal; }

static const char *uniform_bad(double a, double b) { return a <= b ? NULL : "low must not be above high"; }
static const char *normal_bad(double a, double b)  { return b >= 0 ? NULL : "the scale must not be negative"; }

static const struct law uniform = { "low", "high", uniform_bad, uniform_standard, uniform_place };
static const struct law normal  = { "loc", "scale", normal_bad, normal_standard, normal_place };

/* -- drawing --------------------------------------------------------------------------------------------------------- */

struct sample { double a, b; int64_t k; struct dims shape; const char *ctx; int64_t dtype; };

struct job {
  const struct law *law;
  struct key key;
  double a, b;
  char  *y;
  int    dtype;
};

enum { BLOCK = 512, GRAIN = 1 << 13 };

static void draw_part(int64_t begin, int64_t end, void *context)
{
  const struct job *j = context;
  const struct draws *d = draws_here();
  double z[BLOCK];
  size_t size = dtype_size(j->dtype);
  struct affine f = j->law->place(j->a, j->b, j->dtype);
  for (int64_t i = begin; i < end; i += BLOCK) {
    int64_t n = MIN(BLOCK, end - i);
    j->law->standard(j->dtype)(z, &j->key, (uint64_t)i, n);
    (j->dtype == TY_F64 ? d->store_f64 : d->store_f32)(j->y + (size_t)i * size, z, f.offset, f.scale, f.limit, n);
  }
}

static int draw_numbers(struct call *c, const struct law *law)
{
  const struct sample *p = c->param;
  const char *bad = law->bad(p->a, p->b);
  struct job j = { law, key_of(c), p->a, p->b, c->out[0].p, c->out[0].d.dtype };
  NEED(!bad, TY_ERUN, "%s; got %s = %g, %s = %g", bad, law->a, p->a, law->b, p->b);
  if (j.y) parallel(desc_count(&c->out[0].d), GRAIN, draw_part, &j);
  return TY_OK;
}

static int random_shape(struct infer *s)
{
  const struct sample *p = s->param;
  if (p->shape.n > TY_MAXDIM)
    return infer_fail(s, TY_ESHAPE, NULL, "shape has %lld dimensions; at most %d are possible", (long long)p->shape.n, TY_MAXDIM);
  for (int i = 0; i < p->shape.n; i++)
    if (p->shape.d[i] < 0) return infer_fail(s, TY_EVALUE, NULL, "shape has the negative dim %lld", (long long)p->shape.d[i]);
  return p->shape.n > 0 ? shape_is(s, &s->out[0], (int)p->shape.n, p->shape.d) : TY_OK;
}

static int random_type(struct infer *s)
{
  static const int dtype[] = { TY_F16, TY_F32, TY_F64, TY_BF16 };
  const struct sample *p = s->param;
  return type_is(s, &s->out[0], p->dtype < 0 ? TY_F32 : dtype[p->dtype]);
}

#define KERNELS(law) \
  static int law##_run(struct call *c) { return draw_numbers(c, &law); } \
  static const struct kernel law##_cpu[] = { { "philox", law##_run, T_FLOAT }, { 0 } };
KERNELS(uniform)
KERNELS(normal)

#define A(name, init, doc) { name, P_FLOAT, offsetof(struct sample, a), init, doc }
#define B(name, init, doc) { name, P_FLOAT, offsetof(struct sample, b), init, doc }
#define SHAPE { "shape", P_SHAPE, offsetof(struct sample, shape), "None", "shape of the result; 0 is unknown", .none = 1 }, \
  { "ctx", P_TEXT, offsetof(struct sample, ctx), "", "device of an imperative call, as text" }
#define DTYPE { "dtype", P_ENUM, offsetof(struct sample, dtype), "None", "element type of the result; None: float32", \
  "float16|float32|float64|bfloat16", .none = 1 }

static const struct param uniform_params[] = {
  A("low", "0", "lower end, included"), B("high", "1", "upper end, not included"), SHAPE, DTYPE, { 0 } };
static const struct param normal_params[] = {
  A("loc", "0", "mean"), B("scale", "1", "standard deviation"), SHAPE, DTYPE, { 0 } };

#define RANDOM(law) .in = "", .flags = OP_RANDOM | OP_ZERO_GRAD, .param = law##_params, .param_size = sizeof(struct sample), \
  .shape = random_shape, .type = random_type, .cpu = law##_cpu

const struct op op_sample[] = {
  { .name = "_random_uniform", .alias = "random_uniform uniform", RANDOM(uniform), .tier = 1,
    .doc = "Uniform numbers from low, included, to high, not included." },
  { .name = "_random_normal", .alias = "random_normal normal", RANDOM(normal), .tier = 1,
    .doc = "Normal numbers with mean loc and standard deviation scale." },
  { 0 }
};
