/* solve.c - operators on whole matrices: gelqf, syevd, inverse, det, slogdet, and potri's gradient.
**
** cuSOLVER makes the factors, with one call per matrix (the functions for stacks are in cuBLAS,
** which would be another library, and serve only small matrices); cublasLt makes products;
** kernels/factors.cu has the steps in between. cuSOLVER reads matrices column by column and so sees
** transposes, as LAPACK does on the CPU; its factors equal the CPU's. Formulas of gradients are in
** operators/linalg/factorization.c. Errors in a matrix are found on the device and reported when
** the task ends. */
#include <dlfcn.h>
#include <pthread.h>
#include "cuda/cusolver.h"
#include "cuda/product.h"
#include "cuda/row.h"
#include "cuda/triangular.h"
#include "kernel/strided_copy.h"

/* The field `what` of the operators' rows. */
enum { POTRI, LQ, EIGEN, INVERSE, DET, LOGARITHMS };

static struct solver_functions solver;
static struct solver_typed typed[2];                  /* float32, float64 */
/* One per device; `lock` guards them and `loaded`. */
static solver_handle handles[CUDA_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int loaded;                                    /* 0: not tried, 1: yes, -1: failed */

/* -- the library ------------------------------------------------------------------------------- */

static bool find_symbol(void *lib, const char *prefix, const char *symbol, void *to)
{
  char name[64];
  snprintf(name, sizeof name, "%s%s", prefix, symbol);
  *(void **)to = dlsym(lib, name);
  return *(void **)to != NULL;
}

static bool load_cusolver(void)
{
  void *lib = cuda_library(CUDA_CUSOLVER, NULL);
  bool good = lib != NULL;
#define FIND(name, symbol, arguments) good = good && find_symbol(lib, "", symbol, &solver.name);
  SOLVER_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, symbol, arguments) \
  good = good && find_symbol(lib, "cusolverDnS", symbol, &typed[0].name) && \
      find_symbol(lib, "cusolverDnD", symbol, &typed[1].name);
  SOLVER_TYPED(FIND)
#undef FIND
  return good;
}

static solver_handle open_handle(int device)
{
  solver_handle *h = &handles[device_id(device)];
  if (cuda_enter(device)) return NULL;
  pthread_mutex_lock(&lock);
  if (!loaded) loaded = load_cusolver() ? 1 : -1;
  if (loaded > 0 && !*h && solver.Create(h)) *h = NULL;
  solver_handle made = loaded > 0 ? *h : NULL;
  pthread_mutex_unlock(&lock);
  return made;
}

static const struct solver_typed *functions_of(int dtype) { return &typed[dtype == TY_F64]; }

static int check_cusolver(int status, const char *what)
{
  return status ? fail(TY_ERUN, "cuSOLVER: %s fails with status %d", what, status) : TY_OK;
}

/* Fails if cuSOLVER did not return the size of a workspace. elements: 0 then. */
static int check_size(int elements, const char *what)
{
  NEED(elements > 0, TY_ERUN, "cuSOLVER: it does not say what workspace %s needs", what);
  return TY_OK;
}

static const char *refuse_solver(const struct call *c)
{
  return open_handle(c->device) ? NULL : CUDA_MISSING("cuSOLVER");
}

/* -- stacks of matrices ------------------------------------------------------------------------ */

/* A stack of `count` matrices (m x n). size: bytes of an element. */
struct stack { int device, dtype; int64_t count, m, n; size_t size; };

static struct stack make_stack(const struct call *c, const ty_desc *d)
{
  int64_t m = d->dim[d->ndim - 2], n = d->dim[d->ndim - 1];
  return (struct stack){ c->device, d->dtype, desc_count(d) / (m * n), m, n,
    dtype_size(d->dtype) };
}

static size_t stack_bytes(const struct stack *s)
{
  return (size_t)(s->count * s->m * s->n) * s->size;
}

static void *matrix_at(const void *p, int64_t i, int64_t elements, size_t size)
{
  return (char *)(uintptr_t)p + (size_t)(i * elements) * size;
}

/* Starts n threads of a kernel of factors.cu. These are not rows of the table, since they are steps
** between cuSOLVER's calls. */
#define RUN(c, s, name, n, ...) \
  TRY(cuda_start_words(c, FAMILY_factors, name, n, (void *[]){ __VA_ARGS__ }, "T=%s TEAM=256", \
      cuda_type((s)->dtype)))

