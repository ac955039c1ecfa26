/* pointwise_1x1.c - 1 x 1 convolutions of stride 1 over channels in blocks: tiles of positions x
** filters. See conv.h.
**
** The weight stands in panels of two vectors of filters. Where it is larger than the images, a
** thread takes panels, each of which passes over all positions while the next one is fetched;
** else it takes strips of positions, each of which meets all panels while the next strip is
** fetched. A sum is one chain over the channels.
*/
#include "kernel/blocked.h"
#include "kernel/conv/conv.h"
#include "kernel/gemm/inner.h"
#include "kernel/conv/isa_1x1.h"

extern const struct point_isa point_isa_baseline;
#ifdef __x86_64__
extern const struct point_isa point_isa_avx2, point_isa_avx512;
#endif

static const struct point_isa *point_isa(void)
{
#ifdef __x86_64__
  if (cpu_level() == CPU_AVX512) return &point_isa_avx512;
  if (cpu_level() == CPU_AVX2) return &point_isa_avx2;
#endif
  return &point_isa_baseline;
}

/* -- who wants it ------------------------------------------------------------------------------ */

enum { LITTLE = 100000, ROOM = 1 << 20 };             /* products; bytes that stay near a core */

static bool heavy(const struct window *w) { return w->filters > window_places(w); }

static bool able(const struct window *w)
{
  const int lanes = point_isa()->lanes;
  if (!window_plain(w) || w->dtype != TY_F32 || w->groups > 1) return false;
  return channel_block(TY_CPU) == lanes && w->channels % lanes == 0 && w->filters % lanes == 0;
}

/* Measured with AVX-512 on one image through ResNet-50, beside oneDNN: a weight that is read
** once, or many channels to few filters, where lines of x come late. Others end as soon there,
** or sooner. */
const char *point_refuse(const struct window *w, bool trains)
{
  if (cpu_level() < CPU_AVX512) return "made for AVX-512";
  if (!able(w)) return "not 1 x 1 of stride 1 over whole blocks of channels";
  if (trains) return "the weight changes at each step";
  if (window_products(w) <= LITTLE) return "small";
  if (!heavy(w) && w->channels < 2 * w->filters) return "few channels beside the filters";
  const int64_t again = w->channels * (heavy(w) ? window_places(w) : w->filters) *
      (int64_t)sizeof(float);
  return again > ROOM ? "neither the images nor the weight stay near a core" : NULL;
}

/* -- tiles ------------------------------------------------------------------------------------- */

struct job {
  const struct window *w;
  const struct point_isa *isa;
  const struct gemm_type *t;
  const float *x, *packed; float *y;
  struct convolve_end end;
  int64_t space, height;                              /* positions of an image, of a strip */
  /* strips of an image, of all; panels of filters */
  int64_t each, strips, panels;
};

static const float *strip_at(const struct job *j, int64_t strip)
{
  const int lanes = j->isa->lanes;
  return j->x + strip / j->each * j->w->channels * j->space + strip % j->each * j->height * lanes;
}

static const float *panel_at(const struct job *j, int64_t panel)
{
  return j->packed + panel * j->t->nr * j->w->channels;
}

static void multiply(const struct job *j, int64_t strip, int64_t panel, struct point_tile *t)
{
  const struct window *w = j->w;
  const int64_t lanes = j->isa->lanes, first = panel * j->t->nr, from = strip % j->each * j->height;
  t->rows = (int)MIN(j->height, j->space - from);
  t->vectors = w->filters - first > lanes ? 2 : 1;
  t->x = strip_at(j, strip);
  t->weight = panel_at(j, panel);
  t->y = j->y + (strip / j->each * w->filters + first) * j->space + from * lanes;
  t->bias = j->end.bias ? j->end.bias + first : NULL;
  t->scale = j->end.scale ? j->end.scale + first : NULL;
  j->isa->tile(t);
  for (int v = 0; j->end.act > ACT_RELU && v < t->vectors; v++)
    j->t->act(j->end.act, t->rows * lanes, t->y + v * t->far);
}

static struct point_tile tile_of(const struct job *j)
{
  const int64_t lanes = j->isa->lanes;
  return (struct point_tile){ .blocks = j->w->channels / lanes,
    .far = j->space * lanes,
    .add = j->end.add,
    .relu = j->end.act == ACT_RELU };
}

/* Each strip fetches its share of the next panel. */
static void some_panels(int64_t begin, int64_t end, void *context)
{
  const struct job *j = context;
  struct point_tile t = tile_of(j);
  t.soon_step = (j->t->nr + j->strips - 1) / j->strips;
  t.soon_far = t.soon_step * j->isa->lanes;
  for (int64_t p = begin; p < end; p++)
    for (int64_t s = 0; s < j->strips; s++) {
      t.soon = panel_at(j, MIN(p + 1, j->panels - 1)) + s * t.soon_step % j->t->nr * j->w->channels;
      multiply(j, s, p, &t);
    }
}

/* The first panel fetches the next strip. */
static void some_strips(int64_t begin, int64_t end, void *context)
{
  const struct job *j = context;
  struct point_tile t = tile_of(j);
  for (int64_t s = begin; s < end; s++)
    for (int64_t p = 0; p < j->panels; p++) {
      t.soon = strip_at(j, MIN(s + 1, j->strips - 1));
      t.soon_step = p ? 0 : j->isa->lanes;
      t.soon_far = p ? 0 : t.far;
      multiply(j, s, p, &t);
    }
}

/* -- forward ----------------------------------------------------------------------------------- */

enum { PARTS = 8 };                                   /* units of a thread */

static size_t packed_bytes(const struct window *w)
{
  return (size_t)(w->channels * w->filters) * sizeof(float);
}
size_t point_scratch(const struct window *w, bool keeps)
{
  return keeps ? 0 : align_up(packed_bytes(w), ALIGN);
}

int point_forward(const struct window *w, const float *x, const struct operand *weight,
    const struct convolve_end *end, float *y, struct gemm_kept *kept, void *tmp)
{
  struct job j = { .w = w,
    .isa = point_isa(),
    .t = gemm_type(TY_F32),
    .x = x,
    .y = y,
    .end = *end,
    .space = window_out(w) };
  bool fresh = false;
  float *packed = kept ? gemm_kept_room(kept, weight, packed_bytes(w), &fresh) : tmp;
  if (!packed) return fail(TY_EMEMORY, "no memory for a packed weight");
  if (!fresh)
    gemm_panels(j.t, sizeof(float), true, w->filters, w->channels, weight->p, w->channels, packed);
  j.packed = packed;
  j.panels = (w->filters + j.t->nr - 1) / j.t->nr;
  j.height = gemm_height(j.space, j.isa->most);
  j.each = (j.space + j.height - 1) / j.height;
  j.strips = j.each * w->n;
  const int64_t all = heavy(w) ? j.panels : j.strips;
  const int64_t unit = window_products(w) < GEMM_WORK ? all
                                                      : MAX(1, all / (PARTS * parallel_threads()));
  parallel(all, unit, heavy(w) ? some_panels : some_strips, &j);
  return TY_OK;
}
