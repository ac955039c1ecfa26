/* diagonals.c - linalg's extractdiag, makediag, extracttrian, maketrian, sumlogdiag, and khatri_rao
** (kernels/diagonal.cu). */
#include "cuda/family.h"

enum { DIAGONAL, TRIANGLE };
struct diagonal_args { int64_t n, k, side, offset; int32_t triangle, lower; };

static int64_t last_of(const ty_desc *d) { return d->dim[d->ndim - 1]; }

static int move_diagonal(
    const struct call *c, const ty_desc *matrix, const ty_desc *packed, bool take)
{
  int64_t offset = (int64_t)cuda_number(c, "offset", 0), n = last_of(matrix);
  struct diagonal_args s = { n, last_of(packed), n - (offset < 0 ? -offset : offset), offset,
    cuda_what(c) == TRIANGLE, offset ? offset < 0 : cuda_flag(c, "lower") };
  int64_t count = desc_count(take ? packed : matrix);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_diagonal, take ? "take_packed" : "put_packed", &f, "UNIT=%s",
      cuda_unit(dtype_size(matrix->dtype))));
  void *params[] = { &c->out[0].p, &c->in[0].p, &count, &s };
  return cuda_run(c, f, count, params);
}

static int extract_diagonal(struct call *c)
{
  return move_diagonal(c, &c->in[0].d, &c->out[0].d, true);
}

static int extract_back(struct call *c)
{
  return move_diagonal(c, &c->out[0].d, &c->in[0].d, false);
}

static int make_diagonal(struct call *c)
{
  return move_diagonal(c, &c->out[0].d, &c->in[0].d, false);
}

static int make_back(struct call *c)
{
  return move_diagonal(c, &c->in[0].d, &c->out[0].d, true);
}

static int sum_log(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t n = last_of(d), matrices = desc_count(d) / (n * n);
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_diagonal, "sum_log", &f, "UNIT=u8 T=%s TEAM=32",
      cuda_type(d->dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &matrices, &n };
  return cuda_run(c, f, matrices * 32, params);
}

/* in: head gradient, A */
static int sum_log_back(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  int64_t n = last_of(d), count = desc_count(d);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_diagonal, "sum_log_back", &f, "UNIT=u8 T=%s TEAM=32",
      cuda_type(d->dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &count, &n };
  return cuda_run(c, f, count, params);
}

/* khatri_rao */
enum { MOST_FACTORS = 16 };
struct column_args { int64_t n, cols, count, rows[MOST_FACTORS]; const void *x[MOST_FACTORS]; };
static int multiply_columns(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  struct column_args s = { desc_count(d), d->dim[1], c->nin };
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  for (int i = 0; i < c->nin; i++) {
    s.rows[i] = c->in[i].d.dim[0];
    s.x[i] = c->in[i].p;
  }
  TRY(cuda_family(c->device, FAMILY_diagonal, "column_products", &f, "UNIT=u8 T=%s TEAM=32",
      cuda_type(d->dtype)));
  void *params[] = { &c->out[0].p, &s };
  return cuda_run(c, f, s.n, params);
}
static const char *columns_refuse(const struct call *c)
{
  return c->nin > MOST_FACTORS ? "more than 16 factors" : NULL;
}

#define KERNEL(table, run, types) \
  static const struct kernel table[] = { { "move", run, types }, { 0 } };
KERNEL(extracts, extract_diagonal, T_ANY)
KERNEL(extracts_back, extract_back, T_ANY)
KERNEL(makes, make_diagonal, T_ANY)
KERNEL(makes_back, make_back, T_ANY)
KERNEL(sums, sum_log, T_FLOAT)
KERNEL(sums_back, sum_log_back, T_FLOAT)
static const struct kernel products[] = {
  { "loops", multiply_columns, T_FLOAT, columns_refuse }, { 0 }
};

const struct op_kernels cuda_diagonals[] = {
  { "_linalg_extractdiag", extracts, extracts_back },
  { "_linalg_makediag", makes, makes_back },
  { "_linalg_extracttrian", extracts, extracts_back, TRIANGLE },
  { "_linalg_maketrian", makes, makes_back, TRIANGLE },
  { "_linalg_sumlogdiag", sums, sums_back },
  { "khatri_rao", products, NULL },
  { 0 }
};
