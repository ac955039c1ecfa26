/* both_gradients.c - both gradients of a product from one gradient that is in panels.
**
** G (m x n) is the left side of dX = G W and, transposed, of dW = G^T X. Both read its panels as
** they are: the first across their columns, the second along them; nothing is packed again. One
** parallel region computes both: threads that begin with dW keep X in their caches, those that
** begin with dX keep W.
*/
#include "kernel/gemm/inner.h"

struct both {
  const struct gemm_type *t;
  const struct gemm_both *g;
  size_t size;
  int64_t panels;                                     /* of G */
  int64_t part_columns;                               /* columns of dX or dW at a time */
  int64_t parts;                                      /* of that many columns */
  int64_t height;                                     /* rows of a strip */
  int64_t weight_tasks;                               /* tasks of dW and db, which come first */
};

/* Returns the columns of a panel, with its padding, that holds `columns`. */
static int64_t both_get_panel_width(const struct both *b, int64_t columns)
{
  return columns > b->t->w ? b->t->nr : b->t->w;
}
static const void *both_find_panel(const struct both *b, int64_t i)
{
  return (const char *)b->g->g + (size_t)(i * b->t->nr * b->g->m) * b->size;
}

static void *both_find_element(const struct both *b, void *p, int64_t row, int64_t column)
{
  return (char *)p + (size_t)(row * b->g->k + column) * b->size;
}

/* Adds k rows of G and X, from row `from` on, to the rows of dW that panel i of G has as
** columns. */
static void both_add_weight_run(
    const struct both *b, int64_t i, int64_t column, int64_t from, int64_t k)
{
  const struct gemm_both *g = b->g;
  const int64_t nr = b->t->nr, cols = MIN(nr, g->n - i * nr);
  const int height = gemm_height(cols, b->t->mr);
  struct gemm_block x = { .m = cols,
    .n = MIN(b->part_columns, g->k - column),
    .k = k,
    .outer = 1,
    .from = from,
    .a = both_find_panel(b, i),
    .ars = 1,
    .acs = both_get_panel_width(b, cols),
    .strip = height,
    .rows = height,
    .b = (const char *)g->x + (size_t)(column * g->m) * b->size,
    .panel = nr * g->m,
    .c = both_find_element(b, g->dw, i * nr, column),
    .ldc = g->k,
    .alpha = 1,
    .add = g->add_w || from };
  b->t->block(&x);
}

/* Adds to dW what panels first .. end - 1 contribute, one run of rows of X after the other, which
** stays in the cache for all of them. */
static void both_add_weight_panels(const struct both *b, int64_t first, int64_t end, int64_t column)
{
  const int64_t m = b->g->m, runs = (m + b->t->kc - 1) / b->t->kc, run = (m + runs - 1) / runs;
  for (int64_t from = 0; from < m; from += run)
    for (int64_t i = first; i < end; i++)
      both_add_weight_run(b, i, column, from, MIN(run, m - from));
}

/* Computes the part of db that belongs to panel i. */
static void both_sum_panel(const struct both *b, int64_t i)
{
  const int64_t nr = b->t->nr, cols = MIN(nr, b->g->n - i * nr);
  gemm_columns(b->t, b->size, b->g->m, cols, both_find_panel(b, i), both_get_panel_width(b, cols),
      (char *)b->g->db + (size_t)(i * nr) * b->size, b->g->add_b);
}

/* Adds to some rows of dX the sum over panels first .. first + count - 1, of equal width. */
static void both_add_data_run(
    const struct both *b, int64_t row, int64_t column, int64_t first, int64_t count)
{
  const struct gemm_both *g = b->g;
  const int64_t nr = b->t->nr, cols = MIN(nr, g->n - first * nr),
                width = both_get_panel_width(b, cols), from = first * nr;
  struct gemm_block x = { .m = MIN(GEMM_BOTH_STRIPS * b->height, g->m - row),
    .n = MIN(b->part_columns, g->k - column),
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
    .c = both_find_element(b, g->dx, row, column),
    .ldc = g->k,
    .alpha = 1,
    .add = g->add_x || first };
  x.a = (const char *)both_find_panel(b, first) + (size_t)(row * width) * b->size -
      (size_t)from * b->size;
  b->t->block(&x);
}

/* Computes a unit of dX: as many panels at a time as a run of the sum has steps; the last panel of
** G, which may be narrower, is one of its own. */
static void both_add_data_rows(const struct both *b, int64_t row, int64_t column)
{
  const int64_t whole = b->g->n / b->t->nr, many = MAX(1, b->t->kc / b->t->nr);
  for (int64_t i = 0; i < whole; i += many)
    both_add_data_run(b, row, column, i, MIN(many, whole - i));
  if (whole < b->panels) both_add_data_run(b, row, column, whole, 1);
}

static void both_run_range(int64_t begin, int64_t end, void *context)
{
  const struct both *b = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t task = i - b->weight_tasks,
            groups = (b->panels + GEMM_BOTH_PANELS - 1) / GEMM_BOTH_PANELS,
            rows = GEMM_BOTH_STRIPS * b->height;
    int64_t down = (b->g->m + rows - 1) / rows;
    if (task >= 0) {
      both_add_data_rows(b, task % down * rows, task / down * b->part_columns);
      continue;
    }
    int64_t first = i % groups * GEMM_BOTH_PANELS, last = MIN(b->panels, first + GEMM_BOTH_PANELS);
    if (b->g->dw) both_add_weight_panels(b, first, last, i / groups * b->part_columns);
    for (int64_t p = first; b->g->db && i < groups && p < last; p++) both_sum_panel(b, p);
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
          fitting = GEMM_CACHE / (t->kc * t->nr * (int64_t)b.size);
  b.parts = (columns + fitting - 1) / fitting;
  b.part_columns = (columns + b.parts - 1) / b.parts * t->nr;
  b.parts = (g->k + b.part_columns - 1) / b.part_columns;
  b.weight_tasks = g->dw || g->db
      ? (b.panels + GEMM_BOTH_PANELS - 1) / GEMM_BOTH_PANELS * (g->dw ? b.parts : 1)
      : 0;
  int64_t rows = GEMM_BOTH_STRIPS * b.height,
          data_units = g->dx ? (g->m + rows - 1) / rows * b.parts : 0;
  parallel_chunks_stoppable(b.weight_tasks + data_units, 1, both_run_range, &b);
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
