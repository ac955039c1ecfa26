/* convert_test.c - the loops to and from half types of every instruction set of this machine
** against the conversions of single elements: every float16 and bfloat16, and float32 numbers
** around them, with ties, subnormals, infinities and NaN, at every place of a vector.
*/
#include "check.h"
#include "base/cast.h"

enum { ALL = 1 << 16, PLACES = 70 };

/* the lower halves of a float32 that rounding to bfloat16 depends on */
static const uint16_t lower[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1000, 0x3000 };

static int64_t count_different(cast_fn cast, const float *x, uint16_t (*one)(float), int64_t n)
{
  uint16_t *y = malloc(sizeof *y * (size_t)(n + 1));
  int64_t wrong = 0;
  y[n] = 0xabcd;
  cast(y, x, n);
  for (int64_t i = 0; i < n; i++) wrong += y[i] != one(x[i]);
  wrong += y[n] != 0xabcd;
  free(y);
  return wrong;
}

/* Checks the loop over all numbers, then with a special one at each place among ordinary ones. */
static void check_narrowing(const char *set, cast_fn cast, uint16_t (*one)(float))
{
  static const uint32_t special[] = { 0x7f800001, 0xffffffff, 0x7fc00000, 0x7f800000, 0xff800000, 1,
    0x807fffff, 0x00400000, 0x33000000, 0x387fffff, 0x477fefff, 0x477ff000, 0x7f7fffff };
  float *x = malloc(sizeof *x * ALL);
  for (int l = 0; l < COUNT(lower); l++) {
    for (int i = 0; i < ALL; i++) x[i] = float_of((uint32_t)i << 16 | lower[l]);
    const int64_t wrong = count_different(cast, x, one, ALL);
    CHECK(wrong == 0, "%s: %lld with lower half %x", set, (long long)wrong, lower[l]);
  }
  for (int s = 0; s < COUNT(special); s++)
    for (int n = 1; n <= PLACES; n++) {
      for (int i = 0; i < n; i++) x[i] = 0.37f * (float)(i - 20);
      x[n - 1] = x[n / 2] = float_of(special[s]);
      const int64_t wrong = count_different(cast, x, one, n);
      CHECK(wrong == 0, "%s: %lld of %d with %08x", set, (long long)wrong, n, special[s]);
    }
  free(x);
}

static void check_widening(const char *set, cast_fn cast, float (*one)(uint16_t))
{
  uint16_t *x = malloc(sizeof *x * ALL);
  float *y = malloc(sizeof *y * ALL);
  int64_t wrong = 0;
  for (int i = 0; i < ALL; i++) x[i] = (uint16_t)i;
  cast(y, x, ALL);
  for (int i = 0; i < ALL; i++) wrong += bits_of(y[i]) != bits_of(one(x[i]));
  CHECK(wrong == 0, "%s: %lld widened", set, (long long)wrong);
  free(x);
  free(y);
}

int main(void)
{
#define TABLE(isa) { #isa, &casts_##isa },
  static const struct { const char *name; const struct casts *casts; } sets[] = { EACH_ISA(TABLE) };
  for (int i = 0; i <= cpu_isa(); i++) {
    const struct casts *c = sets[i].casts;
    check_narrowing(sets[i].name, c->cast[TY_F32][TY_BF16], bf16_of_f32);
    check_narrowing(sets[i].name, c->cast[TY_F32][TY_F16], f16_of_f32);
    check_widening(sets[i].name, c->cast[TY_BF16][TY_F32], f32_of_bf16);
    check_widening(sets[i].name, c->cast[TY_F16][TY_F32], f32_of_f16);
  }
  check_narrowing("this machine's", cast_between(TY_F32, TY_BF16), bf16_of_f32);
  return check_end();
}
