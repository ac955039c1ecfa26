/* half_rows.h - runs a kernel that lacks half types on blocks of rows: a thread converts a block,
** which stays in its cache, runs the kernel on it, and converts the results back. */
#pragma once
#include "op/dispatch.h"

/* If kernel k should run in blocks of rows, sets v's rows, lead, part_bytes, kernel_scratch and
** scratch, and returns true. c: the call with operands of the kernel's dtypes. */
bool half_rows_plan(struct invoke *v, const struct kernel *k, const struct call *c);
/* Runs the planned call; c has the real operands. Does not change v->half_in and v->half_out. */
int half_rows_run(const struct invoke *v, const struct call *c);
