/* inner.h - shared by files of kernel/conv/ only. */
#pragma once
#include "kernel/conv/conv.h"
#include "kernel/conv/tuning.h"
#include "kernel/gemm/inner.h"

/* n neighbouring positions of an output row. at: where the window of the first one begins in the
** image, maybe outside; column: index of the first one among the columns. */
struct run_of { int64_t at[3]; int32_t column, n; };

/* Splits positions j .. j + cols - 1 into runs. Returns their number. */
int  window_runs(const struct window *w, int64_t j, int64_t cols, struct run_of *run);
/* Returns whether all taps of n runs are inside the image. */
bool window_inside(const struct window *w, const struct run_of *run, int n);
/* Lists the parts of n runs for which tap (z, y, x) reads inside the image; returns their number.
** *gaps: whether it reads outside for any position. */
int window_pieces(const struct window *w, const struct run_of *run, int n, int64_t z, int64_t y,
    int64_t x, struct gemm_piece *piece, bool *gaps);
/* Fills in the offset of each tap in a channel. tap: window_taps entries. */
void window_offsets(const struct window *w, int64_t *tap);
/* Copies columns j .. j + cols - 1 of all taps of `channels` channels to panel rows of `width`, or
** with `back` adds such rows to the image. tap: from window_offsets. */
void window_columns(const struct window *w, const struct gemm_type *t, int64_t j, int64_t cols,
    int64_t channels, int64_t width, const int64_t *tap, const void *from, void *to, bool back);

/* Returns whether outer_weight (weight_outer.c) is faster. */
bool   outer_profitable(const struct window *w);
size_t outer_scratch(const struct window *w);
void outer_weight(
    const struct window *w, const void *x, const void *dy, void *dw, bool add, void *tmp);

/* tiles.c and tiles_weight.c divide an axis of an image with stride s into s phases: phase i has
** positions i, i + s, ...; a tap reads only one phase. Returns the number of phases that are
** read. */
static inline int64_t window_phases(const struct window *w, int axis)
{
  return MIN(w->stride[axis], (w->kernel[axis] - 1) * w->dilate[axis] + 1);
}
/* Returns the distance between the first and the last position of a phase that one output reads. */
static inline int64_t phase_reach(const struct window *w, int axis)
{
  return (w->kernel[axis] - 1) * w->dilate[axis] / w->stride[axis];
}
/* Returns the distance of the rows of a phase, in positions. The zeros after a row are also the
** zeros before the next one, unless results are computed there. */
static inline int64_t window_pitch(const struct window *w)
{
  const int64_t reach = phase_reach(w, 2), all = w->out[2] + reach,
                shared = MIN(MIN(w->pad[2], all - w->pad[2] - w->in[2]), reach);
  return w->stride[2] == 1 ? all - MAX(shared, 0) : all;
}
