/* winograd.c - forward and the gradient of the data by Winograd's F(4 x 4, 3 x 3). See winograd.h.
**
** The weight is transformed to 36 matrices of channels x filters, packed into panels. Tiles of all
** images form one row. A thread takes a group of tiles, transforms their inputs to 36 planes of
** tiles x channels, multiplies each by its matrix into planes of tiles x filters, and transforms
** these back. A group's planes fit the second-level cache if possible; with many channels groups
** are larger, since each group reads the whole weight. A large weight that is used for only one run
** is never packed as a whole: all tiles are transformed first, then each thread packs some filters
** and multiplies all tiles by them ("late"). The gradient of the data is the convolution of dy with
** windows turned by 180 degrees and channels and filters exchanged. No sum depends on the
** groups. */
#include "kernel/blocked.h"
#include "kernel/gemm/inner.h"
#include "kernel/conv/winograd_inner.h"

#define TABLES(isa) extern const struct winograd_isa winograd_isa_##isa;
EACH_ISA(TABLES)
#define TABLE(isa) &winograd_isa_##isa,
static const struct winograd_isa *const transforms[] = { EACH_ISA(TABLE) };

const struct winograd_isa *winograd_isa(void) { return transforms[cpu_isa()]; }

/* -- which calls are taken --------------------------------------------------------------------- */

bool winograd_on(void)
{
  static int on = -1;
  int known = __atomic_load_n(&on, __ATOMIC_RELAXED);
  if (known < 0)
    __atomic_store_n(&on, known = env_number("TYCHO_WINOGRAD", 1) != 0, __ATOMIC_RELAXED);
  return known;
}

bool winograd_able(const struct window *w, bool back)
{
  const int lanes = winograd_isa()->lanes;
  if (w->dtype != TY_F32 || w->groups > 1 || w->kernel[0] != 1 || w->in[0] != 1 || w->pad[0])
    return false;
  for (int a = 1; a < 3; a++)
    if (w->kernel[a] != 3 || w->stride[a] != 1 || w->pad[a] > 2) return false;
  if (w->dilate[2] != 1 || (back && w->dilate[1] != 1)) return false;
  return cpu_channel_block() == lanes && w->channels % lanes == 0 && w->filters % lanes == 0;
}

/* Returns NULL or the reason, see winograd.h. For gradients, less of a tile may be outside the
** image than forward (see kernel/conv/tuning.h for how limits were measured). */
const char *winograd_refuse(const struct window *w, bool back, bool keeps)
{
  const int64_t tiles = make_tiles(w).all;
  if (!winograd_on()) return "TYCHO_WINOGRAD=0";
  if (cpu_isa() == CPU_BASELINE) return "made for AVX2, AVX-512 and NEON";
  if (!winograd_able(w, back)) return "not 3 x 3 of stride 1 over whole blocks of channels";
  if (MIN(w->channels, w->filters) < WINOGRAD_MIN_CHANNELS) return "few channels";
  const int64_t least = keeps ? WINOGRAD_MIN_TILES_KEPT
      : back                  ? WINOGRAD_MIN_TILES_BACKWARD
                              : WINOGRAD_MIN_TILES_FRESH;
  if (tiles < least) return "few tiles";
  bool waste = 2 * tiles * WINOGRAD_TILE * WINOGRAD_TILE > (back ? 3 : 4) * w->n * window_out(w);
  return waste ? "too much of its tiles is outside the image" : NULL;
}

enum { TILE = WINOGRAD_TILE };

/* -- tiles ------------------------------------------------------------------------------------- */

/* Returns how many rows of tiles the result rows first, first + apart, ... of an image have. */
static int64_t winograd_count_tile_rows(const struct tiles *t, int64_t first)
{
  const int64_t rows = (t->height - first + t->apart - 1) / t->apart;
  return (rows + TILE - 1) / TILE;
}

struct tiles make_tiles(const struct window *w)
{
  struct tiles t = { .height = w->out[1],
    .width = w->out[2],
    .apart = w->dilate[1],
    .across = (w->out[2] + TILE - 1) / TILE };
  for (int64_t first = 0; first < MIN(t.apart, t.height); first++)
    t.down += winograd_count_tile_rows(&t, first);
  t.all = w->n * t.down * t.across;
  return t;
}

