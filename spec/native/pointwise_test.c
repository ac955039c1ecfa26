/* pointwise_test.c - pointwise programs against plain loops: values of formulas, mistakes and
** their columns, broadcasting of every dtype, results in place, numbers, sums back to a shape,
** accuracy, and equal bits under every instruction set. */
#include "pointwise/ir.h"
#include "check.h"

static unsigned state = 1;
static int pick_below(int n)
{
  state = state * 1103515245u + 12345u;
  return (int)(state >> 16) % n;
}

/* Makes the program of one formula over inputs a b c ...; operand `inputs` is the result. */
static struct pw_program *make_program(const char *formula, int inputs, int dtype)
{
  struct pw_program *t = pw_new(dtype);
  struct pw_env env = { .op = NULL };
  int reg;
  for (int i = 0; i < 26; i++) env.var[i] = i < inputs ? pw_load(t, i) : -1;
  if (!pw_formula(t, formula, &env, &reg)) {
    pw_store(t, inputs, reg);
    if (!pw_seal(t)) return t;
  }
  pw_free(t);
  return NULL;
}

/* -- formulas ---------------------------------------------------------------------------------- */

static void test_values(void)
{
  static const struct {
    const char *text;
    double want;
  } list[] = {
    { "1+2*3-4/2", 5 },
    { "-2-3", -5 },
    { "(1<2)+(2<=2)+(3>4)+(4>=5)+(1==1)+(1!=1)", 3 },
    { "1?2:3", 2 },
    { "0?2:0?4:5", 5 },
    { "!0+!3", 1 },
    { "1&&0||1", 1 },
    { "max(1,2)+min(3,4)", 5 },
    { "mod(-1,3)", 2 },
    { "pow(2,10)", 1024 },
    { "c = 3; c*c", 9 },
    { "rint(2.5)+round(2.5)", 5 },
    { "xor(1,0)+xor(2,3)", 1 },
    { "square(3)", 9 },
    { "clip(5,0,1)", 1 },
    { "isinf(inf)+isfinite(1)+isnan(nan)", 3 },
    { "1 ? 2 : unknown_is_not_needed(1)", NAN },
  };
  const ty_desc one = { .dtype = TY_F64, .ndim = 1, .dim = { 1 } };
  for (int i = 0; i < COUNT(list); i++) {
    struct pw_program *t = make_program(list[i].text, 0, TY_F64);
    struct pw_loop l;
    double got = -1;
    void *p[1] = { &got };
    if (isnan(list[i].want)) {
      CHECK(!t, "accepted: %s", list[i].text);
      continue;
    }
    CHECK(t && !pw_loop_make(&l, &one, &one, 1) && !pw_run(TY_CPU, t, &l, p) && got == list[i].want,
        "%s = %g", list[i].text, got);
    pw_free(t);
  }
}

static void test_mistakes(void)
{
  static const struct {
    const char *text;
    int column;
  } list[] = {
    { "a +", 4 },
    { "foo(a)", 1 },
    { "a + (b", 7 },
    { "max(a)", 6 },
    { "a ? b", 6 },
    { "a b", 3 },
    { "$x", 2 },
    { "b + z", 5 },
    { "", 1 },
  };
  char column[32];
  for (int i = 0; i < COUNT(list); i++) {
    snprintf(column, sizeof column, "column %d:", list[i].column);
    CHECK(!make_program(list[i].text, 2, TY_F32) && strstr(ty_error(), column), "'%s': %s",
        list[i].text, ty_error());
  }
}

/* -- broadcasting ------------------------------------------------------------------------------ */

static const int dtypes[] = { TY_F32, TY_F64, TY_F16, TY_BF16, TY_U8, TY_I8, TY_I32, TY_I64,
  TY_BOOL };
struct array { ty_desc d; void *p; double *value; };

static struct array fill_array(ty_desc d)
{
  int64_t n = desc_count(&d);
  struct array x = { d, mem_new(desc_bytes(&d)), NEWS(double, n) };
  for (int64_t i = 0; i < n; i++)
    x.value[i] = d.dtype == TY_BOOL ? pick_below(2)
        : d.dtype == TY_U8          ? pick_below(8)
                                    : pick_below(17) - 8;
  dtype_convert(x.p, d.dtype, x.value, TY_F64, n);
  return x;
}

