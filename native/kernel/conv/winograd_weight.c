/* winograd_weight.c - the gradient of the weight by Winograd's F(4 x 4, 3 x 3), the transpose of
** the forward product. See winograd.h.
**
** Some tiles of x and dy at a time are transformed to 36 planes each. The sum over tiles of each
** pair of planes is a matrix of channels x filters, and the 36 matrices are transformed back to
** windows at the end. Tiles are divided into a few shares with their own sums, which are added in
** order; a thread takes a share and some of the filters. With only one share, the sums of some
** filters are transformed back while they are in the thread's cache and are never stored as a
** whole. Which filters a thread takes depends on the number of threads; the order of a sum depends
** on shapes alone. */
#include "kernel/gemm/inner.h"
#include "kernel/conv/winograd_inner.h"

struct weight_gradient {
  const struct window *w;
  const struct winograd_isa *isa;
  const struct gemm_type *t;
  struct tiles tiles;
  int64_t chunk;                                      /* tiles at a time */
  int64_t share;                                      /* tiles of a share */
  int64_t shares;                                     /* number of shares */
  int64_t part;                                       /* filters of a unit */
  int64_t parts;                                      /* units along the filters */
  int64_t in;                                         /* distance of the planes of x, elements */
  int64_t out;                                        /* distance of the planes of dy */
  int64_t sum;                                        /* distance of the planes of sums */
  const float *x, *dy;
  float *dw, *sums, *tmp;
  bool add;
};

static struct weight_gradient winograd_plan_gradient(const struct window *w)
{
  struct weight_gradient g = {
    .w = w, .isa = winograd_isa(), .t = gemm_type(TY_F32), .tiles = make_tiles(w)
  };
  int64_t each = WINOGRAD_POINTS * (w->channels + w->filters) * (int64_t)sizeof(float);
  g.chunk = MIN(MAX(WINOGRAD_CACHE / each, WINOGRAD_MIN_TILES), WINOGRAD_MAX_TILES);
  g.sum = plane_of(w->channels, w->filters);
  int64_t most = MIN(
      WINOGRAD_SHARES, WINOGRAD_SUMS / (WINOGRAD_POINTS * g.sum * (int64_t)sizeof(float)));
  g.shares = MAX(1, MIN(most, g.tiles.all / g.chunk));
  g.share = (g.tiles.all + g.shares - 1) / g.shares;
  g.part = MIN(w->filters, WINOGRAD_PART);
  while (g.part > g.t->nr && w->filters / g.part * g.shares < 2 * parallel_most()) g.part /= 2;
  g.part = (g.part + g.t->nr - 1) / g.t->nr * g.t->nr;
  g.parts = (w->filters + g.part - 1) / g.part;
  g.chunk = MIN(g.chunk, g.share);
  g.in = plane_of(g.chunk, w->channels);
  g.out = plane_of(g.chunk, g.part);
  if (g.shares == 1) g.sum = plane_of(w->channels, g.part);
  return g;
}

static bool winograd_has_one_share(const struct weight_gradient *g)
{
  return g->shares == 1;
}

/* Returns the floats of a thread's scratch; the function below, those of the shares' sums. */
static int64_t winograd_count_thread_floats(const struct weight_gradient *g)
{
  return WINOGRAD_POINTS * (g->in + g->out + (winograd_has_one_share(g) ? g->sum : 0));
}
static int64_t winograd_count_sums(const struct weight_gradient *g)
{
  return winograd_has_one_share(g) ? 0 : g->shares * WINOGRAD_POINTS * g->sum;
}
static int64_t winograd_count_units(const struct weight_gradient *g)
{
  return g->shares * g->parts;
}

size_t winograd_weight_scratch(const struct window *w)
{
  struct weight_gradient g = winograd_plan_gradient(w);
  const int64_t threads = MIN(winograd_count_units(&g), parallel_most());
  return (size_t)(winograd_count_sums(&g) + winograd_count_thread_floats(&g) * threads) *
      sizeof(float);
}

/* -- some tiles of some filters ---------------------------------------------------------------- */

struct tile_chunk { int64_t from, n, first, filters; float *in, *out, *sums; bool add; };

/* Transforms x: blocks of channels one after the other, each tiles x lanes, the left side of the
** products, which is read along tiles. */
static void winograd_carry_x(const struct weight_gradient *g, const struct tile_chunk *k,
    const struct tile_run *p, int64_t t)
{
  const struct window *w = g->w;
  const int lanes = g->isa->lanes;
  struct winograd_run r = { .h = w->in[1],
    .w = w->in[2],
    .y = p->y - w->pad[1],
    .x = p->x - w->pad[2],
    .apart = 1,
    .n = p->n,
    .down = p->down,
    .across = p->across,
    .plane = g->in,
    .step = lanes };
  for (int64_t c = 0; c < w->channels; c += lanes) {
    r.image = (float *)g->x + (p->image * w->channels + c) * r.h * r.w;
    r.points = k->in + c * k->n + t * lanes;
    g->isa->input(&r);
  }
}

