/* fourier.c - _contrib_fft, _contrib_ifft, each the other's gradient (kernels/fourier.cu). */
#include "cuda/row.h"

enum { PAIR = 2 * sizeof(double) };

static int64_t smallest_factor(int64_t n)
{
  for (int64_t p = 2; p * p <= n; p++)
    if (n % p == 0) return p;
  return n;
}

static int run_passes(const struct call *c, void **from, void *to, void *root, int64_t count,
    int64_t n)
{
  for (int64_t step = 1, p; step < n; step *= p) {
    p = smallest_factor(n / step);
    void *swap = *from;
    TRY(cuda_start(c, FAMILY_fourier, "fourier_pass", "T=$i0", count,
        (void *[]){ &to, from, &root, &count, &n, &step, &p }));
    *from = to;
    to = swap;
  }
  return TY_OK;
}

/* Runs a transform. inverse: transforms the conjugates, whose real parts are those of the
** inverse. */
static int run_transform(const struct call *c, int32_t inverse)
{
  const ty_desc *real = inverse ? &c->out[0].d : &c->in[0].d;
  int64_t n = real->dim[real->ndim - 1], count = desc_count(real);
  int32_t pairs = !inverse;
  char *at = c->tmp;
  void *root = cuda_piece(&at, PAIR * (size_t)n), *from = cuda_piece(&at, PAIR * (size_t)count);
  void *to = cuda_piece(&at, PAIR * (size_t)count);
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_start(c, FAMILY_fourier, "make_roots", "T=$i0", n, (void *[]){ &root, &n }));
  TRY(cuda_start(c, FAMILY_fourier, "read_rows", "T=$i0", count,
      (void *[]){ &from, &c->in[0].p, &count, &inverse }));
  TRY(run_passes(c, &from, to, root, count, n));
  return cuda_start(c, FAMILY_fourier, "write_rows", "T=$i0", count,
      (void *[]){ &c->out[0].p, &from, &count, &pairs });
}

static size_t transform_bytes(const ty_desc *real)
{
  size_t n = (size_t)real->dim[real->ndim - 1], count = (size_t)desc_count(real);
  return align_up(PAIR * n, ALIGN) + 2 * align_up(PAIR * count, ALIGN);
}
static size_t fft_scratch(const struct call *c) { return transform_bytes(&c->in[0].d); }
static size_t ifft_scratch(const struct call *c) { return transform_bytes(&c->out[0].d); }
static int run_fft(struct call *c) { return run_transform(c, 0); }
static int run_ifft(struct call *c) { return run_transform(c, 1); }

static const struct kernel ffts[] = {
  { "passes", run_fft, T_FLOAT, .scratch = fft_scratch }, { 0 }
};
static const struct kernel iffts[] = {
  { "passes", run_ifft, T_FLOAT, .scratch = ifft_scratch }, { 0 }
};

const struct op_kernels cuda_fourier[] = {
  { "_contrib_fft", ffts, iffts },
  { "_contrib_ifft", iffts, ffts },
  { 0 }
};
