/* all.c - hands the tables of this folder's files to the registry, before the first lookup of an
** operator. The Makefile writes OP(file) into ops.inc for each file that has one. */
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
