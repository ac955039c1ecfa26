/* table.c - the loops of the instruction set in use (isa/loops.c). */
#include "pointwise/ir.h"

#define TABLES(isa) extern const struct pw_table pw_table_##isa;
TABLES(baseline)
TABLES(avx2)
TABLES(avx512)

const struct pw_table *pw_table(void)
{
  static const struct pw_table *const tables[] = { &pw_table_baseline, &pw_table_avx2,
    &pw_table_avx512 };
  static const struct pw_table *chosen;
  const struct pw_table *t = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (t) return t;
  t = tables[cpu_level()];
  __atomic_store_n(&chosen, t, __ATOMIC_RELAXED);
  return t;
}
