/* rows.c - elements and rows that indices name (kernels/rows.cu): take, Embedding, batch_take,
** pick, one_hot, gather_nd, scatter_nd and their like; where; gradients of boolean_mask. Indices
** that have to be in range are checked by a kernel first, whose finding is reported when the task
** ends (fault.c). */
#include "cuda/family.h"
#include "kernel/strided_copy.h"
#include "kernel/vec/vec.h"

/* Returns the widest unit that rows of `row` elements consist of; *row then counts these. */
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
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_rows, "check_range", &f, "UNIT=u8 I=%s",
      cuda_type(index->d.dtype)));
  const char *op = c->op->name;
  void *params[] = { &fault, &op, &values, &n, &low, &high, &axis };
  return cuda_run(c, f, n, params);
}

/* -- rows of an axis --------------------------------------------------------------------------- */

enum { ANY_AXIS, TABLE };
/* An array (outer, k, row), and the index of n rows that are taken there. */
struct axis_rows { const struct operand *index; int64_t outer, k, row, n; };

static struct axis_rows rows_of(
    const struct call *c, const ty_desc *a, const struct operand *index)
{
  bool table = cuda_what(c) == TABLE;
  struct split s = split_at(a, table ? 0 : axis_in(cuda_number(c, "axis", 0), a->ndim));
  return (struct axis_rows){ index, s.outer, s.k, s.inner, desc_count(&index->d) };
}

static int take_from(struct call *c, const struct operand *a, const struct operand *index)
{
  struct axis_rows t = rows_of(c, &a->d, index);
  void *y = c->out[0].p;
  cu_function f;
  if (raises_faults(c)) TRY(check_range(c, index, 0, t.n, 0, t.k, -1));
  if (!y) return TY_OK;
  const char *unit = unit_of_rows(dtype_size(a->d.dtype), &t.row, y, a->p);
  int64_t n = t.outer * t.n * t.row;
  TRY(cuda_family(c->device, FAMILY_rows, "take_rows", &f, "UNIT=%s I=%s WRAP=%d INDEX=%s",
      unit, cuda_type(index->d.dtype), wraps_indices(c), cuda_index(n)));
  void *params[] = { &y, (void *)&a->p, (void *)&index->p, &n, &t.n, &t.k, &t.row };
  return cuda_run(c, f, n, params);
}

static int take_forward(struct call *c) { return take_from(c, &c->in[0], &c->in[1]); }
static int table_forward(struct call *c) { return take_from(c, &c->in[1], &c->in[0]); }

/* places in order, then space for what sorts them */
static size_t keys_scratch(int64_t n) { return cuda_keys_bytes(n) * 2; }

/* as kernels/rows.cu has it: n sorted keys in chunks, each with rows of `row` elements */
struct chunk_args { int64_t n, row, chunk, chunks; };

/* Chunks that keep a device busy and, of one place, are joined soon; from the shape alone. */
static struct chunk_args chunks_of(int64_t n, int64_t row)
{
  enum { CHUNK = 32, MOST = 4096 };
  const int64_t chunk = MAX(CHUNK, (n + MOST - 1) / MOST);
  return (struct chunk_args){ n, row, chunk, (n + chunk - 1) / chunk };
}

/* Sums of places that several chunks have rows of. */
static size_t parts_scratch(int64_t outer, int64_t n, int64_t row)
{
  const struct chunk_args s = chunks_of(n, row);
  return s.chunks > 1 ? 2 * sizeof(double) * (size_t)(outer * s.chunks * row) : 0;
}

static int bits_below(int64_t n)
{
  int bits = 0;
  while (bits < 63 && (int64_t)1 << bits < n) bits++;
  return bits;
}

