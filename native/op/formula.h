/* formula.h - element-wise operators as formulas: a pointwise program for the value, one for the
** gradients, and kernels that run them. */
#pragma once
#include "pointwise/pointwise.h"

/* Formulas of an element-wise operator. Variables: a b c d e f inputs, y the output, g the head
** gradient, $p parameter p (number, integer or boolean). `y` may begin with assignments to
** inputs that the operator changes ("c = $m*c - g1; a + c"). grad[k]: gradient of input k; NULL:
** zero. */
struct formula {
  const char *y;
  const char *grad[6];
  /* y in one loop, where all operands have one shape and one type, float32 or float64; false:
  ** not under these parameters */
  bool (*sweep)(const void *param, const struct operand *in, const struct operand *out);
};

struct reads;

/* An operator with a formula as a kernel of its own, which broadcasts: what ty_call and unfused
** programs use. */
extern const struct kernel formula_kernel[];
/* All gradients of such an operator, summed back over broadcast axes. */
extern const struct kernel formula_back_kernel[];
/* Returns what a gradient reads under these parameters, without the letters that enums and booleans
** exclude; NULL: it has no gradient. */
const struct reads *formula_find_reads(const struct op *op, const void *param);
/* Returns the letter of an operand: g, y, or that of input k. */
char formula_letter(char kind, int k);
/* a parameter of type P_FLOAT whose value is in an array: its offset in the parameters */
struct live_number { int at, dtype; const void *p; };
/* Runs forward at once, on the device of the operands and live numbers. */
int formula_apply(int device, const struct op *op, void *param, const struct operand *in, int nin,
    const struct operand *out, const struct live_number *live, int nlive);
/* Returns the meaning of $names: op's parameters in param; numbers: see struct pw_env. */
struct pw_env formula_env(const struct op *op, const void *param, int numbers);
/* Builds a sealed program with numbers as operands, as kernels of formulas use it. The caller frees
** it. */
int formula_build(const struct op *op, const void *param, int dtype, bool backward,
    struct pw_program **out, int dtypes[PW_ARGS], int *n);
