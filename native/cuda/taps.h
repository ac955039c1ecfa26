/* taps.h - gradients of samples at arbitrary positions of an image (kernels/taps.cu). */
#pragma once
#include "cuda/family.h"

/* Arguments of cuda_add_taps. The first line is struct tap_args of kernels/taps.cu; then scratch
** for keys, for sorting them, and for weights, which the caller's kernel fills in. */
struct cuda_taps {
  int64_t taps, channels, samples, fan, plane;
  void *keys, *space, *weight;
};
/* Returns the bytes of scratch for `taps` taps with weights of `size` bytes. */
static inline size_t cuda_taps_bytes(int64_t taps, size_t size)
{
  return 2 * cuda_keys_bytes(taps) + align_up((size_t)taps * size, ALIGN);
}
/* Sets keys, space and weight to such scratch at *at, and advances *at. */
static inline void cuda_taps_divide(struct cuda_taps *t, size_t size, char **at)
{
  t->keys = cuda_piece(at, cuda_keys_bytes(t->taps));
  t->space = cuda_piece(at, cuda_keys_bytes(t->taps));
  t->weight = cuda_piece(at, (size_t)t->taps * size);
}
/* Adds the taps of dy (images, channels, samples) to dx (images, channels, plane), which must be
** 0. */
int cuda_add_taps(
    const struct call *c, int dtype, const struct cuda_taps *t, void *dx, const void *dy);
