/* count_sketch.c - _contrib_count_sketch: reduces rows to fewer elements by a hash.
**
** Element i of a row is added to bucket h[i] with the sign s[i]: out[h[i]] += s[i] x[i]. The
** gradient of x[i] is s[i] g[h[i]].
*/
#include "kernel/vec/vec.h"
#include "op/op.h"

struct sketch { int64_t out_dim, processing_batch_size; };
static const struct param params[] = {
  { "out_dim",               P_INT, offsetof(struct sketch, out_dim),               NULL, "numbers per row of the output", NULL, "[1,]" },
  { "processing_batch_size", P_INT, offsetof(struct sketch, processing_batch_size), "32", "without effect" },
  { 0 }
};

static int sketch_shape(struct infer *s)
{
  const struct sketch *p = s->param;
  ty_desc *x = &s->in[0];
  if (!x->ndim) return TY_OK;
  int64_t dim[TY_MAXDIM], n = x->dim[x->ndim - 1];
  for (int k = 1; k < 3; k++)
    TRY(s->in[k].ndim == 1 ? shape_is(s, &s->in[k], 1, &n)
                           : shape_is(s, &s->in[k], 2, (int64_t[]){ 1, n }));
  memcpy(dim, x->dim, sizeof dim);
  dim[x->ndim - 1] = p->out_dim;
  return shape_is(s, &s->out[0], x->ndim, dim);
}

struct sketching {
  const struct vec_ops *r;
  const struct operand *h, *s;
  const void *x;
  void *y;
  int64_t n, out;
  bool back;
};

static void sketch_range(int64_t begin, int64_t end, void *context)
{
  const struct sketching *j = context;
  for (int64_t i = begin; i < end; i++) {
    if (!j->back) j->r->fill(vec_at(j->r, j->y, i * j->out), 0, j->out);
    for (int64_t k = 0; k < j->n; k++) {
      int64_t wide = i * j->n + k, narrow = i * j->out + whole_at(j->h, k);
      double sign = j->r->get(j->s->p, k);
      if (j->back)
        j->r->set(j->y, wide, sign * j->r->get(j->x, narrow));
      else
        j->r->set(j->y, narrow, j->r->get(j->y, narrow) + sign * j->r->get(j->x, wide));
    }
  }
}

static int sketch_run(const struct call *c, const struct operand *h, const struct operand *s,
    const ty_desc *wide, bool back)
{
  const int64_t n = wide->dim[wide->ndim - 1], out = ((const struct sketch *)c->param)->out_dim;
  struct sketching j = { vec_ops_of(wide->dtype), h, s, c->in[0].p, c->out[0].p, n, out, back };
  for (int64_t k = 0; k < n; k++) {
    int64_t bucket = whole_at(h, k);
    NEED(bucket >= 0 && bucket < out, TY_ERUN,
        "index %g at position %lld is out of range; expected 0 to %lld", number_at(h, k),
        (long long)k, (long long)out - 1);
  }
  if (j.y) parallel_for(desc_count(wide) / n, elements_ns(n + out), sketch_range, &j);
  return TY_OK;
}

static int sketch_forward(struct call *c)
{
  return sketch_run(c, &c->in[1], &c->in[2], &c->in[0].d, false);
}

/* Computes the gradients of data and s; the hash has none. in: head gradient, h, s. */
static int sketch_backward(struct call *c)
{
  for (int k = 1; k < 3; k++)
    if (c->out[k].p) memset(c->out[k].p, 0, desc_bytes(&c->out[k].d));
  return sketch_run(c, &c->in[1], &c->in[2], &c->out[0].d, true);
}

static const struct kernel cpu[]  = { { "rows", sketch_forward,  T_FLOAT }, { 0 } };
static const struct kernel back[] = { { "rows", sketch_backward, T_FLOAT }, { 0 } };

const struct op op_count_sketch[] = { {
  .name = "_contrib_count_sketch",
  .flags = OP_MAY_FAIL,
  .doc = "Count sketch of the last axis: out[h[i]] += s[i] data[i], data (..., n), places h (1, n) from 0 to out_dim - 1, signs s (1, n); "
         "(..., out_dim). Gradient of data.",
  .in = "data h s", .out = "output", .param = params, .param_size = sizeof(struct sketch), .shape = sketch_shape,
  .grad = "g0 i1 i2", .cpu = cpu, .back_cpu = back,
}, { 0 } };
