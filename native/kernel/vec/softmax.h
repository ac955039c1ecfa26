/* softmax.h - loops of softmax and of losses. See vec.h. */
#pragma once
#include "kernel/vec/vec.h"

/* Arguments of `svm`. */
struct svm {
  double margin;
  /* factor of the gradient */
  double scale;
  /* whether the loss is the hinge loss, else its square */
  bool linear;
};

struct vec_softmax {
  /* -- softmax: `scale` is 1 / temperature, negative for softmin -- */

  /* Computes the softmax of scale x, or its logarithm if `log`. y may be x. */
  void   (*soft)(void *y, const void *x, double scale, bool log, int64_t n);
  /* Computes the softmax of scale x and returns the logarithm of its element j, bit for bit as
  ** `soft` with log. y may be x. */
  double (*soft_of_one)(void *y, const void *x, double scale, int64_t j, int64_t n);
  /* Computes the gradient of `soft` from its result y. */
  void   (*soft_back)(void *dx, const void *y, const void *dy, double scale, bool log, int64_t n);
  /* Computes the gradient of `soft` with log from n elements of its result y, bit for bit as
  ** `soft_back`, for a head gradient of dy at element j and 0 elsewhere. j may be outside 0 .. n -
  ** 1; then the head gradient is 0 at all of these elements. dx may be y. */
  void   (*log_back_of_one)(void *dx, const void *y, int64_t j, double dy, double scale, int64_t n);
  /* Computes `soft` of each column. */
  void   (*soft_cols)(void *y, const void *x, double scale, bool log, int64_t k, int64_t stride,
      int64_t n);
  /* Computes the gradient of `soft_cols` from its result y. */
  void   (*soft_cols_back)(void *dx, const void *y, const void *dy, double scale, bool log,
      int64_t k, int64_t stride, int64_t n);
  /* Computes y = e^(x - m), where no x is above m, and returns the sum of y. y may be x. */
  double (*exp_sum)(void *y, const void *x, double m, int64_t n);
  /* Computes dx = (dy - mean) y, and 0 where y is 0. dx may be dy. */
  void   (*soft_gap)(void *dx, const void *y, const void *dy, double mean, int64_t n);

  /* -- losses -- */

  /* Computes the gradient of every class as if none were the target. */
  void   (*svm)(void *dx, const void *y, const struct svm *s, int64_t n);
};
