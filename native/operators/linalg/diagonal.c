/* diagonal.c - operators that copy diagonals and triangles: extractdiag, makediag, extracttrian,
** maketrian; and sumlogdiag.
**
** A packed row has a diagonal, or a triangle of side n - |offset|: a lower one row by row, an upper
** one column by column, so that the upper triangle of A is packed like the lower one of its
** transpose. offset > 0 is above the diagonal, < 0 below; at 0 `lower` says which triangle. The
** gradient of extracting is making, and the reverse.
*/
#include "op/op.h"
#include "operators/linalg/linalg.h"

struct diagonal_param {
  int64_t offset, lower;
  /* set by the check of extracttrian and maketrian: triangles instead of diagonals */
  bool is_triangle;
};
#define FIELD(f) offsetof(struct diagonal_param, f)
#define OFFSET_LINE \
  { "offset", P_INT, FIELD(offset), "0", \
    "distance from the main diagonal: above it, below if negative" }
static const struct param diag_params[] = { OFFSET_LINE, { 0 } };
static const struct param trian_params[] = {
  OFFSET_LINE,
  { "lower",  P_BOOL, FIELD(lower), "1", "with offset 0: the lower triangle, else the upper one" },
  { 0 }
};

/* most rows of a matrix, as in matrix_check */
enum { MOST = INT32_MAX / 64 };
static int diagonal_check(void *param)
{
  const struct diagonal_param *p = param;
  NEED(p->offset >= -MOST && p->offset <= MOST, TY_EVALUE,
      "parameter offset: expected %d to %d, got %lld", -MOST, MOST, (long long)p->offset);
  return TY_OK;
}

static int triangle_check(void *param)
{
  ((struct diagonal_param *)param)->is_triangle = true;
  return diagonal_check(param);
}

static int64_t size_of(int64_t offset) { return offset < 0 ? -offset : offset; }

/* -- shapes: matrix (..., n, n), packed (..., k) ----------------------------------------------- */

static int extract_shape(struct infer *s)
{
  const struct diagonal_param *p = s->param;
  ty_desc *a = &s->in[0];
  TRY(square_check(s, a));
  if (!a->ndim) return TY_OK;
  int last = a->ndim - 1;
  int64_t side = a->dim[last] - size_of(p->offset), dim[TY_MAXDIM];
  if (a->dim[last] && side <= 0)
    return infer_fail(s, TY_ESHAPE, a, "matrices of side %lld have no diagonal at offset %lld",
        (long long)a->dim[last], (long long)p->offset);
  memcpy(dim, a->dim, sizeof dim);
  dim[last - 1] = !a->dim[last] ? 0 : p->is_triangle ? side * (side + 1) / 2 : side;
  return shape_is(s, &s->out[0], last, dim);
}

/* Returns m with m (m + 1) / 2 = k; 0 if there is none. */
static int64_t side_of_triangle(int64_t k)
{
  int64_t m = (int64_t)((sqrt(8 * (double)k + 1) - 1) / 2 + 0.5);
  return m * (m + 1) / 2 == k ? m : 0;
}

static int make_shape(struct infer *s)
{
  const struct diagonal_param *p = s->param;
  ty_desc *a = &s->in[0];
  if (!a->ndim) return TY_OK;
  int last = a->ndim - 1;
  int64_t k = a->dim[last],
          side = p->is_triangle && k ? side_of_triangle(MIN(k, (int64_t)1 << 51)) : k,
          dim[TY_MAXDIM + 1];
  if (k && !side)
    return infer_fail(
        s, TY_ESHAPE, a, "%lld numbers do not fill a triangle: expected 1, 3, 6, 10 ...",
        (long long)k);
  if (side > MOST)
    return infer_fail(s, TY_ESHAPE, a, "a matrix of side %lld; at most %d", (long long)side, MOST);
  memcpy(dim, a->dim, sizeof a->dim);
  dim[last] = dim[last + 1] = k ? side + size_of(p->offset) : 0;
  return shape_is(s, &s->out[0], last + 2, dim);
}

/* -- moves ------------------------------------------------------------------------------------- */

struct diagonal_move {
  int64_t n, k, side, offset;
  bool trian, lower, extract;
  size_t size;
  const char *from;
  char *to;
};

static void move_one(
    const struct diagonal_move *j, int64_t i, int64_t packed, int64_t row, int64_t column)
{
  if (j->offset < 0)
    row -= j->offset;
  else
    column += j->offset;
  size_t p = (size_t)(i * j->k + packed) * j->size,
         m = (size_t)((i * j->n + row) * j->n + column) * j->size;
  memcpy(j->to + (j->extract ? p : m), j->from + (j->extract ? m : p), j->size);
}

static void write_range(int64_t begin, int64_t end, void *context)
{
  const struct diagonal_move *j = context;
  const size_t matrix = (size_t)(j->n * j->n) * j->size;
  if (!j->extract) memset(j->to + (size_t)begin * matrix, 0, (size_t)(end - begin) * matrix);
  for (int64_t i = begin; i < end; i++)
    for (int64_t a = 0; a < j->side; a++) {
      if (!j->trian)
        move_one(j, i, a, a, a);
      else
        for (int64_t b = 0; b <= a; b++)
          move_one(j, i, a * (a + 1) / 2 + b, j->lower ? a : b, j->lower ? b : a);
    }
}