static void drop_array(struct array *x)
{
  mem_free(x->p);
  mem_free(x->value);
}

/* Returns which element of a broadcast operand belongs to element i of the space. */
static int64_t find_element(const ty_desc *space, const ty_desc *d, int64_t i)
{
  int64_t offset = 0, step = 1;
  for (int j = space->ndim - 1, k = d->ndim - 1; j >= 0; j--, k--) {
    int64_t at = i % space->dim[j];
    i /= space->dim[j];
    if (k < 0) continue;
    if (d->dim[k] != 1) offset += at * step;
    step *= d->dim[k];
  }
  return offset;
}

/* Returns d with some axes set to 1 and some leading axes removed, at random. */
static ty_desc shrink_axes(ty_desc d)
{
  for (int i = 0; i < d.ndim; i++)
    if (pick_below(3) == 0) d.dim[i] = 1;
  int less = pick_below(3) == 0 ? pick_below(d.ndim) : 0;
  d.ndim -= less;
  memmove(d.dim, d.dim + less, sizeof *d.dim * (size_t)d.ndim);
  return d;
}

static void test_broadcast(int round)
{
  ty_desc space = { .ndim = 1 + pick_below(4) };
  for (int i = 0; i < space.ndim; i++) space.dim[i] = 1 + pick_below(round % 7 ? 9 : 70);
  if (desc_count(&space) > 200000) return;
  struct array x[4];
  ty_desc d[4];
  for (int k = 0; k < 4; k++) {
    ty_desc one = k < 3 ? shrink_axes(space) : space;
    one.dtype = k < 3 ? dtypes[round % 2 ? 0 : pick_below(9)] : dtypes[pick_below(2)];
    d[k] = one;
    x[k] = fill_array(one);
  }
  struct pw_program *t = make_program("a*b + c - (a - c) * 2", 3, pw_dtype(d, 4));
  struct pw_loop l;
  void *p[4] = { x[0].p, x[1].p, x[2].p, x[3].p };
  CHECK(t && !pw_loop_make(&l, &space, d, 4) && !pw_run(TY_CPU, t, &l, p), "%s", ty_error());
  int64_t n = desc_count(&space), bad = 0;
  for (int64_t i = 0; i < n; i++) {
    double a = x[0].value[find_element(&space, &d[0], i)],
           b = x[1].value[find_element(&space, &d[1], i)],
           c = x[2].value[find_element(&space, &d[2], i)];
    double got = d[3].dtype == TY_F32 ? ((float *)x[3].p)[i] : ((double *)x[3].p)[i];
    bad += got != a * b + c - (a - c) * 2;
  }
  CHECK(!bad, "round %d: %lld of %lld elements", round, (long long)bad, (long long)n);
  for (int k = 0; k < 4; k++) drop_array(&x[k]);
  pw_free(t);
}

static void test_sums(int round)
{
  ty_desc space = { .dtype = dtypes[pick_below(8)], .ndim = 1 + pick_below(5) };
  for (int i = 0; i < space.ndim; i++) space.dim[i] = 1 + pick_below(round % 13 ? 6 : 40);
  ty_desc to = shrink_axes(space);
  if (desc_count(&space) > 2000000) return;
  struct array x = fill_array(space), y = fill_array(to);
  int64_t n = desc_count(&to);
  double *want = NEWS(double, n);
  void *exact = mem_new(desc_bytes(&to));
  for (int64_t i = 0; i < desc_count(&space); i++) want[find_element(&space, &to, i)] += x.value[i];
  dtype_convert(exact, to.dtype, want, TY_F64, n);
  CHECK(!sum_to(TY_CPU, y.p, &to, x.p, &space) && !memcmp(y.p, exact, desc_bytes(&to)),
      "round %d: a sum differs", round);
  mem_free(want);
  mem_free(exact);
  drop_array(&x);
  drop_array(&y);
}

/* -- in place ---------------------------------------------------------------------------------- */

