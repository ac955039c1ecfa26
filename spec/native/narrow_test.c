/* narrow_test.c - products of bfloat16 and of 8-bit integers of random sizes against their
** definitions. TYCHO_CPU picks the kernels; "time" as an argument times them beside float32. */
#include <math.h>
#include <time.h>
#include "random.h"
#include "check.h"
#include "base/convert.h"
#include "kernel/gemm/gemm.h"
#include "base/parallel.h"

struct product { int type; bool ta, tb; int64_t m, n, k, lda, ldb, ldc; bool add; };

static bool is_integer(int type) { return type == GEMM_U8 || type == GEMM_S8; }

/* Returns element i as it is multiplied. */
static double get_element(int type, const void *p, int64_t i, bool right)
{
  if (type == GEMM_ROUNDED) return (double)bf16_to_float(float_to_bf16(((const float *)p)[i]));
  if (type == GEMM_BF16) return (double)bf16_to_float(((const uint16_t *)p)[i]);
  if (type == GEMM_U8 && !right) return ((const uint8_t *)p)[i];
  return ((const int8_t *)p)[i];
}

/* Makes an array without bytes after its last element, so that the sanitizer sees reads there. Free
** it with mem_free. */
static void *make_numbers(int type, int64_t n)
{
  const size_t size = type == GEMM_ROUNDED ? 4 : type == GEMM_BF16 ? 2 : 1;
  char *p = mem_new((size_t)n * size);
  for (int64_t i = 0; i < n; i++) {
    const float v = (float)(draw_below(2001) - 1000) * 0.00123f;
    if (type == GEMM_ROUNDED)
      ((float *)p)[i] = v;
    else if (type == GEMM_BF16)
      ((uint16_t *)p)[i] = float_to_bf16(v);
    else
      p[i] = (char)(draw_below(8) ? draw_below(256) : draw_below(2) ? 0x80 : 0x7f);
  }
  return p;
}

static struct product any_product(int size)
{
  static const int most[3][3] = { { 40, 80, 70 }, { 150, 200, 900 }, { 420, 560, 4300 } };
  struct product p = { GEMM_NARROW + (int)draw_below(4), draw_below(2), draw_below(2),
    1 + draw_below(most[size][0]), 1 + draw_below(most[size][1]), 1 + draw_below(most[size][2]), 0,
    0, 0, draw_below(2) };
  if (size == 2 && !draw_below(4)) p.n += 1536, p.k = 1 + draw_below(40);
  if (size < 2 && !draw_below(5)) p.m = 1 + draw_below(4);
  if (size < 2 && !draw_below(5)) p.n = 1 + draw_below(4);
  if (size < 2 && !draw_below(5))
    p.ta = false, p.tb = true, p.m = 1 + draw_below(20), p.k = 1 + draw_below(1500);
  p.lda = (p.ta ? p.m : p.k) + draw_below(3);
  p.ldb = (p.tb ? p.k : p.n) + draw_below(3);
  p.ldc = p.n + draw_below(3);
  return p;
}

/* Returns an element of C; *bound: how far from it a sum of float32 may be. */
static double compute_element(
    const struct product *p, const void *a, const void *b, int64_t i, int64_t j, double *bound)
{
  double s = 0, most = 0;
  for (int64_t q = 0; q < p->k; q++) {
    const double x = get_element(p->type, a, p->ta ? q * p->lda + i : i * p->lda + q, false) *
        get_element(p->type, b, p->tb ? j * p->ldb + q : q * p->ldb + j, true);
    s += x;
    most += fabs(x);
  }
  /* few rows of float32 are not rounded */
  const bool exact = p->type == GEMM_ROUNDED && !p->ta && p->tb;
  *bound = is_integer(p->type) ? 0 : most * (exact ? 0x1p-7 : 2e-6) + 1e-6;
  return s;
}

