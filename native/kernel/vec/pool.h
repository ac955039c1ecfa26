/* pool.h - loops of pooling. See vec.h. */
#pragma once
#include "kernel/vec/vec.h"

/* A row of windows over channels in blocks. */
struct pool_row {
  /* lines of each window */
  int64_t rows;
  /* distance of lines, in positions */
  int64_t line;
  /* positions of a line */
  int64_t in;
  /* positions of a window along a line */
  int64_t kernel;
  /* distance of windows, in positions */
  int64_t stride;
  /* positions of the first window before the line */
  int64_t pad;
  /* number of windows */
  int64_t n;
  /* channels of a block: 16, 8 or 4 */
  int b;
  /* index of the first tap */
  int tap;
  /* whether every maximum gets the gradient, not only the first one */
  bool all;
};

enum { NO_TAP = 255 };                                /* argmax of a window without a maximum */

struct vec_pool {
  /* -- pooling: one tap of a window over n outputs whose inputs are `stride` apart -- */

  /* Computes y = max(y, x). */
  void   (*tap_max)(void *y, const void *x, int64_t stride, int64_t n);
  /* Computes y[i] = the maximum of `least` and the window that begins at x[stride * i] and has
  ** `rows` rows, `line` elements apart, and `kernel` columns. */
  void   (*windows_max)(void *y, const void *x, int64_t rows, int64_t line, int64_t kernel,
      int64_t stride, double least, int64_t n);
  /* Adds x^power to y. */
  void   (*tap_add)(void *y, const void *x, int64_t stride, int power, int64_t n);
  /* Adds left to dx where x == y, and then sets left to 0 there unless `all`. */
  void   (*tap_max_back)(void *dx, void *left, const void *x, const void *y, int64_t stride,
      bool all, int64_t n);
  /* Sets argmax to `here` where x == y. */
  void   (*argmax)(int32_t *argmax, const void *x, const void *y, int64_t stride, int32_t here,
      int64_t n);
  /* Adds dy[i] to dx[stride i + argmax[i]] unless argmax[i] is INT32_MIN. */
  void   (*scatter_argmax)(void *dx, const int32_t *argmax, const void *dy, int64_t stride,
      int64_t n);
  /* Adds g to dx. */
  void   (*tap_add_back)(void *dx, const void *g, int64_t stride, int64_t n);
  /* Adds g (x / y)^(power - 1) to dx where y is not 0. */
  void   (*tap_power_back)(void *dx, const void *g, const void *x, const void *y, int64_t stride,
      int power, int64_t n);
  /* Computes the maxima y of `lowest` and 2 x 2 windows, 2 apart, over the input rows x0 and x1. */
  void   (*max2)(void *y, const void *x0, const void *x1, double lowest, int64_t n);
  /* Sets argmax to the first of the four taps that equals y, else to NO_TAP. */
  void   (*max2_argmax)(uint8_t *argmax, const void *x0, const void *x1, const void *y, int64_t n);
  /* Sets both rows to dy at the taps of argmax, and to 0 elsewhere. */
  void   (*max2_back)(void *dx0, void *dx1, const uint8_t *argmax, const void *dy, int64_t n);
  /* Computes y = y^(1 / power). */
  void   (*root)(void *y, int power, int64_t n);

  /* -- pooling of a row of windows over channels in blocks -- */

  /* Computes the maximum of y and each window if `max`, else adds the sum of the window to y. */
  void   (*block_pool)(void *y, const void *x, const struct pool_row *p, bool max);
  /* Sets argmax to the first tap that equals y, else to NO_TAP. */
  void   (*block_argmax)(uint8_t *argmax, const void *y, const void *x, const struct pool_row *p);
  /* Adds dy to dx at the taps of argmax. */
  void   (*block_scatter_argmax)(void *dx, const uint8_t *argmax, const void *dy,
      const struct pool_row *p);
  /* Adds dy to dx: if `max` at the taps where x equals y, else at all taps, without reading x and
  ** y. */
  void   (*block_pool_back)(void *dx, const void *dy, const void *x, const void *y,
      const struct pool_row *p, bool max);
};