/* Checks two results in place of their operands: a, b = b, a + b. */
static void test_swap(int n)
{
  static double a[5000], b[5000];
  for (int i = 0; i < n; i++) a[i] = i, b[i] = 10 * i;
  struct pw_program *t = pw_new(TY_F64);
  struct pw_env env = { .var = { pw_load(t, 0), pw_load(t, 1) } };
  int sum;
  pw_formula(t, "a + b", &env, &sum);
  pw_store(t, 0, env.var[1]);
  pw_store(t, 1, sum);
  const ty_desc d[2] = { { .dtype = TY_F64, .ndim = 1, .dim = { n } },
    { .dtype = TY_F64, .ndim = 1, .dim = { n } } };
  struct pw_loop l;
  void *p[2] = { a, b };
  int bad = pw_seal(t) || pw_loop_make(&l, &d[0], d, 2) || pw_run(TY_CPU, t, &l, p);
  for (int i = 0; i < n; i++) bad += a[i] != 10 * i || b[i] != 11 * i;
  CHECK(!bad, "%d wrong of %d", bad, n);
  pw_free(t);
}

/* -- numbers ----------------------------------------------------------------------------------- */

static float gate_of(float a, float x) { return a * (x <= 0 ? 0 : x >= 1 ? 1 : x); }

static float twice(float a) { return a * 2; }
static float less_one(float a) { return a - 1; }
static float from_three(float a) { return 3 - a; }
static float twice_and_one(float a) { return a * 2 + 1; }
static float two(float a) { return a * 0 + 2; }
static float hard_swish(float a) { return gate_of(a, a * 0.25f + 0.5f); }
static float falling_gate(float a) { return gate_of(a, a * -0.25f + 0.5f); }

static const struct { const char *formula; float (*exact)(float); } with_numbers[] = {
  { "a * 2", twice },
  { "a - 1", less_one },
  { "3 - a", from_three },
  { "a * 2 + 1", twice_and_one },
  { "2", two },
  { "a * clip(a * 0.25 + 0.5, 0, 1)", hard_swish },
  { "a * clip(-0.25 * a + 0.5, 0, 1)", falling_gate },
};

/* Compares programs with numbers as operands, whose blocks may be long, with loops: equal bits,
** except that any NaN equals any other. */
static void test_numbers(int k, int n, bool in_place)
{
  static float x[50001], y[50001];
  const float odd[] = { NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 2, -2, 1e-42f };
  for (int i = 0; i < n; i++)
    x[i] = i % 7 || with_numbers[k].exact == two ? (float)(i % 113 - 56) * 0.0623f
                                                 : odd[i / 7 % COUNT(odd)];
  struct pw_program *t = make_program(with_numbers[k].formula, 1, TY_F32);
  const ty_desc d[2] = { { .dtype = TY_F32, .ndim = 1, .dim = { n } },
    { .dtype = TY_F32, .ndim = 1, .dim = { n } } };
  struct pw_loop l;
  if (in_place) memcpy(y, x, sizeof *x * (size_t)n);
  void *p[2] = { in_place ? y : x, y };
  int bad = !t || pw_loop_make(&l, &d[0], d, 2) || pw_run(TY_CPU, t, &l, p);
  for (int i = 0; i < n && !bad; i++) {
    const float want = with_numbers[k].exact(x[i]);
    bad += memcmp(&y[i], &want, sizeof want) != 0 && !(isnan(y[i]) && isnan(want));
  }
  CHECK(!bad, "%s over %d elements%s", with_numbers[k].formula, n, in_place ? ", in place" : "");
  pw_free(t);
}

/* -- accuracy ---------------------------------------------------------------------------------- */

