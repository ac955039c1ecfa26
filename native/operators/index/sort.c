/* sort.c - sort, argsort, topk.
**
** Elements are converted to keys (sort.h), which are sorted by merging. For a few of many elements
** topk keeps a short sorted list instead. Lines are distributed among threads, each with its own
** scratch.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"
#include "operators/index/sort.h"

/* -- keys -------------------------------------------------------------------------------------- */

#define READ(T, key_of) \
  for (int64_t i = 0; i < n; i++) { \
    uint64_t k = key_of(((const T *)x)[i * stride]); \
    out[i] = (struct sort_key){ down ? ~k : k, i }; \
  }
static void read_keys(
    struct sort_key *out, const void *x, int dtype, int64_t n, int64_t stride, bool down)
{
  switch (dtype) {
  case TY_F32: READ(float, key_of_real) break;
  case TY_F64: READ(double, key_of_real) break;
  case TY_I8: READ(int8_t, key_of_whole) break;
  case TY_I32: READ(int32_t, key_of_whole) break;
  case TY_I64: READ(int64_t, key_of_whole) break;
  default: READ(uint8_t, key_of_whole)
  }
}

/* Moves the k smallest of n keys, sorted, to the front of a. */
static void select_few(struct sort_key *a, int64_t n, int64_t k)
{
  insert_sort(a, k);
  for (int64_t i = k; i < n; i++) {
    struct sort_key v = a[i];
    int64_t j = k - 1;
    if (v.key >= a[j].key) continue;
    for (; j > 0 && a[j - 1].key > v.key; j--) a[j] = a[j - 1];
    a[j] = v;
  }
}

/* -- lines ------------------------------------------------------------------------------------- */

/* Lines of an array (outer, n, inner) along the axis; the first k elements of each are wanted. */
struct sort_lines {
  const char *x;
  int     dtype;
  size_t  size;
  bool    down;
  int64_t outer, n, inner, k;
  struct operand *value, *index, *mask;                   /* NULL or p NULL: not wanted */
  char   *tmp;
};

static void set_index(const struct operand *a, int64_t i, int64_t v)
{
  void *at = elements_at(a->p, i, dtype_size(a->d.dtype));
  if (a->d.dtype == TY_I64)
    *(int64_t *)at = v;
  else
    set_number(at, a->d.dtype, (double)v);
}

static void write_line(const struct sort_lines *l, const struct sort_key *a, int64_t line)
{
  int64_t o = line / l->inner, in = line % l->inner, from = o * l->n * l->inner + in,
          to = o * l->k * l->inner + in;
  uint64_t one = 0;
  set_number(&one, l->dtype, 1);
  for (int64_t i = 0; i < l->k; i++) {
    int64_t source = from + a[i].index * l->inner, target = to + i * l->inner;
    if (l->value)
      memcpy(
          elements_at(l->value->p, target, l->size), elements_at(l->x, source, l->size), l->size);
    if (l->index) set_index(l->index, target, a[i].index);
    if (l->mask) memcpy(elements_at(l->mask->p, source, l->size), &one, l->size);
  }
}

static bool selects_few(int64_t k, int64_t n) { return k <= 64 && k * 8 <= n; }

static void lines_body(int64_t begin, int64_t end, void *context)
{
  const struct sort_lines *l = context;
  struct sort_key *a = (struct sort_key *)l->tmp + parallel_index() * 2 * l->n;
  for (int64_t line = begin; line < end; line++) {
    int64_t from = line / l->inner * l->n * l->inner + line % l->inner;
    struct sort_key *sorted = a;
    read_keys(a, elements_at(l->x, from, l->size), l->dtype, l->n, l->inner, l->down);
    if (selects_few(l->k, l->n))
      select_few(a, l->n, l->k);
    else
      sorted = merge_sort(a, a + l->n, l->n);
    if (stop_wanted()) return;
    write_line(l, sorted, line);
  }
}

