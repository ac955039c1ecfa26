/* reduce.c - walks the shape of a reduction (reduce.h).
**
** Neighbouring axes that are both kept or both reduced are joined into groups, which alternate
** between kept and reduced. If the last group is reduced, results are sums of rows: the kernel
** takes many rows at a time along the last kept group. Else they are sums of columns: the kernel
** takes many rows of a matrix whose columns are results. A unit of work is a block of neighbouring
** results, so that every result is written once and its elements are reduced in one order. If there
** are too few results for all threads, one reduced group is split into parts, which are reduced
** separately and then merged in order. */
#include "kernel/primitives.h"
#include "kernel/reduce/reduce.h"
#include "kernel/reduce/tuning.h"

/* -- the plan ---------------------------------------------------------------------------------- */

static void reduce_join_groups(int n, const int64_t *dim, uint32_t axes, struct reduce *r)
{
  bool last = false;
  for (int i = 0; i < n; i++) {
    bool reduced = axes >> i & 1;
    r->in *= dim[i];
    if (dim[i] == 1) continue;
    if (r->n && reduced == last)
      r->dim[r->n - 1] *= dim[i];
    else
      r->to[r->n] = !reduced, r->dim[r->n++] = dim[i];
    last = reduced;
  }
  if (!r->n) r->dim[r->n++] = 1, last = true; /* there is a single element */
  r->inner = last;
}

/* Splits the outermost reduced group that is long enough; if that is the last group, into parts of
** at least REDUCE_PART_ROW elements. */
static void reduce_cut_parts(struct reduce *r)
{
  r->parts = MIN(MIN(REDUCE_PARTS, r->in / (2 * REDUCE_GRAIN)), r->count / REDUCE_PART_DEPTH);
  r->split = -1;
  for (int i = 0; i < r->n && r->split < 0 && r->parts > 1; i++) {
    int64_t most = r->inner && i == r->n - 1 ? r->dim[i] / REDUCE_PART_ROW : r->dim[i];
    if (!r->to[i] && most >= MIN(r->parts, 8)) r->split = i, r->parts = MIN(r->parts, most);
  }
  if (r->split < 0 || r->out >= 8 * REDUCE_UNIT_RESULTS) r->parts = 1;
}

void reduce_plan_axes(int dtype, int n, const int64_t *dim, uint32_t axes, struct reduce *r)
{
  r->dtype = r->result = dtype;
  r->n = 0; /* the arrays are set only for existing groups */
  r->in = r->out = 1;
  reduce_join_groups(n, dim, axes, r);
  int64_t from = 1;
  for (int i = r->n - 1; i >= 0; i--) {
    r->from[i] = from;
    from *= r->dim[i];
    if (r->to[i]) r->to[i] = r->out, r->out *= r->dim[i];
  }
  r->count = r->in / MAX(r->out, 1);
  reduce_cut_parts(r);
}

void reduce_plan(const ty_desc *d, uint32_t axes, struct reduce *r)
{
  reduce_plan_axes(d->dtype, d->ndim, d->dim, axes, r);
}

void reduce_plan_to(const ty_desc *d, const ty_desc *to, struct reduce *r)
{
  uint32_t axes = 0;
  for (int i = 0; i < d->ndim; i++) {
    const int k = i - d->ndim + to->ndim;
    if (k < 0 || to->dim[k] == 1) axes |= 1u << i;
  }
  reduce_plan(d, axes, r);
}

size_t reduce_scratch(const struct reduce *r)
{
  return r->parts > 1 ? sizeof(accumulator) * (size_t)(r->parts * r->out) : 0;
}

/* -- reduction --------------------------------------------------------------------------------- */

struct reduction {
  const struct reduce *r;
  const struct reducer *table;
  int kind, finish;
  const char *x, *centre;
  char *y;
  size_t size;                                        /* bytes of an element of x */
  bool add;
  accumulator *part;                                  /* parts x results; NULL: results go to y */
  /* the group along which blocks are cut: the last kept one; -1: none */
  int block;
  /* results of a block */
  int64_t side;
  /* blocks along the group */
  int64_t blocks;
};

