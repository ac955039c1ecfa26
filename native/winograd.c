/* winograd.c - forward and the data's gradient by Winograd's F(4 x 4, 3 x 3). See winograd.h.
**
** The weight becomes 36 matrices of channels x filters, packed into panels. Tiles of all images stand in one row; a
** thread takes a group of them: carries their inputs into 36 planes of tiles x channels, multiplies each with its matrix
** into planes of tiles x filters, carries these back. A group's planes stay in the second cache while that is possible;
** many channels want larger groups, since each reads the whole weight. The data's gradient is the convolution of dy with
** the windows turned and channels and filters exchanged. No sum depends on the groups.
*/
#include "gemm_inner.h"
#include "winograd_inner.h"

extern const struct winograd_isa winograd_isa_baseline;
#ifdef __x86_64__
extern const struct winograd_isa winograd_isa_avx2, winograd_isa_avx512;
#endif

const struct winograd_isa *winograd_isa(void)
{
#ifdef __x86_64__
  if (cpu_level() == CPU_AVX512) return &winograd_isa_avx512;
  if (cpu_level() == CPU_AVX2) return &winograd_isa_avx2;
#endif
  return &winograd_isa_baseline;
}

/* -- who wants it -------------------------------------------------------------------------------------------------- */

bool winograd_on(void)
{
  static int on = -1;
  int known = __atomic_load_n(&on, __ATOMIC_RELAXED);
  if (known < 0) __atomic_store_n(&on, known = env_number("TYCHO_WINOGRAD", 1) != 0, __ATOMIC_RELAXED);
  return known;
}

bool winograd_able(const struct window *w)
{
  const int lanes = winograd_isa()->lanes;
  if (w->dtype != TY_F32 || w->groups > 1 || w->kernel[0] != 1 || w->in[0] != 1 || w->pad[0]) return false;
  for (int a = 1; a < 3; a++)
    if (w->kernel[a] != 3 || w->stride[a] != 1 || w->dilate[a] != 1 || w->pad[a] > 2) return false;
  return channel_block(TY_CPU) == lanes && w->channels % lanes == 0 && w->filters % lanes == 0;
}

enum { FEW_CHANNELS = 16, FEW_TILES = 16, KEPT_TILES = 32, ANEW_TILES = 48 };

/* Measured with AVX2 against oneDNN's direct kernels: a weight must be carried for enough tiles, more if that happens at
** each run; gradients bear less of a tile outside the image. With AVX-512 oneDNN has tiles of its own. */
const char *winograd_refuse(const struct window *w, bool back, bool keeps)
{
  const int64_t tiles = tiles_of(w).all;
  if (!winograd_on()) return "TYCHO_WINOGRAD=0";
  if (cpu_level() != CPU_AVX2) return "made for AVX2";
  if (!winograd_able(w)) return "not 3 x 3 of stride 1 over whole blocks of channels";
  if (MIN(w->channels, w->filters) < FEW_CHANNELS) return "few channels";
  if (tiles < (keeps ? FEW_TILES : ANEW_TILES)) return "few tiles";
  bool waste = 2 * tiles * WINOGRAD_TILE * WINOGRAD_TILE > (back ? 3 : 4) * w->n * window_out(w);
  return waste ? "too much of its tiles is outside the image" : NULL;
}

/* -- tiles --------------------------------------------------------------------------------------------------------- */

struct tiles tiles_of(const struct window *w)
{
  struct tiles t = { .down = (w->out[1] + WINOGRAD_TILE - 1) / WINOGRAD_TILE,
                     .across = (w->out[2] + WINOGRAD_TILE - 1) / WINOGRAD_TILE };
  t.all = w->n * t.down * t.across;
  return t;
}

/* Elements from one plane to the next: not a power of two, whose lines would share a few places in a cache. */
int64_t plane_of(int64_t tiles, int64_t channels) { return (tiles * channels + 31) / 32 * 32 + 16; }

/* The run of tiles from tile t on, at most n: in one row of one image. */
struct place place_of(const struct tiles *s, int64_t t, int64_t n)
{
  int64_t x = t % s->across;
  return (struct place){ t / s->across / s->down, t / s->across % s->down * WINOGRAD_TILE, x * WINOGRAD_TILE,
                         MIN(n, s->across - x) };
}

/* -- groups -------------------------------------------------------------------------------------------------------- */

struct convolution {
  const struct window *w;
  const struct winograd_isa *isa;
  const struct gemm_type *t;
  struct tiles tiles;
  int64_t group, part, parts, in, out;                /* tiles; filters, and how often; planes of channels, of filters */
  const float *x, *weight; float *y, *tmp;
  struct winograd_end end;
};