static struct operand *or_null(struct operand *a) { return a && a->p ? a : NULL; }

static void order_lines(const struct call *c, int64_t axis, int64_t k, bool down,
    struct operand *value, struct operand *index, struct operand *mask)
{
  const ty_desc *d = &c->in[0].d;
  int a = axis_in(axis, d->ndim);
  struct sort_lines l = { c->in[0].p, d->dtype, dtype_size(d->dtype), down, 1, desc_count(d), 1, k,
    or_null(value), or_null(index), or_null(mask), c->tmp };
  if (axis != NONE)
    l.outer = product_of(d, 0, a), l.n = d->dim[a], l.inner = product_of(d, a + 1, d->ndim);
  if (l.k < 1) l.k = l.n;
  if (l.mask) move_zero(TY_CPU, l.mask->p, desc_bytes(&l.mask->d));
  parallel_for_stoppable(l.outer * l.inner, cost_ns(NS_CALL, l.n), lines_body, &l);
}

static size_t keys_scratch(const ty_desc *d, int64_t axis)
{
  int64_t n = axis == NONE ? desc_count(d) : d->dim[axis_in(axis, d->ndim)];
  return sizeof(struct sort_key) * 2 * (size_t)n * (size_t)parallel_threads();
}

/* Computes the gradient of selected values: each head gradient goes to the element at its index. */
static void put_back(struct operand *dx, const struct operand *g, const struct operand *index,
    int64_t axis, int64_t k)
{
  const ty_desc *d = &dx->d;
  int a = axis_in(axis, d->ndim);
  int64_t n = axis == NONE ? desc_count(d) : d->dim[a],
          inner = axis == NONE ? 1 : product_of(d, a + 1, d->ndim), count = desc_count(&g->d);
  size_t size = dtype_size(d->dtype);
  if (k < 1) k = n;
  move_zero(TY_CPU, dx->p, desc_bytes(d));
  for (int64_t i = 0; i < count; i++) {
    int64_t line = i / (k * inner), in = i % inner, j = MAX(0, MIN(index_of(index, i), n - 1));
    memcpy(elements_at(dx->p, (line * n + j) * inner + in, size), elements_at(g->p, i, size), size);
  }
}

/* Infers an output with k elements along the axis; k < 1: all elements. */
static int line_shape(struct infer *s, ty_desc *out, int64_t axis, int64_t k)
{
  const ty_desc *in = &s->in[0];
  int64_t dim[TY_MAXDIM], n;
  int a = 0;
  if (!in->ndim) return axis == NONE ? shape_is(s, out, 1, (int64_t[]){ MAX(k, 0) }) : TY_OK;
  if (axis != NONE) TRY(infer_axis(s, axis, in->ndim, &a));
  n = axis == NONE ? product_of(in, 0, in->ndim) : in->dim[a];
  if (n && k > n)
    return infer_fail(s, TY_EVALUE, in, "k is %lld, but there are only %lld elements", (long long)k,
        (long long)n);
  memcpy(dim, in->dim, sizeof dim);
  if (axis == NONE) a = 0;
  dim[a] = k < 1 ? n : k;
  return shape_is(s, out, axis == NONE ? 1 : in->ndim, dim);
}

/* Fails if an index dtype cannot represent all positions of the axis. */
static int order_fits(struct infer *s, int64_t axis, int dtype)
{
  const ty_desc *in = &s->in[0];
  if (!in->ndim) return TY_OK;
  bool inside = axis >= -in->ndim && axis < in->ndim;
  int64_t n = axis == NONE ? product_of(in, 0, in->ndim)
      : inside             ? in->dim[axis_in(axis, in->ndim)]
                           : 0;
  return positions_fit(s, NULL, dtype, n, NULL);
}

#define INDEX_DTYPE(type) \
  { "dtype", P_DTYPE, offsetof(type, dtype), "float32", "dtype of the indices" }