/* Returns the distance of planes, in elements. It is not a power of two, since the lines of all
** planes would then share a few sets of a cache. */
int64_t plane_of(int64_t tiles, int64_t channels) { return (tiles * channels + 31) / 32 * 32 + 16; }

struct tile_run tile_run_at(const struct tiles *s, int64_t t, int64_t n)
{
  const int64_t column = t % s->across, x = column * TILE, whole = s->width / TILE - column;
  int64_t row = t / s->across % s->down, first = 0;
  for (int64_t down; (down = winograd_count_tile_rows(s, first)) <= row; first++) row -= down;
  const int64_t y = first + row * TILE * s->apart;
  return (struct tile_run){ .image = t / s->across / s->down,
    .y = y,
    .x = x,
    .n = whole > 0 ? MIN(n, whole) : 1,
    .down = (int)MIN(TILE, (s->height - y + s->apart - 1) / s->apart),
    .across = (int)MIN(TILE, s->width - x) };
}

/* -- groups ------------------------------------------------------------------------------------ */

struct convolution {
  const struct window *w;
  const struct winograd_isa *isa;
  const struct gemm_type *t;
  struct tiles tiles;
  int nr;                                             /* filters of a panel */
  bool late;                                          /* the weight is packed part by part */
  bool turned;                                        /* data's gradient: windows are turned */
  int64_t group;                                      /* tiles of a unit */
  int64_t part;                                       /* filters of a unit */
  int64_t parts;                                      /* units along the filters */
  /* distance of the planes of channels, in elements */
  int64_t in;
  int64_t out;                                        /* distance of the planes of filters */
  int64_t plane;                                      /* distance of the planes of the weight */
  const float *x;
  const float *weight;                                /* packed, unless late */
  float *y, *tmp;
  struct convolve_end end;
};

static size_t winograd_count_packed_bytes(const struct convolution *c)
{
  return align_up(
      (size_t)(WINOGRAD_POINTS * plane_of(c->w->channels, c->w->filters)) * sizeof(float), ALIGN);
}

static int64_t winograd_count_plane_bytes(
    const struct convolution *c, int64_t tiles, int64_t channels)
{
  return WINOGRAD_POINTS * tiles * channels * (int64_t)sizeof(float);
}

/* Chooses groups of tiles. If there are few groups, filters are divided, too. */
static void winograd_plan_groups(struct convolution *c)
{
  const struct window *w = c->w;
  int64_t most = MAX(WINOGRAD_CACHE / winograd_count_plane_bytes(c, 1, w->channels + w->filters),
              WINOGRAD_GROUP),
          groups = (c->tiles.all + most - 1) / most;
  c->group = (c->tiles.all + groups - 1) / groups;
  while (c->part >= 2 * WINOGRAD_PART && w->filters / c->part * groups < 4 * parallel_most())
    c->part /= 2;
}

static void winograd_plan_late(struct convolution *c)
{
  const struct window *w = c->w;
  c->group = c->tiles.all;
  c->part = MIN(w->filters, WINOGRAD_LATE_PART / winograd_count_plane_bytes(c, 1, w->channels));
  while (c->part > c->nr && w->filters / c->part < 2 * parallel_most()) c->part /= 2;
}

/* Plans a convolution. kept: whether the packed weight is kept between runs. */
static struct convolution winograd_plan_convolution(const struct window *w, bool kept)
{
  struct convolution c = { .w = w,
    .isa = winograd_isa(),
    .t = gemm_type(TY_F32),
    .tiles = make_tiles(w),
    .part = w->filters };
  c.nr = c.t->nr;
  c.late = !kept && winograd_count_packed_bytes(&c) >= WINOGRAD_LATE_WEIGHT &&
      winograd_count_plane_bytes(&c, c.tiles.all, w->channels) <= WINOGRAD_LATE_PLANES;
  if (c.late)
    winograd_plan_late(&c);
  else
    winograd_plan_groups(&c);
  c.part = MAX((c.part + c.nr - 1) / c.nr, 1) * c.nr;
  c.parts = (w->filters + c.part - 1) / c.part;
  c.in = plane_of(c.group, w->channels);
  c.out = plane_of(c.group, c.part);
  c.plane = plane_of(w->channels, c.late ? c.part : w->filters);
  return c;
}

