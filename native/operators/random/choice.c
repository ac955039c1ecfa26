/* choice.c - random choices: _sample_multinomial, _sample_unique_zipfian, _shuffle.
**
** Element i of a draw depends only on (seed, the draw's counter, node, i); an element that needs
** more random words takes them as described in kernel/variates.h. A row of unique numbers is one
** element; each step of a permutation is an element.
*/
#include "kernel/element/choice.h"
#include "kernel/variates.h"
#include "kernel/strided_copy.h"
#include "op/op.h"

/* Returns uniform number `round` of an element, in [0, 1). */
static double unit_at(const struct call *c, uint64_t element, uint64_t round)
{
  struct rng_key k = make_rng_key(c);
  struct philox p = philox(k.seed, k.counter, k.node, element + (round << 40));
  return unit_f64(p.w[0], p.w[1]);
}

/* -- _sample_multinomial ----------------------------------------------------------------------- */

struct multinomial { struct dims shape; int64_t get_prob, dtype; };
#define FIELD(name) offsetof(struct multinomial, name)
static const struct param multinomial_params[] = {
  { "shape",    P_SHAPE, FIELD(shape),    "()",    "draws per row; nothing: one", NULL, NULL, 1 },
  { "get_prob", P_BOOL,  FIELD(get_prob), "False", "a second output with the logarithm of each draw's probability" },
  { "dtype",    P_DTYPE, FIELD(dtype),    "int32", "dtype of the drawn indices" },
  { 0 }
};

static bool has_two_outputs(const void *p) { return ((const struct multinomial *)p)->get_prob; }
static const char *multinomial_out(const void *p)
{
  return has_two_outputs(p) ? "output0 output1" : "output";
}
static const char *multinomial_grad(const void *p)
{
  return has_two_outputs(p) ? "g1 i0 o0" : "g0";
}

static int multinomial_check(void *param)
{
  static const char want[] = "uint8, int32, float16, float32 or float64";
  int d = (int)((const struct multinomial *)param)->dtype;
  if (d == TY_U8 || d == TY_I32 || d == TY_F16 || d == TY_F32 || d == TY_F64) return TY_OK;
  int code = fail(TY_EVALUE, "parameter dtype: expected %s, got %s", want, dtype_name(d));
  fail_argument("dtype", want, dtype_name(d));
  return code;
}

static int multinomial_shape(struct infer *s)
{
  const struct multinomial *p = s->param;
  int64_t dim[TY_MAXDIM + 16];
  int n = 0;
  if (!s->in[0].ndim) return TY_OK;
  for (int i = 0; i + 1 < s->in[0].ndim; i++) dim[n++] = s->in[0].dim[i];
  for (int i = 0; i < p->shape.n; i++) {
    long long d = p->shape.d[i];
    if (d < 1)
      return infer_fail(s, TY_EVALUE, NULL, "shape: expected dims of 1 or more, got %lld", d);
    dim[n++] = d;
  }
  if (!n) dim[n++] = 1;
  for (int k = 0; k < s->nout; k++) TRY(shape_is(s, &s->out[k], n, dim));
  return positions_fit(s, NULL, (int)p->dtype, s->in[0].dim[s->in[0].ndim - 1], NULL);
}

static int multinomial_type(struct infer *s)
{
  TRY(type_is(s, &s->out[0], (int)((const struct multinomial *)s->param)->dtype));
  return s->nout > 1 ? type_both(s, &s->in[0], &s->out[1]) : TY_OK;
}

/* Stores the running sums of the probabilities of rows begin .. end - 1 in scratch (rows, classes).
** The last sum of a row is NaN if a probability is negative or NaN or if all are 0. */
static void multinomial_sums(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct operand *data = &c->in[0];
  int64_t classes = data->d.dim[data->d.ndim - 1];
  for (int64_t row = begin; row < end; row++) {
    double *sums = (double *)c->tmp + row * classes, sum = 0;
    bool good = true;
    for (int64_t k = 0; k < classes; k++) {
      double p = real_of(data, row * classes + k);
      good &= p >= 0;
      sums[k] = sum += p;
    }
    if (!good || !(sum > 0)) sums[classes - 1] = NAN;
  }
}

