/* rows.c - elements and rows selected by indices (kernels/rows.cu): take, Embedding, batch_take,
** pick, one_hot, gather_nd, scatter_nd and others; where; gradients of boolean_mask. If indices
** must be in range, a kernel checks them first, and its error is reported when the task ends
** (fault.c). Operators that check indices or sort keys start several kernels; the others are rows
** of the table. */
#include "cuda/row.h"
#include "kernel/strided_copy.h"
#include "kernel/vec/vec.h"

/* Returns the widest type in which rows of `row` elements can be copied between a and b, and sets
** *row to the number of units of a row. */
static const char *unit_of_rows(size_t size, int64_t *row, const void *a, const void *b)
{
  uintptr_t at = (uintptr_t)a | (uintptr_t)b;
  while (size < 16 && *row % 2 == 0 && at % (2 * size) == 0) size *= 2, *row /= 2;
  return cuda_unit(size);
}

static bool wraps_indices(const struct call *c) { return cuda_word(c, "mode", "wrap"); }
static bool raises_faults(const struct call *c)
{
  return cuda_word(c, "mode", "raise") || cuda_flag(c, "sparse_grad");
}

static int check_range(const struct call *c, const struct operand *index, int64_t at, int64_t n,
    int64_t low, int64_t high, int32_t axis)
{
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  const char *values = elements_at(index->p, at, dtype_size(index->d.dtype));
  const int64_t op = cuda_origin(c);
  return cuda_start_words(c, FAMILY_rows, "check_range", n,
      (void *[]){ &fault, (void *)&op, &values, &n, &low, &high, &axis }, "UNIT=u8 I=%s",
      cuda_type(index->d.dtype));
}

/* -- rows of an axis --------------------------------------------------------------------------- */

/* The field `what` of rows that use make_axis_rows. */
enum { ANY_AXIS, TABLE };
/* An array (outer, k, row), and the index of the n rows to take along its middle axis. */
struct axis_rows { const struct operand *index; int64_t outer, k, row, n; };

static struct axis_rows make_axis_rows(
    const struct call *c, const ty_desc *a, const struct operand *index)
{
  bool table = cuda_what(c) == TABLE;
  struct split s = split_at(a, table ? 0 : axis_in(cuda_number(c, "axis", 0), a->ndim));
  return (struct axis_rows){ index, s.outer, s.k, s.inner, desc_count(&index->d) };
}

static int take_from(struct call *c, const struct operand *a, const struct operand *index)
{
  struct axis_rows t = make_axis_rows(c, &a->d, index);
  void *y = c->out[0].p;
  if (raises_faults(c)) TRY(check_range(c, index, 0, t.n, 0, t.k, -1));
  if (!y) return TY_OK;
  const char *unit = unit_of_rows(dtype_size(a->d.dtype), &t.row, y, a->p);
  int64_t n = t.outer * t.n * t.row;
  return cuda_start_words(c, FAMILY_rows, "take_rows", n,
      (void *[]){ &y, (void *)&a->p, (void *)&index->p, &n, &t.n, &t.k, &t.row },
      "UNIT=%s I=%s WRAP=%d INDEX=%s", unit, cuda_type(index->d.dtype), wraps_indices(c),
      cuda_index(n));
}

static int take_forward(struct call *c) { return take_from(c, &c->in[0], &c->in[1]); }
static int table_forward(struct call *c) { return take_from(c, &c->in[1], &c->in[0]); }

/* Returns the bytes of n keys and of the space for sorting them. */
static size_t keys_scratch(int64_t n) { return cuda_keys_bytes(n) * 2; }

/* Same as in kernels/rows.cu: n sorted keys in `chunks` chunks of `chunk`, rows of `row`
** elements. */
struct chunk_args { int64_t n, row, chunk, chunks; };

