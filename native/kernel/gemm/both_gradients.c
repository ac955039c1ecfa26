/* both_gradients.c - both gradients of a product Y = X W^T, from the gradient of Y in parts.
**
** That gradient, G (m x n), is the left side of dX = G W and, transposed, of dW = G^T X. It never
** exists as a whole: a block of it is computed as panels, which stay in a core's own cache, where
** both products read them, the first across the panels' columns, the second along them. A core
** takes slabs of columns with all rows: a slab gives its rows of dW and its sums for db, and adds
** its part of dX to that of its group. Each group of slabs has a dX; they are added in order at the
** end. So sums depend on the shape alone, and the core that wrote a block reads it.
*/
#include "kernel/gemm/inner.h"

/* How a pair of gradients is cut. */
struct both_plan {
  const struct gemm_type *t;
  int64_t rows;                                       /* rows of X whose panels are made at once */
  int64_t block;                                      /* rows of a block of G */
  int64_t columns;                                    /* columns of a slab and of a block */
  int64_t slabs;                                      /* slabs of a group */
  int64_t groups;
  size_t sum;                                         /* bytes of a group's dX */
  size_t x;                                           /* bytes of X's panels */
  size_t g;                                           /* bytes of a block */
  size_t w;                                           /* bytes of a slab's panels of W */
};

/* Returns the columns of a block, at most: more where it has few rows, as long as there are slabs
** for all groups. */
static int64_t both_choose_columns(int64_t rows, int64_t n)
{
  const int64_t fit = GEMM_BOTH_ROWS * GEMM_BOTH_COLUMNS / MAX(rows, 1),
                share = MAX(n / GEMM_BOTH_GROUPS, GEMM_BOTH_COLUMNS);
  return MIN(MIN(fit, share), GEMM_BOTH_WIDE) / GEMM_BOTH_UNIT * GEMM_BOTH_UNIT;
}

/* Returns how a pair of gradients of that shape is cut. */
static struct both_plan both_make_plan(int dtype, int64_t m, int64_t n, int64_t k)
{
  struct both_plan p = { .t = gemm_type(dtype) };
  const int64_t size = (int64_t)dtype_size(dtype);
  p.rows = gemm_size_equal_parts(
      m, MAX(GEMM_BOTH_DATA / (MAX(k, 1) * size), GEMM_BOTH_LEAST), 1);
  p.block = gemm_size_equal_parts(p.rows, GEMM_BOTH_ROWS, 1);
  p.columns = MIN(n, gemm_size_equal_parts(n, both_choose_columns(p.block, n), GEMM_BOTH_UNIT));
  const int64_t slabs = (n + p.columns - 1) / p.columns;
  p.slabs = (slabs + GEMM_BOTH_GROUPS - 1) / GEMM_BOTH_GROUPS;
  p.groups = (slabs + p.slabs - 1) / p.slabs;
  p.sum = align_up((size_t)(p.rows * k * size), ALIGN);
  p.x = align_up(gemm_pack_bytes(dtype, k, p.rows), ALIGN);
  p.g = align_up(gemm_pack_bytes(dtype, p.columns, p.block), ALIGN);
  p.w = align_up(gemm_pack_bytes(dtype, k, p.columns), ALIGN);
  return p;
}

size_t gemm_both_bytes(int dtype, int64_t m, int64_t n, int64_t k)
{
  const struct both_plan p = both_make_plan(dtype, m, n, k);
  return p.x + (size_t)(p.groups - 1) * p.sum + (size_t)parallel_threads() * (p.g + p.w);
}

/* A call, and the rows of X that are in panels. */
struct both {
  const struct gemm_both *g;
  struct both_plan p;
  size_t size;                                        /* bytes of an element */
  int64_t row;                                        /* the first of `m` rows of X in panels */
  int64_t m;
  int64_t part_columns;                               /* columns of dX or dW at a time */
  char *x;                                            /* panels of X */
  char *sums;                                         /* dX of groups 1 and on */
  char *own;                                          /* a block and panels of W for each core */
};

/* A block of G. */
struct both_block {
  int64_t row, m;                                     /* rows, from the first one in panels */
  int64_t column, n;                                  /* columns of G */
  char *g;                                            /* its panels */
  const char *w;                                      /* panels of W's rows column .. */
  char *dx;                                           /* the group's, rows as in panels of X */
  bool add_x;                                         /* adds to dx */
};