static void store_number(const struct operand *y, int64_t i, double v)
{
  set_number(elements_at(y->p, i, dtype_size(y->d.dtype)), y->d.dtype, v);
}

/* Draws elements begin .. end - 1 of the output from the sums in scratch. */
static void multinomial_draws(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct operand *data = &c->in[0], *out = &c->out[0];
  int64_t classes = data->d.dim[data->d.ndim - 1],
          block = desc_count(&out->d) / (desc_count(&data->d) / classes);
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i / block * classes;
    double u = unit_at(c, (uint64_t)i, 0);
    int64_t chosen = choose_class((const double *)c->tmp + row, classes, u);
    if (out->p) store_number(out, i, (double)chosen);
    if (c->nout > 1 && c->out[1].p) store_number(&c->out[1], i, log(real_of(data, row + chosen)));
  }
}

static size_t multinomial_scratch(const struct call *c)
{
  return sizeof(double) * (size_t)desc_count(&c->in[0].d);
}

static int multinomial_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t classes = d->dim[d->ndim - 1], rows = desc_count(d) / classes;
  parallel_for(rows, elements_ns(classes), multinomial_sums, c);
  for (int64_t row = 0; row < rows; row++)
    NEED(!isnan(((double *)c->tmp)[(row + 1) * classes - 1]), TY_ERUN,
        "bad parameters: row %lld of data is no distribution; expected numbers of 0 or "
        "more, not all 0",
        (long long)row);
  parallel_for(desc_count(&c->out[0].d), NS_FUNCTION, multinomial_draws, c);
  return TY_OK;
}

/* Computes the gradient of data, which is 0 without get_prob. in, with get_prob: head gradient of
** the logarithms, data, drawn indices. */
static int multinomial_back(
    struct call *c)
{
  struct operand *dx = &c->out[0];
  TRY(move_zero(c->device, dx->p, desc_bytes(&dx->d)));
  if (c->nin < 3) return TY_OK;
  int64_t classes = dx->d.dim[dx->d.ndim - 1], n = desc_count(&c->in[2].d);
  int64_t block = n / (desc_count(&dx->d) / classes);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = i / block * classes + MAX(0, MIN(index_of(&c->in[2], i), classes - 1));
    store_number(dx, at, real_of(dx, at) + real_of(&c->in[0], i) / real_of(&c->in[1], at));
  }
  return TY_OK;
}

static const struct kernel multinomial_kernels[] = {
  { "philox", multinomial_run, T_FLOAT | T_INT, .scratch = multinomial_scratch }, { 0 } };
static const struct kernel multinomial_back_kernels[] = { { "add", multinomial_back, T_FLOAT | T_INT }, { 0 } };

/* -- _sample_unique_zipfian -------------------------------------------------------------------- */

struct zipfian { int64_t range_max; struct dims shape; };
static const struct param zipfian_params[] = {
  { "range_max", P_INT,   offsetof(struct zipfian, range_max), NULL,   "numbers are below it", NULL, "[1,]" },
  { "shape",     P_SHAPE, offsetof(struct zipfian, shape),     "None", "rows and numbers per row", NULL, NULL, 1 },
  { 0 }
};

static int zipfian_shape(struct infer *s)
{
  const struct zipfian *p = s->param;
  long long rows = p->shape.d[0], each = p->shape.d[1], max = p->range_max;
  if (p->shape.n != 2 || rows < 1 || each < 1)
    return infer_fail(s, TY_EVALUE, NULL, "shape: expected two positive dims");
  if (each > max)
    return infer_fail(
        s, TY_EVALUE, NULL, "%lld different numbers below %lld do not exist", each, max);
  TRY(shape_is(s, &s->out[0], 2, p->shape.d));
  return shape_is(s, &s->out[1], 1, p->shape.d);
}

