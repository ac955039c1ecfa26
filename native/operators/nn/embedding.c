/* embedding.c - Embedding and _contrib_SparseEmbedding: rows of a table by index.
**
** Indices of any dtype are truncated and clipped to the table (with sparse_grad an index out of
** range is an error). For the gradient of the table each chunk owns a range of its rows and goes
** through all indices, so that rows are added in the order of the indices with any number of
** threads.
*/
#include "kernel/vec/vec.h"
#include "op/op.h"

struct table_param { int64_t input_dim, output_dim, dtype, sparse_grad; };
static const struct param table_params[] = {
  { "input_dim",   P_INT,   offsetof(struct table_param, input_dim),   NULL,      "rows of the table", NULL, "[1,]" },
  { "output_dim",  P_INT,   offsetof(struct table_param, output_dim),  NULL,      "length of a row", NULL, "[1,]" },
  { "dtype",       P_DTYPE, offsetof(struct table_param, dtype),       "float32", "dtype of the table unless it is known" },
  { "sparse_grad", P_BOOL,  offsetof(struct table_param, sparse_grad), "0",
    "indices outside the table are an error; the gradient is dense" },
  { 0 }
};

static int table_shape(struct infer *s)
{
  const struct table_param *p = s->param;
  const int64_t table[2] = { p->input_dim, p->output_dim };
  TRY(shape_is(s, &s->in[1], 2, table));
  ty_desc d = s->in[0], *out = &s->out[0];
  if (!d.ndim && out->ndim > 1) return shape_is(s, &s->in[0], out->ndim - 1, out->dim);
  if (!d.ndim) return TY_OK;
  if (d.ndim == TY_MAXDIM)
    return infer_fail(
        s, TY_ESHAPE, &s->in[0], "%d dimensions; at most %d are possible", d.ndim, TY_MAXDIM - 1);
  d.dim[d.ndim++] = p->output_dim;
  TRY(shape_as(s, out, &d));
  return shape_is(s, &s->in[0], out->ndim - 1, out->dim);
}

static int64_t table_rows(const struct infer *s, int *input)
{
  *input = 0;
  return ((const struct table_param *)s->param)->input_dim;
}

static int table_type(struct infer *s)
{
  const struct table_param *p = s->param;
  TRY(type_both(s, &s->in[1], &s->out[0]));
  if (s->in[1].dtype == TY_NODTYPE) TRY(type_is(s, &s->in[1], (int)p->dtype));
  return type_both(s, &s->in[1], &s->out[0]);
}

struct lookup {
  const struct operand *index;
  int64_t rows, n;                                    /* rows of the table, number of indices */
  size_t width;                                       /* bytes of a row */
  const char *from;
  char *to;
};

static void gather_range(int64_t begin, int64_t end, void *context)
{
  const struct lookup *l = context;
  for (int64_t i = begin; i < end; i++)
    memcpy(l->to + (size_t)i * l->width,
        l->from + (size_t)index_at(l->index, i, l->rows) * l->width, l->width);
}

static int check_indices(const struct lookup *l)
{
  for (int64_t i = 0; i < l->n; i++) {
    int64_t k = whole_at(l->index, i);
    NEED(k >= 0 && k < l->rows, TY_ERUN,
        "index %g at position %lld is out of range; expected 0 to %lld", number_at(l->index, i),
        (long long)i, (long long)l->rows - 1);
  }
  return TY_OK;
}

static int table_forward(struct call *c)
{
  const struct table_param *p = c->param;
  struct lookup l = { &c->in[0], p->input_dim, desc_count(&c->in[0].d),
    dtype_size(c->in[1].d.dtype) * (size_t)p->output_dim, c->in[1].p, c->out[0].p };
  if (p->sparse_grad) TRY(check_indices(&l));
  parallel_for(l.n, elements_ns((int64_t)l.width / 4), gather_range, &l);
  return TY_OK;
}

/* ranges of the table's rows, independent of the machine */
enum { RANGES = 16 };
struct scatter_add {
  const struct vec_ops *r;
  struct lookup l;
  int64_t k;
  const void *dy;
  void *dw;
};

static void scatter_range(int64_t begin, int64_t end, void *context)
{
  const struct scatter_add *s = context;
  const struct vec_ops *r = s->r;
  int64_t from = begin * s->l.rows / RANGES, to = end * s->l.rows / RANGES;
  memset(vec_at(r, s->dw, from * s->k), 0, s->l.width * (size_t)(to - from));
  for (int64_t i = 0; i < s->l.n; i++) {
    int64_t row = index_at(s->l.index, i, s->l.rows);
    if (row >= from && row < to)
      r->add(vec_at(r, s->dw, row * s->k), vec_at(r, s->dy, i * s->k), s->k);
  }
}

/* Computes the gradient of the table. in: head gradient, indices. */
static int table_backward(struct call *c)
{
  const struct table_param *p = c->param;
  if (c->out[0].p) memset(c->out[0].p, 0, desc_bytes(&c->out[0].d));
  if (!c->out[1].p) return TY_OK;
  const struct vec_ops *r = vec_ops_of(c->out[1].d.dtype);
  struct scatter_add s = { r,
    { &c->in[1], p->input_dim, desc_count(&c->in[1].d), r->size * (size_t)p->output_dim, NULL,
        NULL },
    p->output_dim, c->in[0].p, c->out[1].p };
  const double ns = cost_ns(NS_MOVE, desc_count(&c->out[1].d) + s.l.n * s.k);
  parallel_chunks(RANGES, ns > PARALLEL_CHUNK_NS ? 1 : RANGES, scatter_range, &s);
  return TY_OK;
}

static const char *table_refuse(const struct call *c)
{
  return dtype_float(c->in[0].d.dtype) ? NULL : "the table is not of a float dtype";
}
static const struct kernel table_cpu[] = { { "rows", table_forward, T_ANY }, { 0 } };
static const struct kernel table_back_cpu[] = { { "rows", table_backward, T_FLOAT | T_INT, table_refuse }, { 0 } };

#define TABLE \
  .in = "data weight", .param = table_params, .param_size = sizeof(struct table_param), \
  .shape = table_shape, .type = table_type, .indices = table_rows, .grad = "g0 i0", \
  .cpu = table_cpu, .back_cpu = table_back_cpu

const struct op op_embedding[] = {
  { .name = "Embedding", .alias = "_npx_embedding _sparse_Embedding", TABLE,
    .doc = "Rows of weight (input_dim, output_dim) at the indices in data: shape of data, then output_dim. The "
           "indices get a zero gradient." },
  { .name = "_contrib_SparseEmbedding", TABLE,
    .doc = "Embedding; its gradient is dense here." },
  { 0 }
};