static int fill_nan(const struct call *c, const struct stack *s, void *y, const void *a)
{
  int64_t size = s->m * s->n, count = s->count;
  RUN(c, s, "fill_nan", count * CUDA_BLOCK, &y, &a, &count, &size);
  return TY_OK;
}

/* Reports the first marked matrix as faulty. what: a static text, such as "is singular". */
static int report_marked(
    const struct call *c, const struct stack *s, const int32_t *marks, const char *what)
{
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  const int64_t op = cuda_origin(c);
  int64_t count = s->count;
  RUN(c, s, "report_marked", CUDA_BLOCK, &marks, &count, &fault, (void *)&op, &what);
  return TY_OK;
}

static int begin_solver(const struct call *c, solver_handle *h)
{
  *h = open_handle(c->device);
  NEED(*h, TY_EDEVICE, CUDA_MISSING("cuSOLVER"));
  return check_cusolver(solver.SetStream(*h, cuda_stream(c->device)), "cusolverDnSetStream");
}

static int move_matrices(const struct call *c, void *to, const void *from, size_t bytes)
{
  return to == from ? TY_OK : move_bytes(c->device, to, from, bytes);
}

/* -- LU ---------------------------------------------------------------------------------------- */

/* Returns the bytes of workspace for a matrix. code, elements: results of cuSOLVER's query; 0 bytes
** if it failed. */
static size_t work_bytes(int code, int elements, size_t size)
{
  return code ? 0 : align_up((size_t)MAX(elements, 1) * size, ALIGN);
}

static size_t lu_work(const struct stack *s)
{
  solver_handle h = open_handle(s->device);
  int n = 0;
  if (!h) return 0;
  int code = functions_of(s->dtype)->getrf_size(h, (int)s->n, (int)s->n, NULL, (int)s->n, &n);
  return work_bytes(code, n, s->size);
}

/* Computes the LU factors of the transposes in place. pivot: (count, n); info: (count). */
static int factorize_lu(const struct call *c, const struct stack *s, void *a, int32_t *pivot,
    int32_t *info, void *work)
{
  int n = (int)s->n;
  solver_handle h;
  TRY(begin_solver(c, &h));
  TRY(fill_nan(c, s, a, a));
  for (int64_t i = 0; i < s->count; i++)
    TRY(check_cusolver(functions_of(s->dtype)->getrf(h, n, n, matrix_at(a, i, s->m * s->n, s->size),
                           n, work, pivot + i * n, info + i),
        "getrf"));
  cuda_count(c->device, s->count, 0);
  return TY_OK;
}

/* Computes x, the inverses, from the results of factorize_lu. */
static int invert_lu(const struct call *c, const struct stack *s, void *x, const void *lu,
    const int32_t *pivot, int32_t *info)
{
  int n = (int)s->n;
  int64_t all = s->count * s->n * s->n;
  solver_handle h;
  TRY(begin_solver(c, &h));
  RUN(c, s, "identities", all, &x, &all, (void *)&s->n);
  for (int64_t i = 0; i < s->count; i++)
    TRY(check_cusolver(
        functions_of(s->dtype)->getrs(h, SOLVER_PLAIN, n, n, matrix_at(lu, i, s->n * s->n, s->size),
            n, pivot + i * n, matrix_at(x, i, s->n * s->n, s->size), n, info + i),
        "getrs"));
  cuda_count(c->device, s->count, 0);
  return fill_nan(c, s, x, lu);
}

/* Pointers into scratch: cuSOLVER's workspace, an int per matrix, one per row, a stack. */
struct lu_scratch { void *work; int32_t *info, *pivot; void *a; };
static size_t lu_layout(const struct stack *s, char *at, struct lu_scratch *out)
{
  char *from = at;
  size_t ints = (size_t)s->count * sizeof(int32_t);
  out->work = cuda_piece(&at, lu_work(s));
  out->info = cuda_piece(&at, ints);
  out->pivot = cuda_piece(&at, ints * (size_t)s->n);
  out->a = cuda_piece(&at, stack_bytes(s));
  return (size_t)(at - from);
}

static size_t inverse_scratch(const struct call *c)
{
  struct stack s = make_stack(c, &c->in[0].d);
  struct lu_scratch t;
  return lu_layout(&s, NULL, &t);
}

