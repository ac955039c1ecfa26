/* half_rows.h - a kernel without half types over blocks of rows: a thread converts a block, which
** stays in its cache, runs the kernel on it, and converts the results back. */
#pragma once
#include "op/dispatch.h"

/* Sets rows, kernel_scratch and scratch of v and returns true where kernel k is run in blocks of
** rows. c: the call with operands of the kernel's types. */
bool half_rows_plan(struct invoke *v, const struct kernel *k, const struct call *c);
/* Runs the call that was planned; real, operands of v->half_in and v->half_out are not changed. */
int half_rows_run(const struct invoke *v, const struct call *c);
