/* taps.h - gradients of samples at any place of an image (kernels/taps.cu). */
#pragma once
#include "cuda/family.h"

/* What add_taps takes, and where: the keys, space to sort them, the weights. */
struct cuda_taps {
  int64_t taps, channels, samples, fan, plane;
  void *keys, *space, *weight;
};
/* Returns the bytes of scratch for so many taps of numbers of `size` bytes. */
static inline size_t cuda_taps_bytes(int64_t taps, size_t size)
{
  return 2 * cuda_keys_bytes(taps) + align_up((size_t)taps * size, ALIGN);
}
/* Divides such scratch, the numbers first. Moves *at to after it. */
static inline void cuda_taps_divide(struct cuda_taps *t, size_t size, char **at)
{
  t->keys = cuda_piece(at, cuda_keys_bytes(t->taps));
  t->space = cuda_piece(at, cuda_keys_bytes(t->taps));
  t->weight = cuda_piece(at, (size_t)t->taps * size);
}
/* Adds the taps of dy (images, channels, samples) to dx (images, channels, plane), which is 0. */
int cuda_add_taps(
    const struct call *c, int dtype, const struct cuda_taps *t, void *dx, const void *dy);