/* Adds n rows of `from` to the places below `places` that keys, at the beginning of the scratch,
** name, in `outer` arrays; add: onto what is there. */
static int add_sorted(const struct call *c, const struct operand *array, const void *from,
    int64_t outer, int64_t targets, int64_t n, int64_t row, bool add)
{
  struct chunk_args s = chunks_of(n, row);
  void *keys = c->tmp, *part = (char *)c->tmp + keys_scratch(n);
  const int pack = cuda_pack(array->d.dtype, row, (void *[]){ array->p, (void *)from }, 2);
  const int team = row > 128 * (int64_t)pack ? CUDA_BLOCK : 32;
  cu_function f, join;
  TRY(cuda_sort_bits(c, &keys, (char *)c->tmp + cuda_keys_bytes(n), n, n, bits_below(targets)));
  TRY(cuda_family(c->device, FAMILY_rows, "add_rows", &f,
      "UNIT=u8 T=%s I=float ADD=%d TEAM=%d PACK=%d", cuda_type(array->d.dtype), add, team, pack));
  void *params[] = { (void *)&array->p, &from, &part, &keys, &outer, &targets, &s };
  TRY(cuda_run(c, f, outer * s.chunks * team, params));
  if (s.chunks < 2) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_rows, "join_rows", &join,
      "UNIT=u8 T=%s I=float ADD=%d TEAM=%d PACK=%d", cuda_type(array->d.dtype), add, team, pack));
  void *joining[] = { (void *)&array->p, &part, &keys, &outer, &targets, &s };
  return cuda_run(c, join, outer * s.chunks * team, joining);
}

/* Computes the outputs; in: head gradient, index. */
static int add_rows(struct call *c, int out)
{
  const struct operand *da = &c->out[out], *index = &c->in[1];
  struct axis_rows t = rows_of(c, &da->d, index);
  bool add = c->add >> out & 1;
  void *keys = c->tmp;
  cu_function list;
  if (!da->p) return TY_OK;
  if (!add) TRY(cuda_zero(c, da));
  if (!t.n) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_rows, "list_rows", &list, "UNIT=u8 I=%s WRAP=%d",
      cuda_type(index->d.dtype), wraps_indices(c)));
  void *key_params[] = { &keys, (void *)&index->p, &t.n, &t.k };
  TRY(cuda_run(c, list, t.n, key_params));
  return add_sorted(c, da, c->in[0].p, t.outer, t.k, t.n, t.row, add);
}

/* Returns the bytes of sorted indices; `out` is the array whose gradient is added. */
static size_t indices_scratch(const struct call *c, int out)
{
  struct axis_rows t = rows_of(c, &c->out[out].d, &c->in[1]);
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

/* Picks an element of each line: a line's elements are those along an axis of data, the last one of
** batch_take. */
static int pick_elements(const struct call *c, const char *name, const struct operand *data,
    const struct operand *index, void *to, const void *from)
{
  struct split s = split_at(&data->d, axis_in(cuda_number(c, "axis", -1), data->d.ndim));
  int64_t n = s.outer * s.inner;
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_rows, name, &f, "UNIT=%s I=%s WRAP=%d",
      cuda_unit(dtype_size(data->d.dtype)), cuda_type(index->d.dtype), wraps_indices(c)));
  void *params[] = { &to, &from, (void *)&index->p, &n, &s.k, &s.inner };
  return cuda_run(c, f, n, params);
}

static int pick_forward(struct call *c)
{
  return pick_elements(c, "pick", &c->in[0], &c->in[1], c->out[0].p, c->in[0].p);
}

/* Computes the gradients; in: head gradient, index. */
static int pick_backward(struct call *c)
{
  const struct operand *dx = &c->out[0];
  TRY(cuda_zero(c, &c->out[1]));
  TRY(cuda_zero(c, dx));
  return dx->p ? pick_elements(c, "pick_back", dx, &c->in[1], dx->p, c->in[0].p) : TY_OK;
}