static int zipfian_type(struct infer *s)
{
  TRY(type_is(s, &s->out[0], TY_I64));
  return type_is(s, &s->out[1], TY_I64);
}

/* Returns the slots of the hash table for one row: a power of two, at least twice the numbers. */
static int64_t slots_for(
    const ty_desc *d)
{
  int64_t n = 4;
  while (n < 2 * d->dim[1]) n *= 2;
  return n;
}

static size_t zipfian_scratch(const struct call *c)
{
  return sizeof(int64_t) * (size_t)slots_for(&c->out[0].d);
}

/* Draws numbers for each row until enough of them differ, and counts the draws. */
static int zipfian_run(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t max = ((const struct zipfian *)c->param)->range_max, slots = slots_for(d);
  int64_t *y = c->out[0].p, *tries = c->out[1].p;
  double turns = log((double)max + 1);
  for (int64_t row = 0; row < d->dim[0]; row++) {
    int64_t found = 0, round = 0;
    memset(c->tmp, 0, sizeof(int64_t) * (size_t)slots);
    while (found < d->dim[1]) {
      int64_t v = zipfian_number(unit_at(c, (uint64_t)row, (uint64_t)round++), turns, max);
      if (!insert_number(c->tmp, slots, v)) continue;
      if (y) y[row * d->dim[1] + found] = v;
      found++;
    }
    if (tries) tries[row] = round;
  }
  return TY_OK;
}

static const struct kernel zipfian_kernels[] = {
  { "philox", zipfian_run, T(TY_I64), .scratch = zipfian_scratch }, { 0 } };

/* -- _shuffle ---------------------------------------------------------------------------------- */

static size_t shuffle_scratch(const struct call *c)
{
  return sizeof(int64_t) * (size_t)c->in[0].d.dim[0];
}

/* Builds a permutation by an inside-out Fisher and Yates shuffle and copies the rows in its
** order. */
static int shuffle_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  const char *x = c->in[0].p;
  char *y = c->out[0].p;
  int64_t n = d->dim[0], row = product_of(d, 1, d->ndim) * (int64_t)dtype_size(d->dtype),
          *order = c->tmp;
  for (int64_t i = 0; i < n; i++) {
    int64_t j = position_of_step(i, unit_at(c, (uint64_t)i, 0));
    order[i] = order[j];
    order[j] = i;
  }
  for (int64_t i = 0; i < n; i++) memcpy(y + i * row, x + order[i] * row, (size_t)row);
  return TY_OK;
}

static const struct kernel shuffle_kernels[] = {
  { "permute", shuffle_run, T_ANY, .scratch = shuffle_scratch }, { 0 } };

/* -- rows -------------------------------------------------------------------------------------- */

const struct op op_choice[] = {
  { .name = "_sample_multinomial", .alias = "sample_multinomial", .flags = OP_RANDOM,
    .doc = "Draws class indices from rows of probabilities; with get_prob also the logarithms of their probabilities, "
           "whose gradient is 1 / p at the drawn class.",
    .in = "data", .out_of = multinomial_out, .param = multinomial_params, .param_size = sizeof(struct multinomial),
    .check = multinomial_check, .shape = multinomial_shape, .type = multinomial_type,
    .grad = "g0", .grad_of = multinomial_grad, .cpu = multinomial_kernels, .back_cpu = multinomial_back_kernels },
  { .name = "_sample_unique_zipfian", .flags = OP_RANDOM | OP_ZERO_GRAD,
    .doc = "Rows of different whole numbers below range_max, k with probability ln((k + 2) / (k + 1)) / "
           "ln(range_max + 1), and how many draws each row took.",
    .in = "", .out = "output0 output1", .param = zipfian_params, .param_size = sizeof(struct zipfian),
    .shape = zipfian_shape, .type = zipfian_type, .cpu = zipfian_kernels },
  { .name = "_shuffle", .alias = "shuffle _npi_shuffle", .flags = OP_RANDOM,
    .doc = "Entries along the first axis in random order. No gradient.", .in = "data", .cpu = shuffle_kernels },
  { 0 }
};
