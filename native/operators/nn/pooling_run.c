/* pooling_run.c - loops over planes and pieces, forward or backward. */
#include "operators/nn/pooling.h"

/* Runs a row of outputs, in pieces of at most POOL_WIDE elements. */
static void run_row(const struct pool *p, struct pool_piece q)
{
  int64_t inner = p->g.inner, width = p->g.a[2].out,
          most = p->separable ? (POOL_WIDE - p->g.a[2].kernel) / p->g.a[2].stride + 1 : POOL_WIDE;
  for (q.c = 0; q.c < inner; q.c += q.m) {
    q.m = MIN(inner - q.c, POOL_WIDE);
    for (q.w = 0; q.w < width; q.w += q.n) {
      q.n = q.m < inner ? 1 : MIN(width - q.w, most / q.m);
      (p->back ? pool_piece_backward : pool_piece_forward)(p, &q);
    }
  }
}

static void run_planes(int64_t begin, int64_t end, void *context)
{
  const struct pool *p = context;
  const struct pool_axis *a = p->g.a;
  int64_t plane = a[0].in * a[1].in * a[2].in * p->g.inner;
  bool writes_all = p->pairs && 2 * a[1].out == a[1].in && 2 * a[2].out == a[2].in;
  for (int64_t i = begin; i < end; i++) {
    if (p->whole) {
      (p->back ? pool_whole_backward : pool_whole_forward)(p, i, plane);
      continue;
    }
    if (p->back && !writes_all)
      memset(vec_at(p->r, p->out, i * plane), 0, p->r->size * (size_t)plane);
    if (p->pairs) {
      (p->back ? pool_pairs_backward : pool_pairs_forward)(p, i);
      continue;
    }
    if (p->small) {
      pool_small_forward(p, i);
      continue;
    }
    for (int64_t d = 0; d < a[0].out; d++)
      for (int64_t h = 0; h < a[1].out; h++)
        run_row(p, (struct pool_piece){ .plane = i, .d = d, .h = h });
  }
}

static bool two_by_two(const struct pool_planes *g)
{
  for (int i = 1; i < 3; i++)
    if (g->a[i].kernel != 2 || g->a[i].stride != 2 || g->a[i].pad || 2 * g->a[i].out > g->a[i].in)
      return false;
  return g->ndim == 2 && g->inner == 1;
}

enum {
  /* most columns of a window whose rows and columns are reduced together */
  SMALL_WINDOW = 3,
  /* how much faster that is per element than reduction via a line (0.2 ns, measured 2026-11-28) */
  SMALL_WINDOW_SPEED = 3,
};

static bool small_windows(const struct pool *p)
{
  return p->type == POOL_MAX && !p->back && !p->argmax && !p->zeros && p->g.ndim <= 2 &&
      p->g.inner == 1 && p->g.a[2].kernel <= SMALL_WINDOW;
}

static bool whole_planes(const struct pool_planes *g)
{
  for (int i = 0; i < 3; i++)
    if (g->a[i].kernel != g->a[i].in || g->a[i].out != 1 || g->a[i].pad) return false;
  return g->inner == 1;
}

void pool_run(struct pool *p)
{
  const struct pool_axis *a = p->g.a;
  int64_t taps = a[0].kernel * a[1].kernel * a[2].kernel,
          outputs = a[0].out * a[1].out * a[2].out * p->g.inner;
  p->pairs = p->type == POOL_MAX && !p->zeros && two_by_two(&p->g) && (!p->back || p->argmax);
  p->whole = p->type != POOL_LP && whole_planes(&p->g);
  p->small = small_windows(p);
  p->separable = p->g.inner == 1 && a[2].kernel <= POOL_WIDE / 2 && a[0].kernel * a[1].kernel > 1 &&
      !(p->back && (p->type == POOL_MAX || p->type == POOL_LP));
  const double ns = elements_ns(taps * outputs);
  parallel_for_stoppable(p->g.outer, p->small ? ns / SMALL_WINDOW_SPEED : ns, run_planes, p);
}
