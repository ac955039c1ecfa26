/* linear_loss.c - gradients of a large softmax layer without the gradient of its product: of
** SoftmaxOutput, or of elements picked of log_softmax.
**
** That gradient is as large as the layer's output, and two products read it. Here it is made for
** a slab of columns (classes) at a time, which fits a cache, in panels: the slab gives its rows
** of the weight's gradient and its sums for the bias at once, and its part of the data's
** gradient is added up, in order (gemm_both). The data is packed before; its gradient may be in
** its place.
*/
#include "kernel/gemm/gemm.h"
#include "op/op.h"
#include "operators/nn/linear_loss.h"
#include "operators/loss/softmax_loss.h"
#include "operators/nn/picked_log.h"

enum {
  SLAB = 3 << 20,                                     /* bytes of a slab, its weights and results */
  DATA = 2 << 20,                                     /* bytes of the data's panels */
  NARROW = 128,                                       /* columns of a slab, rows of data: least */
  WIDE = 2048,                                        /* columns of a slab, rows of data: most */
  EXPONENTIAL = 8,                                    /* its time, in elements (as softmax.c's) */
};

struct loss_plan {
  struct linear_sizes z;
  int64_t rows;                                       /* of the data at a time */
  int64_t columns;                                    /* of a slab */
  size_t g;                                           /* bytes of the slab's panels */
  size_t x;                                           /* of the data's */
  size_t w;                                           /* of the weight's */
};

static struct loss_plan make_loss_plan(const struct call *c)
{
  const int dtype = c->in[2].d.dtype;
  const int64_t size = (int64_t)dtype_size(dtype);
  struct loss_plan p = { make_linear_sizes(&c->in[1].d, &c->in[2].d) };
  const int64_t blocks = (p.z.m * p.z.k * size + DATA - 1) / DATA;
  p.rows = MIN(p.z.m, MAX((p.z.m + blocks - 1) / MAX(blocks, 1), NARROW));
  p.columns = MIN(p.z.n, MIN(MAX(SLAB / ((p.rows + p.z.k) * size) / 64 * 64, NARROW), WIDE));
  p.g = align_up(gemm_pack_bytes(dtype, p.columns, p.rows), ALIGN);
  p.x = align_up(gemm_pack_bytes(dtype, p.z.k, p.rows), ALIGN);
  p.w = gemm_pack_bytes(dtype, p.z.k, p.columns);
  return p;
}

/* What the gradient of the layer is made of. */
struct head {
  const struct vec_ops *r;
  const void *y;                                      /* probabilities or their logarithms */
  int64_t k;                                          /* classes */
  bool    picks;                                      /* `log`, else `loss` */
  union {
    struct softmax_loss loss;
    struct picked_log   log;
  };
};

static struct head make_head(const struct call *c)
{
  const struct fused_op *f = find_fused(c, PRE_LOSS_GRAD);
  struct head h = { .r = vec_ops_of(c->in[2].d.dtype), .k = c->in[2].d.dim[0], .picks = !f };
  if (f) {
    h.loss = make_softmax_loss(f->param, &c->in[0], &c->in[f->operand]);
    h.y = c->in[0].p;
  }
  else {
    f = find_fused(c, PRE_LOG_GRAD);
    h.log = make_picked_log(f->param, &c->in[f->operand], c);
    h.y = h.log.y;
  }
  return h;
}

/* Sets dx[0 .. n - 1] to the gradient of classes from .. from + n - 1 of a row. */
static void make_part(const struct head *h, int64_t row, int64_t from, int64_t n, void *dx)
{
  if (h->picks)
    picked_log_part(&h->log, row, from, n, dx);
  else
    softmax_loss_part(&h->loss, row, from, n, dx);
}

size_t linear_loss_scratch(const struct call *c)
{
  struct loss_plan p = make_loss_plan(c);
  return p.g + p.x + p.w;
}

/* m rows, n columns from row, column on */
struct loss_slab { struct head head; int64_t row, m, column, n; void *g; };

static void slab_rows(int64_t begin, int64_t end, void *context)
{
  const struct loss_slab *s = context;
  double part[WIDE];
  const struct head *h = &s->head;
  const struct vec_ops *r = h->r;
  for (int64_t o = begin; o < end; o++) {
    const char *next = vec_at(r, h->y, (s->row + o + 1) * h->k + s->column); /* another page */
    for (int64_t b = 0; b < s->n * (int64_t)r->size; b += 64) __builtin_prefetch(next + b);
    make_part(h, s->row + o, s->column, s->n, part);
    gemm_panel_row(r->dtype, s->m, s->n, o, part, s->g);
  }
}

static void slab_gradients(
    struct call *c, const struct loss_slab *s, int64_t k, const void *x, void *w)
{
  const struct vec_ops *r = s->head.r;
  const struct operand *out = c->out;
  if (out[0].p) gemm_pack(r->dtype, false, k, s->n, vec_at(r, c->in[2].p, s->column * k), k, w);
  struct gemm_both b = { .dtype = r->dtype,
    .m = s->m,
    .n = s->n,
    .k = k,
    .g = s->g,
    .x = x,
    .w = w,
    .dx = vec_at(r, out[0].p, s->row * k),
    .dw = vec_at(r, out[1].p, s->column * k),
    .db = c->nout > 2 ? vec_at(r, out[2].p, s->column) : NULL,
    .add_x = s->column > 0 || c->add & 1,
    .add_w = s->row > 0 || c->add >> 1 & 1,
    .add_b = s->row > 0 || c->add >> 2 & 1 };
  gemm_both(&b);
}

int linear_loss_backward(struct call *c)
{
  const struct loss_plan p = make_loss_plan(c);
  const struct linear_sizes z = p.z;
  struct loss_slab s = { .head = make_head(c), .g = c->tmp };
  const struct vec_ops *r = s.head.r;
  const int64_t cost = s.head.picks && !s.head.log.exponentials ? EXPONENTIAL : 1;
  char *x = (char *)c->tmp + p.g, *w = x + p.x;
  for (; s.row < z.m; s.row += p.rows) {
    s.m = MIN(p.rows, z.m - s.row);
    if (c->out[1].p)
      gemm_pack(r->dtype, false, z.k, s.m, vec_at(r, c->in[1].p, s.row * z.k), z.k, x);
    for (s.column = 0; s.column < z.n; s.column += p.columns) {
      s.n = MIN(p.columns, z.n - s.column);
      parallel_for(s.m, elements_ns(s.n * cost), slab_rows, &s);
      slab_gradients(c, &s, z.k, x, w);
    }
  }
  return TY_OK;
}

size_t linear_loss_whole_scratch(const struct call *c)
{
  const struct linear_sizes z = make_linear_sizes(&c->in[1].d, &c->in[2].d);
  return (size_t)(z.m * z.n) * dtype_size(c->in[2].d.dtype);
}

void linear_loss_whole(const struct call *c, struct operand in[3])
{
  struct linear_sizes z = make_linear_sizes(&c->in[1].d, &c->in[2].d);
  const struct head head = make_head(c);
  for (int64_t o = 0; o < z.m; o++)
    make_part(&head, o, 0, z.n, vec_at(head.r, c->tmp, o * z.n));
  in[0] = (struct operand){ .p = c->tmp, .d = { .dtype = c->in[2].d.dtype } };
  for (int i = 1; i < 3; i++) in[i] = c->in[i];
}