/* bytes of a group's planes; tiles that pay for reading the weight; filters that pay for carrying all of x */
enum { CACHE = 384 << 10, GROUP = 24, PART = 64 };

/* Few groups share their filters out, each part with an input of its own. */
static struct convolution plan(const struct window *w)
{
  struct convolution c = { .w = w, .isa = winograd_isa(), .t = gemm_type(TY_F32), .tiles = tiles_of(w), .part = w->filters };
  int64_t each = WINOGRAD_POINTS * (w->channels + w->filters) * (int64_t)sizeof(float);
  int64_t most = MAX(CACHE / each, GROUP), groups = (c.tiles.all + most - 1) / most;
  c.group = (c.tiles.all + groups - 1) / groups;
  while (c.part >= 2 * PART && w->filters / c.part * groups < 4 * parallel_most()) c.part /= 2;
  c.part = (c.part + c.t->nr - 1) / c.t->nr * c.t->nr;
  c.parts = (w->filters + c.part - 1) / c.part;
  c.in = plane_of(c.group, w->channels);
  c.out = plane_of(c.group, c.part);
  return c;
}

static int64_t room(const struct convolution *c) { return WINOGRAD_POINTS * (c->in + c->out); }
static int64_t units(const struct convolution *c) { return (c->tiles.all + c->group - 1) / c->group * c->parts; }

static size_t rooms(const struct convolution *c)
{
  return (size_t)(room(c) * MIN(units(c), parallel_most())) * sizeof(float);
}

static void carry_in(const struct convolution *c, int64_t from, int64_t n, float *points)
{
  const struct window *w = c->w;
  const int lanes = c->isa->lanes;
  const int64_t space = w->in[1] * w->in[2];
  for (int64_t t = 0; t < n;) {
    struct place p = place_of(&c->tiles, from + t, n - t);
    struct winograd_run r = { .h = w->in[1], .w = w->in[2], .y = p.y - w->pad[1], .x = p.x - w->pad[2], .n = p.n,
                              .plane = c->in, .step = w->channels };
    for (int64_t k = 0; k < w->channels; k += lanes) {
      r.image = (float *)c->x + (p.image * w->channels + k) * space;
      r.points = points + t * w->channels + k;
      c->isa->input(&r);
    }
    t += p.n;
  }
}

static void activate(const struct convolution *c, const struct winograd_run *r)
{
  const int64_t columns = MIN(r->w - r->x, r->n * WINOGRAD_TILE), rows = MIN(r->h - r->y, WINOGRAD_TILE);
  for (int64_t i = 0; i < rows; i++)
    c->t->act(c->end.act, columns * c->isa->lanes, r->image + ((r->y + i) * r->w + r->x) * c->isa->lanes);
}

/* the filters from `first` on */
static void carry_out(const struct convolution *c, int64_t from, int64_t n, int64_t first, float *points)
{
  const struct window *w = c->w;
  const int lanes = c->isa->lanes;
  const int64_t space = w->out[1] * w->out[2], filters = MIN(w->filters - first, c->part);
  for (int64_t t = 0; t < n;) {
    struct place p = place_of(&c->tiles, from + t, n - t);
    struct winograd_run r = { .h = w->out[1], .w = w->out[2], .y = p.y, .x = p.x, .n = p.n, .plane = c->out,
                              .step = c->part, .relu = c->end.act == ACT_RELU, .add = c->end.add };
    for (int64_t k = 0; k < filters; k += lanes) {
      r.image = c->y + (p.image * w->filters + first + k) * space;
      r.points = points + t * c->part + k;
      r.bias = c->end.bias ? c->end.bias + first + k : NULL;
      r.scale = c->end.scale ? c->end.scale + first + k : NULL;
      c->isa->output(&r);
      if (c->end.act > ACT_RELU) activate(c, &r);
    }
    t += p.n;
  }
}

/* One panel of the weight after the other, which stays in the first cache while all tiles pass. */
static void multiply(const struct convolution *c, int64_t n, int64_t first, const float *in, float *out)
{
  const struct window *w = c->w;
  const int64_t k = w->channels, nr = c->t->nr, plane = plane_of(k, w->filters), filters = MIN(w->filters - first, c->part);
  struct gemm_block g = { .m = n, .k = k, .outer = 1, .ars = k, .acs = 1, .strip = gemm_height(n, c->t->mr) * k,
                          .panel = nr * k, .ldc = c->part, .alpha = 1 };
  for (int i = 0; i < WINOGRAD_POINTS; i++)
    for (int64_t j = 0; j < filters; j += nr) {
      g.n = MIN(filters - j, nr);
      g.a = in + i * c->in;
      g.b = c->weight + i * plane + (first + j) * k;
      g.c = out + i * c->out + j;
      gemm_sum(c->t, &g);
    }
}

