/* tiles_test.c - products on tiles, where tiles are arrays in memory, against their definitions:
** the code for AMX without a processor that has it.
*/
#include <math.h>
#include "random.h"
#include "check.h"
#include "base/convert.h"
#include "kernel/gemm/gemm.h"
#define TY_TILES
#define TY_TILES_IN_MEMORY
#define ISA tiles_in_memory
#include "kernel/gemm/isa/narrow.c"

enum { MOST_ROWS = 70, MOST_COLUMNS = 24, MOST_TERMS = 300 };

static float get_element(int type, const void *p, int64_t i, bool right)
{
  if (type == GEMM_ROUNDED) return bf16_to_float(float_to_bf16(((const float *)p)[i]));
  if (type == GEMM_BF16) return bf16_to_float(((const uint16_t *)p)[i]);
  return type == GEMM_U8 && !right ? (float)((const uint8_t *)p)[i] : (float)((const int8_t *)p)[i];
}

static void *make_numbers(int type, int64_t n)
{
  char *p = mem_new((size_t)n * (type == GEMM_ROUNDED ? 4 : type == GEMM_BF16 ? 2 : 1));
  for (int64_t i = 0; i < n; i++) {
    const float v = (float)(draw_below(2001) - 1000) * 0.00123f;
    if (type == GEMM_ROUNDED)
      ((float *)p)[i] = v;
    else if (type == GEMM_BF16)
      ((uint16_t *)p)[i] = float_to_bf16(v);
    else
      p[i] = (char)draw_below(256);
  }
  return p;
}

/* Multiplies m x k by k x n; turned: the right side is given as n x k, the left one as k x m. */
static void test_product(int type, int64_t m, int64_t n, int64_t k, bool turned, bool add)
{
  const struct gemm_type *t = &gemm_narrow_tiles_in_memory.type[type - GEMM_NARROW];
  const bool integer = type == GEMM_U8 || type == GEMM_S8;
  void *a = make_numbers(type, m * k), *b = make_numbers(type, n * k);
  const int64_t depth = gemm_words(t, k), columns = (n + t->w - 1) / t->w * t->w;
  /* nothing is after the last panel, so that a sanitizer sees reads there */
  int32_t *panels = mem_new((size_t)(columns * depth) * 4);
  float *c = mem_new((size_t)(m * n) * 4), *bias = mem_new((size_t)n * 4);
  for (int64_t i = 0; i < m * n; i++)
    if (integer)
      ((int32_t *)c)[i] = 7;
    else
      c[i] = 7;
  for (int64_t j = 0; j < n; j++)
    if (integer)
      ((int32_t *)bias)[j] = (int32_t)j;
    else
      bias[j] = (float)j;
  for (int64_t j = 0; j < n; j += t->nr) {
    const char *from = (const char *)b + (turned ? j * k : j) * t->element;
    const int64_t cols = MIN(t->nr, n - j);
    (turned ? t->panel_t : t->panel)(k, cols, from, turned ? k : n, panels + j * depth);
  }
  const struct gemm_block g = { .m = m,
    .n = n,
    .k = k,
    .outer = 1,
    .a = a,
    .ars = turned ? 1 : k,
    .acs = turned ? m : 1,
    .strip = gemm_height(m, t->mr) * (turned ? 1 : k),
    .b = panels,
    .panel = t->nr * depth,
    .c = c,
    .ldc = n,
    .bias = bias,
    .alpha = 1,
    .add = add,
    .copy = true };
  t->block(&g);
  int64_t wrong = 0;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double want = (add ? 7 : 0) + (double)j, most = 0;
      for (int64_t p = 0; p < k; p++) {
        const double x = (double)get_element(type, a, turned ? p * m + i : i * k + p, false) *
            (double)get_element(type, b, turned ? j * k + p : p * n + j, true);
        want += x;
        most += fabs(x);
      }
      const double now = integer ? ((int32_t *)c)[i * n + j] : c[i * n + j];
      wrong += !(fabs(now - want) <= (integer ? 0 : 2e-6 * most + 1e-6 * fabs(want)));
    }
  CHECK(!wrong, "%lld wrong: type %d m %lld n %lld k %lld turned %d add %d", (long long)wrong,
      type - GEMM_NARROW, (long long)m, (long long)n, (long long)k, turned, add);
  mem_free(a), mem_free(b), mem_free(panels), mem_free(c), mem_free(bias);
}

int main(void)
{
  static const int64_t edges[] = { 1, 15, 16, 17, 31, 32, 33, 64 };
  for (int type = GEMM_ROUNDED; type <= GEMM_S8; type++) {
    for (int i = 0; i < COUNT(edges); i++)
      for (int j = 0; j < COUNT(edges); j++)
        test_product(type, edges[i], 1 + draw_below(MOST_COLUMNS), edges[j], j % 2, i % 2);
    for (int i = 0; i < count_trials(100); i++)
      test_product(type, 1 + draw_below(MOST_ROWS), 1 + draw_below(MOST_COLUMNS),
          1 + draw_below(MOST_TERMS), draw_below(2), draw_below(2));
  }
  return check_end();
}
