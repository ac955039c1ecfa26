/* all.c - registers GPUs and their tables of kernels before main. No other file of this folder
** depends on it. */
#include "cuda/family.h"
#include "kernel/primitives.h"

/* the files with a table, by name: `cuda_NAME` */
#define CUDA_TABLES(_) \
  _(attention) \
  _(boxes) \
  _(branches) \
  _(choice) \
  _(convolve) \
  _(correlation) \
  _(counting) \
  _(ctc) \
  _(decoding) \
  _(deformable) \
  _(densities) \
  _(diagonals) \
  _(flash_attention) \
  _(fourier) \
  _(hawkes) \
  _(images) \
  _(levels) \
  _(linear_cross_entropy) \
  _(losses) \
  _(matrices) \
  _(norms) \
  _(pooling) \
  _(proposal) \
  _(quantized) \
  _(random) \
  _(reductions) \
  _(regions) \
  _(resampling) \
  _(resizing) \
  _(rnn) \
  _(rows) \
  _(sampling) \
  _(sequences) \
  _(softmax) \
  _(solve) \
  _(sorting) \
  _(triangular) \
  _(tuning) \
  _(unfolding) \
  _(updates)

#define TABLE(name) extern const struct op_kernels cuda_##name[];
CUDA_TABLES(TABLE)
#undef TABLE

__attribute__((constructor)) static void register_all(void)
{
  cuda_device_register();
  cuda_pointwise_register();
  primitives_register(TY_GPU, &cuda_primitives);
#define REGISTER(name) op_register_kernels(TY_GPU, cuda_##name);
  CUDA_TABLES(REGISTER)
#undef REGISTER
}