static void test_product(struct product p, int how)
{
  void *a = make_numbers(p.type, (p.ta ? p.k : p.m) * p.lda - (p.ta ? p.lda - p.m : p.lda - p.k)),
       *b = make_numbers(p.type, (p.tb ? p.n : p.k) * p.ldb - (p.tb ? p.ldb - p.k : p.ldb - p.n));
  const int64_t count = p.m * p.ldc;
  float *c = mem_new((size_t)count * 4), *before = mem_new((size_t)count * 4),
        *bias = mem_new((size_t)p.n * 4);
  void *panels = mem_new(gemm_pack_bytes(p.type, p.n, p.k));
  const bool integer = is_integer(p.type), relu = how && draw_below(2);
  for (int64_t i = 0; i < count; i++) {
    if (integer)
      ((int32_t *)c)[i] = (int32_t)draw_below(1000) - 500;
    else
      c[i] = (float)(draw_below(100) - 50) * 0.1f;
  }
  for (int64_t i = 0; i < p.n; i++) {
    if (integer)
      ((int32_t *)bias)[i] = (int32_t)draw_below(100000) - 50000;
    else
      bias[i] = (float)(draw_below(100) - 50);
  }
  memcpy(before, c, (size_t)count * 4);
  struct gemm_epilogue e = { how ? bias : NULL, relu ? ACT_RELU : ACT_NONE, p.add };
  if (how == 2) {
    gemm_pack(p.type, p.tb, p.n, p.k, b, p.ldb, panels);
    RUN(gemm_packed(p.type, p.ta, p.m, p.n, p.k, a, p.lda, panels, c, p.ldc, &e));
  }
  else if (how == 1)
    RUN(gemm_fused(p.type, p.ta, p.tb, p.m, p.n, p.k, a, p.lda, b, p.ldb, c, p.ldc, &e));
  else
    RUN(gemm_one(p.type, p.ta, p.tb, p.m, p.n, p.k, 1, a, p.lda, b, p.ldb, p.add, c, p.ldc));
  int64_t wrong = 0;
  for (int64_t i = 0; i < p.m; i++)
    for (int64_t j = 0; j < p.ldc; j++) {
      const int64_t at = i * p.ldc + j;
      const double old = integer ? ((int32_t *)before)[at] : before[at],
                   now = integer ? ((int32_t *)c)[at] : c[at];
      double bound = 0, want = old;
      if (j < p.n) {
        want = compute_element(&p, a, b, i, j, &bound) + (p.add ? old : 0);
        if (how) want += integer ? ((int32_t *)bias)[j] : bias[j];
        if (relu) want = fmax(want, 0);
        bound += fabs(want) * (integer ? 0 : 1e-6);
      }
      wrong += !(fabs(now - want) <= bound);
    }
  CHECK(!wrong, "%lld wrong: type %d way %d ta %d tb %d m %lld n %lld k %lld add %d",
      (long long)wrong, p.type - GEMM_NARROW, how, p.ta, p.tb, (long long)p.m, (long long)p.n,
      (long long)p.k, p.add);
  mem_free(a), mem_free(b), mem_free(c), mem_free(before), mem_free(bias), mem_free(panels);
}

/* Checks that NaN stays NaN, and that numbers beyond the range of bfloat16 become infinite. */
static void test_special(void)
{
  enum { M = 33, K = 40 };
  float a[M * K], b[K * M], c[M * M];
  for (int i = 0; i < M * K; i++) a[i] = b[i] = 1;
  a[3 * K + 5] = NAN;
  a[4 * K + 6] = INFINITY;
  a[5 * K + 7] = 3.4e38f;
  RUN(gemm_one(GEMM_ROUNDED, false, false, M, M, K, 1, a, K, b, M, 0, c, M));
  CHECK(isnan(c[3 * M]) && isnan(c[3 * M + 32]), "%g", (double)c[3 * M]);
  CHECK(isinf(c[4 * M + 1]), "%g", (double)c[4 * M + 1]);
  CHECK(isinf(c[5 * M + 2]), "%g", (double)c[5 * M + 2]);
  CHECK(c[0] == K, "%g", (double)c[0]);
}

