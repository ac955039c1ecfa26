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
