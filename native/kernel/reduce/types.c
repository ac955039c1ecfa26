/* types.c - selects the reductions of each type for this processor (reduce.h).
**
** 8-bit integers and bools have their own loops (bytes.h), which reduce into int64 accumulators and
** compute gradients of B_EQUAL; for other gradients they are converted to int32, a part at a time.
** Integers wrap, in any order, so the results equal those of loops for the elements' type. */
#include "base/cast.h"
#include "kernel/reduce/bytes.h"

#define TABLES(isa) \
  extern const struct reducer reducer_f32_##isa, reducer_f64_##isa, reducer_i64_##isa, \
      reducer_bf16_##isa, reducer_i32_##isa; \
  extern const struct byte_reducer bytes_##isa;
#define TABLE(isa) \
  { &reducer_f32_##isa, &reducer_f64_##isa, &reducer_i64_##isa, &reducer_bf16_##isa, \
    &reducer_i32_##isa },
#define BYTE_TABLE(isa) &bytes_##isa,
EACH_ISA(TABLES)
static const struct reducer *const tables[][5] = { EACH_ISA(TABLE) };
static const struct byte_reducer *const byte_tables[] = { EACH_ISA(BYTE_TABLE) };

const struct reducer *reducer_of(int dtype)
{
  int isa = cpu_isa();
  switch (dtype) {
  case TY_F32: return tables[isa][0];
  case TY_F64: return tables[isa][1];
  case TY_BF16: return tables[isa][3];
  case TY_I32: return tables[isa][4];
  default: return tables[isa][2];
  }
}

static bool reduce_is_byte(int dtype)
{
  return dtype == TY_U8 || dtype == TY_I8 || dtype == TY_BOOL;
}

static const struct byte_reducer *reduce_get_byte_reducer(void) { return byte_tables[cpu_isa()]; }

static const char *reduce_skip_elements(const void *p, int64_t n, int dtype)
{
  return (const char *)p + n * (int64_t)dtype_size(dtype);
}

void reducer_rows(int dtype, int kind, accumulator *acc, const void *x, const void *centre,
    int64_t count, int64_t stride, int64_t n)
{
  const reduce_fn reduce = reduce_is_byte(dtype)
      ? reduce_get_byte_reducer()->rows[dtype == TY_I8][kind]
      : reducer_of(dtype)->rows[kind];
  reduce(acc, x, centre, count, stride, n);
}

void reducer_cols(int dtype, int kind, accumulator *acc, const void *x, const void *centre,
    int64_t count, int64_t stride, int64_t n)
{
  const reduce_fn reduce = reduce_is_byte(dtype)
      ? reduce_get_byte_reducer()->cols[dtype == TY_I8][kind]
      : reducer_of(dtype)->cols[kind];
  reduce(acc, x, centre, count, stride, n);
}

enum {
  /* elements of a part: 8 KiB as int32, so that operands and results fit the first-level cache */
  PART = 2048
};

void reducer_store(int dtype, void *y, const accumulator *acc, int finish, int64_t count, bool add,
    int64_t n)
{
  const struct reducer *table = reducer_of(dtype);
  if (!reduce_is_byte(dtype)) {
    table->store(y, acc, finish, count, add, n);
    return;
  }
  const cast_fn narrow = cast_between(TY_I64, dtype), widen = cast_between(dtype, TY_I64);
  if (finish == F_NONE && !add) {
    narrow(y, acc, n);
    return;
  }
  int64_t part[PART];
  accumulator own[PART];
  for (int64_t j = 0; j < n; j += PART) {
    const int64_t k = MIN(PART, n - j);
    void *to = (void *)reduce_skip_elements(y, j, dtype);
    const accumulator *from = acc + j;
    if (finish == F_MEAN) { /* the sum wraps before it is divided */
      narrow(part, from, k);
      widen(own, part, k);
      from = own;
    }
    if (add) widen(part, to, k);
    table->store(part, from, finish, count, add, k);
    narrow(to, part, k);
  }
}

/* -- indices of extremes ----------------------------------------------------------------------- */

void reducer_best_rows(
    int dtype, int64_t *index, const void *x, bool least, int64_t count, int64_t n)
{
  if (reduce_is_byte(dtype)) {
    reduce_get_byte_reducer()->best_rows(index, x, dtype == TY_I8, least, count, n);
    return;
  }
  const struct reducer *table = reducer_of(dtype);
  const int kind = least ? R_MIN : R_MAX;
  for (int64_t i = 0; i < count; i++) {
    const char *row = reduce_skip_elements(x, i * n, dtype);
    accumulator best;
    table->start(&best, kind, 1);
    table->rows[kind](&best, row, NULL, 1, 0, n);
    index[i] = table->find(row, best, n);
  }
}

void reducer_best_cols(int dtype, int64_t *index, const void *x, bool least, int64_t count,
    int64_t stride, int64_t n)
{
  if (reduce_is_byte(dtype)) {
    reduce_get_byte_reducer()->best_cols(index, x, dtype == TY_I8, least, count, stride, n);
    return;
  }
  const struct reducer *table = reducer_of(dtype);
  accumulator best[BEST_RESULTS];
  for (int64_t i = 0; i < count; i++)
    table->best_cols(best, index, reduce_skip_elements(x, i * stride, dtype), least, i, n);
}

/* -- gradients --------------------------------------------------------------------------------- */

/* The arguments of a gradient of bytes. */
struct byte_gradient {
  int dtype;
  back_fn back; /* the loop of int32 */
  double scale;
  const char *x, *y, *g, *h;
};

/* Widens n elements of an operand, from element `at` on, to `to`; NULL stays NULL. */
static const int32_t *reduce_widen_operand(
    const struct byte_gradient *s, int32_t *to, const char *from, int64_t at, int64_t n)
{
  if (!from) return NULL;
  cast_between(s->dtype, TY_I32)(to, from + at, n);
  return to;
}

/* Computes `rows` rows of n elements, at most PART in all, from element `at` of x on, with the loop
** of int32. beside: the first of the `others` elements of y, g and h that are used. */
static void reduce_run_backward_part(const struct byte_gradient *s, char *dx, int64_t at,
    int64_t beside, int64_t others, int64_t rows, int64_t n)
{
  int32_t d[PART], x[PART], y[PART], g[PART], h[PART];
  s->back(d, reduce_widen_operand(s, x, s->x, at, rows * n),
      reduce_widen_operand(s, y, s->y, beside, others),
      reduce_widen_operand(s, g, s->g, beside, others),
      reduce_widen_operand(s, h, s->h, beside, others), s->scale, rows, n);
  cast_between(TY_I32, s->dtype)(dx, d, rows * n);
}

/* Computes one gradient per row and repeats it, since the gradient of a sum does not depend on
** x. */
static void reduce_repeat_rows(const struct byte_gradient *s, char *dx, int64_t count, int64_t n)
{
  char d[PART];
  for (int64_t i = 0; i < count; i += PART) {
    const int64_t rows = MIN(count - i, PART);
    reduce_run_backward_part(s, d, 0, i, rows, rows, 1);
    for (int64_t k = 0; k < rows; k++) memset(dx + (i + k) * n, d[k], (size_t)n);
  }
}

/* Computes the first of `count` rows of n gradients and copies it to the others, which are
** equal. */
static void reduce_repeat_cols(const struct byte_gradient *s, char *dx, int64_t count, int64_t n)
{
  for (int64_t j = 0; j < n; j += PART) {
    const int64_t k = MIN(n - j, PART);
    reduce_run_backward_part(s, dx + j, 0, j, k, 1, k);
  }
  for (int64_t i = 1; i < count; i++) memcpy(dx + i * n, dx, (size_t)n);
}

static bool reduce_is_repeated(int kind) { return kind == B_SUM || kind == B_NANSUM; }

void reducer_back_rows(int dtype, int kind, void *dx, const void *x, const void *y, const void *g,
    const void *h, double scale, int64_t count, int64_t n)
{
  if (!reduce_is_byte(dtype)) {
    reducer_of(dtype)->back_rows[kind](dx, x, y, g, h, scale, count, n);
    return;
  }
  const struct byte_gradient s = { dtype, reducer_of(TY_I32)->back_rows[kind], scale,
    reduce_is_repeated(kind) ? NULL : x, y, g, h };
  if (kind == B_EQUAL) {
    reduce_get_byte_reducer()->equal_rows(dx, x, y, g, count, n);
    return;
  }
  if (reduce_is_repeated(kind)) {
    reduce_repeat_rows(&s, dx, count, n);
    return;
  }
  const int64_t most = n < PART ? PART / MAX(n, 1) : 1;
  for (int64_t i = 0; i < count; i += most) {
    const int64_t rows = MIN(most, count - i);
    for (int64_t j = 0; j < n; j += PART)
      reduce_run_backward_part(
          &s, (char *)dx + i * n + j, i * n + j, i, rows, rows, MIN(PART, n - j));
  }
}

void reducer_back_cols(int dtype, int kind, void *dx, const void *x, const void *y, const void *g,
    const void *h, double scale, int64_t count, int64_t n)
{
  if (!reduce_is_byte(dtype)) {
    reducer_of(dtype)->back_cols[kind](dx, x, y, g, h, scale, count, n);
    return;
  }
  const struct byte_gradient s = { dtype, reducer_of(TY_I32)->back_cols[kind], scale,
    reduce_is_repeated(kind) ? NULL : x, y, g, h };
  if (kind == B_EQUAL) {
    reduce_get_byte_reducer()->equal_cols(dx, x, y, g, count, n);
    return;
  }
  if (reduce_is_repeated(kind)) {
    reduce_repeat_cols(&s, dx, count, n);
    return;
  }
  for (int64_t j = 0; j < n; j += PART) {
    const int64_t k = MIN(PART, n - j), most = k < n ? 1 : PART / k; /* adjacent rows */
    for (int64_t i = 0; i < count; i += most)
      reduce_run_backward_part(
          &s, (char *)dx + i * n + j, i * n + j, j, k, MIN(most, count - i), k);
  }
}
