/* softmax_loss.h - the gradient of SoftmaxOutput with class indices as labels, for any part of its
** elements. */
#pragma once
#include "kernel/vec/vec.h"
#include "op/op.h"

struct softmax_loss {
  const struct vec_ops *r;
  struct split s;
  const struct operand *label;
  const void *p;                                      /* output: the softmax */
  double  scale;
  double  smooth;                                     /* 0 under multi_output */
  bool    ignore;
  int64_t ignored;
};
/* Returns the loss for an operator's parameters. The result points to `label`. */
struct softmax_loss make_softmax_loss(
    const void *param, const struct operand *out, const struct operand *label);
/* Sets dx[0 .. n - 1] to the gradient of elements from .. from + n - 1 of sample o. */
void softmax_loss_part(const struct softmax_loss *l, int64_t o, int64_t from, int64_t n, void *dx);