/* Returns chunks that are enough to keep a device busy, and long enough that few targets span
** several. Depends only on the shape. */
static struct chunk_args make_chunks(int64_t n, int64_t row)
{
  enum { CHUNK = 32, MOST = 4096 };
  const int64_t chunk = MAX(CHUNK, (n + MOST - 1) / MOST);
  return (struct chunk_args){ n, row, chunk, (n + chunk - 1) / chunk };
}

/* Returns the bytes of the chunks' sums for targets that span several chunks. */
static size_t parts_scratch(int64_t outer, int64_t n, int64_t row)
{
  const struct chunk_args s = make_chunks(n, row);
  return s.chunks > 1 ? 2 * sizeof(double) * (size_t)(outer * s.chunks * row) : 0;
}

static int bits_below(int64_t n)
{
  int bits = 0;
  while (bits < 63 && (int64_t)1 << bits < n) bits++;
  return bits;
}

/* Adds n rows of `from` to rows 0 .. targets - 1 of each of `outer` arrays. The scratch begins with
** n unsorted keys of their targets. add: adds to the present values of `array`, else the caller has
** set them to 0. */
static int add_sorted(const struct call *c, const struct operand *array, const void *from,
    int64_t outer, int64_t targets, int64_t n, int64_t row, bool add)
{
  struct chunk_args s = make_chunks(n, row);
  void *keys = c->tmp, *part = (char *)c->tmp + keys_scratch(n);
  const int pack = cuda_pack(array->d.dtype, row, (void *[]){ array->p, (void *)from }, 2);
  const int team = row > 128 * (int64_t)pack ? CUDA_BLOCK : 32;
  const int64_t threads = outer * s.chunks * team;
  char words[CUDA_WORDS];
  snprintf(words, sizeof words, "UNIT=u8 T=%s I=float ADD=%d TEAM=%d PACK=%d",
      cuda_type(array->d.dtype), add, team, pack);
  TRY(cuda_sort_bits(c, &keys, (char *)c->tmp + cuda_keys_bytes(n), n, n, bits_below(targets)));
  TRY(cuda_start(c, FAMILY_rows, "add_rows", words, threads,
      (void *[]){ (void *)&array->p, &from, &part, &keys, &outer, &targets, &s }));
  if (s.chunks < 2) return TY_OK;
  return cuda_start(c, FAMILY_rows, "join_rows", words, threads,
      (void *[]){ (void *)&array->p, &part, &keys, &outer, &targets, &s });
}

/* Computes the gradient in output `out`; in: head gradient, index. */
static int add_rows(struct call *c, int out)
{
  const struct operand *da = &c->out[out], *index = &c->in[1];
  struct axis_rows t = make_axis_rows(c, &da->d, index);
  bool add = c->add >> out & 1;
  void *keys = c->tmp;
  if (!da->p) return TY_OK;
  if (!add) TRY(cuda_zero(c, da));
  if (!t.n) return TY_OK;
  TRY(cuda_start_words(c, FAMILY_rows, "list_rows", t.n,
      (void *[]){ &keys, (void *)&index->p, &t.n, &t.k }, "UNIT=u8 I=$i1 WRAP=%d",
      wraps_indices(c)));
  return add_sorted(c, da, c->in[0].p, t.outer, t.k, t.n, t.row, add);
}

/* Returns the bytes of scratch of add_rows. */
static size_t indices_scratch(const struct call *c, int out)
{
  struct axis_rows t = make_axis_rows(c, &c->out[out].d, &c->in[1]);
  return keys_scratch(t.n) + parts_scratch(t.outer, t.n, t.row);
}
static size_t take_scratch(const struct call *c) { return indices_scratch(c, 0); }
static size_t table_scratch(const struct call *c) { return indices_scratch(c, 1); }

static int take_backward(struct call *c)
{
  TRY(cuda_zero(c, &c->out[1]));
  return add_rows(c, 0);
}

static int table_backward(struct call *c)
{
  TRY(cuda_zero(c, &c->out[0]));
  return add_rows(c, 1);
}

/* -- one element of each line ------------------------------------------------------------------ */

