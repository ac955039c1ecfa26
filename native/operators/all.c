/* all.c - registers the operators of this folder's files before main. The Makefile writes OP(file)
** to ops.inc for each file that defines operators. */
#include "op/op.h"

#define OP(file) extern const struct op op_##file[];
#include "ops.inc"
#undef OP

static const struct op *const tables[] = {
#define OP(file) op_##file,
#include "ops.inc"
#undef OP
};

__attribute__((constructor)) static void register_all(void)
{
  op_register(tables, COUNT(tables));
}
