/* triangular.c - _linalg_trmm, _linalg_trsm, Cholesky factors (kernels/triangular.cu). op(A) is A
** or A^T, G the head gradient, a the factor alpha, tri() the triangle that is read. With A left of
** B:
**   trmm   Y = a op(A) B         dB = a op(A)^T G,   dop(A) = a tri(G B^T)
**   trsm   X = a op(A)^-1 B      dB = a W, dop(A) = -tri(W X^T), W = op(A)^-T G */
#include "cuda/row.h"
#include "cuda/triangular.h"
#include "kernel/strided_copy.h"

/* Returns a kernel's arguments. lower describes A, not op(A). */
static struct triangle_args make_args(const struct call *c, const ty_desc *b, double factor)
{
  int64_t m = b->dim[b->ndim - 2], n = b->dim[b->ndim - 1];
  bool right = cuda_flag(c, "rightside");
  return (struct triangle_args){ desc_count(b) / (m * n), m, n, right ? n : m, right,
    cuda_flag(c, "lower"), cuda_flag(c, "transpose"), 0, factor };
}

/* Multiplies by op(A), or solves equations with it. s: as from make_args. */
int cuda_triangle(const struct call *c, const char *name, struct triangle_args s, int dtype,
    void *to, const void *a, const void *from)
{
  bool product = !strcmp(name, "triangle_multiply");
  s.lower = (s.lower != 0) != (s.transpose != 0);
  return cuda_start_words(c, FAMILY_triangular, name,
      s.count * (product ? s.m * s.n : s.right ? s.m : s.n), (void *[]){ &to, &a, &from, &s },
      "T=%s TEAM=32", cuda_type(dtype));
}

static int apply_triangle(const struct call *c, const char *name, const ty_desc *b, bool turned,
    double factor, void *to, const void *a, const void *from)
{
  struct triangle_args s = make_args(c, b, factor);
  s.transpose = (s.transpose != 0) != turned;
  return cuda_triangle(c, name, s, b->dtype, to, a, from);
}

/* Writes dA: the triangle of factor u v^T, or of its transpose. */
static int write_gradient(
    const struct call *c, const ty_desc *b, double factor, void *da, const void *u, const void *v)
{
  struct triangle_args s = make_args(c, b, factor);
  bool swap = (s.transpose != 0) != (s.right != 0);
  if (!da) return TY_OK;
  return cuda_start(c, FAMILY_triangular, "triangle_gradient", "T=$i0 TEAM=32",
      s.count * s.side * s.side * 32,
      (void *[]){ &da, swap ? (void *)&v : (void *)&u, swap ? (void *)&u : (void *)&v, &s });
}

static double factor_of(const struct call *c) { return cuda_number(c, "alpha", 1); }

/* Multiplies; scratch: a copy of B if the result has the same memory. */
static int multiply_triangle(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  const void *b = c->in[1].p;
  if (b == c->out[0].p) {
    TRY(move_bytes(c->device, c->tmp, b, desc_bytes(d)));
    b = c->tmp;
  }
  return apply_triangle(c, "triangle_multiply", d, false, factor_of(c), c->out[0].p, c->in[0].p, b);
}
static size_t multiply_scratch(const struct call *c) { return desc_bytes(&c->in[1].d); }

static int solve_triangle(struct call *c)
{
  return apply_triangle(
      c, "triangle_solve", &c->in[1].d, false, factor_of(c), c->out[0].p, c->in[0].p, c->in[1].p);
}

/* Computes the gradients; in: head gradient, A, B. */
static int multiply_back(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  TRY(write_gradient(c, d, factor_of(c), c->out[0].p, c->in[0].p, c->in[2].p));
  if (!c->out[1].p) return TY_OK;
  return apply_triangle(
      c, "triangle_multiply", d, true, factor_of(c), c->out[1].p, c->in[1].p, c->in[0].p);
}

/* Computes the gradients; in: head gradient, A, X; scratch: W. */
static int solve_back(struct call *c)
{
  struct operand w = { c->tmp, c->in[0].d, NULL };
  TRY(apply_triangle(c, "triangle_solve", &w.d, true, 1, w.p, c->in[1].p, c->in[0].p));
  TRY(write_gradient(c, &w.d, -1, c->out[0].p, w.p, c->in[2].p));
  return cuda_times(c, &c->out[1], &w, factor_of(c), false);
}
static size_t solve_scratch(const struct call *c) { return desc_bytes(&c->in[0].d); }