static int move_diagonal(
    struct call *c, const struct operand *matrix, const struct operand *packed, bool extract)
{
  const struct diagonal_param *p = c->param;
  const int64_t n = column_count(&matrix->d), k = column_count(&packed->d);
  struct diagonal_move j = { n, k, n - size_of(p->offset), p->offset, p->is_triangle,
    p->offset ? p->offset < 0 : p->lower, extract, dtype_size(matrix->d.dtype), c->in[0].p,
    c->out[0].p };
  parallel_for(stack_count(&matrix->d), elements_ns(n * n), write_range, &j);
  return TY_OK;
}

static int extract_run(struct call *c)  { return move_diagonal(c, &c->in[0], &c->out[0], true); }
static int extract_back(struct call *c) { return move_diagonal(c, &c->out[0], &c->in[0], false); }
static int make_run(struct call *c)     { return move_diagonal(c, &c->out[0], &c->in[0], false); }
static int make_back(struct call *c)    { return move_diagonal(c, &c->in[0], &c->out[0], true); }

/* -- sumlogdiag -------------------------------------------------------------------------------- */

static int sumlog_shape(struct infer *s)
{
  ty_desc *a = &s->in[0];
  TRY(square_check(s, a));
  if (!a->ndim) return TY_OK;
  return a->ndim == 2 ? shape_is(s, &s->out[0], 1, (int64_t[]){ 1 })
                      : shape_is(s, &s->out[0], a->ndim - 2, a->dim);
}

static int sumlog_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  const int64_t n = column_count(d);
  for (int64_t i = 0; i < stack_count(d); i++) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += log(r->get(c->in[0].p, (i * n + k) * n + k));
    r->set(c->out[0].p, i, sum);
  }
  return TY_OK;
}

/* Computes the gradient. in: head gradient, A. */
static int sumlog_back(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  const int64_t n = column_count(d);
  memset(c->out[0].p, 0, desc_bytes(d));
  for (int64_t i = 0; i < stack_count(d) * n; i++) {
    int64_t at = i * n + i % n;
    r->set(c->out[0].p, at, r->get(c->in[0].p, i / n) / r->get(c->in[1].p, at));
  }
  return TY_OK;
}

/*                                              name     run           types */
static const struct kernel extract_cpu[]    = { { "move",  extract_run,  T_ANY }, { 0 } };
static const struct kernel extract_back_k[] = { { "move",  extract_back, T_ANY }, { 0 } };
static const struct kernel make_cpu[]       = { { "move",  make_run,     T_ANY }, { 0 } };
static const struct kernel make_back_k[]    = { { "move",  make_back,    T_ANY }, { 0 } };
static const struct kernel sumlog_cpu[]     = { { "loops", sumlog_run,   T_FLOAT }, { 0 } };
static const struct kernel sumlog_back_k[]  = { { "loops", sumlog_back,  T_FLOAT }, { 0 } };

#define DIAG \
  .in = "A", .out = "output", .param = diag_params, .param_size = sizeof(struct diagonal_param), \
  .check = diagonal_check
#define TRIAN \
  .in = "A", .out = "output", .param = trian_params, .param_size = sizeof(struct diagonal_param), \
  .check = triangle_check
#define EXTRACT .shape = extract_shape, .grad = "g0", .cpu = extract_cpu, .back_cpu = extract_back_k
#define MAKE    .shape = make_shape, .grad = "g0", .cpu = make_cpu, .back_cpu = make_back_k

const struct op op_diagonal[] = { {
  .name = "_linalg_extractdiag", .alias = "linalg_extractdiag", .back = "_backward_linalg_extractdiag",
  .doc = "Diagonals (..., n - |offset|) of matrices A (..., n, n). Gradient: puts them back among zeros.",
  DIAG, EXTRACT,
}, {
  .name = "_linalg_makediag", .alias = "linalg_makediag", .back = "_backward_linalg_makediag",
  .doc = "Matrices (..., k + |offset|, k + |offset|) of zeros with diagonals A (..., k). Gradient: takes them out.",
  DIAG, MAKE,
}, {
  .name = "_linalg_extracttrian", .alias = "linalg_extracttrian", .back = "_backward_linalg_extracttrian",
  .doc = "Triangles of side m = n - |offset| of matrices A (..., n, n), packed: (..., m (m + 1) / 2); lower ones row by row, upper ones "
         "column by column. Gradient: puts them back among zeros.",
  TRIAN, EXTRACT,
}, {
  .name = "_linalg_maketrian", .alias = "linalg_maketrian", .back = "_backward_linalg_maketrian",
  .doc = "Matrices (..., m + |offset|, m + |offset|) of zeros with the packed triangles A (..., m (m + 1) / 2). Gradient: takes them out.",
  TRIAN, MAKE,
}, {
  .name = "_linalg_sumlogdiag", .alias = "linalg_sumlogdiag", .back = "_backward_linalg_sumlogdiag",
  .doc = "Sums of the logarithms of the diagonals of matrices A (..., n, n): (...), (1,) for one matrix. Gradient: 1 / A on the diagonal.",
  .in = "A", .out = "output", .shape = sumlog_shape, .grad = "g0 i0", .cpu = sumlog_cpu, .back_cpu = sumlog_back_k,
}, { 0 } };