static int run_inverse(struct call *c)
{
  struct stack s = make_stack(c, &c->in[0].d);
  struct lu_scratch t;
  lu_layout(&s, c->tmp, &t);
  TRY(move_matrices(c, t.a, c->in[0].p, stack_bytes(&s)));
  TRY(factorize_lu(c, &s, t.a, t.pivot, t.info, t.work));
  RUN(c, &s, "mark_zeros", s.count, &t.info, &t.a, &s.count, &s.n);
  TRY(report_marked(c, &s, t.info, "is singular: it has no inverse"));
  return invert_lu(c, &s, c->out[0].p, t.a, t.pivot, t.info);
}

/* Returns the bytes of scratch. Outputs are det, LU, pivot, or sign, log, LU, pivot. */
static size_t det_scratch(const struct call *c) { return inverse_scratch(c); }

static int run_det(struct call *c)
{
  struct stack s = make_stack(c, &c->in[0].d);
  struct lu_scratch t;
  int32_t logs = cuda_what(c) == LOGARITHMS;
  lu_layout(&s, c->tmp, &t);
  void *lu = c->out[c->nout - 2].p ? c->out[c->nout - 2].p : t.a;
  int32_t *pivot = c->out[c->nout - 1].p ? c->out[c->nout - 1].p : t.pivot;
  TRY(move_matrices(c, lu, c->in[0].p, stack_bytes(&s)));
  TRY(factorize_lu(c, &s, lu, pivot, t.info, t.work));
  void *second = logs ? c->out[1].p : NULL;
  RUN(c, &s, "determinants", s.count, &c->out[0].p, &second, &lu, &pivot, &s.count, &s.n, &logs);
  return TY_OK;
}

/* Computes the gradients; in: head gradient, determinant (slogdet: its sign), LU, pivot. */
static int det_back(struct call *c)
{
  struct stack s = make_stack(c, &c->out[0].d);
  struct lu_scratch t;
  int64_t all = s.count * s.n * s.n;
  int32_t logs = cuda_what(c) == LOGARITHMS;
  if (!c->out[0].p) return TY_OK;
  lu_layout(&s, c->tmp, &t);
  TRY(invert_lu(c, &s, t.a, c->in[2].p, c->in[3].p, t.info));
  RUN(c, &s, "determinant_gradient", all, &c->out[0].p, &t.a, &c->in[0].p, &c->in[1].p, &all, &s.n,
      &logs);
  return TY_OK;
}
static size_t det_back_scratch(const struct call *c)
{
  struct stack s = make_stack(c, &c->out[0].d);
  struct lu_scratch t;
  return lu_layout(&s, NULL, &t);
}

/* -- LQ: the QR factors of the transpose ------------------------------------------------------- */

struct lq_scratch { void *work, *tau; int32_t *info; void *q; int size; };
static size_t lq_layout(const struct stack *s, char *at, struct lq_scratch *out)
{
  char *from = at;
  const struct solver_typed *f = functions_of(s->dtype);
  solver_handle h = open_handle(s->device);
  int m = (int)s->m, n = (int)s->n, one = 0, two = 0;
  bool good = h && !f->geqrf_size(h, n, m, NULL, n, &one) &&
      !f->orgqr_size(h, n, m, m, NULL, n, NULL, &two);
  out->size = good ? MAX(MAX(one, two), 1) : 0;
  out->work = cuda_piece(&at, (size_t)out->size * s->size);
  out->tau = cuda_piece(&at, (size_t)s->m * s->size);
  out->info = cuda_piece(&at, sizeof(int32_t));
  out->q = cuda_piece(&at, stack_bytes(s));
  return (size_t)(at - from);
}

static size_t gelqf_scratch(const struct call *c)
{
  struct stack s = make_stack(c, &c->in[0].d);
  struct lq_scratch t;
  return lq_layout(&s, NULL, &t);
}