/* Writes from[i], or `on`, to element index[i] of row i of the output, which has rows of k. */
static int put_in_rows(
    struct call *c, const struct operand *index, int64_t k, const void *from, double on)
{
  const struct operand *y = &c->out[0];
  int64_t n = desc_count(&index->d);
  uint64_t bits = 0;
  cu_function f;
  set_number(&bits, y->d.dtype, on);
  TRY(cuda_family(c->device, FAMILY_rows, "put_in_rows", &f, "UNIT=%s I=%s",
      cuda_unit(dtype_size(y->d.dtype)), cuda_type(index->d.dtype)));
  void *params[] = { (void *)&y->p, (void *)&index->p, &n, &k, &from, &bits };
  return cuda_run(c, f, n, params);
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

/* Encodes; in: index, and an array that gives the shape. */
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

/* An index of shape (coordinates, n), whose columns name the first axes of an array. */
struct row_coordinates {
  int64_t n;
  int64_t row;                                        /* elements after the axes that are named */
  int64_t size[TY_MAXDIM];
};

static struct row_coordinates coordinates_of(const struct operand *index, const ty_desc *array)
{
  struct row_coordinates s = { desc_count(&index->d) / index->d.dim[0] };
  s.row = product_of(array, (int)index->d.dim[0], array->ndim);
  memcpy(s.size, array->dim, sizeof s.size);
  return s;
}

static int check_coordinates(
    const struct call *c, const struct operand *index, const ty_desc *array, bool negative)
{
  struct row_coordinates s = coordinates_of(index, array);
  for (int32_t k = 0; k < index->d.dim[0]; k++)
    TRY(check_range(c, index, k * s.n, s.n, negative ? -s.size[k] : 0, s.size[k], k));
  return TY_OK;
}

static int gather_rows(const struct call *c, const struct operand *index, const ty_desc *array,
    void *to, const void *from)
{
  struct row_coordinates s = coordinates_of(index, array);
  const char *unit = unit_of_rows(dtype_size(array->dtype), &s.row, to, from);
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_rows, "gather_at", &f, "UNIT=%s I=%s COORDINATES=%d", unit,
      cuda_type(index->d.dtype), (int)index->d.dim[0]));
  void *params[] = { &to, &from, (void *)&index->p, &s };
  return cuda_run(c, f, s.n * s.row, params);
}

/* Adds rows to their places, or puts them there. */
static int scatter_rows(const struct call *c, bool adds, const struct operand *index,
    const struct operand *array, const void *from)
{
  struct row_coordinates s = coordinates_of(index, &array->d);
  const int64_t targets = desc_count(&array->d) / MAX(s.row, 1);
  int coordinates = (int)index->d.dim[0], dtype = array->d.dtype;
  void *keys = c->tmp;
  cu_function list, f;
  if (!s.n || !s.row) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_rows, "list_coordinates", &list, "UNIT=u8 I=%s COORDINATES=%d",
      cuda_type(index->d.dtype), coordinates));
  void *key_params[] = { &keys, (void *)&index->p, &s };
  TRY(cuda_run(c, list, s.n, key_params));
  if (adds) return add_sorted(c, array, from, 1, targets, s.n, s.row, c->add & 1);
  TRY(cuda_sort_bits(
      c, &keys, (char *)c->tmp + cuda_keys_bytes(s.n), s.n, s.n, bits_below(targets)));
  const char *unit = unit_of_rows(dtype_size(dtype), &s.row, array->p, from);
  int team = s.row > 128 ? CUDA_BLOCK : 32;
  TRY(cuda_family(c->device, FAMILY_rows, "set_at", &f,
      "UNIT=%s I=float COORDINATES=%d TEAM=%d", unit, coordinates, team));
  void *params[] = { (void *)&array->p, &from, &keys, &s };
  return cuda_run(c, f, s.n * team, params);
}

