/* fft.c - discrete Fourier transforms of the last axis: _contrib_fft, _contrib_ifft.
**
** Complex numbers are pairs (real, imaginary). fft: X_k = sum of x_j e^(-2 pi i j k / n) of real x.
** ifft: the real parts of the sum of X_k e^(+2 pi i j k / n), not divided by n. The gradient of
** each is the other, applied to the head gradient. Any n is allowed: a transform is divided by its
** smallest prime factor p into p transforms of n / p, which takes n times the sum of the prime
** factors operations. Computed in float64.
*/
#include "kernel/vec/vec.h"
#include "op/op.h"

struct fourier { int64_t compute_size; };
static const struct param params[] = {
  { "compute_size", P_INT, offsetof(struct fourier, compute_size), "128", "without effect", NULL, "[1,]" },
  { 0 }
};

static int fourier_shape(struct infer *s, bool inverse)
{
  ty_desc *x = &s->in[0], *y = &s->out[0];
  if (x->ndim) {
    int64_t dim[TY_MAXDIM], *last = &dim[x->ndim - 1];
    memcpy(dim, x->dim, sizeof dim);
    if (inverse && *last % 2)
      return infer_fail(s, TY_ESHAPE, x,
          "expected pairs (real, imaginary) along the last axis, got %lld numbers",
          (long long)*last);
    *last = inverse ? *last / 2 : *last * 2;
    TRY(shape_is(s, y, x->ndim, dim));
  }
  return TY_OK;
}
static int fft_shape(struct infer *s)  { return fourier_shape(s, false); }
static int ifft_shape(struct infer *s) { return fourier_shape(s, true); }

/* -- the transform ----------------------------------------------------------------------------- */

struct complex { double re, im; };
/* root[k]: e^(-2 pi i k / n); part: scratch */
struct fft_plan { int64_t n; const struct complex *root; struct complex *part; };

static struct complex add_product(struct complex sum, struct complex a, struct complex b)
{
  return (struct complex){ sum.re + a.re * b.re - a.im * b.im, sum.im + a.re * b.im + a.im * b.re };
}

static int64_t smallest_factor(int64_t n)
{
  for (int64_t p = 2; p * p <= n; p++)
    if (n % p == 0) return p;
  return n;
}

/* Sets y[0 .. n - 1] to the transform of x[0], x[step], ...; step is plan n / n. */
static void transform_strided(
    const struct fft_plan *f, int64_t n, int64_t step, const struct complex *x, struct complex *y)
{
  if (n == 1) {
    *y = *x;
    return;
  }
  const int64_t p = smallest_factor(n), m = n / p;
  for (int64_t q = 0; q < p; q++) transform_strided(f, m, step * p, x + q * step, y + q * m);
  for (int64_t k = 0; k < m; k++) {
    for (int64_t q = 0; q < p; q++) f->part[q] = y[q * m + k];
    for (int64_t r = 0; r < p; r++) {
      struct complex sum = { 0, 0 };
      for (int64_t q = 0, turn = 0; q < p; q++, turn = (turn + (r * m + k) * step) % f->n)
        sum = add_product(sum, f->root[turn], f->part[q]);
      y[r * m + k] = sum;
    }
  }
}

/* -- kernels ----------------------------------------------------------------------------------- */

/* Returns the bytes of the roots and, per thread, of a row, its transform and the parts of a
** step. */
static size_t scratch_bytes(int64_t n)
{
  return (size_t)(n * (1 + 3 * parallel_threads())) * sizeof(struct complex);
}
static size_t fft_scratch(const struct call *c)
{
  return scratch_bytes(c->in[0].d.dim[c->in[0].d.ndim - 1]);
}
static size_t ifft_scratch(const struct call *c)
{
  return scratch_bytes(c->out[0].d.dim[c->out[0].d.ndim - 1]);
}

struct fft_rows {
  const struct vec_ops *r;
  const void *x;
  void *y;
  int64_t n;
  struct complex *root, *own;
  bool inverse;
};

/* Transforms rows; ifft transforms the conjugates, whose real parts are the same. */
static void transform_range(int64_t begin, int64_t end, void *context)
{
  const struct fft_rows *j = context;
  const int64_t n = j->n;
  struct complex *row = j->own + 3 * n * parallel_index(), *result = row + n;
  struct fft_plan f = { n, j->root, result + n };
  for (int64_t i = begin; i < end; i++) {
    for (int64_t k = 0; k < n; k++) {
      if (j->inverse)
        row[k] = (struct complex){ j->r->get(j->x, 2 * (i * n + k)),
          -j->r->get(j->x, 2 * (i * n + k) + 1) };
      else
        row[k] = (struct complex){ j->r->get(j->x, i * n + k), 0 };
    }
    transform_strided(&f, n, 1, row, result);
    for (int64_t k = 0; k < n; k++) {
      if (j->inverse) {
        j->r->set(j->y, i * n + k, result[k].re);
        continue;
      }
      j->r->set(j->y, 2 * (i * n + k), result[k].re);
      j->r->set(j->y, 2 * (i * n + k) + 1, result[k].im);
    }
  }
}

static int fourier_run(struct call *c, bool inverse)
{
  const ty_desc *real = inverse ? &c->out[0].d : &c->in[0].d;
  const int64_t n = real->dim[real->ndim - 1];
  struct complex *root = c->tmp;
  for (int64_t k = 0; k < n; k++) {
    double angle = 2 * 3.14159265358979323846 * (double)k / (double)n;
    root[k] = (struct complex){ cos(angle), -sin(angle) };
  }
  struct fft_rows j = { vec_ops_of(real->dtype), c->in[0].p, c->out[0].p, n, root, root + n,
    inverse };
  parallel_for_stoppable(desc_count(real) / n, elements_ns(16 * n), transform_range, &j);
  return TY_OK;
}

static int fft_run(struct call *c)  { return fourier_run(c, false); }
static int ifft_run(struct call *c) { return fourier_run(c, true); }

static const struct kernel fft_cpu[]  = { { "factors", fft_run,  T_FLOAT, .scratch = fft_scratch }, { 0 } };
static const struct kernel ifft_cpu[] = { { "factors", ifft_run, T_FLOAT, .scratch = ifft_scratch }, { 0 } };

const struct op op_fft[] = { {
  .name = "_contrib_fft",
  .doc = "Fourier transform of the last axis: real (..., n) to pairs (real, imaginary) (..., 2 n). Gradient: _contrib_ifft.",
  .in = "data", .out = "output", .param = params, .param_size = sizeof(struct fourier), .shape = fft_shape,
  .grad = "g0", .cpu = fft_cpu, .back_cpu = ifft_cpu, .flags = OP_NAMED_INPUT,
}, {
  .name = "_contrib_ifft",
  .doc = "Real parts of the inverse Fourier transform of the last axis, not divided by n: pairs (..., 2 n) to (..., n). "
         "Gradient: _contrib_fft.",
  .in = "data", .out = "output", .param = params, .param_size = sizeof(struct fourier), .shape = ifft_shape,
  .grad = "g0", .cpu = ifft_cpu, .back_cpu = fft_cpu, .flags = OP_NAMED_INPUT,
}, { 0 } };
