/* linear_loss.c - gradients of a large softmax layer without the gradient of its product.
**
** That gradient is as large as the layer's output, and two products read it. Here it is made for a slab of columns
** (classes) at a time, which fits a cache: the slab gives its rows of the weight's gradient and its sums for the bias at
** once, and its part of the data's gradient is added up, in order.
*/
#include "gemm.h"
#include "linear_loss.h"
#include "softmax_loss.h"

enum { SLAB = 4 << 20, NARROW = 128 };                /* bytes; columns, at least */

static struct linear_sizes sizes_of(const struct call *c) { return linear_sizes_of(&c->in[1].d, &c->in[2].d); }

static int64_t slab_columns(const struct call *c)
{
  struct linear_sizes z = sizes_of(c);
  int64_t fits = SLAB / (z.m * (int64_t)dtype_size(c->in[0].d.dtype)) / 64 * 64;
  return MIN(z.n, MAX(fits, NARROW));
}

size_t linear_loss_scratch(const struct call *c)
{
  return (size_t)(sizes_of(c).m * slab_columns(c)) * dtype_size(c->in[0].d.dtype);
}

struct slab { struct softmax_loss loss; int64_t from, n; void *g; };

static void slab_rows(int64_t begin, int64_t end, void *context)
{
  const struct slab *s = context;
  for (int64_t o = begin; o < end; o++) softmax_loss_part(&s->loss, o, s->from, s->n, at(s->loss.r, s->g, o * s->n));
}

static int slab_products(struct call *c, struct linear_sizes z, const struct slab *s)
{
  const struct rows *r = s->loss.r;
  const struct arr *x = &c->in[1], *w = &c->in[2], *out = c->out;
  const int dtype = w->d.dtype;
  if (out[0].p) TRY(gemm(dtype, false, false, z.m, z.k, s->n, 1, s->g, s->n, at(r, w->p, s->from * z.k), z.k,
                         s->from > 0 || c->add & 1, out[0].p, z.k));
  if (out[1].p) TRY(gemm(dtype, true, false, s->n, z.k, z.m, 1, s->g, s->n, x->p, z.k, c->add >> 1 & 1,
                         at(r, out[1].p, s->from * z.k), z.k));
  if (c->nout > 2 && out[2].p) sum_columns(dtype, z.m, s->n, s->g, at(r, out[2].p, s->from), c->add >> 2 & 1);
  return TY_OK;
}

int linear_loss_backward(struct call *c)
{
  struct linear_sizes z = sizes_of(c);
  struct slab s = { .loss = softmax_loss_of(c->loss, &c->in[0], &c->in[3]), .g = c->tmp };
  for (int64_t columns = slab_columns(c); s.from < z.n; s.from += columns) {
    s.n = MIN(columns, z.n - s.from);
    parallel(z.m, grain_of(s.n), slab_rows, &s);
    TRY(slab_products(c, z, &s));
  }
  return TY_OK;
}

void linear_loss_whole(const struct call *c, struct arr in[3])
{
  struct linear_sizes z = sizes_of(c);
  struct slab s = { softmax_loss_of(c->loss, &c->in[0], &c->in[3]), 0, z.n, c->tmp };
  slab_rows(0, z.m, &s);
  for (int i = 0; i < 3; i++) in[i] = c->in[i];
  in[0].p = c->tmp;
}