static long double sigmoid_long(long double x)
{
  return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
static long double softrelu_long(long double x)
{
  return (x > 0 ? x : 0) + log1pl(expl(x > 0 ? -x : x));
}
static long double normcdf_long(long double x)
{
  return 0.5L * erfcl(x * -0.70710678118654752440L);
}
/* most: largest error in units in the last place of float32, 0: 2; flushes: the result may be 0
** instead of a denormal float32 */
static const struct { int op; long double (*exact)(long double); double most; bool flushes;
} functions[] = {
  { PW_EXP, expl },
  { PW_LOG, logl },
  { PW_TANH, tanhl },
  { PW_SIGMOID, sigmoid_long },
  { PW_SOFTRELU, softrelu_long },
  { PW_EXPM1, expm1l },
  { PW_LOG1P, log1pl },
  { PW_LOG2, log2l },
  { PW_SIN, sinl },
  { PW_COS, cosl },
  { PW_ERF, erfl },
  { PW_NORMCDF, normcdf_long, 5.5, true },
};

/* Returns the distance in units in the last place of float32 (24 bits) or float64 (53). */
static double count_units(double got, long double want, int bits, int least)
{
  int e;
  if ((got != got && want != want) || (long double)got == want) return 0;
  frexpl(want, &e);
  if (isinf(got) || fabsl(want) > (bits == 24 ? 0x1.fffffep127L : 0x1.fffffffffffffp1023L))
    return isinf(got) ? 0 : 1e9;
  return (double)(fabsl((long double)got - want) / ldexpl(1, MAX(e, least) - bits));
}

/* Returns the value of function k at x; 0 where `got` is 0 in place of a denormal number, if the
** function flushes. */
static long double wanted_of(int k, float x, float got)
{
  long double want = functions[k].exact((long double)x);
  return functions[k].flushes && got == 0 && fabsl(want) < 0x1p-126L ? 0 : want;
}

static void test_accuracy(int k)
{
  const struct pw_table *t = pw_table();
  double worst = 0, worst_wide = 0;
  bool denormal = false;
  for (uint64_t u = 0; u < 1ull << 32;) {
    float x[256], y[256];
    double wide[256], z[256];
    for (int i = 0; i < 256; i++, u += 300007) {
      uint32_t bits = (uint32_t)u;
      memcpy(&x[i], &bits, sizeof bits);
      wide[i] = (double)x[i] * (1 + 1e-9 * i);
    }
    t->op[KIND_F32][functions[k].op](y, x, x, x, 256);
    t->op[KIND_F64][functions[k].op](z, wide, wide, wide, 256);
    for (int i = 0; i < 256; i++) {
      worst = fmax(worst, count_units((double)y[i], wanted_of(k, x[i], y[i]), 24, -125));
      denormal |= functions[k].flushes && y[i] != 0 && fabsf(y[i]) < 0x1p-126f;
      worst_wide = fmax(
          worst_wide, count_units(z[i], functions[k].exact((long double)wide[i]), 53, -1021));
    }
  }
  const double most = functions[k].most > 0 ? functions[k].most : 2;
  CHECK(worst <= most && worst_wide <= 2, "%s: %.2f units in float32, %.2f in float64",
      pw_opcode[functions[k].op].name, worst, worst_wide);
  CHECK(!denormal, "%s: a denormal number", pw_opcode[functions[k].op].name);
}

extern const struct pw_table pw_table_baseline;

static void test_equal_bits(void)
{
  float x[1000], y[1000], z[1000];
  for (int i = 0; i < 1000; i++) x[i] = (float)(i - 500) * 0.0371f;
  for (int op = 0; op < PW_OPCODES; op++) {
    pw_table()->op[KIND_F32][op](y, x, x, x, 1000);
    pw_table_baseline.op[KIND_F32][op](z, x, x, x, 1000);
    int bad = 0;
    for (int i = 0; i < 1000; i++) bad += y[i] != z[i] && (y[i] == y[i] || z[i] == z[i]);
    CHECK(!bad, "%s: %d of 1000 differ between instruction sets", pw_opcode[op].name, bad);
  }
}

int main(void)
{
  test_values();
  test_mistakes();
  for (int i = 0; i < count_trials(400); i++) test_broadcast(i);
  for (int i = 0; i < count_trials(400); i++) test_sums(i);
  for (int n = 1; n < 5000; n = 3 * n + 1) test_swap(n);
  for (int k = 0; k < COUNT(functions); k++) test_accuracy(k);
  static const int counts[] = { 1, 15, 256, 257, 16384, 16385, 50001 };
  for (int k = 0; k < COUNT(with_numbers); k++)
    for (int i = 0; i < COUNT(counts); i++)
      test_numbers(k, counts[i], false), test_numbers(k, counts[i], true);
  test_equal_bits();
  return check_end();
}
