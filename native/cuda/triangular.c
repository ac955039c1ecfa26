/* triangular.c - _linalg_trmm, _linalg_trsm (kernels/triangular.cu). With op(A) = A or A^T, head
** gradient G, a the factor, tri() the triangle that is read, for A left of B:
**   trmm   Y = a op(A) B         dB = a op(A)^T G,   dop(A) = a tri(G B^T)
**   trsm   X = a op(A)^-1 B      dB = a W, dop(A) = -tri(W X^T), W = op(A)^-T G */
#include "cuda/family.h"
#include "kernel/strided_copy.h"

/* as kernels/triangular.cu has it */
struct triangle_args {
  int64_t count, m, n, side;
  int32_t right, lower, transpose, unused;
  double  factor;
};

/* lower: of A itself */
static struct triangle_args args_of(const struct call *c, const ty_desc *b, double factor)
{
  int64_t m = b->dim[b->ndim - 2], n = b->dim[b->ndim - 1];
  bool right = cuda_flag(c, "rightside");
  return (struct triangle_args){ desc_count(b) / (m * n), m, n, right ? n : m, right,
    cuda_flag(c, "lower"), cuda_flag(c, "transpose"), 0, factor };
}

/* What is done with op(A), or its transpose. */
static int apply(const struct call *c, const char *name, const ty_desc *b, bool turned,
    double factor, void *to, const void *a, const void *from)
{
  struct triangle_args s = args_of(c, b, factor);
  bool product = !strcmp(name, "triangle_multiply");
  cu_function f;
  s.transpose = (s.transpose != 0) != turned;
  s.lower = (s.lower != 0) != (s.transpose != 0);
  TRY(cuda_family(c->device, FAMILY_triangular, name, &f, "T=%s TEAM=32", cuda_type(b->dtype)));
  void *params[] = { &to, &a, &from, &s };
  return cuda_run(c, f, product ? desc_count(b) : s.count * (s.right ? s.m : s.n), params);
}

/* dA, from u v^T, or its transpose */
static int gradient(const struct call *c, const ty_desc *b, double factor, void *da, const void *u,
    const void *v)
{
  struct triangle_args s = args_of(c, b, factor);
  bool swap = (s.transpose != 0) != (s.right != 0);
  cu_function f;
  if (!da) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_triangular, "triangle_gradient", &f, "T=%s TEAM=32",
      cuda_type(b->dtype)));
  void *params[] = { &da, swap ? (void *)&v : (void *)&u, swap ? (void *)&u : (void *)&v, &s };
  return cuda_run(c, f, s.count * s.side * s.side * 32, params);
}

static double factor_of(const struct call *c) { return cuda_number(c, "alpha", 1); }

/* scratch: B, whose place the result may take */
static int multiply(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  const void *b = c->in[1].p;
  if (b == c->out[0].p) {
    TRY(move_bytes(c->device, c->tmp, b, desc_bytes(d)));
    b = c->tmp;
  }
  return apply(c, "triangle_multiply", d, false, factor_of(c), c->out[0].p, c->in[0].p, b);
}
static size_t multiply_scratch(const struct call *c) { return desc_bytes(&c->in[1].d); }

static int solve(struct call *c)
{
  return apply(c, "triangle_solve", &c->in[1].d, false, factor_of(c), c->out[0].p, c->in[0].p,
      c->in[1].p);
}

/* in: head gradient, A, B */
static int multiply_back(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  TRY(gradient(c, d, factor_of(c), c->out[0].p, c->in[0].p, c->in[2].p));
  if (!c->out[1].p) return TY_OK;
  return apply(c, "triangle_multiply", d, true, factor_of(c), c->out[1].p, c->in[1].p, c->in[0].p);
}

/* in: head gradient, A, X; scratch: W */
static int solve_back(struct call *c)
{
  struct operand w = { c->tmp, c->in[0].d, NULL };
  TRY(apply(c, "triangle_solve", &w.d, true, 1, w.p, c->in[1].p, c->in[0].p));
  TRY(gradient(c, &w.d, -1, c->out[0].p, w.p, c->in[2].p));
  return cuda_times(c, &c->out[1], &w, factor_of(c), false);
}
static size_t solve_scratch(const struct call *c) { return desc_bytes(&c->in[0].d); }

static const struct kernel products[] = {
  { "elements", multiply, T_FLOAT, .scratch = multiply_scratch }, { 0 }
};
static const struct kernel products_back[] = { { "elements", multiply_back, T_FLOAT }, { 0 } };
static const struct kernel solutions[] = { { "substitution", solve, T_FLOAT }, { 0 } };
static const struct kernel solutions_back[] = {
  { "substitution", solve_back, T_FLOAT, .scratch = solve_scratch }, { 0 }
};

const struct op_kernels cuda_triangular[] = {
  { "_linalg_trmm", products, products_back },
  { "_linalg_trsm", solutions, solutions_back },
  { 0 }
};
