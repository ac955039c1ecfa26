/* diagonals.c - linalg's extractdiag, makediag, extracttrian, maketrian, sumlogdiag, and khatri_rao
** (kernels/diagonal.cu). */
#include "cuda/row.h"

enum { DIAGONAL, TRIANGLE };
struct diagonal_args { int64_t n, k, side, offset; int32_t triangle, lower; };

static int64_t last_of(const ty_desc *d) { return d->dim[d->ndim - 1]; }

/* count: elements of the output */
struct move_args { int64_t count; struct diagonal_args at; };
static int64_t move_sizes(
    const struct call *c, const ty_desc *matrix, const ty_desc *packed, void *s)
{
  int64_t offset = (int64_t)cuda_number(c, "offset", 0), n = last_of(matrix);
  int64_t count = desc_count(&c->out[0].d);
  *(struct move_args *)s = (struct move_args){ count,
    { n, last_of(packed), n - (offset < 0 ? -offset : offset), offset, cuda_what(c) == TRIANGLE,
      offset ? offset < 0 : cuda_flag(c, "lower") } };
  return count;
}

/* Fills in the sizes; the matrix is input 0. */
static int64_t take_sizes(const struct call *c, void *s)
{
  return move_sizes(c, &c->in[0].d, &c->out[0].d, s);
}

static int64_t put_sizes(const struct call *c, void *s)
{
  return move_sizes(c, &c->out[0].d, &c->in[0].d, s);
}

struct log_args { int64_t count, n; };
static int64_t sum_log_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->in[0].d;
  int64_t n = last_of(d), matrices = desc_count(d) / (n * n);
  *(struct log_args *)s = (struct log_args){ matrices, n };
  return matrices * 32;
}

/* Fills in the sizes; in: head gradient, A. */
static int64_t sum_log_back_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->in[1].d;
  *(struct log_args *)s = (struct log_args){ desc_count(d), last_of(d) };
  return desc_count(d);
}

/* khatri_rao */
enum { MOST_FACTORS = 16 };
struct column_args { int64_t n, cols, count, rows[MOST_FACTORS]; const void *x[MOST_FACTORS]; };
static int64_t column_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->out[0].d;
  struct column_args *to = s;
  *to = (struct column_args){ desc_count(d), d->dim[1], c->nin };
  for (int i = 0; i < c->nin; i++) {
    to->rows[i] = c->in[i].d.dim[0];
    to->x[i] = c->in[i].p;
  }
  return to->n;
}
static const char *columns_refuse(const struct call *c)
{
  return c->nin > MOST_FACTORS ? "more than 16 factors" : NULL;
}

#define MOVE(table, kernel_, sizes) \
  static const struct kernel table[] = { \
    { "move", CUDA_ROW(FAMILY_diagonal, kernel_, "UNIT=#i0", "o0 i0 s0 s1", sizes), \
      .types = T_ANY }, { 0 } };
MOVE(takes, "take_packed", take_sizes)
MOVE(fills, "put_packed",  put_sizes)

#define NUMBERS(table, shown, kernel_, arguments, sizes, why) \
  static const struct kernel table[] = { \
    { shown, CUDA_ROW(FAMILY_diagonal, kernel_, "UNIT=u8 T=$i0 TEAM=32", arguments, sizes), \
      .types = T_FLOAT, .refuse = why }, { 0 } };
NUMBERS(sums,      "move",  "sum_log",         "o0 i0 s0 s1",    sum_log_sizes,      NULL)
NUMBERS(sums_back, "move",  "sum_log_back",    "o0 i0 i1 s0 s1", sum_log_back_sizes, NULL)
NUMBERS(products,  "loops", "column_products", "o0 s",           column_sizes, columns_refuse)

const struct op_kernels cuda_diagonals[] = {
  { "_linalg_extractdiag", takes, fills },
  { "_linalg_makediag", fills, takes },
  { "_linalg_extracttrian", takes, fills, TRIANGLE },
  { "_linalg_maketrian", fills, takes, TRIANGLE },
  { "_linalg_sumlogdiag", sums, sums_back },
  { "khatri_rao", products, NULL },
  { 0 }
};
