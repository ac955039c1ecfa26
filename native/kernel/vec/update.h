/* update.h - loops of updates of weights. See vec.h. */
#pragma once
#include "kernel/vec/vec.h"

/* Hyperparameters of `adam`, by their names in adam_update. */
struct adam { double lr, beta1, beta2, epsilon, wd, rescale; };

struct vec_update {
  /* Computes the weights y after a step of Adam from w, bit for bit as the formula of adam_update
  ** does. y may be w. */
  void   (*adam)(void *y, const void *w, const void *g, void *mean, void *var, const struct adam *k,
      int64_t n);
};
