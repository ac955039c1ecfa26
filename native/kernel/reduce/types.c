/* types.c - picks the reductions of each type for this processor (reduce.h).
**
** 8-bit integers and bools have none of their own, int32 has no gradients: a part at a time becomes
** int64. Integers wrap, in any order, so the results are those of a loop for the elements' type.
*/
#include "base/cast.h"
#include "kernel/reduce/reduce.h"

#define TABLES(isa) \
  extern const struct reducer reducer_f32_##isa, reducer_f64_##isa, reducer_i64_##isa, \
      reducer_bf16_##isa, reducer_i32_##isa;
#define TABLE(isa) \
  { &reducer_f32_##isa, &reducer_f64_##isa, &reducer_i64_##isa, &reducer_bf16_##isa, \
    &reducer_i32_##isa },
EACH_ISA(TABLES)
static const struct reducer *const tables[][5] = { EACH_ISA(TABLE) };

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

enum {
  /* elements of a part: 16 KiB as int64, in the first cache with what is made of them */
  PART = 2048,
  /* columns of a part, of which more than one row follows */
  PART_COLUMNS = 256
};

static bool is_widened(int dtype)
{
  return dtype == TY_U8 || dtype == TY_I8 || dtype == TY_BOOL;
}

/* Returns the gradients' loop of a dtype, or int64's where it has none of its own; sets widened. */
static const struct reducer *gradients_of(int dtype, bool *widened)
{
  *widened = dtype == TY_I32 || is_widened(dtype);
  return reducer_of(*widened ? TY_I64 : dtype);
}

static const char *skip_elements(const void *p, int64_t n, int dtype)
{
  return (const char *)p + n * (int64_t)dtype_size(dtype);
}

static void widen(int64_t *to, const void *from, int dtype, int64_t n)
{
  cast_between(dtype, TY_I64)(to, from, n);
}

/* Widens an operand from its element `at` on; NULL stays NULL. */
static const int64_t *widen_operand(
    int64_t *to, const void *from, int64_t at, int dtype, int64_t n)
{
  if (!from) return NULL;
  widen(to, skip_elements(from, at, dtype), dtype, n);
  return to;
}

/* Widens rows of n elements that are `stride` apart; they become adjacent. */
static void widen_rows(
    int64_t *to, const char *from, int dtype, int64_t rows, int64_t stride, int64_t n)
{
  if (stride == n) {
    widen(to, from, dtype, rows * n);
    return;
  }
  for (int64_t i = 0; i < rows; i++)
    widen(to + i * n, skip_elements(from, i * stride, dtype), dtype, n);
}

void reducer_rows(int dtype, int kind, accumulator *acc, const void *x, const void *centre,
    int64_t count, int64_t stride, int64_t n)
{
  const reduce_fn reduce = reducer_of(dtype)->rows[kind];
  if (!is_widened(dtype)) {
    reduce(acc, x, centre, count, stride, n);
    return;
  }
  int64_t part[PART], middle[PART];
  const int64_t most = n < PART ? PART / MAX(n, 1) : 1;
  for (int64_t i = 0; i < count; i += most) {
    const int64_t rows = MIN(most, count - i);
    const int64_t *c = widen_operand(middle, centre, i, dtype, rows);
    for (int64_t j = 0; j < n; j += PART) {
      const int64_t k = MIN(PART, n - j);
      widen_rows(part, skip_elements(x, i * stride + j, dtype), dtype, rows, stride, k);
      reduce(acc + i, part, c, rows, k, k);
    }
  }
}

void reducer_cols(int dtype, int kind, accumulator *acc, const void *x, const void *centre,
    int64_t count, int64_t stride, int64_t n)
{
  const reduce_fn reduce = reducer_of(dtype)->cols[kind];
  if (!is_widened(dtype)) {
    reduce(acc, x, centre, count, stride, n);
    return;
  }
  int64_t part[PART], middle[PART_COLUMNS];
  for (int64_t j = 0; j < n; j += PART_COLUMNS) {
    const int64_t k = MIN(PART_COLUMNS, n - j), most = PART / k;
    const int64_t *c = widen_operand(middle, centre, j, dtype, k);
    for (int64_t i = 0; i < count; i += most) {
      const int64_t rows = MIN(most, count - i);
      widen_rows(part, skip_elements(x, i * stride + j, dtype), dtype, rows, stride, k);
      reduce(acc + j, part, c, rows, k, k);
    }
  }
}

void reducer_store(int dtype, void *y, const accumulator *acc, int finish, int64_t count, bool add,
    int64_t n)
{
  const struct reducer *table = reducer_of(dtype);
  if (!is_widened(dtype)) {
    table->store(y, acc, finish, count, add, n);
    return;
  }
  const cast_fn narrow = cast_between(TY_I64, dtype);
  int64_t part[PART];
  accumulator own[PART];
  for (int64_t j = 0; j < n; j += PART) {
    const int64_t k = MIN(PART, n - j);
    void *to = (void *)skip_elements(y, j, dtype);
    const accumulator *from = acc + j;
    if (finish == F_MEAN) { /* what is divided has wrapped */
      narrow(part, from, k);
      widen((int64_t *)own, part, dtype, k);
      from = own;
    }
    if (add) widen(part, to, dtype, k);
    table->store(part, from, finish, count, add, k);
    narrow(to, part, k);
  }
}

void reducer_best_cols(int dtype, accumulator *best, int64_t *index, const void *x, bool least,
    int64_t i, int64_t n)
{
  const struct reducer *table = reducer_of(dtype);
  if (!is_widened(dtype)) {
    table->best_cols(best, index, x, least, i, n);
    return;
  }
  int64_t part[PART];
  for (int64_t j = 0; j < n; j += PART) {
    const int64_t k = MIN(PART, n - j);
    widen(part, skip_elements(x, j, dtype), dtype, k);
    table->best_cols(best + j, index + j, part, least, i, k);
  }
}

int64_t reducer_find(int dtype, const void *x, accumulator value, int64_t n)
{
  const struct reducer *table = reducer_of(dtype);
  if (!is_widened(dtype)) return table->find(x, value, n);
  int64_t part[PART];
  for (int64_t j = 0; j < n; j += PART) {
    const int64_t k = MIN(PART, n - j);
    widen(part, skip_elements(x, j, dtype), dtype, k);
    const int64_t at = table->find(part, value, k);
    if (part[at] == value.i) return j + at;
  }
  return 0;
}

void reducer_back_rows(int dtype, int kind, void *dx, const void *x, const void *y, const void *g,
    const void *h, double scale, int64_t count, int64_t n)
{
  bool widened;
  const back_fn back = gradients_of(dtype, &widened)->back_rows[kind];
  if (!widened) {
    back(dx, x, y, g, h, scale, count, n);
    return;
  }
  const cast_fn narrow = cast_between(TY_I64, dtype);
  int64_t d[PART], part[PART], of_y[PART], of_g[PART], of_h[PART];
  const int64_t most = n < PART ? PART / MAX(n, 1) : 1;
  for (int64_t i = 0; i < count; i += most) {
    const int64_t rows = MIN(most, count - i);
    const int64_t *yr = widen_operand(of_y, y, i, dtype, rows),
                  *gr = widen_operand(of_g, g, i, dtype, rows),
                  *hr = widen_operand(of_h, h, i, dtype, rows);
    for (int64_t j = 0; j < n; j += PART) {
      const int64_t k = MIN(PART, n - j), at = i * n + j;
      back(d, widen_operand(part, x, at, dtype, rows * k), yr, gr, hr, scale, rows, k);
      narrow((void *)skip_elements(dx, at, dtype), d, rows * k);
    }
  }
}

void reducer_back_cols(int dtype, int kind, void *dx, const void *x, const void *y, const void *g,
    const void *h, double scale, int64_t count, int64_t n)
{
  bool widened;
  const back_fn back = gradients_of(dtype, &widened)->back_cols[kind];
  if (!widened) {
    back(dx, x, y, g, h, scale, count, n);
    return;
  }
  const cast_fn narrow = cast_between(TY_I64, dtype);
  int64_t d[PART], part[PART], of_y[PART], of_g[PART], of_h[PART];
  const int64_t most = n < PART ? PART / MAX(n, 1) : 1;
  for (int64_t j = 0; j < n; j += PART) {
    const int64_t k = MIN(PART, n - j);
    const int64_t *yr = widen_operand(of_y, y, j, dtype, k),
                  *gr = widen_operand(of_g, g, j, dtype, k),
                  *hr = widen_operand(of_h, h, j, dtype, k);
    for (int64_t i = 0; i < count; i += most) {
      const int64_t rows = MIN(most, count - i), at = i * n + j;
      back(d, widen_operand(part, x, at, dtype, rows * k), yr, gr, hr, scale, rows, k);
      narrow((void *)skip_elements(dx, at, dtype), d, rows * k);
    }
  }
}
