/* pooling_forward.c - outputs of pooling, a piece or a plane at a time.
**
** With inner = 1 the rows of a window are first reduced to one line, then its columns. For its
** gradient max stores a byte per window: the number of the first tap that is the maximum, or
** NO_TAP.
*/
#include "operators/nn/pooling.h"
#include "kernel/vec/pool.h"

/* Returns the result of a window without elements. */
static double empty_window(const struct pool *p)
{
  return p->type == POOL_MAX ? p->lowest : 0;
}

static void tap_forward(const struct pool *p, void *row, int64_t in_at, int64_t out_at,
    int64_t row_at, int64_t stride, int64_t n)
{
  const struct vec_ops *r = p->r;
  if (p->type == POOL_MAX)
    r->pool->tap_max(vec_at(r, p->out, out_at), vec_at(r, p->x, in_at), stride, n);
  else
    r->pool->tap_add(vec_at(r, p->out, out_at), vec_at(r, p->x, in_at), stride, (int)p->power, n);
}

static void pool_block(const struct pool *p, const struct pool_piece *q, void *y)
{
  int64_t x;
  struct pool_row w = pool_block_row(p, q, &x);
  p->r->pool->block_pool(y, vec_at(p->r, p->x, x), &w, p->type == POOL_MAX);
  if (p->argmax)
    p->r->pool->block_argmax(p->argmax + pool_output_at(p, q, q->w), y, vec_at(p->r, p->x, x), &w);
}

/* -- reduced rows: inner = 1 ------------------------------------------------------------------- */

/* Reduces the rows of the windows of a piece to one line, for input columns s. */
static void reduce_rows(
    const struct pool *p, const struct pool_piece *q, const struct pool_columns *s, void *line)
{
  const struct vec_ops *r = p->r;
  const struct pool_axis *d = &p->g.a[0], *h = &p->g.a[1];
  for (int64_t kd = pool_first_tap(d, q->d); kd < pool_end_tap(d, q->d); kd++)
    for (int64_t kh = pool_first_tap(h, q->h); kh < pool_end_tap(h, q->h); kh++) {
      const void *x = vec_at(r, p->x, pool_line_at(p, q, kd, kh) + s->x);
      if (p->type == POOL_MAX)
        r->pool->tap_max(line, x, 1, s->n);
      else
        r->pool->tap_add(line, x, 1, (int)p->power, s->n);
    }
}

/* Reduces the columns of a line to the outputs of a piece. */
static void reduce_columns(const struct pool *p, const struct pool_piece *q,
    const struct pool_columns *s, const void *line, void *row)
{
  const struct vec_ops *r = p->r;
  const struct pool_axis *w = &p->g.a[2];
  for (int64_t k = 0; k < w->kernel; k++) {
    int64_t from, n = pool_outputs_under(w, q, k, &from);
    if (n <= 0) continue;
    const void *x = vec_at(r, line, from * w->stride - w->pad + k - s->x);
    void *y = vec_at(r, row, from - q->w);
    if (p->type == POOL_MAX)
      r->pool->tap_max(y, x, w->stride, n);
    else
      r->pool->tap_add(y, x, w->stride, 1, n);
  }
}

static void reduce_piece(const struct pool *p, const struct pool_piece *q, void *row)
{
  _Alignas(64) char line[POOL_WIDE * sizeof(double)];
  struct pool_columns s = pool_find_columns(&p->g.a[2], q);
  p->r->fill(line, empty_window(p), s.n);
  reduce_rows(p, q, &s, line);
  reduce_columns(p, q, &s, line, row);
}

/* -- pieces ------------------------------------------------------------------------------------ */

/* Notes the tap of each window's first maximum: taps are visited backwards, so that the first one
** is written last. */
static void find_argmax(const struct pool *p, const struct pool_piece *q)
{
  int32_t argmax[POOL_WIDE];
  const struct pool_axis *h = &p->g.a[1], *w = &p->g.a[2];
  for (int64_t i = 0; i < q->n; i++) argmax[i] = NO_TAP;
  for (int64_t kh = pool_end_tap(h, q->h) - 1; kh >= pool_first_tap(h, q->h); kh--)
    for (int64_t k = w->kernel - 1; k >= 0; k--) {
      int64_t from, n = pool_outputs_under(w, q, k, &from),
                    x = pool_line_at(p, q, 0, kh) + from * w->stride - w->pad + k;
      if (n > 0)
        p->r->pool->argmax(argmax + (from - q->w), vec_at(p->r, p->x, x),
            vec_at(p->r, p->out, pool_output_at(p, q, from)), w->stride,
            (int32_t)(kh * w->kernel + k), n);
    }
  uint8_t *out = p->argmax + pool_output_at(p, q, q->w);
  for (int64_t i = 0; i < q->n; i++) out[i] = (uint8_t)argmax[i];
}

