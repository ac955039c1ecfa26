/* linear_loss.h - backward of FullyConnected in front of SoftmaxOutput (PRE_LOSS_GRAD; in: softmax,
** data, weight, label), or of log_softmax and pick (PRE_LOG_GRAD; in: gradient of the elements,
** data, weight, logarithms, index). */
#pragma once
#include "op/op.h"

/* of FullyConnected: rows of the data, num_hidden, columns of the data */
struct linear_sizes { int64_t m, n, k; };
static inline struct linear_sizes make_linear_sizes(const ty_desc *data, const ty_desc *weight)
{
  return (struct linear_sizes){ desc_count(data) / weight->dim[1], weight->dim[0], weight->dim[1] };
}

/* Returns whether a call is one of these. */
static inline bool has_linear_loss(const struct call *c)
{
  return find_fused(c, PRE_LOSS_GRAD) || find_fused(c, PRE_LOG_GRAD);
}
size_t linear_loss_scratch(const struct call *c);
int    linear_loss_backward(struct call *c);
size_t linear_loss_whole_scratch(const struct call *c);
/* Sets in[] to the inputs of the layer without its loss, whose gradient is in c->tmp, of
** linear_loss_whole_scratch bytes. */
void   linear_loss_whole(const struct call *c, struct operand in[3]);