/* -- sort -------------------------------------------------------------------------------------- */

struct sort { int64_t axis, is_ascend, dtype; };
#define SORT_AXIS  { "axis",      P_INT,  offsetof(struct sort, axis),      "-1", \
                     "axis to sort along; negative counts from the end; None: flattened", NULL, \
                     NULL, 1 }
#define SORT_ORDER \
  { "is_ascend", P_BOOL, offsetof(struct sort, is_ascend), "True", "the least first" }
static const struct param sort_params[] = { SORT_AXIS, SORT_ORDER, { 0 } };
static const struct param argsort_params[] = { SORT_AXIS, SORT_ORDER, INDEX_DTYPE(struct sort), { 0 } };

static int sort_shape(struct infer *s)
{
  const struct sort *p = s->param;
  for (int k = 0; k < s->nout; k++) TRY(line_shape(s, &s->out[k], p->axis, 0));
  return TY_OK;
}

static int sort_type(struct infer *s)
{
  TRY(type_is(s, &s->out[1], TY_I32));
  return type_both(s, &s->in[0], &s->out[0]);
}

static int sort_run(struct call *c)
{
  const struct sort *p = c->param;
  order_lines(c, p->axis, 0, !p->is_ascend, &c->out[0], &c->out[1], NULL);
  return TY_OK;
}

static size_t sort_scratch(const struct call *c)
{
  return keys_scratch(&c->in[0].d, ((const struct sort *)c->param)->axis);
}

/* Computes the gradient. in: head gradient, the hidden indices. */
static int sort_back(struct call *c)
{
  put_back(&c->out[0], &c->in[0], &c->in[1], ((const struct sort *)c->param)->axis, 0);
  return TY_OK;
}

static int argsort_check(void *param)
{
  return check_position_dtype(((const struct sort *)param)->dtype);
}

static int argsort_shape(struct infer *s)
{
  const struct sort *p = s->param;
  TRY(line_shape(s, &s->out[0], p->axis, 0));
  return order_fits(s, p->axis, (int)p->dtype);
}

static int argsort_type(struct infer *s)
{
  return type_is(s, &s->out[0], (int)((const struct sort *)s->param)->dtype);
}

static int argsort_run(struct call *c)
{
  const struct sort *p = c->param;
  order_lines(c, p->axis, 0, !p->is_ascend, NULL, &c->out[0], NULL);
  return TY_OK;
}

static const struct kernel sort_kernels[] = {
  { .name = "merge", .run = sort_run, .types = T_FLOAT | T_INT, .scratch = sort_scratch }, { 0 }
};
static const struct kernel argsort_kernels[] = {
  { .name = "merge", .run = argsort_run, .types = T_FLOAT | T_INT, .scratch = sort_scratch }, { 0 }
};
MOVE_KERNEL(sort_back_kernels, sort_back)

/* -- topk -------------------------------------------------------------------------------------- */

enum { VALUE, INDICES, MASK, BOTH };
struct topk { int64_t axis, k, ret_typ, is_ascend, dtype; };
static const struct param topk_params[] = {
  { "axis",      P_INT,  offsetof(struct topk, axis),      "-1",
    "axis to search; negative counts from the end; None: flattened", NULL, NULL, 1 },
  { "k",         P_INT,  offsetof(struct topk, k),         "1",       "how many; less than 1: all" },
  { "ret_typ",   P_ENUM, offsetof(struct topk, ret_typ),   "indices",
    "the elements, their places, ones at their places, or elements and places", "value|indices|mask|both" },
  { "is_ascend", P_BOOL, offsetof(struct topk, is_ascend), "False",   "the least instead of the largest" },
  INDEX_DTYPE(struct topk),
  { 0 }
};

static int topk_check(void *param)
{
  return check_position_dtype(((const struct topk *)param)->dtype);
}