struct pick_args { int64_t n, k, inner, wraps; };
/* Fills in the sizes; a line runs along an axis of data, the last one for batch_take. */
static int64_t fill_pick(const struct call *c, const ty_desc *data, void *to)
{
  struct split s = split_at(data, axis_in(cuda_number(c, "axis", -1), data->ndim));
  const int64_t n = s.outer * s.inner;
  *(struct pick_args *)to = (struct pick_args){ n, s.k, s.inner, wraps_indices(c) };
  return n;
}
static int64_t pick_sizes(const struct call *c, void *s) { return fill_pick(c, &c->in[0].d, s); }
static int64_t pick_back_sizes(const struct call *c, void *s)
{
  return fill_pick(c, &c->out[0].d, s);
}

/* Writes from[i], or `on` if `from` is NULL, to element index[i] of row i of the output, which has
** rows of k elements. */
static int put_in_rows(
    struct call *c, const struct operand *index, int64_t k, const void *from, double on)
{
  const struct operand *y = &c->out[0];
  int64_t n = desc_count(&index->d);
  uint64_t bits = 0;
  set_number(&bits, y->d.dtype, on);
  return cuda_start_words(c, FAMILY_rows, "put_in_rows", n,
      (void *[]){ (void *)&y->p, (void *)&index->p, &n, &k, &from, &bits }, "UNIT=#o0 I=%s",
      cuda_type(index->d.dtype));
}

static int hot_forward(struct call *c)
{
  const struct operand *y = &c->out[0];
  uint64_t off = 0;
  set_number(&off, y->d.dtype, cuda_number(c, "off_value", 0));
  TRY(move_fill(c->device, y->p, &off, dtype_size(y->d.dtype), desc_count(&y->d)));
  return put_in_rows(
      c, &c->in[0], y->d.dim[y->d.ndim - 1], NULL, cuda_number(c, "on_value", 1));
}

/* Writes rows of zeros with a one; in: index, and an array whose shape the output has. */
static int encode_forward(struct call *c)
{
  const struct operand *index = &c->in[0];
  int64_t k = c->out[0].d.dim[1];
  TRY(check_range(c, index, 0, desc_count(&index->d), 0, k, -1));
  TRY(cuda_zero(c, &c->out[0]));
  return put_in_rows(c, index, k, NULL, 1);
}

/* Fills elements; in: data, values, index. */
static int fill_forward(struct call *c)
{
  const struct operand *index = &c->in[2], *y = &c->out[0];
  TRY(check_range(c, index, 0, desc_count(&index->d), 0, y->d.dim[1], -1));
  TRY(move_bytes(c->device, y->p, c->in[0].p, desc_bytes(&y->d)));
  return put_in_rows(c, index, y->d.dim[1], c->in[1].p, 0);
}

/* -- rows at coordinates ----------------------------------------------------------------------- */

/* An index of shape (coordinates, n), whose columns are coordinates along the first axes of an
** array. */
struct row_coordinates {
  int64_t n;
  int64_t row;                                        /* elements along the other axes */
  int64_t size[TY_MAXDIM];
};

static struct row_coordinates make_coordinates(const struct operand *index, const ty_desc *array)
{
  struct row_coordinates s = { desc_count(&index->d) / index->d.dim[0] };
  s.row = product_of(array, (int)index->d.dim[0], array->ndim);
  memcpy(s.size, array->dim, sizeof s.size);
  return s;
}

static int check_coordinates(
    const struct call *c, const struct operand *index, const ty_desc *array, bool negative)
{
  struct row_coordinates s = make_coordinates(index, array);
  for (int32_t k = 0; k < index->d.dim[0]; k++)
    TRY(check_range(c, index, k * s.n, s.n, negative ? -s.size[k] : 0, s.size[k], k));
  return TY_OK;
}

