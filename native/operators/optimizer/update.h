/* update.h - parameters shared by optimizer updates. Numbers are rounded to float32, as in the
** reference. */
#pragma once
#include "op/op.h"
#include "pointwise/pointwise.h"

struct update {                                       /* numbers first, for update_check */
  double  lr, momentum, wd, rescale_grad, clip_gradient, clip_grad, clip_weights, wd_lh, beta1,
      beta2, gamma1, gamma2;
  double  epsilon, lamda1, beta, lower_bound, upper_bound, eta, eps;
  int64_t t, lazy_update, bias_correction;
};
enum { UPDATE_NUMBERS = offsetof(struct update, t) / sizeof(double) };

/* Rounds the numbers of parameters that begin with a struct update; for op.check. */
int update_check(void *param);
/* Infers the shape of a norm or scale: one number per weight. */
int update_infer_number(struct infer *s, const ty_desc *weight, ty_desc *slot);

#define NUMBER(name, init, doc) { #name, P_FLOAT, offsetof(struct update, name), init, doc }
#define RATE     NUMBER(lr, NULL, "learning rate")
#define MOMENTUM NUMBER(momentum, "0.0", "part of the last step that is kept")
#define DECAY    NUMBER(wd, "0.0", "weight decay")
#define RESCALE  NUMBER(rescale_grad, "1.0", "the gradient is multiplied by it")
#define CLIP \
  NUMBER(clip_gradient, "-1.0", "gradients are cut off at +- this; negative: not at all")
#define COMMON   DECAY, RESCALE, CLIP
#define BETAS \
  NUMBER(beta1, "0.9", "decay of the mean"), NUMBER(beta2, "0.999", "decay of the mean square")
#define BOUNDS   NUMBER(lower_bound, "-1.0", "least norm of the weight; negative: none"), \
                 NUMBER(upper_bound, "-1.0", "greatest norm of the weight; negative: none")
#define LAZY \
  { "lazy_update", P_BOOL, offsetof(struct update, lazy_update), "True", \
    "of sparse gradients only; without effect here" }
#define STEP     { "t", P_INT, offsetof(struct update, t), NULL, "number of the step, from 1" }
#define UNBIASED { "bias_correction", P_BOOL, offsetof(struct update, bias_correction), "True", \
                   "mean and mean square are freed of their start at 0" }
