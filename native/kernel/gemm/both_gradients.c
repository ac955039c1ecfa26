/* both_gradients.c - both gradients of a product from one gradient that is in panels.
**
** G (m x n) is the left side of dX = G W and, turned, of dW = G^T X. A panel serves both as it
** is: across its columns for the first, along them for the second; nothing is packed again.
** One region makes all: cores that begin with dW keep X in their caches, those that begin with
** dX keep W.
*/
#include "kernel/gemm/inner.h"

struct both {
  const struct gemm_type *t;
  const struct gemm_both *g;
  size_t size;
  int64_t panels;                                     /* of G */
  int64_t wide;                                       /* columns of a result at a time */
  int64_t across;                                     /* how many times */
  int64_t height;                                     /* rows of a strip */
  int64_t turned;                                     /* tasks of dW, which come first */
};

static int64_t width_of(const struct both *b, int64_t columns)
{
  return columns > b->t->w ? b->t->nr : b->t->w;
}
static const void *panel_at(const struct both *b, int64_t i)
{
  return (const char *)b->g->g + (size_t)(i * b->t->nr * b->g->m) * b->size;
}

static void *element_at(const struct both *b, void *p, int64_t row, int64_t column)
{
  return (char *)p + (size_t)(row * b->g->k + column) * b->size;
}

/* Adds to dW: rows are the columns of panel i, the sum is over k rows of G from a given one on. */
static void turned_run(const struct both *b, int64_t i, int64_t column, int64_t from, int64_t k)
{
  const struct gemm_both *g = b->g;
  const int64_t nr = b->t->nr, cols = MIN(nr, g->n - i * nr);
  const int height = gemm_height(cols, b->t->mr);
  struct gemm_block x = { .m = cols,
    .n = MIN(b->wide, g->k - column),
    .k = k,
    .outer = 1,
    .from = from,
    .a = panel_at(b, i),
    .ars = 1,
    .acs = width_of(b, cols),
    .strip = height,
    .rows = height,
    .b = (const char *)g->x + (size_t)(column * g->m) * b->size,
    .panel = nr * g->m,
    .c = element_at(b, g->dw, i * nr, column),
    .ldc = g->k,
    .alpha = 1,
    .add = g->add_w || from };
  b->t->block(&x);
}

/* Adds to dW run by run of X: each serves all panels of a task. */
static void turned_panels(const struct both *b, int64_t first, int64_t end, int64_t column)
{
  const int64_t m = b->g->m, runs = (m + b->t->kc - 1) / b->t->kc, run = (m + runs - 1) / runs;
  for (int64_t from = 0; from < m; from += run)
    for (int64_t i = first; i < end; i++) turned_run(b, i, column, from, MIN(run, m - from));
}

static void sum_panel(const struct both *b, int64_t i)
{
  const int64_t nr = b->t->nr, cols = MIN(nr, b->g->n - i * nr);
  gemm_columns(b->t, b->size, b->g->m, cols, panel_at(b, i), width_of(b, cols),
      (char *)b->g->db + (size_t)(i * nr) * b->size, b->g->add_b);
}

/* Adds to some rows of dX the sum over panels first .. first + count - 1, of equal width. */
static void data_run(
    const struct both *b, int64_t row, int64_t column, int64_t first, int64_t count)
{
  const struct gemm_both *g = b->g;
  const int64_t nr = b->t->nr, cols = MIN(nr, g->n - first * nr), width = width_of(b, cols),
                from = first * nr;
  struct gemm_block x = { .m = MIN(GEMM_BOTH_STRIPS * b->height, g->m - row),
    .n = MIN(b->wide, g->k - column),
    .k = cols,
    .outer = count,
    .jump = nr * g->m - nr,
    .from = from,
    .ars = width,
    .acs = 1,
    .strip = b->height * width,
    .rows = (int)b->height,
    .panel = nr * g->n,
    .b = (const char *)g->w + (size_t)(column * g->n) * b->size,
    .c = element_at(b, g->dx, row, column),
    .ldc = g->k,
    .alpha = 1,
    .add = g->add_x || first };
  x.a = (const char *)panel_at(b, first) + (size_t)(row * width) * b->size - (size_t)from * b->size;
  b->t->block(&x);
}

static void data_rows(const struct both *b, int64_t row, int64_t column)
{
  const int64_t whole = b->g->n / b->t->nr, many = MAX(1, b->t->kc / b->t->nr);
  for (int64_t i = 0; i < whole; i += many) data_run(b, row, column, i, MIN(many, whole - i));
  if (whole < b->panels) data_run(b, row, column, whole, 1);
}

static void gradient_range(int64_t begin, int64_t end, void *context)
{
  const struct both *b = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t task = i - b->turned, groups = (b->panels + GEMM_BOTH_PANELS - 1) / GEMM_BOTH_PANELS,
            rows = GEMM_BOTH_STRIPS * b->height;
    int64_t down = (b->g->m + rows - 1) / rows;
    if (task >= 0) {
      data_rows(b, task % down * rows, task / down * b->wide);
      continue;
    }
    int64_t first = i % groups * GEMM_BOTH_PANELS, last = MIN(b->panels, first + GEMM_BOTH_PANELS);
    if (b->g->dw) turned_panels(b, first, last, i / groups * b->wide);
    for (int64_t p = first; b->g->db && i < groups && p < last; p++) sum_panel(b, p);
  }
}

void gemm_both(const struct gemm_both *g)
{
  const struct gemm_type *t = gemm_type(g->dtype);
  struct both b = { .t = t,
    .g = g,
    .size = dtype_size(g->dtype),
    .panels = (g->n + t->nr - 1) / t->nr,
    .height = gemm_height(g->m, t->mr) };
  int64_t columns = (g->k + t->nr - 1) / t->nr,
          fit = GEMM_CACHE / (t->kc * t->nr * (int64_t)b.size);
  b.across = (columns + fit - 1) / fit;
  b.wide = (columns + b.across - 1) / b.across * t->nr;
  b.across = (g->k + b.wide - 1) / b.wide;
  b.turned = g->dw || g->db
      ? (b.panels + GEMM_BOTH_PANELS - 1) / GEMM_BOTH_PANELS * (g->dw ? b.across : 1)
      : 0;
  int64_t rows = GEMM_BOTH_STRIPS * b.height,
          data_units = g->dx ? (g->m + rows - 1) / rows * b.across : 0;
  parallel_chunks_stoppable(b.turned + data_units, 1, gradient_range, &b);
}

void gemm_panel_row(int dtype, int64_t m, int64_t n, int64_t i, const void *row, void *panels)
{
  const struct gemm_type *t = gemm_type(dtype);
  const size_t size = dtype_size(dtype), line = 64;
  for (int64_t j = 0; j < n; j += t->nr) {
    int64_t cols = MIN(t->nr, n - j), width = cols > t->w ? t->nr : t->w;
    const char *from = (const char *)row + (size_t)j * size;
    char *to = (char *)panels + (size_t)(j * m + i * width) * size, *end = to + (size_t)cols * size;
    for (; to + line <= end; to += line, from += line) memcpy(to, from, line);
    memcpy(to, from, (size_t)(end - to));
  }
}