/* Returns the columns of a panel, with its padding, that holds `columns`. */
static int64_t both_get_panel_width(const struct both *b, int64_t columns)
{
  return columns > b->p.t->w ? b->p.t->nr : b->p.t->w;
}

static char *both_find_panel(const struct both *b, const struct both_block *o, int64_t i)
{
  return o->g + (size_t)(i * b->p.t->nr * o->m) * b->size;
}

static void *both_find_element(const struct both *b, void *p, int64_t row, int64_t column)
{
  return (char *)p + (size_t)(row * b->g->k + column) * b->size;
}

/* Adds k rows of a block and of X, from row `from` of the block on, to the rows of dW that panel i
** of the block has as columns. */
static void both_add_weight_run(const struct both *b, const struct both_block *o, int64_t i,
    int64_t column, int64_t from, int64_t k)
{
  const struct gemm_both *g = b->g;
  const int64_t nr = b->p.t->nr, cols = MIN(nr, o->n - i * nr),
                width = both_get_panel_width(b, cols);
  const int height = gemm_height(cols, b->p.t->mr);
  struct gemm_block x = { .m = cols,
    .n = MIN(b->part_columns, g->k - column),
    .k = k,
    .outer = 1,
    .from = o->row + from,
    .a = both_find_panel(b, o, i) - (size_t)(o->row * width) * b->size,
    .ars = 1,
    .acs = width,
    .strip = height,
    .rows = height,
    .b = b->x + (size_t)(column * b->m) * b->size,
    .panel = nr * b->m,
    .c = both_find_element(b, g->dw, o->column + i * nr, column),
    .ldc = g->k,
    .alpha = 1,
    .add = g->add_w || b->row || o->row || from };
  b->p.t->block(&x);
}

/* Adds to dW what a block contributes, one run of rows of X after the other, which stays in the
** cache for all panels of the block. */
static void both_add_weight(const struct both *b, const struct both_block *o)
{
  const int64_t run = gemm_size_equal_parts(o->m, b->p.t->kc, 1), nr = b->p.t->nr;
  for (int64_t column = 0; column < b->g->k; column += b->part_columns)
    for (int64_t from = 0; from < o->m; from += run)
      for (int64_t i = 0; i * nr < o->n; i++)
        both_add_weight_run(b, o, i, column, from, MIN(run, o->m - from));
}

/* Adds to the group's dX the sum over panels first .. first + count - 1 of a block, of equal
** width. */
static void both_add_data_run(const struct both *b, const struct both_block *o, int64_t column,
    int64_t first, int64_t count)
{
  const struct gemm_both *g = b->g;
  const int64_t nr = b->p.t->nr, cols = MIN(nr, o->n - first * nr),
                width = both_get_panel_width(b, cols), from = first * nr;
  const int height = gemm_height(o->m, b->p.t->mr);
  struct gemm_block x = { .m = o->m,
    .n = MIN(b->part_columns, g->k - column),
    .k = cols,
    .outer = count,
    .jump = nr * o->m - nr,
    .from = from,
    .a = both_find_panel(b, o, first) - (size_t)from * b->size,
    .ars = width,
    .acs = 1,
    .strip = height * width,
    .rows = height,
    .b = o->w + (size_t)(column * o->n) * b->size,
    .panel = nr * o->n,
    .c = both_find_element(b, o->dx, o->row, column),
    .ldc = g->k,
    .alpha = 1,
    .add = o->add_x || first };
  b->p.t->block(&x);
}

/* Adds to the group's dX what a block contributes: as many panels at a time as a run of the sum has
** steps; the last panel, which may be narrower, is one of its own. */
static void both_add_data(const struct both *b, const struct both_block *o)
{
  const int64_t nr = b->p.t->nr, whole = o->n / nr, many = MAX(1, b->p.t->kc / nr);
  for (int64_t column = 0; column < b->g->k; column += b->part_columns) {
    for (int64_t i = 0; i < whole; i += many)
      both_add_data_run(b, o, column, i, MIN(many, whole - i));
    if (whole * nr < o->n) both_add_data_run(b, o, column, whole, 1);
  }
}

/* Adds to db the sums of a block's columns. */
static void both_add_bias(const struct both *b, const struct both_block *o)
{
  const int64_t nr = b->p.t->nr;
  for (int64_t i = 0; i * nr < o->n; i++) {
    const int64_t cols = MIN(nr, o->n - i * nr);
    gemm_columns(b->p.t, b->size, o->m, cols, both_find_panel(b, o, i),
        both_get_panel_width(b, cols),
        (char *)b->g->db + (size_t)(o->column + i * nr) * b->size,
        b->g->add_b || b->row || o->row);
  }
}

