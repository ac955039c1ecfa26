/* linear_loss.c - gradients of a large FullyConnected before SoftmaxOutput, or before log_softmax
** and pick, without an array for the gradient of the layer's output.
**
** That gradient is as large as the output, and two products read it. Here it is computed in blocks,
** and both products read each block while it is in the cache (gemm_both). The gradient of data may
** overwrite data.
*/
#include "kernel/gemm/gemm.h"
#include "op/op.h"
#include "operators/nn/linear_loss.h"
#include "operators/loss/softmax_loss.h"
#include "operators/nn/picked_log.h"

/* rows between the prefetch of a part of the outputs and its use; rows are on different pages */
enum { FETCH_ROWS = 4 };

/* What the gradient of the product is computed from. */
struct head {
  const struct vec_ops *r;
  const void *y;                                      /* probabilities or their logarithms */
  int64_t m;                                          /* rows */
  int64_t k;                                          /* classes */
  bool    picks;                                      /* `log` is set, else `loss` */
  union {
    struct softmax_loss loss;
    struct picked_log   log;
  };
};

static struct head make_head(const struct call *c)
{
  const struct fused_op *f = find_fused(c, PRE_LOSS_GRAD);
  struct head h = { .r = vec_ops_of(c->in[2].d.dtype), .k = c->in[2].d.dim[0], .picks = !f };
  h.m = make_linear_sizes(&c->in[1].d, &c->in[2].d).m;
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

/* Sets dx[0 .. n - 1] to the gradient of classes from .. from + n - 1 of a row (`fill` of struct
** gemm_both). */
static void make_part(const void *context, int64_t row, int64_t from, int64_t n, void *dx)
{
  const struct head *h = context;
  if (row + FETCH_ROWS < h->m) {
    const char *next = vec_at(h->r, h->y, (row + FETCH_ROWS) * h->k + from);
    for (int64_t b = 0; b < n * (int64_t)h->r->size; b += 64) __builtin_prefetch(next + b);
  }
  if (h->picks)
    picked_log_part(&h->log, row, from, n, dx);
  else
    softmax_loss_part(&h->loss, row, from, n, dx);
}

size_t linear_loss_scratch(const struct call *c)
{
  const struct linear_sizes z = make_linear_sizes(&c->in[1].d, &c->in[2].d);
  return gemm_both_bytes(c->in[2].d.dtype, z.m, z.n, z.k);
}

int linear_loss_backward(struct call *c)
{
  const struct linear_sizes z = make_linear_sizes(&c->in[1].d, &c->in[2].d);
  const struct head head = make_head(c);
  gemm_both(&(struct gemm_both){ .dtype = c->in[2].d.dtype,
    .m = z.m,
    .n = z.n,
    .k = z.k,
    .fill = make_part,
    .context = &head,
    .x = c->in[1].p,
    .w = c->in[2].p,
    .dx = c->out[0].p,
    .dw = c->out[1].p,
    .db = c->nout > 2 ? c->out[2].p : NULL,
    .add_x = c->add & 1,
    .add_w = c->add >> 1 & 1,
    .add_b = c->add >> 2 & 1,
    .tmp = c->tmp });
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