/* Checks that packed weights, kept or made on the way, begin with a cache line. */
static void test_alignment(void)
{
  for (size_t bytes = 1; bytes < 3000000; bytes = bytes * 3 + 5) {
    const int64_t before = mem_bytes();
    struct gemm_kept kept = { 0 };
    float weight = 0;
    bool fresh;
    const char *p = gemm_kept_buffer(&kept, &(struct operand){ .p = &weight }, bytes, &fresh);
    CHECK(p && (uintptr_t)p % ALIGN == 0, "%zu bytes at %p", bytes, (const void *)p);
    CHECK(p && !p[0] && !p[bytes - 1], "%zu bytes are not zeros", bytes);
    CHECK(mem_bytes() >= before + (int64_t)bytes, "%zu bytes are not counted", bytes);
    gemm_kept_done(&kept);
    CHECK(mem_bytes() == before, "%lld bytes left", (long long)(mem_bytes() - before));
  }
}

static double read_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Prints the speed of float32 and the narrow types: the least time of 30 runs in turns, one
** thread. */
static void time_products(void)
{
  static const int types[] = { TY_F32, GEMM_ROUNDED, GEMM_BF16, GEMM_U8, GEMM_S8 };
  static const int64_t sizes[][3] = { { 128, 384, 384 }, { 128, 1536, 384 }, { 1024, 1024, 256 },
    { 512, 512, 512 }, { 1024, 1024, 1024 }, { 32, 1000, 2048 }, { 1, 1024, 1024 } };
  ty_threads(1);
  printf("m n k: G operations/s of float32, rounded, bfloat16, uint8, int8: packed; not\n");
  for (int s = 0; s < COUNT(sizes); s++) {
    const int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
    double best[2][5];
    for (int i = 0; i < 10; i++) best[i / 5][i % 5] = 1e9;
    float *c = mem_lines((size_t)(m * n) * 4);
    void *a[5], *b[5], *panels[5];
    for (int t = 0; t < 5; t++) {
      const int type = types[t] == TY_F32 ? GEMM_ROUNDED : types[t];
      a[t] = make_numbers(type, m * k), b[t] = make_numbers(type, n * k);
      panels[t] = mem_lines(gemm_pack_bytes(types[t], n, k));
      gemm_pack(types[t], true, n, k, b[t], k, panels[t]);
    }
    for (int r = 0; r < 30; r++)
      for (int t = 0; t < 10; t++) {
        const int i = t % 5;
        struct gemm_epilogue e = { 0 };
        const double from = read_seconds();
        if (t < 5)
          gemm_packed(types[i], false, m, n, k, a[i], k, panels[i], c, n, &e);
        else
          gemm_fused(types[i], false, true, m, n, k, a[i], k, b[i], k, c, n, &e);
        best[t / 5][i] = MIN(best[t / 5][i], read_seconds() - from);
      }
    printf("%5lld %5lld %5lld:", (long long)m, (long long)n, (long long)k);
    for (int t = 0; t < 10; t++)
      printf("%s %6.1f", t == 5 ? " ;" : "",
          2e-9 * (double)m * (double)n * (double)k / best[t / 5][t % 5]);
    putchar('\n');
    for (int t = 0; t < 5; t++) mem_free(a[t]), mem_free(b[t]), mem_free(panels[t]);
    mem_free(c);
  }
}

int main(int argc, char **argv)
{
  if (argc > 1 && !strcmp(argv[1], "time")) {
    time_products();
    return 0;
  }
  for (int i = 0; i < count_trials(400); i++) test_product(any_product(0), i % 3);
  for (int i = 0; i < count_trials(60); i++) test_product(any_product(1), i % 3);
  for (int i = 0; i < count_trials(6); i++) test_product(any_product(2), i % 3);
  test_special();
  test_alignment();
  return check_end();
}