static int gather_rows(const struct call *c, const struct operand *index, const ty_desc *array,
    void *to, const void *from)
{
  struct row_coordinates s = make_coordinates(index, array);
  const char *unit = unit_of_rows(dtype_size(array->dtype), &s.row, to, from);
  return cuda_start_words(c, FAMILY_rows, "gather_at", s.n * s.row,
      (void *[]){ &to, &from, (void *)&index->p, &s }, "UNIT=%s I=%s COORDINATES=%d", unit,
      cuda_type(index->d.dtype), (int)index->d.dim[0]);
}

/* Adds rows to their targets, or with adds = false replaces these by the last row of each. from
** NULL: rows of zeros. */
static int scatter_rows(const struct call *c, bool adds, const struct operand *index,
    const struct operand *array, const void *from)
{
  struct row_coordinates s = make_coordinates(index, &array->d);
  const int64_t targets = desc_count(&array->d) / MAX(s.row, 1);
  int coordinates = (int)index->d.dim[0], dtype = array->d.dtype;
  void *keys = c->tmp;
  if (!s.n || !s.row) return TY_OK;
  TRY(cuda_start_words(c, FAMILY_rows, "list_coordinates", s.n,
      (void *[]){ &keys, (void *)&index->p, &s }, "UNIT=u8 I=%s COORDINATES=%d",
      cuda_type(index->d.dtype), coordinates));
  if (adds) return add_sorted(c, array, from, 1, targets, s.n, s.row, c->add & 1);
  TRY(cuda_sort_bits(
      c, &keys, (char *)c->tmp + cuda_keys_bytes(s.n), s.n, s.n, bits_below(targets)));
  const char *unit = unit_of_rows(dtype_size(dtype), &s.row, array->p, from);
  int team = s.row > 128 ? CUDA_BLOCK : 32;
  return cuda_start_words(c, FAMILY_rows, "set_at", s.n * team,
      (void *[]){ (void *)&array->p, &from, &keys, &s }, "UNIT=%s I=float COORDINATES=%d TEAM=%d",
      unit, coordinates, team);
}

static size_t coordinates_scratch(const struct operand *index)
{
  return keys_scratch(desc_count(&index->d) / index->d.dim[0]);
}
static size_t scatter_scratch(const struct call *c) { return coordinates_scratch(&c->in[1]); }
static size_t gather_scratch(const struct call *c)
{
  struct row_coordinates s = make_coordinates(&c->in[1], &c->out[0].d);
  return scatter_scratch(c) + parts_scratch(1, s.n, s.row);
}
static size_t set_scratch(const struct call *c) { return coordinates_scratch(&c->in[2]); }

static int gather_forward(struct call *c)
{
  TRY(check_coordinates(c, &c->in[1], &c->in[0].d, true));
  return gather_rows(c, &c->in[1], &c->in[0].d, c->out[0].p, c->in[0].p);
}

/* Computes the gradients; in: head gradient, index. */
static int gather_backward(struct call *c)
{
  const struct operand *dx = &c->out[0];
  TRY(cuda_zero(c, &c->out[1]));
  if (!dx->p) return TY_OK;
  TRY(check_coordinates(c, &c->in[1], &dx->d, true));
  if (!(c->add & 1)) TRY(cuda_zero(c, dx));
  return scatter_rows(c, true, &c->in[1], dx, c->in[0].p);
}

static int set_at(struct call *c, const struct operand *rows, const struct operand *index)
{
  const struct operand *y = &c->out[0];
  TRY(check_coordinates(c, index, &y->d, false));
  return scatter_rows(c, false, index, y, rows->p);
}

static int scatter_forward(struct call *c)
{
  TRY(cuda_zero(c, &c->out[0]));
  return set_at(c, &c->in[0], &c->in[1]);
}

/* Computes the gradients; in: head gradient, index. */
static int scatter_backward(struct call *c)
{
  TRY(cuda_zero(c, &c->out[1]));
  if (!c->out[0].p) return TY_OK;
  TRY(check_coordinates(c, &c->in[1], &c->in[0].d, false));
  return gather_rows(c, &c->in[1], &c->in[0].d, c->out[0].p, c->in[0].p);
}

