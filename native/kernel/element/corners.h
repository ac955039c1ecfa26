/* corners.h - bilinear samples at points of a grid, shared by C and CUDA. Coordinates -1 and 1 are
** the centres of the outermost pixels. Include it once for each type REAL of numbers, with T_NAME
** making the names. */
#ifndef TY_DEVICE_FN
#define TY_DEVICE_FN static inline
#endif

/* Returns coordinate i of n of a regular grid. */
TY_DEVICE_FN REAL T_NAME(grid_coordinate)(int64_t i, int64_t n)
{
  return n > 1 ? (REAL)(-1 + 2 * (double)i / (double)(n - 1)) : -1;
}

/* The four neighbours of a point. In their indices, bit 0 stands for right, bit 1 for lower. */
struct T_NAME(corners) {
  int64_t at[4];                                      /* offsets into a plane */
  REAL    wx, wy;                                     /* weights of the right, of the lower ones */
  bool    in[4];                                      /* whether they are inside the image */
};

/* Finds the neighbours of a point. Returns false, with k unchanged, if all are outside. */
TY_DEVICE_FN bool T_NAME(corners_at)(
    struct T_NAME(corners) * k, REAL gx, REAL gy, int64_t height, int64_t width)
{
  REAL x = (gx + 1) * (REAL)(width - 1) / 2, y = (gy + 1) * (REAL)(height - 1) / 2;
  if (!(x > -1 && x < (REAL)width && y > -1 && y < (REAL)height)) return false;
  REAL x0 = (REAL)floor((double)x), y0 = (REAL)floor((double)y);
  int64_t left = (int64_t)x0, top = (int64_t)y0;
  k->wx = x - x0;
  k->wy = y - y0;
  for (int i = 0; i < 4; i++) {
    int64_t cx = left + (i & 1), cy = top + (i >> 1);
    k->in[i] = cx >= 0 && cx < width && cy >= 0 && cy < height;
    k->at[i] = cy * width + cx;
  }
  return true;
}

/* Returns the weight of neighbour i, 0 if it is outside. */
TY_DEVICE_FN REAL T_NAME(corner_weight)(const struct T_NAME(corners) * k, int i)
{
  return k->in[i] ? (i & 1 ? k->wx : 1 - k->wx) * (i >> 1 ? k->wy : 1 - k->wy) : 0;
}

/* Returns the derivative of the sample by x, in pixels, times its head gradient g. v: the pixels of
** the neighbours. */
TY_DEVICE_FN REAL T_NAME(slope_across)(const struct T_NAME(corners) * k, const REAL v[4], REAL g)
{
  return g * ((v[1] - v[0]) * (1 - k->wy) + (v[3] - v[2]) * k->wy);
}

/* Returns the derivative of the sample by y, in pixels, times its head gradient g. v: as in
** slope_across. */
TY_DEVICE_FN REAL T_NAME(slope_down)(const struct T_NAME(corners) * k, const REAL v[4], REAL g)
{
  return g * ((v[2] - v[0]) * (1 - k->wx) + (v[3] - v[1]) * k->wx);
}
