/* inner.h - what the files of the convolution share. */
#pragma once
#include "kernel/conv/conv.h"
#include "kernel/conv/tuning.h"
#include "kernel/gemm/inner.h"

/* Neighbouring positions of an output row: place of the first one's window (maybe outside),
** first column, positions. */
struct run_of { int64_t at[3]; int32_t column, n; };

int  window_runs(const struct window *w, int64_t j, int64_t cols, struct run_of *run);
bool window_inside(const struct window *w, const struct run_of *run, int n);
int window_pieces(const struct window *w, const struct run_of *run, int n, int64_t z, int64_t y,
    int64_t x, struct gemm_piece *piece, bool *gaps);
void window_offsets(const struct window *w, int64_t *tap);
void window_columns(const struct window *w, const struct gemm_type *t, int64_t j, int64_t cols,
    int64_t channels, int64_t width, const int64_t *tap, const void *from, void *to, bool back);

/* Tells whether weight_outer.c makes the weight's gradient. */
bool   outer_profitable(const struct window *w);
size_t outer_scratch(const struct window *w);
void outer_weight(
    const struct window *w, const void *x, const void *dy, void *dw, bool add, void *tmp);

/* What tiles.c and tiles_weight.c make of an axis of a window: images of every stride-th position,
** its phases, of which taps see some; and the furthest position of a phase that a tap sees from
** position 0. */
static inline int64_t window_phases(const struct window *w, int axis)
{
  return MIN(w->stride[axis], (w->kernel[axis] - 1) * w->dilate[axis] + 1);
}
static inline int64_t phase_reach(const struct window *w, int axis)
{
  return (w->kernel[axis] - 1) * w->dilate[axis] / w->stride[axis];
}
/* Returns the positions from one row of a phase to the next: zeros after a row are those before the
** next one, as far as there are no results for these. */
static inline int64_t window_pitch(const struct window *w)
{
  const int64_t reach = phase_reach(w, 2), all = w->out[2] + reach,
                shared = MIN(MIN(w->pad[2], all - w->pad[2] - w->in[2]), reach);
  return w->stride[2] == 1 ? all - MAX(shared, 0) : all;
}