/* Sets rows; in: array, rows, index. */
static int set_forward(struct call *c)
{
  TRY(move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(&c->out[0].d)));
  return set_at(c, &c->in[1], &c->in[2]);
}

/* -- rows in a list: _contrib_index_copy, _sparse_retain --------------------------------------- */

/* Returns a list of rows as an index of shape (1, n). */
static struct operand as_coordinates(const struct operand *list)
{
  struct operand index = *list;
  index.d.ndim = 2;
  index.d.dim[0] = 1;
  index.d.dim[1] = desc_count(&list->d);
  return index;
}

static int check_list(const struct call *c, const struct operand *list, const ty_desc *array)
{
  return check_range(c, list, 0, desc_count(&list->d), 0, array->dim[0], -1);
}

static size_t list_scratch(const struct call *c)
{
  return keys_scratch(desc_count(&c->in[1].d));
}

/* Copies rows; in: array, list, rows. */
static int copy_forward(struct call *c)
{
  const struct operand *y = &c->out[0];
  struct operand index = as_coordinates(&c->in[1]);
  TRY(check_list(c, &c->in[1], &y->d));
  TRY(move_bytes(c->device, y->p, c->in[0].p, desc_bytes(&y->d)));
  return scatter_rows(c, false, &index, y, c->in[2].p);
}

/* Computes the gradients; in: head gradient, list. */
static int copy_backward(struct call *c)
{
  const struct operand *g = &c->in[0], *old = &c->out[0];
  struct operand index = as_coordinates(&c->in[1]);
  TRY(check_list(c, &c->in[1], &g->d));
  TRY(cuda_zero(c, &c->out[1]));
  if (old->p) {
    TRY(move_bytes(c->device, old->p, g->p, desc_bytes(&g->d)));
    TRY(scatter_rows(c, false, &index, old, NULL));
  }
  return c->out[2].p ? gather_rows(c, &index, &g->d, c->out[2].p, g->p) : TY_OK;
}

/* Keeps rows; in: array or head gradient, list. */
static int keep_rows(struct call *c)
{
  const struct operand *x = &c->in[0], *y = &c->out[0], *list = &c->in[1];
  int64_t n = desc_count(&list->d), row = product_of(&x->d, 1, x->d.ndim);
  if (c->nout > 1) TRY(cuda_zero(c, &c->out[1]));
  if (!y->p) return TY_OK;
  TRY(check_list(c, list, &x->d));
  TRY(cuda_zero(c, y));
  const char *unit = unit_of_rows(dtype_size(x->d.dtype), &row, y->p, x->p);
  int64_t rows = x->d.dim[0];
  return cuda_start_words(c, FAMILY_rows, "keep_rows", n * row,
      (void *[]){ (void *)&y->p, (void *)&x->p, (void *)&list->p, &n, &row, &rows },
      "UNIT=%s I=$i1", unit);
}

/* -- _ravel_multi_index, _unravel_index -------------------------------------------------------- */

struct shape_args { int64_t n, axes, size[32]; };
static int64_t fill_shape(const struct call *c, int64_t n, void *to)
{
  const struct dims *shape = op_dims(c->op, c->param, "shape");
  struct shape_args *s = to;
  _Static_assert(COUNT(s->size) >= COUNT(shape->d), "room for all axes of a parameter");
  s->n = n;
  s->axes = shape->n;
  for (int i = 0; i < shape->n; i++) s->size[i] = shape->d[i];
  return n;
}
static int64_t ravel_sizes(const struct call *c, void *s)
{
  return fill_shape(c, desc_count(&c->out[0].d), s);
}
static int64_t unravel_sizes(const struct call *c, void *s)
{
  return fill_shape(c, desc_count(&c->in[0].d), s);
}

/* -- _contrib_count_sketch --------------------------------------------------------------------- */