/* -- Cholesky factors: A = L L^T, or U^T U ----------------------------------------------------- */

#define FACTOR_WORDS "T=$o0 TEAM=256"

static int factorize_cholesky(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = d->dim[d->ndim - 1], count = desc_count(d) / (n * n);
  int32_t lower = cuda_flag(c, "lower");
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  const int64_t op = cuda_origin(c);
  const char *what = "is not positive definite";
  if (c->out[0].p != c->in[0].p)
    TRY(move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(d)));
  return cuda_start(c, FAMILY_triangular, "cholesky", FACTOR_WORDS, count * CUDA_BLOCK,
      (void *[]){ &c->out[0].p, &count, &n, &lower, &fault, (void *)&op, &what });
}

/* Computes dA = 1/2 L^-T mirror(L^T G) L^-1 for a lower factor L, 1/2 U^-1 mirror(G U^T) U^-T for
** an upper one; in: head gradient G, the factor. */
static int factorize_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = d->dim[d->ndim - 1], count = desc_count(d);
  int32_t lower = cuda_flag(c, "lower");
  void *x = c->out[0].p, *l = c->in[1].p, *work = c->tmp;
  struct triangle_args s = { count / (n * n), n, n, n, !lower, lower, true, 0, 1 };
  if (!x) return TY_OK;
  TRY(cuda_triangle(c, "triangle_multiply", s, d->dtype, work, l, c->in[0].p));
  TRY(cuda_start(c, FAMILY_triangular, "half_mirrored", FACTOR_WORDS, count,
      (void *[]){ &x, &work, &count, &n, &lower }));
  s.right = false;
  s.transpose = lower;
  TRY(cuda_triangle(c, "triangle_solve", s, d->dtype, x, l, x));
  s.right = true;
  s.transpose = !lower;
  return cuda_triangle(c, "triangle_solve", s, d->dtype, x, l, x);
}
static size_t factorize_scratch(const struct call *c) { return desc_bytes(&c->out[0].d); }

/* Computes (L L^T)^-1, or (U^T U)^-1. */
static int invert_factor(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = d->dim[d->ndim - 1], count = desc_count(d), rows = count / n;
  int32_t lower = cuda_flag(c, "lower");
  struct triangle_args s = { count / (n * n), n, n, n, false, lower, !lower, 0, 1 };
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  const int64_t op = cuda_origin(c);
  const char *what = "is no Cholesky factor: its diagonal has a zero";
  void *work = c->tmp;
  TRY(cuda_start(c, FAMILY_triangular, "look_for_zeros", FACTOR_WORDS, rows,
      (void *[]){ &c->in[0].p, &rows, &n, &fault, (void *)&op, &what }));
  TRY(cuda_start(c, FAMILY_triangular, "identities", FACTOR_WORDS, count,
      (void *[]){ &work, &count, &n }));
  TRY(cuda_triangle(c, "triangle_solve", s, d->dtype, work, c->in[0].p, work));
  s.transpose = lower;
  TRY(cuda_triangle(c, "triangle_solve", s, d->dtype, work, c->in[0].p, work));
  return move_bytes(c->device, c->out[0].p, work, desc_bytes(d));
}

static const struct kernel products[] = {
  { "elements", multiply_triangle, T_FLOAT, .scratch = multiply_scratch }, { 0 }
};
static const struct kernel products_back[] = { { "elements", multiply_back, T_FLOAT }, { 0 } };
static const struct kernel solutions[] = { { "substitution", solve_triangle, T_FLOAT }, { 0 } };
static const struct kernel solutions_back[] = {
  { "substitution", solve_back, T_FLOAT, .scratch = solve_scratch }, { 0 }
};

static const struct kernel factors[] = { { "columns", factorize_cholesky, T_FLOAT }, { 0 } };
static const struct kernel factors_back[] = {
  { "columns", factorize_back, T_FLOAT, .scratch = factorize_scratch }, { 0 }
};
const struct kernel cuda_potri[] = {
  { "substitution", invert_factor, T_FLOAT, .scratch = factorize_scratch }, { 0 }
};

const struct op_kernels cuda_triangular[] = {
  { "_linalg_potrf", factors, factors_back },
  { "_linalg_trmm", products, products_back },
  { "_linalg_trsm", solutions, solutions_back },
  { 0 }
};
