/* table.c - the loops of the instruction set in use (isa/loops.c). */
#include "pointwise/ir.h"

#define TABLES(isa) extern const struct pw_table pw_table_##isa;
EACH_ISA(TABLES)

const struct pw_table *pw_table(void)
{
#define TABLE(isa) &pw_table_##isa,
  static const struct pw_table *const tables[] = { EACH_ISA(TABLE) };
  return tables[cpu_isa()];
}