static int sketch_forward(struct call *c)
{
  const ty_desc *x = &c->in[0].d;
  const struct operand *buckets = &c->in[1];
  int64_t n = x->dim[x->ndim - 1], rows = desc_count(x) / n;
  int64_t out = (int64_t)cuda_number(c, "out_dim", 1);
  void *keys = c->tmp;
  TRY(check_range(c, buckets, 0, n, 0, out, -1));
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_zero(c, &c->out[0]));
  TRY(cuda_start(c, FAMILY_rows, "list_rows", "UNIT=u8 I=$i1 WRAP=0", n,
      (void *[]){ &keys, (void *)&buckets->p, &n, &out }));
  TRY(cuda_sort_bits(c, &keys, (char *)c->tmp + cuda_keys_bytes(n), n, n, bits_below(out)));
  return cuda_start(c, FAMILY_rows, "sketch", "UNIT=u8 T=$i0 I=float", rows * n,
      (void *[]){ &c->out[0].p, &c->in[0].p, &keys, &c->in[2].p, &rows, &n, &out });
}

/* Computes the gradients; in: head gradient, places, signs. */
static int sketch_backward(struct call *c)
{
  const ty_desc *x = &c->out[0].d;
  const struct operand *buckets = &c->in[1];
  int64_t n = x->dim[x->ndim - 1], rows = desc_count(x) / n;
  int64_t out = (int64_t)cuda_number(c, "out_dim", 1);
  for (int k = 1; k < 3; k++) TRY(cuda_zero(c, &c->out[k]));
  TRY(check_range(c, buckets, 0, n, 0, out, -1));
  if (!c->out[0].p) return TY_OK;
  return cuda_start(c, FAMILY_rows, "sketch_back", "UNIT=u8 T=$o0 I=$i1", rows * n,
      (void *[]){ &c->out[0].p, &c->in[0].p, (void *)&buckets->p, &c->in[2].p, &rows, &n, &out });
}

/* -- where ------------------------------------------------------------------------------------- */

struct choose_args { int64_t n, row; };
static int64_t where_sizes(const struct call *c, void *s)
{
  const int64_t n = desc_count(&c->out[0].d);
  *(struct choose_args *)s = (struct choose_args){ n, n / desc_count(&c->in[0].d) };
  return n;
}

/* Writes one of the two gradients; in: head gradient, condition. */
static int choose_gradient(const struct call *c, void *a, void *b, void *z)
{
  int64_t n = desc_count(&c->in[0].d), row = n / desc_count(&c->in[1].d);
  if (!z) return TY_OK;
  return cuda_start(c, FAMILY_rows, "choose", "UNIT=#i0 I=$i1", n,
      (void *[]){ &z, &c->in[1].p, &a, &b, &n, &row });
}

/* Computes the gradients; in: head gradient, condition. */
static int where_backward(struct call *c)
{
  TRY(cuda_zero(c, &c->out[0]));
  TRY(choose_gradient(c, c->in[0].p, NULL, c->out[1].p));
  return choose_gradient(c, NULL, c->in[0].p, c->out[2].p);
}

/* -- rows where a mask is not 0 ---------------------------------------------------------------- */

/* Computes the gradients; in: head gradient, mask. */
static int mask_backward(struct call *c)
{
  const struct operand *dx = &c->out[0], *mask = &c->in[1];
  int64_t rows = desc_count(&mask->d), n = desc_count(&dx->d), row = n / rows;
  void *order = c->tmp;
  const char *words = "UNIT=#o0 I=$i1";
  TRY(cuda_zero(c, &c->out[1]));
  if (!dx->p) return TY_OK;
  TRY(cuda_start(c, FAMILY_rows, "number_chosen", words, CUDA_BLOCK,
      (void *[]){ &order, (void *)&mask->p, &rows }));
  return cuda_start(c, FAMILY_rows, "put_chosen", words, n,
      (void *[]){ (void *)&dx->p, &c->in[0].p, &order, &n, &row });
}