static int run_gelqf(struct call *c)
{
  struct stack s = make_stack(c, &c->in[0].d);
  struct lq_scratch t;
  const struct solver_typed *f = functions_of(s.dtype);
  int m = (int)s.m, n = (int)s.n;
  int64_t all = s.count * s.m * s.m;
  solver_handle h;
  lq_layout(&s, c->tmp, &t);
  char *q = c->out[0].p ? c->out[0].p : t.q, *l = c->out[1].p;
  TRY(begin_solver(c, &h));
  TRY(check_size(t.size, "gelqf"));
  TRY(move_matrices(c, q, c->in[0].p, stack_bytes(&s)));
  for (int64_t i = 0; i < s.count; i++) {
    struct stack one = s;
    char *own = matrix_at(q, i, s.m * s.n, s.size);
    void *triangle = l ? matrix_at(l, i, s.m * s.m, s.size) : NULL;
    one.count = 1;
    TRY(check_cusolver(f->geqrf(h, n, m, own, n, t.tau, t.work, t.size, t.info), "geqrf"));
    all = s.m * s.m;
    if (l) RUN(c, &one, "lower_part", all, &triangle, &own, &all, &s.m, &s.n);
    TRY(check_cusolver(f->orgqr(h, n, m, m, own, n, t.tau, t.work, t.size, t.info), "orgqr"));
  }
  cuda_count(c->device, 2 * s.count, 0);
  return TY_OK;
}

/* -- eigenvectors ------------------------------------------------------------------------------ */

struct eigen_scratch { void *work; int32_t *info, *bad; void *u, *l; int size; };
static size_t eigen_layout(const struct stack *s, char *at, struct eigen_scratch *out)
{
  char *from = at;
  solver_handle h = open_handle(s->device);
  int n = (int)s->n, size = 0;
  bool good = h &&
      !functions_of(s->dtype)->syevd_size(h, SOLVER_VECTORS, SOLVER_UPPER, n, NULL, n, NULL, &size);
  out->size = good ? MAX(size, 1) : 0;
  out->work = cuda_piece(&at, (size_t)out->size * s->size);
  out->info = cuda_piece(&at, (size_t)s->count * sizeof(int32_t));
  out->bad = cuda_piece(&at, (size_t)s->count * sizeof(int32_t));
  out->u = cuda_piece(&at, stack_bytes(s));
  out->l = cuda_piece(&at, (size_t)(s->count * s->n) * s->size);
  return (size_t)(at - from);
}

static size_t syevd_scratch(const struct call *c)
{
  struct stack s = make_stack(c, &c->in[0].d);
  struct eigen_scratch t;
  return eigen_layout(&s, NULL, &t);
}

static int run_syevd(struct call *c)
{
  static const char what[] = "has no eigenvalues that can be found: an entry is NaN or infinite, "
                             "or the search does not converge";
  struct stack s = make_stack(c, &c->in[0].d);
  struct eigen_scratch t;
  int n = (int)s.n;
  int64_t rows = s.count * s.n, size = s.n * s.n;
  solver_handle h;
  eigen_layout(&s, c->tmp, &t);
  void *u = c->out[0].p ? c->out[0].p : t.u, *l = c->out[1].p ? c->out[1].p : t.l;
  TRY(begin_solver(c, &h));
  TRY(check_size(t.size, "syevd"));
  TRY(move_matrices(c, u, c->in[0].p, stack_bytes(&s)));
  RUN(c, &s, "finite_only", s.count * CUDA_BLOCK, &u, &t.bad, &s.count, &size);
  TRY(report_marked(c, &s, t.bad, what));
  for (int64_t i = 0; i < s.count; i++)
    TRY(check_cusolver(functions_of(s.dtype)->syevd(h, SOLVER_VECTORS, SOLVER_UPPER, n,
        matrix_at(u, i, size, s.size), n, matrix_at(l, i, s.n, s.size), t.work, t.size, t.info + i),
        "syevd"));
  cuda_count(c->device, s.count, 0);
  TRY(report_marked(c, &s, t.info, what));
  RUN(c, &s, "positive_rows", rows, &u, &rows, &s.n);
  return TY_OK;
}

/* -- gradients by products --------------------------------------------------------------------- */

enum { PRODUCTS = 3 };
struct gradient_plans { struct product_plan *of[PRODUCTS]; };
static size_t plans_size(const struct call *c) { return sizeof(struct gradient_plans); }
static void plans_done(void *state)
{
  struct gradient_plans *s = state;
  for (int i = 0; i < PRODUCTS; i++) product_done(s->of[i]);
}