/* Returns the floats of a thread's scratch, without the part that all threads share. */
static int64_t winograd_count_thread_floats(const struct convolution *c)
{
  return WINOGRAD_POINTS * (c->out + (c->late ? c->plane : c->in));
}
static int64_t winograd_count_shared_floats(const struct convolution *c)
{
  return c->late ? WINOGRAD_POINTS * c->in : 0;
}
static int64_t winograd_count_units(const struct convolution *c)
{
  return (c->tiles.all + c->group - 1) / c->group * c->parts;
}

static float *winograd_find_thread_scratch(const struct convolution *c, int64_t unit)
{
  const bool few = winograd_count_units(c) < parallel_most();
  return c->tmp + winograd_count_shared_floats(c) +
      winograd_count_thread_floats(c) * (few ? unit : parallel_index());
}

static size_t winograd_count_scratch_bytes(const struct convolution *c)
{
  return (size_t)(winograd_count_shared_floats(c) +
             winograd_count_thread_floats(c) * MIN(winograd_count_units(c), parallel_most())) *
      sizeof(float);
}

static void winograd_carry_in(const struct convolution *c, int64_t from, int64_t n, float *points)
{
  const struct window *w = c->w;
  const int lanes = c->isa->lanes;
  const int64_t space = w->in[1] * w->in[2];
  for (int64_t t = 0; t < n;) {
    struct tile_run p = tile_run_at(&c->tiles, from + t, n - t);
    struct winograd_run r = { .h = w->in[1],
      .w = w->in[2],
      .y = p.y - w->pad[1],
      .x = p.x - w->pad[2],
      .apart = c->tiles.apart,
      .n = p.n,
      .down = p.down,
      .across = p.across,
      .plane = c->in,
      .step = w->channels };
    for (int64_t k = 0; k < w->channels; k += lanes) {
      r.image = (float *)c->x + (p.image * w->channels + k) * space;
      r.points = points + t * w->channels + k;
      c->isa->input(&r);
    }
    t += p.n;
  }
}

static void winograd_activate_image(const struct convolution *c, const struct winograd_run *r)
{
  for (int64_t i = 0; i < r->down; i++)
    c->t->act(c->end.act, r->n * r->across * c->isa->lanes,
        r->image + ((r->y + i * r->apart) * r->w + r->x) * c->isa->lanes);
}

/* Transforms the planes of filters from `first` on to results, for n tiles from `from` on. */
static void winograd_carry_out(
    const struct convolution *c, int64_t from, int64_t n, int64_t first, float *points)
{
  const struct window *w = c->w;
  const int lanes = c->isa->lanes;
  const int64_t space = w->out[1] * w->out[2], filters = MIN(w->filters - first, c->part);
  for (int64_t t = 0; t < n;) {
    struct tile_run p = tile_run_at(&c->tiles, from + t, n - t);
    struct winograd_run r = { .h = w->out[1],
      .w = w->out[2],
      .y = p.y,
      .x = p.x,
      .apart = c->tiles.apart,
      .n = p.n,
      .down = p.down,
      .across = p.across,
      .plane = c->out,
      .step = c->part,
      .relu = c->end.act == ACT_RELU,
      .add = c->end.add };
    for (int64_t k = 0; k < filters; k += lanes) {
      r.image = c->y + (p.image * w->filters + first + k) * space;
      r.points = points + t * c->part + k;
      r.bias = c->end.bias ? (const float *)c->end.bias + first + k : NULL;
      r.scale = c->end.scale ? c->end.scale + first + k : NULL;
      c->isa->output(&r);
      if (c->end.act > ACT_RELU) winograd_activate_image(c, &r);
    }
    t += p.n;
  }
}