/* Reduces the block of `n` results that begins at element `x`: loops over all combinations of
** indices of the reduced groups, except the group that the kernel reduces itself. */
static void reduce_block(const struct reduction *j, const int64_t dim[], const char *x,
    const void *centre, accumulator *acc, int64_t n)
{
  const struct reduce *r = j->r;
  int own = r->inner ? r->n - 1 : r->n - 2, axis[R_AXES], k = 0;
  int64_t combos = 1;
  for (int i = 0; i < r->n; i++)
    if (!r->to[i] && i != own) axis[k++] = i, combos *= dim[i];
  for (int64_t c = 0; c < combos; c++) {
    int64_t at = 0, rest = c;
    for (int i = k - 1; i >= 0; rest /= dim[axis[i]], i--)
      at += rest % dim[axis[i]] * r->from[axis[i]];
    const char *from = x + at * (int64_t)j->size;
    if (r->inner)
      reducer_rows(r->dtype, j->kind, acc, from, centre, n,
          j->block < 0 ? 0 : r->from[j->block], dim[own]);
    else if (own < 0)
      reducer_cols(r->dtype, j->kind, acc, from, centre, 1, n, n);
    else
      reducer_cols(r->dtype, j->kind, acc, from, centre, dim[own], r->from[own], n);
  }
}

/* Finds the first element and the first result of block u. Returns its length. */
static int64_t reduce_locate_block(const struct reduction *j, int64_t u, int64_t *from, int64_t *to)
{
  const struct reduce *r = j->r;
  *from = *to = 0;
  if (j->block < 0) return 1;
  int64_t i = u % j->blocks * j->side, n = MIN(j->side, r->dim[j->block] - i), rest = u / j->blocks;
  *from = i * r->from[j->block];
  *to = i * r->to[j->block];
  for (int g = j->block - 1; g >= 0; g--) {
    if (!r->to[g]) continue;
    *from += rest % r->dim[g] * r->from[g];
    *to += rest % r->dim[g] * r->to[g];
    rest /= r->dim[g];
  }
  return n;
}

/* Writes results `to` .. to + n - 1 from their accumulators. If integers become floats, the
** accumulators are converted in place. */
static void reduce_store_results(const struct reduction *j, accumulator *acc, int64_t to, int64_t n)
{
  const int dtype = j->r->result;
  if (dtype_float(dtype) && !dtype_float(j->r->dtype))
    for (int64_t i = 0; i < n; i++) acc[i].f = (double)acc[i].i;
  reducer_store(
      dtype, j->y + to * (int64_t)dtype_size(dtype), acc, j->finish, j->r->count, j->add, n);
}

/* Returns the start of a part, in elements of the split group; if parts are long, a multiple of 8,
** since eights are reduced at once. */
static int64_t reduce_find_part(const struct reduce *r, int64_t part)
{
  int64_t n = r->dim[r->split], at = n * part / r->parts;
  return part < r->parts && n / r->parts >= 16 ? at / 8 * 8 : at;
}

static void reduce_range(int64_t begin, int64_t end, void *context)
{
  const struct reduction *j = context;
  const struct reduce *r = j->r;
  accumulator local[REDUCE_MAX_COLUMNS];
  int64_t dim[R_AXES], units = r->out / (j->block < 0 ? 1 : r->dim[j->block]) * j->blocks;
  memcpy(dim, r->dim, sizeof dim);
  for (int64_t u = begin; u < end; u++) {
    int64_t from, to, part = u / units, n = reduce_locate_block(j, u % units, &from, &to);
    if (r->parts > 1) {
      int64_t a = reduce_find_part(r, part), b = reduce_find_part(r, part + 1);
      dim[r->split] = b - a;
      from += a * r->from[r->split];
    }
    accumulator *acc = j->part ? j->part + part * r->out + to : local;
    j->table->start(acc, j->kind, n);
    reduce_block(j, dim, j->x + from * (int64_t)j->size,
        j->centre ? j->centre + to * (int64_t)j->size : NULL, acc, n);
    if (!j->part) reduce_store_results(j, acc, to, n);
  }
}

static void reduce_merge_range(int64_t begin, int64_t end, void *context)
{
  const struct reduction *j = context;
  const struct reduce *r = j->r;
  for (int64_t p = 1; p < r->parts; p++)
    j->table->merge[j->kind](j->part + begin, j->part + p * r->out + begin, end - begin);
  reduce_store_results(j, j->part + begin, begin, end - begin);
}

/* Chooses blocks of equal length, each with enough work for a thread. Blocks of columns are whole
** vectors and wide, since neighbours in memory arrive faster than the next row. */
static void reduce_choose_side(struct reduction *j)
{
  const struct reduce *r = j->r;
  int64_t n = r->dim[j->block], each = r->inner ? r->dim[r->n - 1] : r->count / r->parts;
  int64_t least = r->inner
      ? 1
      : MAX(REDUCE_MIN_COLUMNS, MIN(REDUCE_MAX_COLUMNS, n * r->parts / REDUCE_UNITS));
  int64_t most = MAX(least, MIN(REDUCE_UNIT_RESULTS, REDUCE_GRAIN / MAX(each, 1)));
  j->blocks = MAX(1, (n + most - 1) / most);
  j->side = MAX(1, (n + j->blocks - 1) / j->blocks);
  if (!r->inner) j->side = (j->side + 15) / 16 * 16;
  j->blocks = (n + j->side - 1) / j->side;
}