/* Returns the product op(A) (m x k) op(B) (k x n) of stacks of dense matrices. */
static struct product make_product(const struct stack *s, bool ta, bool tb, int64_t m, int64_t n,
    int64_t k, double alpha, double beta)
{
  return (struct product){ .dtype = s->dtype, .ta = ta, .tb = tb, .m = m, .n = n, .k = k,
    .lda = ta ? m : k, .ldb = tb ? k : n, .ldc = n, .batch = s->count, .stride_a = m * k,
    .stride_b = k * n, .stride_c = m * n, .alpha = alpha, .beta = beta };
}

/* Writes the products of a gradient to out, in order. Returns their number. */
static int list_products(const struct call *c, const struct stack *s, struct product out[PRODUCTS])
{
  int64_t m = s->m, n = s->n;
  int what = cuda_what(c);
  if (what == LQ) {
    out[0] = make_product(s, true, false, m, m, m, 1, 0);   /* L^T dL */
    out[1] = make_product(s, false, true, m, m, n, -1, 1);  /* - dQ Q^T */
    out[2] = make_product(s, false, false, m, n, m, 1, 1);  /* + mirror() Q */
    return 3;
  }
  if (what == EIGEN) {
    out[0] = make_product(s, false, true, n, n, n, 1, 0);   /* dU U^T */
    out[1] = make_product(s, false, false, n, n, n, 1, 0);  /* () U */
    out[2] = make_product(s, true, false, n, n, n, 1, 0);   /* U^T () */
    return 3;
  }
  if (what == INVERSE) {
    out[0] = make_product(s, true, false, n, n, n, 1, 0);   /* B^T dB */
    out[1] = make_product(s, false, true, n, n, n, -1, 0);  /* - () B^T */
    return 2;
  }
  /* POTRI: with G + G^T */
  out[0] = make_product(s, false, false, n, n, n, 1, 0);
  return 1;
}

static const char *refuse_products(const struct call *c)
{
  struct stack s = make_stack(c, &c->out[0].d);
  struct product p[PRODUCTS];
  const char *no = NULL;
  for (int i = list_products(c, &s, p); i > 0 && !no; i--)
    no = product_refuse(c, &p[i - 1]);
  return no;
}

/* Pointers into scratch: the products' workspace, two stacks of matrices. */
struct back_scratch { void *work, *one, *two; };
static size_t back_layout(const struct call *c, char *at, struct back_scratch *out)
{
  struct stack s = make_stack(c, &c->out[0].d);
  struct product p[PRODUCTS];
  char *from = at;
  size_t most = 0;
  for (int i = list_products(c, &s, p); i > 0; i--)
    most = MAX(most, product_workspace(c, &p[i - 1]));
  out->work = cuda_piece(&at, most);
  out->one = cuda_piece(&at, stack_bytes(&s));
  out->two = cuda_piece(&at, stack_bytes(&s));
  return (size_t)(at - from);
}
static size_t back_bytes(const struct call *c)
{
  struct back_scratch t;
  return back_layout(c, NULL, &t);
}

static int multiply_stack(
    const struct call *c, int i, const void *a, const void *b, void *y, void *work)
{
  struct stack s = make_stack(c, &c->out[0].d);
  struct product p[PRODUCTS];
  struct gradient_plans *plans = c->state;
  list_products(c, &s, p);
  return product_run(c, &p[i], &plans->of[i], a, b, NULL, y, work);
}

/* Computes the gradients; in: dQ, dL, Q, L. */
static int gelqf_back(struct call *c)
{
  struct stack s = make_stack(c, &c->out[0].d);
  struct back_scratch t;
  int64_t all = s.count * s.m * s.m;
  void *da = c->out[0].p;
  if (!da) return TY_OK;
  back_layout(c, c->tmp, &t);
  TRY(multiply_stack(c, 0, c->in[3].p, c->in[1].p, t.one, t.work));
  TRY(multiply_stack(c, 1, c->in[0].p, c->in[2].p, t.one, t.work));
  RUN(c, &s, "mirrored", all, &t.one, &all, &s.m);
  TRY(move_matrices(c, t.two, c->in[0].p, stack_bytes(&s)));
  TRY(multiply_stack(c, 2, t.one, c->in[2].p, t.two, t.work));
  struct triangle_args solve = { s.count, s.m, s.n, s.m, false, true, true, 0, 1 };
  return cuda_triangle(c, "triangle_solve", solve, s.dtype, da, c->in[3].p, t.two);
}