static size_t order_scratch(const struct call *c)
{
  return sizeof(int64_t) * (size_t)desc_count(&c->in[1].d);
}

/* -- the table --------------------------------------------------------------------------------- */

#define KERNEL(table, what, run) \
  static const struct kernel table[] = { { what, run, T_ANY }, { 0 } };
#define SORTS(table, what, run, bytes, adds) \
  static const struct kernel table[] = { { what, run, T_ANY, .scratch = bytes, .add = adds }, \
    { 0 } };
KERNEL(takes, "rows", take_forward)
KERNEL(tables, "rows", table_forward)
KERNEL(hots, "lines", hot_forward)
KERNEL(encodes, "lines", encode_forward)
KERNEL(fills, "lines", fill_forward)
KERNEL(gathers, "rows", gather_forward)
KERNEL(scatters_back, "rows", scatter_backward)
KERNEL(wheres_back, "elements", where_backward)
KERNEL(keeps, "rows", keep_rows)
SORTS(copies, "rows", copy_forward, list_scratch, 0)
SORTS(copies_back, "rows", copy_backward, list_scratch, 0)
SORTS(scatters, "rows", scatter_forward, scatter_scratch, 0)
SORTS(sets, "rows", set_forward, set_scratch, 0)
SORTS(takes_back, "rows", take_backward, take_scratch, 1)
SORTS(tables_back, "rows", table_backward, table_scratch, 2)
SORTS(masks_back, "rows", mask_backward, order_scratch, 0)
SORTS(gathers_back, "rows", gather_backward, gather_scratch, 1)

#define ROW(table, what, kernel_, words, arguments, ...) \
  static const struct kernel table[] = { \
    { what, CUDA_ROW(FAMILY_rows, kernel_, words, arguments, __VA_ARGS__), .types = T_ANY }, { 0 } \
  };
#define PICK "UNIT=#i0 I=$i1 WRAP=%3"
ROW(picks,      "lines",    "pick",      PICK,              "o0 i0 i1 s0 s1 s2", pick_sizes)
ROW(picks_back, "lines",    "pick_back", PICK,              "o0 i0 i1 s0 s1 s2", pick_back_sizes, 3)
ROW(wheres,     "elements", "choose",    "UNIT=#o0 I=$i0",  "o0 i0 i1 i2 s0 s1", where_sizes)
ROW(ravels,     "rows",     "ravel",     "UNIT=u8 T=$o0 I=$i0", "o0 i0 s",       ravel_sizes)
ROW(unravels,   "rows",     "unravel",   "UNIT=u8 T=$o0 I=$i0", "o0 i0 s",       unravel_sizes)

static const struct kernel sketches[] = {
  { "rows", sketch_forward, T_FLOAT, .scratch = list_scratch }, { 0 }
};
static const struct kernel sketches_back[] = { { "rows", sketch_backward, T_FLOAT }, { 0 } };

const struct op_kernels cuda_rows[] = {
  { "take", takes, takes_back },
  { "Embedding", tables, tables_back, TABLE },
  { "_contrib_SparseEmbedding", tables, tables_back, TABLE },
  { "batch_take", picks, NULL },
  { "pick", picks, picks_back },
  { "one_hot", hots, NULL },
  { "_onehot_encode", encodes, NULL },
  { "fill_element_0index", fills, NULL },
  { "gather_nd", gathers, gathers_back },
  { "scatter_nd", scatters, scatters_back },
  { "_scatter_set_nd", sets, NULL },
  { "_contrib_index_copy", copies, copies_back },
  { "_sparse_retain", keeps, keeps },
  { "_ravel_multi_index", ravels, NULL },
  { "_unravel_index", unravels, NULL },
  { "_contrib_count_sketch", sketches, sketches_back },
  { "where", wheres, wheres_back },
  { "_contrib_boolean_mask", NULL, masks_back },
  { 0 }
};
