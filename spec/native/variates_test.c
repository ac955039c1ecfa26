/* variates_test.c - standard variates: the words are those of base/philox.h, and every
** instruction set gives the same bits. */
#include "kernel/variates.h"
#include "check.h"

enum { N = 1000 };
static const struct rng_key key = { 0x123456789abcdef0u, 0x1fffffffeu, 77 };

static double compute_distance(double a, double b) { return fabs(a - b) / (1 + fabs(b)); }

/* Checks that uniform numbers are those of one element at a time, and that the others follow their
** formulas to the last digits. */
static void test_formulas(const struct variates *d, uint64_t first)
{
  static double u24[N], u53[N], normal[N], exponential[N];
  int bad = 0;
  d->unit24(u24, &key, first, N);
  d->unit53(u53, &key, first, N);
  d->normal(normal, &key, first, N);
  d->exponential(exponential, &key, first, N);
  for (int i = 0; i < N; i++) {
    struct philox p = philox(key.seed, key.counter, key.node, first + (uint64_t)i);
    double a = 1 - unit_f64(p.w[0], p.w[1] & ~0xfffu), b = unit_f64(p.w[2], p.w[3] & ~0xfffu);
    bad += u24[i] != unit_f32(p.w[0]) || u53[i] != unit_f64(p.w[0], p.w[1]);
    bad += compute_distance(exponential[i], -log(a)) > 1e-15 ||
        compute_distance(normal[i], sqrt(-2 * log(a)) * cos(6.283185307179586 * b)) > 4e-15;
  }
  CHECK(!bad, "%d of %d numbers from element %llu", bad, N, (unsigned long long)first);
}

/* Checks that numbers do not depend on where a block begins and how long it is. */
static void test_places(variate_fn draw, variate_fn other)
{
  static double all[N], part[N];
  draw(all, &key, 5, N);
  for (int from = 0, n; from < N; from += n) {
    n = MIN(1 + from % 37, N - from);
    other(part + from, &key, 5 + (uint64_t)from, n);
  }
  CHECK(!memcmp(all, part, sizeof all), "other numbers in other blocks");
}

int main(void)
{
#define TABLE(isa) &variates_##isa,
  static const struct variates *const all[] = { EACH_ISA(TABLE) };
  for (int isa = 0; isa <= cpu_isa(); isa++) {
    test_formulas(all[isa], 0);
    test_formulas(all[isa], 0xfffffff0u); /* numbers of elements exceed 32 bits */
    test_places(all[0]->unit24, all[isa]->unit24);
    test_places(all[0]->unit53, all[isa]->unit53);
    test_places(all[0]->normal, all[isa]->normal);
    test_places(all[0]->exponential, all[isa]->exponential);
  }
  return check_end();
}
