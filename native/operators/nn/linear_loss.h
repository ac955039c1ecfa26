/* linear_loss.h - backward of FullyConnected fused with that of SoftmaxOutput (PRE_LOSS_GRAD;
** inputs: softmax, data, weight, label), or with those of log_softmax and pick (PRE_LOG_GRAD;
** inputs: gradient of the picked elements, data, weight, logarithms, index). */
#pragma once
#include "op/op.h"

/* Sizes of FullyConnected: rows of the data, num_hidden, columns of the data. */
struct linear_sizes { int64_t m, n, k; };
static inline struct linear_sizes make_linear_sizes(const ty_desc *data, const ty_desc *weight)
{
  return (struct linear_sizes){ desc_count(data) / weight->dim[1], weight->dim[0], weight->dim[1] };
}

/* Returns whether a call is fused in this way. */
static inline bool has_linear_loss(const struct call *c)
{
  return find_fused(c, PRE_LOSS_GRAD) || find_fused(c, PRE_LOG_GRAD);
}
size_t linear_loss_scratch(const struct call *c);
/* Computes the gradients of data, weight and bias, in c->tmp of linear_loss_scratch bytes. */
int    linear_loss_backward(struct call *c);
size_t linear_loss_whole_scratch(const struct call *c);
/* Computes the whole gradient of the loss into c->tmp (linear_loss_whole_scratch bytes), and sets
** in[] to the inputs of the layer's own backward. */
void   linear_loss_whole(const struct call *c, struct operand in[3]);