/* Computes the gradients; in: dU, dl, U, l. */
static int syevd_back(struct call *c)
{
  struct stack s = make_stack(c, &c->out[0].d);
  struct back_scratch t;
  int64_t all = s.count * s.n * s.n;
  if (!c->out[0].p) return TY_OK;
  back_layout(c, c->tmp, &t);
  TRY(multiply_stack(c, 0, c->in[0].p, c->in[2].p, t.one, t.work));
  RUN(c, &s, "eigen_gradient", all, &t.one, &c->in[3].p, &c->in[1].p, &all, &s.n);
  TRY(multiply_stack(c, 1, t.one, c->in[2].p, t.two, t.work));
  return multiply_stack(c, 2, c->in[2].p, t.two, c->out[0].p, t.work);
}

/* Computes the gradients; in: dB, B. */
static int inverse_back(struct call *c)
{
  struct back_scratch t;
  if (!c->out[0].p) return TY_OK;
  back_layout(c, c->tmp, &t);
  TRY(multiply_stack(c, 0, c->in[1].p, c->in[0].p, t.one, t.work));
  return multiply_stack(c, 1, t.one, c->in[1].p, c->out[0].p, t.work);
}

/* Computes -tri(B (G + G^T) L^-T) if the factor is lower, else -tri(U^-T (G + G^T) B); in: head
** gradient G, the factor L or U, the inverse B. */
static int potri_back(struct call *c)
{
  struct stack s = make_stack(c, &c->out[0].d);
  struct back_scratch t;
  int32_t lower = cuda_flag(c, "lower");
  int64_t all = s.count * s.n * s.n;
  void *x = c->out[0].p;
  if (!x) return TY_OK;
  back_layout(c, c->tmp, &t);
  RUN(c, &s, "with_transpose", all, &t.one, &c->in[0].p, &all, &s.n);
  TRY(multiply_stack(c, 0, lower ? c->in[2].p : t.one, lower ? t.one : c->in[2].p, t.two, t.work));
  struct triangle_args solve = { s.count, s.n, s.n, s.n, lower, lower, true, 0, -1 };
  TRY(cuda_triangle(c, "triangle_solve", solve, s.dtype, x, c->in[1].p, t.two));
  RUN(c, &s, "triangle_only", all, &x, &all, &s.n, &lower);
  return TY_OK;
}

/* -- tables ------------------------------------------------------------------------------------ */

enum { T_PIVOT = T_FLOAT | 1 << TY_I32 };
#define SOLVER .refuse = refuse_solver
#define PLANNED \
  .refuse = refuse_products, .scratch = back_bytes, .state = plans_size, .done = plans_done, \
  .flags = K_PRECISION
static const struct kernel dets[] = {
  { "cusolver", run_det, T_PIVOT, .scratch = det_scratch, SOLVER }, { 0 }
};
static const struct kernel dets_back[] = {
  { "cusolver", det_back, T_PIVOT, .scratch = det_back_scratch, SOLVER }, { 0 }
};
static const struct kernel inverses[] = {
  { "cusolver", run_inverse, T_FLOAT, .scratch = inverse_scratch, SOLVER }, { 0 }
};
static const struct kernel inverses_back[] = {
  { "cublaslt", inverse_back, T_FLOAT, PLANNED }, { 0 }
};
static const struct kernel lqs[] = {
  { "cusolver", run_gelqf, T_FLOAT, .scratch = gelqf_scratch, SOLVER }, { 0 }
};
static const struct kernel lqs_back[] = { { "cublaslt", gelqf_back, T_FLOAT, PLANNED }, { 0 } };
static const struct kernel eigens[] = {
  { "cusolver", run_syevd, T_FLOAT, .scratch = syevd_scratch, SOLVER }, { 0 }
};
static const struct kernel eigens_back[] = { { "cublaslt", syevd_back, T_FLOAT, PLANNED }, { 0 } };
static const struct kernel potri_backs[] = { { "cublaslt", potri_back, T_FLOAT, PLANNED }, { 0 } };

const struct op_kernels cuda_solve[] = {
  { "_linalg_det", dets, dets_back, DET },
  { "_linalg_slogdet", dets, dets_back, LOGARITHMS },
  { "_linalg_potri", cuda_potri, potri_backs, POTRI },
  { "_linalg_inverse", inverses, inverses_back, INVERSE },
  { "_linalg_gelqf", lqs, lqs_back, LQ },
  { "_linalg_syevd", eigens, eigens_back, EIGEN },
  { 0 }
};
