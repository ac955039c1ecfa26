// sampler.cu - samples images bilinearly at the positions of a grid, and makes grids:
// BilinearSampler, GridGenerator, SpatialTransformer. kernel/element/corners.h computes the corners
// of a sample. Method: one thread per element that is written; the gradient of a grid sums over
// channels, the image's uses taps.cu, an affine map's one team per number. Bound: bytes, gathered.
#ifndef T
#include "prelude.cuh"
#define T float
#define REAL T
#define T_NAME(x) x
#include "kernel/element/corners.h"
#define TEAM 256
#include "team.cuh"
#include "keys.cuh"
#endif

// Sizes: `images` images of c channels of h x w pixels, with n samples each.
struct sampler_args { i64 images, c, h, w, n; };

extern "C" __global__ void sample(
    T *y, const T *x, const T *grid, const struct sampler_args __grid_constant__ s)
{
  EACH(i, s.images * s.c * s.n)
  {
    i64 p = i % s.n, plane = i / s.n;
    const T *at = grid + plane / s.c * 2 * s.n + p;
    struct corners k;
    T v = 0;
    if (corners_at(&k, at[0], at[s.n], s.h, s.w))
      for (int j = 0; j < 4; j++)
        if (k.in[j]) v += corner_weight(&k, j) * x[plane * s.h * s.w + k.at[j]];
    set(y[i], v);
  }
}

extern "C" __global__ void sample_back_grid(T *dgrid, const T *dy, const T *x, const T *grid,
    const struct sampler_args __grid_constant__ s)
{
  EACH(i, s.images * s.n)
  {
    i64 p = i % s.n, image = i / s.n, at = image * 2 * s.n + p;
    struct corners k;
    double gx = 0, gy = 0;
    if (corners_at(&k, grid[at], grid[at + s.n], s.h, s.w))
      for (i64 c = 0; c < s.c; c++) {
        const T *from = x + (image * s.c + c) * s.h * s.w;
        T v[4], g = dy[(image * s.c + c) * s.n + p];
        for (int j = 0; j < 4; j++) v[j] = k.in[j] ? from[k.at[j]] : 0;
        gx += slope_across(&k, v, g);
        gy += slope_down(&k, v, g);
      }
    set(dgrid[at], gx * (double)(s.w - 1) / 2);
    set(dgrid[at + s.n], gy * (double)(s.h - 1) / 2);
  }
}

// Lists the corners of samples as keys and weights, the input of taps.cu.
extern "C" __global__ void list_corners(sort_key *keys, T *weight, const T *grid,
    const struct sampler_args __grid_constant__ s)
{
  EACH(i, s.images * s.n)
  {
    i64 p = i % s.n, image = i / s.n, at = image * 2 * s.n + p;
    struct corners k;
    bool any = corners_at(&k, grid[at], grid[at + s.n], s.h, s.w);
    for (int j = 0; j < 4; j++) {
      bool in = any && k.in[j];
      keys[4 * i + j] = { in ? (u64)(image * s.h * s.w + k.at[j]) : ~0ULL, 4 * i + j };
      weight[4 * i + j] = in ? corner_weight(&k, j) : 0;
    }
  }
}

// -- grids of h x w positions ---------------------------------------------------------------------

// Writes a regular grid: a row of x, one of y and, unless `pixels`, one of ones. pixels:
// coordinates count pixels; else they are from -1 to 1.
extern "C" __global__ void regular(T *grid, i64 h, i64 w, i32 pixels)
{
  EACH(i, h * w)
  {
    i64 x = i % w, y = i / w;
    set(grid[i], pixels ? (T)x : grid_coordinate(x, w));
    set(grid[h * w + i], pixels ? (T)y : grid_coordinate(y, h));
    if (!pixels) grid[2 * h * w + i] = 1;
  }
}

// Applies each image's map (2, 3) to the vectors (x, y, 1) of a regular grid.
extern "C" __global__ void affine(T *grid, const T *theta, i64 images, i64 h, i64 w)
{
  EACH(i, images * 2 * h * w)
  {
    const T *t = theta + i / (h * w) * 3;
    i64 at = i % (h * w);
    set(grid[i], t[0] * grid_coordinate(at % w, w) + t[1] * grid_coordinate(at / w, h) + t[2]);
  }
}

extern "C" __global__ void affine_back(T *theta, const T *grid, i64 images, i64 h, i64 w)
{
  EACH_ROW(e, images * 6)
  {
    const T *g = grid + e / 3 * h * w;
    i64 k = e % 3;
    double sum = 0;
    EACH_OF_TEAM(i, 0, h * w)
    {
      double by = k == 0 ? (double)grid_coordinate(i % w, w)
          : k == 1       ? (double)grid_coordinate(i / w, h)
                         : 1;
      sum += (double)g[i] * by;
    }
    sum = team_sum(sum);
    if (LEADS) set(theta[e], sum);
  }
}

// Writes (shift + pixel) / half the size - 1, or with `back` the gradient, g / half the size.
extern "C" __global__ void warp(T *y, const T *x, i64 images, i64 h, i64 w, i32 back)
{
  EACH(i, images * 2 * h * w)
  {
    bool down = i / (h * w) % 2;
    double half = (double)((down ? h : w) - 1) / 2;
    i64 at = i % (h * w);
    if (back)
      set(y[i], x[i] * (T)(1 / half));
    else
      set(y[i], ((double)x[i] + (double)(down ? at / w : at % w)) / half - 1);
  }
}
