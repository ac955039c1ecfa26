/* pooling_backward.c - gradients of pooling, a piece or a plane at a time.
**
** The gradient of max goes to the tap that forward has noted. If none was noted (global pooling,
** Pooling_v1, three axes, channels last), taps are compared with the maximum in row-major order:
** the first equal one gets the gradient, or in Pooling_v1 every equal one.
*/
#include "operators/nn/pooling.h"
#include "kernel/vec/pool.h"

static void tap_backward(const struct pool *p, void *row, int64_t in_at, int64_t out_at,
    int64_t row_at, int64_t stride, int64_t n)
{
  const struct vec_ops *r = p->r;
  void *dx = vec_at(r, p->out, in_at), *g = vec_at(r, row, row_at), *x = vec_at(r, p->x, in_at),
       *y = vec_at(r, p->y, out_at);
  if (p->type == POOL_MAX)
    r->pool->tap_max_back(dx, g, x, y, stride, p->zeros, n);
  else if (p->type == POOL_LP)
    r->pool->tap_power_back(dx, g, x, y, stride, (int)p->power, n);
  else
    r->pool->tap_add_back(dx, g, stride, n);
}

static void pool_block_back(const struct pool *p, const struct pool_piece *q, const void *dy)
{
  int64_t x, y_at = pool_output_at(p, q, q->w);
  struct pool_row w = pool_block_row(p, q, &x);
  void *dx = vec_at(p->r, p->out, x);
  if (p->argmax)
    p->r->pool->block_scatter_argmax(dx, p->argmax + y_at, dy, &w);
  else
    p->r->pool->block_pool_back(
        dx, dy, vec_at(p->r, p->x, x), vec_at(p->r, p->y, y_at), &w, p->type == POOL_MAX);
}

/* Adds the gradients of sums and means with inner = 1: first those of the windows' columns into one
** line, then the line to each row. */
static void scatter_piece(const struct pool *p, const struct pool_piece *q, const void *dy)
{
  _Alignas(64) char line[POOL_WIDE * sizeof(double)];
  const struct vec_ops *r = p->r;
  const struct pool_axis *d = &p->g.a[0], *h = &p->g.a[1], *w = &p->g.a[2];
  struct pool_columns s = pool_find_columns(w, q);
  r->fill(line, 0, s.n);
  for (int64_t k = 0; k < w->kernel; k++) {
    int64_t from, n = pool_outputs_under(w, q, k, &from);
    if (n > 0)
      r->pool->tap_add_back(vec_at(r, line, from * w->stride - w->pad + k - s.x),
          vec_at(r, dy, from - q->w), w->stride, n);
  }
  for (int64_t kd = pool_first_tap(d, q->d); kd < pool_end_tap(d, q->d); kd++)
    for (int64_t kh = pool_first_tap(h, q->h); kh < pool_end_tap(h, q->h); kh++)
      r->add(vec_at(r, p->out, pool_line_at(p, q, kd, kh) + s.x), line, s.n);
}

/* Adds the gradients of maxima to the taps that forward has noted. */
static void scatter_argmax(const struct pool *p, const struct pool_piece *q, const void *dy)
{
  /* offsets in the plane, less stride times the output's column */
  int32_t target[POOL_WIDE], tap_at[NO_TAP + 1];
  const struct pool_axis *a = p->g.a, *h = &a[1], *w = &a[2];
  const uint8_t *tap = p->argmax + pool_output_at(p, q, q->w);
  const int64_t plane = q->plane * h->in * w->in,
                corner = (q->h * h->stride - h->pad) * w->in - w->pad;
  for (int64_t k = 0; k < h->kernel * w->kernel; k++)
    tap_at[k] = (int32_t)(corner + k / w->kernel * w->in + k % w->kernel);
  for (int64_t i = 0; i < q->n; i++) target[i] = tap[i] == NO_TAP ? INT32_MIN : tap_at[tap[i]];
  p->r->pool->scatter_argmax(vec_at(p->r, p->out, plane + q->w * w->stride), target, dy,
      w->stride, q->n);
}

/* -- pieces ------------------------------------------------------------------------------------ */

/* Copies n head gradients to row, 0 where a fused relu has no gradient. */
static void copy_heads(const struct pool *p, int64_t from, int64_t n, void *row)
{
  const struct vec_ops *r = p->r;
  if (p->masked)
    r->relu_back(row, vec_at(r, p->dy, from), vec_at(r, p->y, from), 1, 0, n);
  else
    memcpy(row, vec_at(r, p->dy, from), r->size * (size_t)n);
}

/* Uses a copy of the head gradients: avg divides it by the windows' sizes, max sets an element to 0
** when its maximum is found. */
void pool_piece_backward(const struct pool *p, const struct pool_piece *q)
{
  _Alignas(64) char row[POOL_WIDE * sizeof(double)];
  copy_heads(p, pool_output_at(p, q, q->w), q->n * q->m, row);
  if (p->argmax && !p->blocks) {
    scatter_argmax(p, q, row);
    return;
  }
  if (p->type == POOL_AVG) pool_average_row(p, q, row);
  if (p->separable)
    scatter_piece(p, q, row);
  else if (p->blocks)
    pool_block_back(p, q, row);
  else
    pool_each_tap(p, q, row, tap_backward);
}

/* -- planes ------------------------------------------------------------------------------------ */

void pool_pairs_backward(const struct pool *p, int64_t plane)
{
  _Alignas(64) char row[POOL_WIDE * sizeof(double)];
  const struct vec_ops *r = p->r;
  const struct pool_axis *h = &p->g.a[1], *w = &p->g.a[2];
  for (int64_t y = 0; y < h->out; y++)
    for (int64_t x = 0, n; x < w->out; x += n) {
      int64_t in = (plane * h->in + 2 * y) * w->in + 2 * x, out = (plane * h->out + y) * w->out + x;
      n = MIN(w->out - x, POOL_WIDE);
      copy_heads(p, out, n, row);
      r->pool->max2_back(
          vec_at(r, p->out, in), vec_at(r, p->out, in + w->in), p->argmax + out, row, n);
    }
}

/* Computes the gradient of a plane of n elements that is one window; not for lp. */
void pool_whole_backward(const struct pool *p, int64_t plane, int64_t n)
{
  const struct vec_ops *r = p->r;
  void *x = vec_at(r, p->x, plane * n), *dx = vec_at(r, p->out, plane * n);
  double g = r->get(p->dy, plane) * (p->type == POOL_AVG ? 1 / (double)n : 1);
  if (p->masked && !(r->get(p->y, plane) > 0)) g *= 0;
  r->fill(dx, p->type == POOL_MAX ? 0 : g, n);
  if (p->argmax && p->argmax[plane] != NO_TAP) r->set(dx, p->argmax[plane], g);
  if (p->type != POOL_MAX || p->argmax) return;
  for (int64_t i = 0; i < n; i++)
    if (r->get(x, i) == r->get(p->y, plane)) {
      r->set(dx, i, g);
      if (!p->zeros) return;
    }
}
