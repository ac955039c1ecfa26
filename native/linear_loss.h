/* linear_loss.h - backward of FullyConnected in front of SoftmaxOutput (call.loss). in: softmax, data, weight, label. */
#pragma once
#include "op.h"

size_t linear_loss_scratch(const struct call *c);
int    linear_loss_backward(struct call *c);
void   linear_loss_whole(const struct call *c, struct arr in[3]);    /* inputs as without loss: the gradient lies in c->tmp */