static size_t coordinates_scratch(const struct operand *index)
{
  return keys_scratch(desc_count(&index->d) / index->d.dim[0]);
}
static size_t scatter_scratch(const struct call *c) { return coordinates_scratch(&c->in[1]); }
static size_t gather_scratch(const struct call *c)
{
  struct row_coordinates s = coordinates_of(&c->in[1], &c->out[0].d);
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

/* -- rows that a list names: _contrib_index_copy, _sparse_retain ------------------------------- */

/* Returns a list of rows as indices (1, n) of coordinates. */
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
  cu_function f;
  if (c->nout > 1) TRY(cuda_zero(c, &c->out[1]));
  if (!y->p) return TY_OK;
  TRY(check_list(c, list, &x->d));
  TRY(cuda_zero(c, y));
  const char *unit = unit_of_rows(dtype_size(x->d.dtype), &row, y->p, x->p);
  TRY(cuda_family(c->device, FAMILY_rows, "keep_rows", &f, "UNIT=%s I=%s", unit,
      cuda_type(list->d.dtype)));
  int64_t rows = x->d.dim[0];
  void *params[] = { (void *)&y->p, (void *)&x->p, (void *)&list->p, &n, &row, &rows };
  return cuda_run(c, f, n * row, params);
}

/* -- _ravel_multi_index, _unravel_index -------------------------------------------------------- */