/* Unit: group, part of the filters. */
static void some_units(int64_t begin, int64_t end, void *context)
{
  const struct convolution *c = context;
  const bool few = units(c) < parallel_most();
  for (int64_t u = begin; u < end; u++) {
    float *in = c->tmp + room(c) * (few ? u : parallel_index()), *out = in + WINOGRAD_POINTS * c->in;
    int64_t from = u / c->parts * c->group, n = MIN(c->group, c->tiles.all - from), first = u % c->parts * c->part;
    carry_in(c, from, n, in);
    multiply(c, n, first, in, out);
    carry_out(c, from, n, first, out);
  }
}

/* -- weight -------------------------------------------------------------------------------------------------------- */

struct packing { const struct window *w; const float *weight; float *out; bool turned; };

/* Panels of filters, each channels x its filters, as gemm_isa.h wants the right side. Unit: panel. Few channels at a
** time, so that lines of memory are complete before they leave the cache. */
static void pack_panels(int64_t begin, int64_t end, void *context)
{
  const struct packing *p = context;
  const struct winograd_isa *isa = winograd_isa();
  const int64_t channels = p->w->channels, filters = p->w->filters, nr = gemm_type(TY_F32)->nr;
  struct winograd_filter f = { .row = p->turned ? filters * 9 : 9, .lane = p->turned ? 9 : channels * 9, .n = isa->lanes,
                               .flip = p->turned, .plane = plane_of(channels, filters) };
  for (int64_t u = begin; u < end; u++)
    for (int64_t c = 0; c < channels; c += f.n)
      for (int64_t j = u * nr; j < MIN(filters, (u + 1) * nr); j += isa->lanes) {
        f.step = MIN(filters - u * nr, nr);
        f.window = (float *)p->weight + j * f.lane + c * f.row;
        f.points = p->out + u * nr * channels + c * f.step + j - u * nr;
        isa->filter(&f);
      }
}

static size_t packed_bytes(const struct window *w)
{
  return align_up((size_t)(WINOGRAD_POINTS * plane_of(w->channels, w->filters)) * sizeof(float), ALIGN);
}

/* turned: the weight is that of the opposite convolution */
static void pack(const struct window *w, const float *weight, bool turned, float *out)
{
  struct packing p = { w, weight, out, turned };
  const int64_t nr = gemm_type(TY_F32)->nr;
  parallel((w->filters + nr - 1) / nr, MAX(1, 500 / w->channels), pack_panels, &p);
}

/* -- forward ------------------------------------------------------------------------------------------------------- */

bool winograd_keeps(const struct window *w) { return tiles_of(w).all < KEPT_TILES; }

size_t winograd_forward_scratch(const struct window *w, bool keeps)
{
  struct convolution c = plan(w);
  return rooms(&c) + (keeps ? 0 : packed_bytes(w));
}

int winograd_forward(const struct window *w, const float *x, const struct arr *weight, const struct winograd_end *end, float *y,
                     struct gemm_kept *kept, void *tmp)
{
  bool fresh = false;
  float *packed = kept ? gemm_kept_room(kept, weight, packed_bytes(w), &fresh) : tmp;
  if (!packed) return fail(TY_EMEMORY, "no memory for a transformed weight");
  if (!fresh) pack(w, weight->p, false, packed);
  struct convolution c = plan(w);
  c.x = x, c.weight = packed, c.end = *end, c.y = y, c.tmp = kept ? tmp : (char *)tmp + packed_bytes(w);
  parallel(units(&c), 1, some_units, &c);
  return TY_OK;
}

/* -- the data's gradient ------------------------------------------------------------------------------------------- */

static struct window opposite(const struct window *w)
{
  struct window o = *w;
  o.channels = w->filters, o.filters = w->channels;
  for (int a = 1; a < 3; a++) o.in[a] = w->out[a], o.out[a] = w->in[a], o.pad[a] = 2 - w->pad[a];
  return o;
}

size_t winograd_data_scratch(const struct window *w)
{
  const struct window o = opposite(w);
  struct convolution c = plan(&o);
  return packed_bytes(&o) + rooms(&c);
}

void winograd_data(const struct window *w, const float *dy, const float *weight, float *dx, bool add, void *tmp)
{
  const struct window o = opposite(w);
  struct convolution c = plan(&o);
  pack(&o, weight, true, tmp);
  c.x = dy, c.weight = tmp, c.y = dx, c.end.add = add, c.tmp = (float *)((char *)tmp + packed_bytes(&o));
  parallel(units(&c), 1, some_units, &c);
}