/* Multiplies the planes of n tiles by the weight of `filters` filters, panel by panel; each panel
** stays in the first-level cache while all tiles use it. */
static void winograd_multiply_points(const struct convolution *c, int64_t n, const float *weight,
    int64_t filters, const float *in, float *out)
{
  const int64_t k = c->w->channels, nr = c->nr;
  struct gemm_block g = { .m = n,
    .k = k,
    .outer = 1,
    .ars = k,
    .acs = 1,
    .strip = gemm_height(n, c->t->mr) * k,
    .panel = nr * k,
    .ldc = c->part,
    .alpha = 1 };
  for (int i = 0; i < WINOGRAD_POINTS; i++)
    for (int64_t j = 0; j < filters; j += nr) {
      g.n = MIN(filters - j, nr);
      g.a = in + i * c->in;
      g.b = weight + i * c->plane + j * k;
      g.c = out + i * c->out + j;
      gemm_sum(c->t, &g);
    }
}

static int64_t winograd_count_filters_from(const struct convolution *c, int64_t first)
{
  return MIN(c->w->filters - first, c->part);
}

/* Computes units; a unit is a group of tiles and a part of the filters. */
static void winograd_run_units(int64_t begin, int64_t end, void *context)
{
  const struct convolution *c = context;
  for (int64_t u = begin; u < end; u++) {
    float *in = winograd_find_thread_scratch(c, u), *out = in + WINOGRAD_POINTS * c->in;
    int64_t from = u / c->parts * c->group, n = MIN(c->group, c->tiles.all - from),
            first = u % c->parts * c->part;
    winograd_carry_in(c, from, n, in);
    winograd_multiply_points(
        c, n, c->weight + first * c->w->channels, winograd_count_filters_from(c, first), in, out);
    winograd_carry_out(c, from, n, first, out);
  }
}

/* -- weight ------------------------------------------------------------------------------------ */

/* Transforms filters first .. first + n - 1 and packs them into panels, each channels x its
** filters, the layout of the right side in kernel/gemm/isa.h. `first` begins a panel. Handles few
** channels at a time, so that lines of memory are complete before they leave the cache. */
static void winograd_pack_filters(
    const struct convolution *c, const float *weight, int64_t first, int64_t n, float *out)
{
  const int64_t channels = c->w->channels, filters = c->w->filters, nr = c->nr;
  struct winograd_filter f = { .row = c->turned ? filters * 9 : 9,
    .lane = c->turned ? 9 : channels * 9,
    .n = c->isa->lanes,
    .flip = c->turned,
    .plane = c->plane };
  for (int64_t panel = 0; panel < n; panel += nr)
    for (int64_t k = 0; k < channels; k += f.n)
      for (int64_t j = panel; j < MIN(n, panel + nr); j += c->isa->lanes) {
        f.step = MIN(n - panel, nr);
        f.window = (float *)weight + (first + j) * f.lane + k * f.row;
        f.points = out + panel * channels + k * f.step + j - panel;
        c->isa->filter(&f);
      }
}

struct weight_packing { const struct convolution *c; const float *weight; float *out; };

/* Packs the weight; a unit is a panel of filters. */
static void winograd_pack_panels(int64_t begin, int64_t end, void *context)
{
  const struct weight_packing *p = context;
  const int64_t nr = p->c->nr;
  for (int64_t first = begin * nr; first < MIN(end * nr, p->c->w->filters); first += nr)
    winograd_pack_filters(p->c, p->weight, first, MIN(nr, p->c->w->filters - first),
        p->out + first * p->c->w->channels);
}

static void winograd_pack_weight(const struct convolution *c, const float *weight, float *out)
{
  struct weight_packing p = { c, weight, out };
  parallel_for((c->w->filters + c->nr - 1) / c->nr, cost_ns(WINOGRAD_PACK_NS, c->w->channels),
      winograd_pack_panels, &p);
}

/* -- a weight that is packed part by part ------------------------------------------------------ */

/* Transforms inputs; a unit is WINOGRAD_LATE_TILES tiles. */
static void winograd_carry_late_tiles(int64_t begin, int64_t end, void *context)
{
  const struct convolution *c = context;
  const int64_t from = begin * WINOGRAD_LATE_TILES,
                n = MIN(end * WINOGRAD_LATE_TILES, c->tiles.all) - from;
  winograd_carry_in(c, from, n, c->tmp + from * c->w->channels);
}