struct shape_args { int64_t n, axes, size[32]; };
static int convert_indices(const struct call *c, const char *name, int64_t n)
{
  const struct dims *shape = op_dims(c->op, c->param, "shape");
  struct shape_args s = { n, shape->n };
  cu_function f;
  NEED(shape->n <= COUNT(s.size), TY_EINTERNAL, "too many axes");
  for (int i = 0; i < shape->n; i++) s.size[i] = shape->d[i];
  TRY(cuda_family(c->device, FAMILY_rows, name, &f, "UNIT=u8 T=%s I=%s",
      cuda_type(c->out[0].d.dtype), cuda_type(c->in[0].d.dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &s };
  return cuda_run(c, f, n, params);
}
static int ravel_indices(struct call *c)
{
  return convert_indices(c, "ravel", desc_count(&c->out[0].d));
}
static int unravel_indices(struct call *c)
{
  return convert_indices(c, "unravel", desc_count(&c->in[0].d));
}

/* -- _contrib_count_sketch --------------------------------------------------------------------- */

static int sketch_forward(struct call *c)
{
  const ty_desc *x = &c->in[0].d;
  const struct operand *buckets = &c->in[1];
  int64_t n = x->dim[x->ndim - 1], rows = desc_count(x) / n;
  int64_t out = (int64_t)cuda_number(c, "out_dim", 1);
  void *keys = c->tmp;
  cu_function list, f;
  TRY(check_range(c, buckets, 0, n, 0, out, -1));
  TRY(cuda_zero(c, &c->out[0]));
  TRY(cuda_family(c->device, FAMILY_rows, "list_rows", &list, "UNIT=u8 I=%s WRAP=0",
      cuda_type(buckets->d.dtype)));
  void *key_params[] = { &keys, (void *)&buckets->p, &n, &out };
  TRY(cuda_run(c, list, n, key_params));
  TRY(cuda_sort_bits(c, &keys, (char *)c->tmp + cuda_keys_bytes(n), n, n, bits_below(out)));
  TRY(cuda_family(c->device, FAMILY_rows, "sketch", &f, "UNIT=u8 T=%s I=float",
      cuda_type(x->dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &keys, &c->in[2].p, &rows, &n, &out };
  return c->out[0].p ? cuda_run(c, f, rows * n, params) : TY_OK;
}

/* Computes the gradients; in: head gradient, places, signs. */
static int sketch_backward(struct call *c)
{
  const ty_desc *x = &c->out[0].d;
  const struct operand *buckets = &c->in[1];
  int64_t n = x->dim[x->ndim - 1], rows = desc_count(x) / n;
  int64_t out = (int64_t)cuda_number(c, "out_dim", 1);
  cu_function f;
  for (int k = 1; k < 3; k++) TRY(cuda_zero(c, &c->out[k]));
  TRY(check_range(c, buckets, 0, n, 0, out, -1));
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_rows, "sketch_back", &f, "UNIT=u8 T=%s I=%s",
      cuda_type(x->dtype), cuda_type(buckets->d.dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, (void *)&buckets->p, &c->in[2].p, &rows, &n, &out };
  return cuda_run(c, f, rows * n, params);
}

/* -- where ------------------------------------------------------------------------------------- */

static int choose_elements(const struct call *c, const struct operand *when, const ty_desc *d,
    const void *a, const void *b, void *z)
{
  int64_t n = desc_count(d), row = n / desc_count(&when->d);
  cu_function f;
  if (!z) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_rows, "choose", &f, "UNIT=%s I=%s",
      cuda_unit(dtype_size(d->dtype)), cuda_type(when->d.dtype)));
  void *params[] = { &z, (void *)&when->p, &a, &b, &n, &row };
  return cuda_run(c, f, n, params);
}

static int where_forward(struct call *c)
{
  return choose_elements(c, &c->in[0], &c->out[0].d, c->in[1].p, c->in[2].p, c->out[0].p);
}

/* Computes the gradients; in: head gradient, condition. */
static int where_backward(struct call *c)
{
  TRY(cuda_zero(c, &c->out[0]));
  TRY(choose_elements(c, &c->in[1], &c->in[0].d, c->in[0].p, NULL, c->out[1].p));
  return choose_elements(c, &c->in[1], &c->in[0].d, NULL, c->in[0].p, c->out[2].p);
}

/* -- rows where a mask is not 0 ---------------------------------------------------------------- */

/* Computes the gradients; in: head gradient, mask. */
static int mask_backward(struct call *c)
{
  const struct operand *dx = &c->out[0], *mask = &c->in[1];
  int64_t rows = desc_count(&mask->d), n = desc_count(&dx->d), row = n / rows;
  void *order = c->tmp;
  cu_function number, put;
  TRY(cuda_zero(c, &c->out[1]));
  if (!dx->p) return TY_OK;
  const char *unit = cuda_unit(dtype_size(dx->d.dtype)), *type = cuda_type(mask->d.dtype);
  TRY(cuda_family(c->device, FAMILY_rows, "number_chosen", &number, "UNIT=%s I=%s", unit, type));
  TRY(cuda_family(c->device, FAMILY_rows, "put_chosen", &put, "UNIT=%s I=%s", unit, type));
  void *of_number[] = { &order, (void *)&mask->p, &rows };
  TRY(cuda_launch(c->device, number, 1, CUDA_BLOCK, 0, of_number));
  void *params[] = { (void *)&dx->p, &c->in[0].p, &order, &n, &row };
  return cuda_run(c, put, n, params);
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
KERNEL(picks, "lines", pick_forward)
KERNEL(picks_back, "lines", pick_backward)
KERNEL(hots, "lines", hot_forward)
KERNEL(encodes, "lines", encode_forward)
KERNEL(fills, "lines", fill_forward)
KERNEL(gathers, "rows", gather_forward)
KERNEL(scatters_back, "rows", scatter_backward)
KERNEL(wheres, "elements", where_forward)
KERNEL(wheres_back, "elements", where_backward)
KERNEL(keeps, "rows", keep_rows)
KERNEL(ravels, "rows", ravel_indices)
KERNEL(unravels, "rows", unravel_indices)
SORTS(copies, "rows", copy_forward, list_scratch, 0)
SORTS(copies_back, "rows", copy_backward, list_scratch, 0)
SORTS(scatters, "rows", scatter_forward, scatter_scratch, 0)
SORTS(sets, "rows", set_forward, set_scratch, 0)
SORTS(takes_back, "rows", take_backward, take_scratch, 1)
SORTS(tables_back, "rows", table_backward, table_scratch, 2)
SORTS(masks_back, "rows", mask_backward, order_scratch, 0)
SORTS(gathers_back, "rows", gather_backward, gather_scratch, 1)

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