/* Transforms dy: panels of filters, each tiles x its filters, the right side. */
static void winograd_carry_dy(const struct weight_gradient *g, const struct tile_chunk *k,
    const struct tile_run *p, int64_t t)
{
  const struct window *w = g->w;
  const int nr = g->t->nr;
  struct winograd_run r = { .h = w->out[1],
    .w = w->out[2],
    .y = p->y,
    .x = p->x,
    .apart = 1,
    .n = p->n,
    .down = p->down,
    .across = p->across,
    .plane = g->out };
  for (int64_t f = 0; f < k->filters; f += g->isa->lanes) {
    int64_t panel = f / nr * nr;
    r.step = MIN(k->filters - panel, nr);
    r.image = (float *)g->dy + (p->image * w->filters + k->first + f) * r.h * r.w;
    r.points = k->out + panel * k->n + t * r.step + f - panel;
    g->isa->output_back(&r);
  }
}

/* Adds the products of a chunk to sums in panels of filters, each channels x its filters. */
static void winograd_multiply_points(const struct weight_gradient *g, const struct tile_chunk *k)
{
  const int64_t channels = g->w->channels, lanes = g->isa->lanes, nr = g->t->nr;
  struct gemm_block b = { .m = lanes,
    .k = k->n,
    .outer = 1,
    .ars = 1,
    .acs = lanes,
    .strip = gemm_height(lanes, g->t->mr),
    .alpha = 1,
    .add = k->add };
  for (int i = 0; i < WINOGRAD_POINTS; i++)
    for (int64_t f = 0; f < k->filters; f += nr) {
      b.n = b.ldc = MIN(k->filters - f, nr);
      b.b = k->out + i * g->out + f * k->n;
      for (int64_t c = 0; c < channels; c += lanes) {
        b.a = k->in + i * g->in + c * k->n;
        b.c = k->sums + i * g->sum + f * channels + c * b.n;
        g->t->block(&b);
      }
    }
}

/* -- sums to dw -------------------------------------------------------------------------------- */

/* Transforms the sums of n filters from `first` on back to windows, few channels at a time, in the
** order of memory. */
static void winograd_carry_back(
    const struct weight_gradient *g, float *sums, int64_t first, int64_t n)
{
  const int64_t channels = g->w->channels, nr = g->t->nr, lanes = g->isa->lanes;
  struct winograd_filter f = {
    .row = 9, .lane = 9 * channels, .n = lanes, .add = g->add, .plane = g->sum
  };
  for (int64_t panel = 0; panel < n; panel += nr) {
    f.step = MIN(n - panel, nr);
    for (int64_t c = 0; c < channels; c += lanes)
      for (int64_t l = 0; l < f.step; l += lanes) {
        f.window = g->dw + (first + panel + l) * f.lane + c * f.row;
        f.points = sums + panel * channels + c * f.step + l;
        g->isa->filter_back(&f);
      }
  }
}

/* Adds up the shares; a unit is a panel of filters. */
static void winograd_add_shares(int64_t begin, int64_t end, void *context)
{
  const struct weight_gradient *g = context;
  const int64_t channels = g->w->channels, nr = g->t->nr;
  for (int64_t first = begin * nr; first < MIN(end * nr, g->w->filters); first += nr) {
    const int64_t n = MIN(g->w->filters - first, nr);
    float *sums = g->sums + first * channels;
    for (int i = 0; i < WINOGRAD_POINTS; i++)
      for (int64_t s = 1; s < g->shares; s++)
        g->t->axpy(
            channels * n, 1, sums + (s * WINOGRAD_POINTS + i) * g->sum, 1, sums + i * g->sum);
    winograd_carry_back(g, sums, first, n);
  }
}

/* -- the whole gradient ------------------------------------------------------------------------ */

/* Computes sums; a unit is a share and a part of the filters. */
static void winograd_run_units(int64_t begin, int64_t end, void *context)
{
  const struct weight_gradient *g = context;
  const bool few = winograd_count_units(g) < parallel_most();
  for (int64_t u = begin; u < end; u++) {
    int64_t share = u / g->parts, last = MIN((share + 1) * g->share, g->tiles.all);
    struct tile_chunk k = { .from = share * g->share, .first = u % g->parts * g->part };
    k.filters = MIN(g->part, g->w->filters - k.first);
    k.in = g->tmp + winograd_count_thread_floats(g) * (few ? u : parallel_index());
    k.out = k.in + WINOGRAD_POINTS * g->in;
    k.sums = winograd_has_one_share(g) ? k.out + WINOGRAD_POINTS * g->out
                      : g->sums + share * WINOGRAD_POINTS * g->sum + k.first * g->w->channels;
    for (; k.from < last; k.from += k.n, k.add = true) {
      k.n = MIN(g->chunk, last - k.from);
      for (int64_t t = 0; t < k.n;) {
        struct tile_run p = tile_run_at(&g->tiles, k.from + t, k.n - t);
        winograd_carry_x(g, &k, &p, t);
        winograd_carry_dy(g, &k, &p, t);
        t += p.n;
      }
      winograd_multiply_points(g, &k);
    }
    if (winograd_has_one_share(g)) winograd_carry_back(g, k.sums, k.first, k.filters);
  }
}

void winograd_weight(
    const struct window *w, const float *x, const float *dy, float *dw, bool add, void *tmp)
{
  struct weight_gradient g = winograd_plan_gradient(w);
  g.x = x, g.dy = dy, g.dw = dw, g.add = add, g.sums = tmp;
  g.tmp = g.sums + winograd_count_sums(&g);
  parallel_chunks_stoppable(winograd_count_units(&g), 1, winograd_run_units, &g);
  if (!winograd_has_one_share(&g))
    parallel_for_stoppable((w->filters + g.t->nr - 1) / g.t->nr,
        cost_ns(WINOGRAD_PACK_NS, w->channels), winograd_add_shares, &g);
}
