/* types.c - picks the products of each type for this processor. */
#include "kernel/gemm/inner.h"

#define TABLES(isa) \
  extern const struct gemm_isa gemm_isa_##isa; \
  extern const struct gemm_narrow gemm_narrow_##isa;
EACH_ISA(TABLES)
#define PRODUCTS(isa) &gemm_isa_##isa,
static const struct gemm_isa *const products[] = { EACH_ISA(PRODUCTS) };
#define NARROW_PRODUCTS(isa) &gemm_narrow_##isa,
static const struct gemm_narrow *const narrow_products[] = { EACH_ISA(NARROW_PRODUCTS) };
/* tables for processors that have instructions for narrow types */
#if defined __x86_64__
extern const struct gemm_narrow gemm_narrow_avx512_narrow, gemm_narrow_avx512_tiles;
#elif defined __aarch64__
extern const struct gemm_narrow gemm_narrow_neon_dot, gemm_narrow_neon_narrow;
#endif

static const struct gemm_narrow *types_choose_narrow(void)
{
#if defined __x86_64__
  if (cpu_multiplies_tiles()) return &gemm_narrow_avx512_tiles;
  if (cpu_multiplies_narrow()) return &gemm_narrow_avx512_narrow;
#elif defined __aarch64__
  if (cpu_multiplies_narrow()) return &gemm_narrow_neon_narrow;
  if (cpu_multiplies_bytes()) return &gemm_narrow_neon_dot;
#endif
  return narrow_products[cpu_isa()];
}

const struct gemm_narrow *gemm_narrow(void)
{
  static const struct gemm_narrow *chosen;
  const struct gemm_narrow *n = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (!n) __atomic_store_n(&chosen, n = types_choose_narrow(), __ATOMIC_RELAXED);
  return n;
}

void levels_finish(const struct level_row *r) { gemm_narrow()->finish(r); }
void levels_make(int64_t n, const float *x, float inverse, int shift, void *out)
{
  gemm_narrow()->levels(n, x, inverse, shift, out);
}
float levels_magnitude(int64_t n, const float *x) { return gemm_narrow()->magnitude(n, x); }

const struct gemm_type *gemm_type(int type)
{
  if (type >= GEMM_NARROW) return &gemm_narrow()->type[type - GEMM_NARROW];
  return &products[cpu_isa()]->type[type == TY_F64];
}

bool gemm_attends(int type, int64_t d, int64_t dv)
{
  return (type == TY_F32 || type == GEMM_ROUNDED) && MAX(d, dv) <= ATTEND_TERMS &&
      gemm_type(type)->score;
}
int64_t gemm_attend_rows(int type, int64_t m)
{
  return type == GEMM_ROUNDED ? m : gemm_height(m, gemm_type(type)->mr);
}
void gemm_score(const struct gemm_attend *g) { gemm_type(g->type)->score(g); }
void gemm_weigh(const struct gemm_attend *g) { gemm_type(g->type)->weigh(g); }
double gemm_weights(float *s, int64_t n, float shift)
{
  return gemm_type(TY_F32)->weights(s, n, shift);
}
