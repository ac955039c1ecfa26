/* table.c - selects the loops of this processor's instruction set (isa/loops.c). */
#include "pointwise/ir.h"

#define TABLES(isa) extern const struct pw_table pw_table_##isa;
EACH_ISA(TABLES)

const struct pw_table *pw_table(void)
{
#define TABLE(isa) &pw_table_##isa,
  static const struct pw_table *const tables[] = { EACH_ISA(TABLE) };
  return tables[cpu_isa()];
}

void pw_store_elements(int kind, int dtype, void *to, const void *from, int64_t stride, int64_t n)
{
  static const size_t sizes[KINDS] = {
    [KIND_F32] = sizeof(float), [KIND_F64] = sizeof(double),
    [KIND_I32] = sizeof(int32_t), [KIND_I64] = sizeof(int64_t),
  };
  const struct pw_table *table = pw_table();
  if (kind == KIND_F32 || !is_half(dtype)) {
    table->store[kind][dtype](to, from, stride, n);
    return;
  }
  _Alignas(64) float block[BLOCK_ELEMENTS];
  for (int64_t i = 0; i < n; i += BLOCK_ELEMENTS) {
    const int64_t part = MIN(BLOCK_ELEMENTS, n - i);
    table->store[kind][TY_F32](block, (const char *)from + (size_t)i * sizes[kind], 1, part);
    table->store[KIND_F32][dtype]((uint16_t *)to + i * stride, block, stride, part);
  }
}
