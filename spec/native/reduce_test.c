/* reduce_test.c - reductions of 8-bit integers: the loops of every instruction set give what plain
** loops do. */
#include "kernel/reduce/bytes.h"
#include "check.h"
#include "random.h"

enum { MOST = 20000, MOST_COLUMNS = 300 };
static uint8_t x[MOST], centre[MOST_COLUMNS], y[MOST], g[MOST], dx[MOST];
static accumulator got[MOST], wanted[MOST];

static int64_t value_of(uint8_t v, bool is_signed) { return is_signed ? (int8_t)v : v; }

static int64_t reduce_one(int kind, int64_t a, int64_t v, int64_t c)
{
  switch (kind) {
  case R_ABS: return a + (v < 0 ? -v : v);
  case R_SQUARE: return a + v * v;
  case R_PROD: case R_NANPROD: return (int64_t)((uint64_t)a * (uint64_t)v);
  case R_MAX: return MAX(a, v);
  case R_MIN: return MIN(a, v);
  case R_DEVIATION: return a + (v - c) * (v - c);
  default: return a + v;
  }
}

static int64_t start_of(int kind)
{
  if (kind == R_MAX) return INT64_MIN;
  if (kind == R_MIN) return INT64_MAX;
  return kind == R_PROD || kind == R_NANPROD;
}

/* Compares a reduction of count rows of n elements. */
static void test_reduction(const struct byte_reducer *d, const char *isa, int kind, bool is_signed,
    bool rows, int64_t count, int64_t stride, int64_t n)
{
  const int64_t results = rows ? count : n;
  const void *c = kind == R_DEVIATION ? centre : NULL;
  int bad = 0;
  for (int64_t i = 0; i < results; i++) got[i].i = wanted[i].i = start_of(kind);
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < n; j++) {
      const int64_t to = rows ? i : j;
      wanted[to].i = reduce_one(kind, wanted[to].i, value_of(x[i * stride + j], is_signed),
          value_of(centre[to], is_signed));
    }
  (rows ? d->rows : d->cols)[is_signed][kind](got, x, c, count, stride, n);
  for (int64_t i = 0; i < results; i++)
    bad += kind == R_PROD || kind == R_NANPROD ? (uint32_t)got[i].i != (uint32_t)wanted[i].i
                                               : got[i].i != wanted[i].i;
  CHECK(!bad, "%s, kind %d, %s, %d %s of %d results, %d x %d, %d apart", isa, kind,
      is_signed ? "int8" : "uint8", bad, rows ? "rows" : "columns", (int)results, (int)count,
      (int)n, (int)stride);
}

static void test_places(const struct byte_reducer *d, const char *isa, bool is_signed, bool least,
    int64_t count, int64_t stride, int64_t n)
{
  int64_t of_rows[MOST_COLUMNS], of_cols[MOST_COLUMNS];
  int bad = 0;
  d->best_rows(of_rows, x, is_signed, least, count, n);
  d->best_cols(of_cols, x, is_signed, least, count, stride, n);
  for (int rows = 0; rows < 2; rows++)
    for (int64_t i = 0; i < (rows ? count : n); i++) {
      const int64_t length = rows ? n : count;
      int64_t best = 0, most = 0;
      for (int64_t j = 0; j < length; j++) {
        const int64_t v = value_of(rows ? x[i * n + j] : x[j * stride + i], is_signed);
        if (!j || (least ? v < most : v > most)) best = j, most = v;
      }
      bad += best != (rows ? of_rows : of_cols)[i];
    }
  CHECK(!bad, "%s, %s, %s, %d places, %d x %d, %d apart", isa, is_signed ? "int8" : "uint8",
      least ? "least" : "most", bad, (int)count, (int)n, (int)stride);
}

static void test_gradient(
    const struct byte_reducer *d, const char *isa, bool rows, int64_t count, int64_t n)
{
  int bad = 0;
  memset(dx, 1, sizeof dx);
  (rows ? d->equal_rows : d->equal_cols)(dx, x, y, g, count, n);
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < n; j++) {
      const int64_t k = rows ? i : j;
      bad += dx[i * n + j] != (x[i * n + j] == y[k] ? g[k] : 0);
    }
  bad += dx[count * n] != 1;
  CHECK(!bad, "%s, %d gradients, %d x %d", isa, bad, (int)count, (int)n);
}

/* Fills the operands; of range 2 most elements are equal, of range 0 all are 0x80. */
static void fill_operands(int range)
{
  for (int i = 0; i < MOST; i++) {
    x[i] = range ? (uint8_t)(draw_below(range) + (range < 256 ? 127 : 0)) : 0x80;
    y[i] = (uint8_t)(draw_below(2) + 127);
    g[i] = (uint8_t)draw_below(256);
  }
  for (int i = 0; i < MOST_COLUMNS; i++) centre[i] = range ? (uint8_t)draw_below(256) : 0;
}

int main(void)
{
#define TABLES(isa) extern const struct byte_reducer bytes_##isa;
#define TABLE(isa) { #isa, &bytes_##isa },
  EACH_ISA(TABLES)
  static const struct { const char *name; const struct byte_reducer *d; } all[] = {
    EACH_ISA(TABLE)
  };
  static const int64_t shapes[][3] = { { 1, 1, 1 }, { 3, 15, 15 }, { 200, 10, 10 }, { 40, 16, 20 },
    { 5, 31, 31 }, { 150, 33, 33 }, { 150, 63, 63 }, { 9, 64, 70 }, { 60, 77, 77 },
    { 60, 130, 131 }, { 15, 300, 300 }, { 290, 68, 68 } };
  static const int ranges[] = { 256, 2, 0 };
  for (int isa = 0; isa <= cpu_isa(); isa++)
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
      fill_operands(ranges[r]);
      for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const int64_t count = shapes[k][0], n = shapes[k][1], stride = shapes[k][2];
        for (int is_signed = 0; is_signed < 2; is_signed++) {
          for (int kind = 0; kind < R_KINDS; kind++) {
            test_reduction(all[isa].d, all[isa].name, kind, is_signed, true, count, stride, n);
            test_reduction(all[isa].d, all[isa].name, kind, is_signed, false, count, stride, n);
          }
          test_places(all[isa].d, all[isa].name, is_signed, false, count, stride, n);
          test_places(all[isa].d, all[isa].name, is_signed, true, count, stride, n);
        }
        test_gradient(all[isa].d, all[isa].name, true, count, n);
        test_gradient(all[isa].d, all[isa].name, false, count, n);
      }
    }
  return check_end();
}