/* Writes row i of a block into its panels. */
static void both_write_row(const struct both *b, const struct both_block *o, int64_t i,
    const char *from)
{
  const size_t line = 64;
  for (int64_t j = 0; j < o->n; j += b->p.t->nr) {
    const int64_t cols = MIN(b->p.t->nr, o->n - j), width = both_get_panel_width(b, cols);
    char *to = o->g + (size_t)(j * o->m + i * width) * b->size,
         *end = to + (size_t)cols * b->size;
    for (; to + line <= end; to += line, from += line) memcpy(to, from, line);
    memcpy(to, from, (size_t)(end - to));
    from += end - to;
  }
}

/* Adds what columns o->column .. of G contribute. w: where their panels of W go. */
static void both_run_slab(const struct both *b, struct both_block *o, void *w)
{
  const struct gemm_both *g = b->g;
  double part[GEMM_BOTH_WIDE];
  if (g->dx)
    gemm_pack(g->dtype, false, g->k, o->n, both_find_element(b, (void *)g->w, o->column, 0), g->k,
        w);
  for (o->row = 0; o->row < b->m; o->row += o->m) {
    o->m = MIN(b->p.block, b->m - o->row);
    for (int64_t i = 0; i < o->m; i++) {
      g->fill(g->context, b->row + o->row + i, o->column, o->n, part);
      both_write_row(b, o, i, (const char *)part);
    }
    if (g->dw) both_add_weight(b, o);
    if (g->db) both_add_bias(b, o);
    if (g->dx) both_add_data(b, o);
  }
}

static void both_run_groups(int64_t begin, int64_t end, void *context)
{
  const struct both *b = context;
  const struct gemm_both *g = b->g;
  char *own = b->own + (size_t)parallel_index() * (b->p.g + b->p.w), *w = own + b->p.g;
  for (int64_t i = begin; i < end; i++) {
    struct both_block o = { .g = own, .w = w, .add_x = !i && g->add_x };
    if (i)
      o.dx = b->sums + (size_t)(i - 1) * b->p.sum;
    else if (g->dx)
      o.dx = both_find_element(b, g->dx, b->row, 0);
    for (int64_t s = 0; s < b->p.slabs && !stop_wanted(); s++) {
      o.column = (i * b->p.slabs + s) * b->p.columns;
      if (o.column >= g->n) break;
      o.n = MIN(b->p.columns, g->n - o.column);
      both_run_slab(b, &o, w);
      o.add_x = true;
    }
  }
}

/* Adds the groups' parts of dX to it, in order. */
static void both_add_groups(int64_t begin, int64_t end, void *context)
{
  const struct both *b = context;
  char *dx = both_find_element(b, b->g->dx, b->row, 0);
  for (int64_t i = begin; i < end; i += GEMM_SUM_COLUMNS)
    for (int64_t j = 0; j < b->p.groups - 1; j++)
      b->p.t->axpy(MIN(GEMM_SUM_COLUMNS, end - i), 1,
          b->sums + (size_t)j * b->p.sum + (size_t)i * b->size, 1, dx + (size_t)i * b->size);
}

void gemm_both(const struct gemm_both *g)
{
  struct both b = { .g = g,
    .p = both_make_plan(g->dtype, g->m, g->n, g->k),
    .size = dtype_size(g->dtype),
    .x = g->tmp };
  const int64_t nr = b.p.t->nr;
  b.part_columns = gemm_size_equal_parts(
      g->k, GEMM_CACHE / (b.p.t->kc * nr * (int64_t)b.size) * nr, nr);
  b.sums = b.x + b.p.x;
  b.own = b.sums + (size_t)(b.p.groups - 1) * b.p.sum;
  for (; b.row < g->m && !stop_wanted(); b.row += b.m) {
    b.m = MIN(b.p.rows, g->m - b.row);
    if (g->dw)
      gemm_pack(g->dtype, false, g->k, b.m, both_find_element(&b, (void *)g->x, b.row, 0), g->k,
          b.x);
    parallel_chunks_stoppable(b.p.groups, 1, both_run_groups, &b);
    if (g->dx && b.p.groups > 1)
      parallel_for(b.m * g->k, GEMM_ADD_NS * (double)(b.p.groups - 1), both_add_groups, &b);
  }
}
