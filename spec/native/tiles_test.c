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

/* Fills the stack below the caller with a word. The next call takes it as the old sums of rows past
** the last one, which may overflow. */
static __attribute__((noinline)) void fill_stack(int32_t word)
{
  volatile int32_t stack[16 * 1024];
  for (int i = 0; i < COUNT(stack); i++) stack[i] = word;
}

/* Multiplies m x k by k x n; turned: the right side is given as n x k, the left one as k x m. */
static void test_product(int type, int64_t m, int64_t n, int64_t k, bool turned, bool add)
{
  const struct gemm_type *t = &gemm_narrow_tiles_in_memory.type[type - GEMM_NARROW];
  const bool integer = type == GEMM_U8 || type == GEMM_S8;
  void *a = make_numbers(type, m * k), *b = make_numbers(type, n * k);
  const int64_t depth = gemm_words(t, k), columns = (n + t->w - 1) / t->w * t->w;
  /* no memory follows the last panel, so that a sanitizer sees reads after it */
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
  fill_stack(INT32_MAX);
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

/* Packs columns of b (given as columns x k where turned) as gemm_pack does. */
static int32_t *pack_panels(int64_t columns, int64_t k, const float *b, bool turned)
{
  const struct gemm_type *t = &gemm_narrow_tiles_in_memory.type[0];
  const int64_t depth = gemm_words(t, k), all = (columns + t->w - 1) / t->w * t->w;
  int32_t *panels = mem_new((size_t)(all * depth) * 4);
  for (int64_t j = 0; j < columns; j += t->nr)
    (turned ? t->panel_t : t->panel)(k, MIN(t->nr, columns - j), b + (turned ? j * k : j),
        turned ? k : columns, panels + j * depth);
  return panels;
}

/* Tests m queries against keys from .. from + n - 1 of a block, which has `rest` more after them.
** more: y holds sums of earlier keys, else values that must not be read. Row 0 sees no key, row 1
** every other one. */
static void test_attention(
    int64_t m, int64_t n, int64_t from, int64_t rest, int64_t d, int64_t dv, bool more)
{
  const struct gemm_type *t = &gemm_narrow_tiles_in_memory.type[0];
  const int64_t keys = from + n + rest;
  float *q = make_numbers(GEMM_ROUNDED, m * d), *all_k = make_numbers(GEMM_ROUNDED, keys * d),
        *v = make_numbers(GEMM_ROUNDED, keys * dv), *y = mem_new((size_t)(m * dv) * 4),
        *s = mem_new((size_t)(m * gemm_score_row(n)) * 4);
  double *greatest = mem_new((size_t)m * 8), *sum = mem_new((size_t)m * 8);
  int32_t *k_panels = pack_panels(keys, d, all_k, true),
          *v_panels = pack_panels(dv, keys, v, false);
  const float *k = all_k + from * d;
  const struct gemm_attend g = { .type = GEMM_ROUNDED, .m = m, .n = n, .d = d, .dv = dv, .q = q,
    .k = k_panels + from * gemm_words(t, d), .s = s, .lds = gemm_score_row(n), .v = v_panels,
    .keys = keys, .from = from, .y = y, .ldy = dv, .greatest = greatest, .sum = sum };
  for (int64_t i = 0; i < m; i++) {
    greatest[i] = more ? 0.25 : -INFINITY, sum[i] = more ? 3 : 0;
    for (int64_t j = 0; j < dv; j++) y[i * dv + j] = more ? (float)j : NAN;
  }
  t->score(&g);
  int64_t wrong = 0;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      float *score = s + i * g.lds + j;
      double want = 0, most = 0;
      for (int64_t p = 0; p < d; p++) {
        const double x = (double)get_element(GEMM_ROUNDED, q, i * d + p, false) *
            (double)get_element(GEMM_ROUNDED, k, j * d + p, true);
        want += x, most += fabs(x);
      }
      wrong += !(fabs((double)*score - want) <= 2e-6 * most);
      if (i == 0 || (i == 1 && j % 2)) *score = -INFINITY;
    }
  CHECK(!wrong, "%lld scores wrong: m %lld n %lld d %lld", (long long)wrong, (long long)m,
      (long long)n, (long long)d);
  float *scores = mem_new((size_t)(m * g.lds) * 4);
  memcpy(scores, s, (size_t)(m * g.lds) * 4);
  t->weigh(&g);
  for (int64_t i = 0; i < m; i++) {
    const float *score = scores + i * g.lds;
    double most = more ? 0.25 : -INFINITY, all = 0;
    for (int64_t j = 0; j < n; j++) most = score[j] > most ? score[j] : most;
    const double shrink = more ? exp(0.25 - most) : 1;
    for (int64_t j = 0; j < n; j++) all += score[j] == -INFINITY ? 0 : exp(score[j] - most);
    all += more ? 3 * shrink : 0;
    wrong += greatest[i] != most || !(fabs(sum[i] - all) <= 1e-6 * all);
    for (int64_t c = 0; c < dv; c++) {
      double want = more ? (double)c * shrink : 0, size = fabs(want) * 1e-6;
      for (int64_t j = 0; j < n; j++) {
        const double weight = score[j] == -INFINITY ? 0 : exp(score[j] - most),
                     x = weight *
            (double)get_element(GEMM_ROUNDED, v, (from + j) * dv + c, true);
        /* bfloat16 is off by at most 2^-8 of the weight */
        want += x, size += fabs(x) * 0x1.02p-8;
      }
      wrong += !(fabs((double)y[i * dv + c] - want) <= size);
    }
  }
  CHECK(!wrong, "%lld sums wrong: m %lld n %lld keys %lld d %lld dv %lld more %d", (long long)wrong,
      (long long)m, (long long)n, (long long)keys, (long long)d, (long long)dv, more);
  mem_free(q), mem_free(all_k), mem_free(v), mem_free(y), mem_free(s), mem_free(scores);
  mem_free(greatest), mem_free(sum), mem_free(k_panels), mem_free(v_panels);
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
  for (int i = 0; i < COUNT(edges); i++)
    for (int j = 0; j < COUNT(edges); j++)
      test_attention(edges[i], edges[j], ATTEND_PANEL * draw_below(3), draw_below(40),
          1 + draw_below(MOST_COLUMNS), edges[COUNT(edges) - 1 - i], j % 2);
  test_attention(33, ATTEND_TERMS, 0, 0, 70, 5, true);
  return check_end();
}