/* Raises a maximum below 0 to 0 where the window covers padding, which counts as zeros. */
static void raise_to_zero(const struct pool *p, const struct pool_piece *q, void *y)
{
  const struct vec_ops *r = p->r;
  for (int64_t w = 0; w < q->n; w++) {
    if (!pool_covers_pad(p, q, q->w + w)) continue;
    for (int64_t i = w * q->m; i < (w + 1) * q->m; i++)
      if (r->get(y, i) < 0) r->set(y, i, 0);
  }
}

void pool_piece_forward(const struct pool *p, const struct pool_piece *q)
{
  const struct vec_ops *r = p->r;
  void *y = vec_at(r, p->out, pool_output_at(p, q, q->w));
  r->fill(y, empty_window(p), q->n * q->m);
  if (p->separable)
    reduce_piece(p, q, y);
  else if (p->blocks)
    pool_block(p, q, y);
  else
    pool_each_tap(p, q, NULL, tap_forward);
  if (p->type == POOL_AVG) pool_average_row(p, q, y);
  if (p->type == POOL_MAX && p->zeros) raise_to_zero(p, q, y);
  if (p->type == POOL_LP) r->pool->root(y, (int)p->power, q->n * q->m);
  if (p->argmax && !p->blocks) find_argmax(p, q);
}

/* -- planes ------------------------------------------------------------------------------------ */

void pool_pairs_forward(const struct pool *p, int64_t plane)
{
  const struct vec_ops *r = p->r;
  const struct pool_axis *h = &p->g.a[1], *w = &p->g.a[2];
  for (int64_t y = 0; y < h->out; y++) {
    int64_t in = (plane * h->in + 2 * y) * w->in, out = (plane * h->out + y) * w->out;
    void *x0 = vec_at(r, p->x, in), *x1 = vec_at(r, p->x, in + w->in);
    r->pool->max2(vec_at(r, p->out, out), x0, x1, p->lowest, w->out);
    if (p->argmax) r->pool->max2_argmax(p->argmax + out, x0, x1, vec_at(r, p->out, out), w->out);
  }
}

/* Computes the maxima of a plane whose windows have few columns, without reducing rows first. */
void pool_small_forward(const struct pool *p, int64_t plane)
{
  const struct vec_ops *r = p->r;
  const struct pool_axis *h = &p->g.a[1], *w = &p->g.a[2];
  /* windows from `left` to before `right` are inside the width */
  const int64_t left = MIN(pool_ceil_div(w->pad, w->stride), w->out),
                last = w->in + w->pad - w->kernel,
                right = last < 0 ? left : MAX(MIN(last / w->stride + 1, w->out), left);
  for (int64_t y = 0; y < h->out; y++) {
    const int64_t first = pool_first_tap(h, y), rows = MAX(pool_end_tap(h, y) - first, 0),
                  line = (plane * h->in + y * h->stride - h->pad + first) * w->in,
                  out = (plane * h->out + y) * w->out;
    if (right > left)
      r->pool->windows_max(vec_at(r, p->out, out + left),
          vec_at(r, p->x, line + left * w->stride - w->pad), rows, w->in, w->kernel, w->stride,
          p->lowest, right - left);
    for (int64_t x = left > 0 ? 0 : right; x < w->out; x = x + 1 == left ? right : x + 1) {
      const int64_t from = MAX(x * w->stride - w->pad, 0),
                    columns = MIN(x * w->stride - w->pad + w->kernel, w->in) - from;
      r->pool->windows_max(vec_at(r, p->out, out + x), vec_at(r, p->x, line + from), rows, w->in,
          columns, w->stride, p->lowest, 1);
    }
  }
}

/* Computes the output of a plane of n elements that is one window; not for lp. */
void pool_whole_forward(const struct pool *p, int64_t plane, int64_t n)
{
  const struct vec_ops *r = p->r;
  void *x = vec_at(r, p->x, plane * n), *y = vec_at(r, p->out, plane);
  r->set(y, 0,
      p->type == POOL_MAX ? fmax(r->max(x, n), empty_window(p))
                          : r->sum(x, n) * (p->type == POOL_AVG ? 1 / (double)n : 1));
  if (!p->argmax) return;
  int64_t i = 0;
  while (i < n && r->get(x, i) != r->get(y, 0)) i++;
  p->argmax[plane] = (uint8_t)(i < n ? i : NO_TAP);
}