static const char *topk_out(const void *param)
{
  int64_t what = ((const struct topk *)param)->ret_typ;
  return what == VALUE ? "output0 [output1]" : what == BOTH ? "output0 output1" : "output";
}

static const char *topk_grad(const void *param)
{
  int64_t what = ((const struct topk *)param)->ret_typ;
  return what == VALUE || what == BOTH ? "g0 o1" : "g0";
}

static int topk_shape(struct infer *s)
{
  const struct topk *p = s->param;
  if (p->ret_typ == MASK) {
    ty_desc unused = { 0 };
    TRY(line_shape(s, &unused, p->axis, p->k));
    return shape_both(s, &s->in[0], &s->out[0]);
  }
  for (int k = 0; k < s->nout; k++) TRY(line_shape(s, &s->out[k], p->axis, p->k));
  return p->ret_typ == VALUE ? TY_OK : order_fits(s, p->axis, (int)p->dtype);
}

static int topk_type(struct infer *s)
{
  const struct topk *p = s->param;
  if (p->ret_typ == INDICES) return type_is(s, &s->out[0], (int)p->dtype);
  if (p->ret_typ != MASK) TRY(type_is(s, &s->out[1], p->ret_typ == VALUE ? TY_I32 : (int)p->dtype));
  return type_both(s, &s->in[0], &s->out[0]);
}

static int topk_run(struct call *c)
{
  const struct topk *p = c->param;
  bool values = p->ret_typ == VALUE || p->ret_typ == BOTH;
  struct operand *index = values ? &c->out[1] : p->ret_typ == INDICES ? &c->out[0] : NULL;
  order_lines(c, p->axis, p->k, !p->is_ascend, values ? &c->out[0] : NULL, index,
      p->ret_typ == MASK ? &c->out[0] : NULL);
  return TY_OK;
}

static size_t topk_scratch(const struct call *c)
{
  return keys_scratch(&c->in[0].d, ((const struct topk *)c->param)->axis);
}

static int topk_back(struct call *c)
{
  const struct topk *p = c->param;
  if (c->nin > 1)
    put_back(&c->out[0], &c->in[0], &c->in[1], p->axis, p->k);
  else
    TRY(move_zeros(c, 0));
  return TY_OK;
}

static const struct kernel topk_kernels[] = {
  { .name = "select", .run = topk_run, .types = T_FLOAT | T_INT, .scratch = topk_scratch }, { 0 }
};
MOVE_KERNEL(topk_back_kernels, topk_back)

/* -- rows -------------------------------------------------------------------------------------- */

const struct op op_sort[] = {
  { .name = "sort", .alias = "_npi_sort",
    .doc = "Elements along an axis in order. Each element gets the gradient of its new place.",
    .in = "data", .out = "output0 [output1]", .param = sort_params, .param_size = sizeof(struct sort),
    .shape = sort_shape, .type = sort_type,
    .grad = "g0 o1", .cpu = sort_kernels, .back_cpu = sort_back_kernels },
  { .name = "argsort", .alias = "_npi_argsort",
    .doc = "Places, counted from 0, that put the elements along an axis in order; equal elements stay as they are. No "
           "gradient flows.",
    .in = "data", .param = argsort_params, .param_size = sizeof(struct sort), .check = argsort_check,
    .shape = argsort_shape, .type = argsort_type,
    .flags = OP_ZERO_GRAD, .cpu = argsort_kernels },
  { .name = "topk", .alias = "_npx_topk",
    .doc = "The k largest (or least) elements along an axis, sorted, their places counted from 0, or a mask of ones. "
           "Chosen elements get their gradient.",
    .in = "data", .out = "output", .out_of = topk_out, .param = topk_params, .param_size = sizeof(struct topk),
    .check = topk_check,
    .shape = topk_shape, .type = topk_type, .grad = "g0", .grad_of = topk_grad, .cpu = topk_kernels,
    .back_cpu = topk_back_kernels },
  { 0 }
};