void reduce_run(const struct reduce *r, int kind, int finish, const void *x, const void *centre,
    void *y, bool add, void *tmp)
{
  struct reduction j = { r, reducer_of(r->dtype), kind, finish, x, centre, y, dtype_size(r->dtype),
    add, r->parts > 1 ? tmp : NULL, -1, 1, 1 };
  for (int i = 0; i < r->n; i++)
    if (r->to[i]) j.block = i;
  if (j.block >= 0) reduce_choose_side(&j);
  int64_t units = r->out / (j.block < 0 ? 1 : r->dim[j.block]) * j.blocks;
  int64_t cost = r->count * j.side / r->parts;
  const bool serial = kind == R_SUM && r->in <= REDUCE_SERIAL_SUM;
  parallel_chunks_stoppable(units * r->parts,
      serial ? units * r->parts : MAX(1, REDUCE_GRAIN / MAX(cost, 1)), reduce_range, &j);
  if (j.part) parallel_chunks_stoppable(r->out, REDUCE_GRAIN / r->parts, reduce_merge_range, &j);
}

/* -- gradients --------------------------------------------------------------------------------- */

struct reduction_gradient {
  const struct reduce *r;
  int kind;
  char *dx;
  const char *x, *y, *g, *h;
  double scale;
  size_t size;
  int64_t height, width;                              /* size of a plane, the last two groups */
  int64_t tall, wide;                                 /* size of a unit */
  int64_t rows;                                       /* units down a plane */
  int64_t pieces;                                     /* units across a plane */
};

static const char *reduce_step_pointer(const char *p, int64_t n, size_t size)
{
  return p ? p + n * (int64_t)size : NULL;
}

/* Writes gradients. A unit is some rows of one plane, either one result per row or the same results
** for all rows; long rows are cut into pieces. */
static void reduce_run_backward(int64_t begin, int64_t end, void *context)
{
  const struct reduction_gradient *s = context;
  const struct reduce *r = s->r;
  for (int64_t u = begin; u < end; u++) {
    int64_t j = u % s->pieces * s->wide, i = u / s->pieces % s->rows * s->tall,
            plane = u / s->pieces / s->rows;
    int64_t m = MIN(s->wide, s->width - j), n = MIN(s->tall, s->height - i), to = r->inner ? i : j,
            rest = plane;
    for (int k = r->n - 3; k >= 0; rest /= r->dim[k], k--) to += rest % r->dim[k] * r->to[k];
    int64_t at = (plane * s->height + i) * s->width + j;
    void *dx = s->dx + at * (int64_t)s->size;
    const void *x = reduce_step_pointer(s->x, at, s->size),
               *y = reduce_step_pointer(s->y, to, s->size),
               *g = reduce_step_pointer(s->g, to, s->size),
               *h = reduce_step_pointer(s->h, to, s->size);
    if (r->inner)
      reducer_back_rows(r->dtype, s->kind, dx, x, y, g, h, s->scale, n, m);
    else
      reducer_back_cols(r->dtype, s->kind, dx, x, y, g, h, s->scale, n, m);
  }
}

void reduce_back(const struct reduce *r, int kind, void *dx, const void *x, const void *y,
    const void *g, const void *h, double scale)
{
  struct reduction_gradient s = { r, kind, dx, x, y, g, h, scale, dtype_size(r->dtype),
    .width = r->dim[r->n - 1] };
  s.height = r->n > 1 ? r->dim[r->n - 2] : 1;
  s.wide = MIN(s.width, REDUCE_GRAIN);
  s.tall = s.wide < s.width ? 1 : MIN(s.height, MAX(1, REDUCE_GRAIN / s.width));
  s.pieces = (s.width + s.wide - 1) / s.wide;
  s.rows = (s.height + s.tall - 1) / s.tall;
  parallel_chunks_stoppable(r->in / (s.width * s.height) * s.rows * s.pieces,
      MAX(1, REDUCE_GRAIN / (s.tall * s.wide)), reduce_run_backward, &s);
}

/* -- on any device ----------------------------------------------------------------------------- */

size_t reduce_sum_scratch(int device, const struct reduce *r)
{
  const struct primitives *other = primitives_of(device);
  return other ? other->sum_scratch(r) : reduce_scratch(r);
}

int reduce_sum(int device, const struct reduce *r, const void *x, void *y, bool add, void *tmp)
{
  const struct primitives *other = primitives_of(device);
  if (other) return other->sum(device, r, x, y, add, tmp);
  reduce_run(r, R_SUM, F_NONE, x, NULL, y, add, tmp);
  return TY_OK;
}
