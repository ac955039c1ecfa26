/* picked_log.h - the gradient of log_softmax along the last axis if one element per row is picked,
** for any part of its elements. It is computed from the logarithms, or, if the pick was fused with
** log_softmax (BESIDE_PICK), from probabilities. */
#pragma once
#include "kernel/vec/vec.h"
#include "op/op.h"

struct picked_log {
  const struct vec_ops *r;
  const void *y;                                      /* output of log_softmax */
  bool exponentials;                                  /* y has probabilities */
  const struct operand *gradient, *index;             /* per row: of the picked element */
  double  scale;                                      /* 1 / temperature */
  int64_t k;                                          /* elements of a row */
};
/* Describes the gradient of a call with PRE_PICK_GRAD, whose input 0 is the gradient of the picked
** elements. param, out: parameters and output of log_softmax. The result points into the call. */
struct picked_log make_picked_log(
    const void *param, const struct operand *out, const struct call *c);
/* Sets dx[0 .. n - 1] to the gradient of elements from .. from + n - 1 of a row. */
void picked_log_part(const struct picked_log *l, int64_t row, int64_t from, int64_t n, void *dx);