/* Packs filters and multiplies all tiles by them; a unit is a part of the filters. */
static void winograd_run_late_filters(int64_t begin, int64_t end, void *context)
{
  const struct convolution *c = context;
  for (int64_t u = begin; u < end; u++) {
    float *weight = winograd_find_thread_scratch(c, u), *out = weight + WINOGRAD_POINTS * c->plane;
    int64_t first = u * c->part;
    winograd_pack_filters(c, c->weight, first, winograd_count_filters_from(c, first), weight);
    winograd_multiply_points(
        c, c->tiles.all, weight, winograd_count_filters_from(c, first), c->tmp, out);
    winograd_carry_out(c, 0, c->tiles.all, first, out);
  }
}

static void winograd_run_all(struct convolution *c)
{
  if (c->late)
    parallel_chunks_stoppable((c->tiles.all + WINOGRAD_LATE_TILES - 1) / WINOGRAD_LATE_TILES, 1,
        winograd_carry_late_tiles, c);
  parallel_chunks_stoppable(
      winograd_count_units(c), 1, c->late ? winograd_run_late_filters : winograd_run_units, c);
}

/* -- forward ----------------------------------------------------------------------------------- */

/* Returns true with few tiles, or little work. */
bool winograd_keeps(const struct window *w)
{
  const int64_t tiles = make_tiles(w).all;
  const int64_t products = tiles * WINOGRAD_POINTS * w->channels * w->filters;
  return tiles < WINOGRAD_KEEP_BELOW_TILES || products <= WINOGRAD_KEEP_UP_TO_PRODUCTS;
}

static size_t winograd_count_fresh_bytes(const struct convolution *c)
{
  return c->late ? 0 : winograd_count_packed_bytes(c);
}

size_t winograd_forward_scratch(const struct window *w, bool keeps)
{
  struct convolution c = winograd_plan_convolution(w, keeps);
  return winograd_count_scratch_bytes(&c) + (keeps ? 0 : winograd_count_fresh_bytes(&c));
}

/* Divides tmp, and packs the weight into its beginning unless it is packed part by part. */
static void winograd_take_fresh(struct convolution *c, const float *weight, void *tmp)
{
  c->weight = c->late ? weight : tmp;
  c->tmp = (float *)((char *)tmp + winograd_count_fresh_bytes(c));
  if (!c->late) winograd_pack_weight(c, weight, tmp);
}

int winograd_forward(const struct window *w, const float *x, const struct operand *weight,
    const struct convolve_end *end, float *y, struct gemm_kept *kept, void *tmp)
{
  struct convolution c = winograd_plan_convolution(w, kept);
  c.x = x, c.end = *end, c.y = y;
  if (kept) {
    bool fresh = false;
    float *packed = gemm_kept_buffer(kept, weight, winograd_count_packed_bytes(&c), &fresh);
    if (!packed) return fail(TY_EMEMORY, "no memory for a transformed weight");
    if (!fresh) winograd_pack_weight(&c, weight->p, packed);
    c.weight = packed, c.tmp = tmp;
  }
  else
    winograd_take_fresh(&c, weight->p, tmp);
  winograd_run_all(&c);
  return TY_OK;
}

/* -- the data's gradient ----------------------------------------------------------------------- */

static struct window winograd_make_opposite_window(const struct window *w)
{
  struct window o = *w;
  o.channels = w->filters, o.filters = w->channels;
  for (int a = 1; a < 3; a++) o.in[a] = w->out[a], o.out[a] = w->in[a], o.pad[a] = 2 - w->pad[a];
  return o;
}

size_t winograd_data_scratch(const struct window *w)
{
  const struct window o = winograd_make_opposite_window(w);
  struct convolution c = winograd_plan_convolution(&o, false);
  return winograd_count_scratch_bytes(&c) + winograd_count_fresh_bytes(&c);
}

void winograd_data(
    const struct window *w, const float *dy, const float *weight, float *dx, bool add, void *tmp)
{
  const struct window o = winograd_make_opposite_window(w);
  struct convolution c = winograd_plan_convolution(&o, false);
  c.x = dy, c.y = dx, c.end.add = add, c.turned = true;
  winograd_take_fresh(&c, weight, tmp);
  winograd_run_all(&c);
}
