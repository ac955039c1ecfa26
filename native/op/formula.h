/* formula.h - element-wise operators defined by formulas: one pointwise program computes the value,
** one the gradients. */
#pragma once
#include "pointwise/pointwise.h"

/* Formulas of an element-wise operator. Variables: a b c d e f are inputs, y the output, g the head
** gradient, $p parameter p (number, integer or boolean). The formula y may begin with assignments
** to inputs that the operator changes ("c = $m*c - g1; a + c"). grad[k]: gradient of input k; NULL:
** zero. */
struct formula {
  const char *y;
  const char *grad[6];
  /* Computes y in one loop, if all operands have the same shape and dtype, float32 or float64; may
  ** be NULL. Returns false if it cannot with these parameters. */
  bool (*sweep)(const void *param, const struct operand *in, const struct operand *out);
};

struct reads;

/* The forward kernel of all operators with formulas, which broadcasts: for ty_call and for nodes
** that are not fused. */
extern const struct kernel formula_kernel[];
/* The kernel for all gradients of such an operator, which sums over broadcast axes. */
extern const struct kernel formula_back_kernel[];
/* Returns what the gradients read with these parameters, leaving out operands that the values of
** enums and booleans make unnecessary; NULL: there is no gradient. */
const struct reads *formula_find_reads(const struct op *op, const void *param);
/* Returns the variable of an operand: g, y, or the letter of input k. kind: READ_*. */
char formula_letter(char kind, int k);
/* Replaces a P_FLOAT parameter, at offset `at` in the parameters, by the number of `dtype` at p in
** the device's memory. */
struct live_number { int at, dtype; const void *p; };
/* Runs the formula forward at once, on the queue of the device that has the operands and live
** numbers. */
int formula_apply(int device, const struct op *op, void *param, const struct operand *in, int nin,
    const struct operand *out, const struct live_number *live, int nlive);
/* Returns an environment in which $names are op's parameters in param. numbers: see struct
** pw_env. */
struct pw_env formula_env(const struct op *op, const void *param, int numbers);
/* Builds a sealed program in which numeric parameters are operands, and the dtypes of its n
** operands in order. The caller frees it with pw_free. */
int formula_build(const struct op *op, const void *param, int dtype, bool backward,
    struct pw_program **out, int dtypes[PW_ARGS], int *n);
