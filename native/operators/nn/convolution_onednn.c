/* convolution_onednn.c - Convolution through oneDNN: forward and both gradients, where it is faster
** than the panels of kernel/conv/conv.h.
**
** oneDNN needs channels in blocks. Arrays in blocks are used in place; plain data is copied to
** blocks (scratch), the weight once per version (state), and results are copied back. For plain
** arrays that pays for windows of several taps with multiples of 16 channels and filters, and for
** depthwise windows, if the product is not small (measured with AVX-512 against
** kernel/conv/conv.h). The batch is divided into pieces by shapes alone, to limit memory and use
** caches.
**
** Primitives are made at the first run, on the threads that run them. If oneDNN fails for plain
** arrays, the functions of kernel/conv/conv.h run, for which scratch and state are large enough,
** too. Results may depend on the team's size, as sums of a weight's gradient do.
**
** For inference the forward product is divided here into calls of one thread each, by images, parts
** of the filters, or bands of rows; they run on the team of base/parallel.h. oneDNN's own division
** uses OpenMP's threads, which all have to start for every loop (base/parallel.c); it is used for
** products that cannot be divided well.
*/
#include "kernel/blocked.h"
#include "kernel/conv/onednn.h"
#include "op/op.h"
#include "operators/nn/convolution.h"

/* need: bytes of the direction, or of both gradients; [1] with POST_SCALE */
struct onednn_state {
  struct gemm_kept own;
  struct { bool asked; struct onednn_bytes bytes; } need[2];
  struct onednn_primitive part[PARTS];
  /* primitives of forward for concurrent calls, without and with POST_SCALE */
  struct onednn_primitive *more[2];
  int others;                                         /* length of each array of `more` */
};

size_t onednn_conv_state(const struct call *c) { return sizeof(struct onednn_state); }

/* -- which calls are taken --------------------------------------------------------------------- */

/* Multiply-adds above which calling oneDNN pays: with operands in blocks, for depthwise windows,
** and if operands must be copied to blocks. */
#define BLOCKED_PRODUCTS   1e5
#define DEPTHWISE_PRODUCTS 5e3
#define PLAIN_PRODUCTS     4e6

enum {
  /* positions of an image from which plain 1-D arrays use the panels of kernel/conv/conv.h, whose
  ** columns are parts of lines: 47 to 55 GMAC/s, oneDNN 39 to 54 (AVX-512, 2026-11-28) */
  LINE_POSITIONS = 500,
  /* Limits within which plain depthwise arrays with a stride of 1 use the loops of
  ** kernel/conv/conv.h: 14 to 250 us, oneDNN 16 to 450 (AVX-512, 20 x 24 to 56 x 56, 3 x 3 and
  ** 5 x 5, 2026-11-28); 16 to 22 us, oneDNN 23 to 35 (3 x 40 and 6 x 40). At 14 x 14 oneDNN is
  ** faster. */
  MAP_TAPS = 25,                                      /* most taps */
  MAP_POSITIONS = 400,                                /* least positions of an image ... */
  MAP_COLUMNS = 32                                    /* ... or else columns */
};

static bool along_one_axis(const struct window *w)
{
  return (w->in[0] > 1) + (w->in[1] > 1) + (w->in[2] > 1) == 1;
}

/* Returns why oneDNN is not used, or NULL. */
static const char *refuse_window(const struct call *c, const struct window *w)
{
  if (conv_channels_last(c->param)) return "channels last";
  if (!onednn_engine()) return "TYCHO_DISABLE names dnnl";
  if (cpu_isa() == CPU_BASELINE) return "the processor is held back";
  double work = window_products(w);
  if (in_blocks(c)) return work > BLOCKED_PRODUCTS ? NULL : "small";
  if (w->channels == 1 && w->filters == 1 && w->groups % 16 == 0) {
    if (window_taps(w) <= MAP_TAPS && w->stride[2] == 1 &&
        (window_out(w) >= MAP_POSITIONS || w->out[2] >= MAP_COLUMNS))
      return "large maps";
    return work > DEPTHWISE_PRODUCTS ? NULL : "small";
  }
  if (w->channels % 16 || w->filters % 16) return "channels or filters are not in sixteens";
  if (window_taps(w) == 1) return "one tap";
  if (along_one_axis(w) && window_out(w) >= LINE_POSITIONS) return "long lines";
  return work > PLAIN_PRODUCTS ? NULL : "small";
}

/* Return whether oneDNN computes the gradient of the data, and that of the weight, which the
** depthwise loops compute for plain depthwise arrays. */
static bool needs_data(const struct call *c) { return c->out[0].p != NULL; }
static bool needs_weight(const struct call *c, const struct window *w)
{
  return c->out[1].p && (in_blocks(c) || !depthwise_profitable(w));
}

/* -- pieces and scratch ------------------------------------------------------------------------ */

/* bytes of blocked images of a piece */
enum { PIECE_BYTES = 24 << 20 };
/* multiply-adds between two checks for Ctrl-C */
#define PIECE_PRODUCTS 4e9

/* Returns the images of a piece. copied: bits of X and Y, which operands are copied. */
static int64_t images_at_once(const struct window *w, int copied)
{
  int64_t each = 0;
  if (copied & 1 << X) each += w->groups * w->channels * window_in(w) * 4;
  if (copied & 1 << Y) each += w->groups * w->filters * window_out(w) * 4;
  const double products = window_products(w) / (double)w->n;
  int64_t n = MAX(1, MIN(w->n, PIECE_BYTES / MAX(each, 1)));
  n = (int64_t)MAX(1, MIN((double)n, PIECE_PRODUCTS / products));
  while (w->n % n) n--;
  return n;
}

static bool keeps_weight(const struct call *c, const struct window *w)
{
  return !c->trains && convolve_keeps(w);
}

static struct onednn_shape make_shape(const struct call *c, const struct window *w, int which)
{
  const bool forward = which == FORWARD, scaled = fused_scaling(c);
  const struct operand *x = which == FORWARD ? &c->in[0]
      : which == DATA                        ? &c->out[0]
                                             : &c->in[1],
                       *y = forward ? &c->out[0] : &c->in[0];
  const bool rounded = gemm_type_for(c, TY_F32) == GEMM_ROUNDED;
  int copied = (!x->block || rounded || (!forward && c->add & 1)) << X |
      (!y->block || (rounded && !forward)) << Y;
  return (struct onednn_shape){ .window = *w,
    .x = &x->d,
    .w = forward ? &c->in[1].d : &c->in[2].d,
    .y = &y->d,
    .which = which,
    .bias = forward && (c->nin > 2 || scaled),
    .scaled = scaled,
    .rounded = rounded,
    .keeps = keeps_weight(c, w),
    .sum = find_fused(c, POST_ACCUMULATE),
    .act = scaled ? fused_act(c) : ACT_NONE,
    .block = { [X] = x->block, [Y] = y->block },
    .images = images_at_once(w, copied),
    .parts = 1 };
}

/* -- division of the forward product ----------------------------------------------------------- */

/* Least multiply-adds of a call of one thread: about 4 us (AVX-512, 2026-11-28). Small depthwise
** products are divided all the same, since one thread would have to fetch what several cores have
** written. */
#define UNIT_PRODUCTS           3e5
#define UNIT_DEPTHWISE_PRODUCTS 5e4
/* multiply-adds from which a product that cannot be divided well uses oneDNN's own threads: about
** 300 us. Later loops of the network then run on these threads, too. */
#define TEAM_PRODUCTS           1.5e7
/* multiply-adds from which copying bands of one tap, or reading a large image repeatedly, costs
** more than OpenMP's threads */
#define COPY_PRODUCTS           6e7

enum {
  /* bytes of an image that stays in the second-level cache while each part of the filters reads
  ** it */
  NEAR_BYTES   = 512 << 10,
  /* filters x taps from which reading a larger image repeatedly does not matter */
  MANY_TAPS    = 96,
  /* least filters of a part, once there is a part for each thread */
  PART_FILTERS = 32,
  /* bytes of a band's blocks, which fit the second-level cache */
  BAND_BYTES   = 512 << 10,
  /* least rows of a band, which also needs copies of rows above and below it */
  BAND_ROWS    = 4
};

/* Returns whether equal parts of the filters are whole blocks of channels. */
static bool divides_filters(const struct window *w, int parts)
{
  const int64_t block = cpu_channel_block();
  const bool grouped = w->groups > 1;
  return (grouped ? w->groups : w->filters) % parts == 0 &&
      w->groups * w->filters / parts % block == 0 &&
      (!grouped || w->groups * w->channels / parts % block == 0);
}

/* Returns the window of one of these parts. */
static struct window part_window(const struct window *w, int parts)
{
  struct window part = *w;
  if (part.groups > 1)
    part.groups /= parts;
  else
    part.filters /= parts;
  return part;
}

/* Returns an odd number of parts of the filters that divides evenly among threads; 1: there is
** none. */
static int choose_odd_parts(const struct window *w)
{
  const int most = parallel_most();
  for (int parts = 3; parts <= 4 * most; parts += 2)
    if (divides_filters(w, parts) && 4 * ((parts + most - 1) / most * most) <= 5 * parts)
      return parts;
  return 1;
}

/* Chooses the images and parts of the filters per call. Returns false if such calls are slower than
** oneDNN's own division, by positions. */
static bool divide_forward(const struct call *c, const struct window *w, struct onednn_shape *s)
{
  const int most = parallel_most();
  const bool copied = !s->block[X] || s->rounded, grouped = w->groups > 1;
  const int64_t image = w->groups * w->channels * window_in(w) * 4;
  const bool large = !grouped && image > NEAR_BYTES;
  const int64_t calls = copied || large ? most : 2 * most;
  const double products = window_products(w) / (double)w->n,
               unit = w->channels == 1 ? UNIT_DEPTHWISE_PRODUCTS : UNIT_PRODUCTS;
  const int64_t least = (int64_t)MIN((double)w->n, unit / products) + 1;
  s->images = MIN(MIN(s->images, w->n), MAX(least, w->n / calls));
  while (w->n % s->images) s->images--;
  while (s->images == 1 && w->n * s->parts < calls && divides_filters(w, 2 * s->parts) &&
      products / (2 * s->parts) > unit &&
      (w->n * s->parts < most || w->groups * w->filters / (2 * s->parts) >= PART_FILTERS))
    s->parts *= 2;
  if (s->images == w->n && s->parts == 1 && products > calls * unit)
    s->parts = choose_odd_parts(w);
  s->window = part_window(w, s->parts);
  if (window_products(w) < TEAM_PRODUCTS) return true;
  if (w->n / s->images * s->parts < most) return false;
  return s->parts == 1 || !large || s->window.filters * window_taps(w) >= MANY_TAPS ||
      window_products(w) < COPY_PRODUCTS;
}

/* Returns a 1 x 1 window whose positions are in one row as a window with a column of positions. */
static struct window upright_window(const struct window *w)
{
  struct window column = *w;
  if (w->in[1] > 1 || window_taps(w) > 1 || w->stride[2] > 1 || w->pad[2]) return column;
  column.in[1] = w->in[2];
  column.out[1] = w->out[2];
  column.in[2] = column.out[2] = 1;
  return column;
}

/* Returns the window of `rows` rows of the output; the padding is part of its data. */
static struct window band_window(const struct window *w, int64_t rows)
{
  struct window band = *w;
  band.n = 1;
  band.out[1] = rows;
  band.in[1] = (rows - 1) * w->stride[1] + (w->kernel[1] - 1) * w->dilate[1] + 1;
  band.pad[1] = 0;
  return band;
}

/* Returns the bytes of a band's data in blocks. */
static size_t band_in(const struct window *w)
{
  const size_t channels = align_up((size_t)w->channels, (size_t)cpu_channel_block());
  return align_up(channels * (size_t)(w->in[1] * w->in[2]) * sizeof(float), ALIGN);
}

/* Returns the bytes of a band's output in blocks. */
static size_t band_out(const struct window *w)
{
  return align_up((size_t)(w->filters * w->out[1] * w->out[2]) * sizeof(float), ALIGN);
}

/* Returns the rows of a band: the most that fit the cache and leave work for each thread; 0:
** none. */
static int64_t choose_rows(const struct window *w)
{
  const int64_t most = parallel_most();
  for (int64_t rows = w->out[1]; rows >= BAND_ROWS; rows--) {
    if (w->out[1] % rows) continue;
    const struct window band = band_window(w, rows);
    const int64_t units = w->n * (w->out[1] / rows);
    if (units >= most && (units % most == 0 || units >= 4 * most) &&
        band_in(&band) + band_out(&band) <= BAND_BYTES)
      return window_products(&band) > UNIT_PRODUCTS ? rows : 0;
  }
  return 0;
}

/* Chooses bands if images and parts of the filters (`s`) would leave threads idle or read a large
** image several times. good: that division is better than oneDNN's own. Returns false if there are
** no bands. */
static bool divide_rows(const struct window *w, const struct onednn_shape *s, bool good,
    struct onednn_shape *bands)
{
  const bool copied = !s->block[X], large = w->channels * window_in(w) * 4 > NEAR_BYTES,
             few = w->n / s->images * s->parts < parallel_most();
  const int block = cpu_channel_block();
  if (w->groups > 1 || w->in[0] > 1 || w->kernel[0] > 1 || w->pad[0] || s->rounded || s->sum ||
      w->channels < block || (!copied && w->channels % block) || w->filters % block)
    return false;
  if (good && !few && !(large && (copied || s->parts > 1))) return false;
  if (window_taps(w) == 1 && (good || !copied || window_products(w) > COPY_PRODUCTS))
    return false;
  const struct window column = upright_window(w);
  bands->rows = choose_rows(&column);
  if (!bands->rows) return false;
  bands->window = band_window(&column, bands->rows);
  bands->images = 1;
  bands->block[X] = bands->block[Y] = block;
  return true;
}

/* Returns the shape of one call of forward. In training oneDNN divides, as it does for
** gradients. */
static struct onednn_shape forward_shape(const struct call *c, const struct window *w)
{
  struct onednn_shape whole = make_shape(c, w, FORWARD), s = whole, bands = whole;
  if (c->trains) return whole;
  const bool alone = parallel_most() == 1, good = alone || divide_forward(c, w, &s);
  if (divide_rows(w, &s, good, &bands)) s = bands;
  s.divided = s.rows || (good && !alone);
  return s.divided ? s : whole;
}

/* Returns the number of calls of forward. */
static int64_t count_units(const struct window *w, const struct onednn_shape *s)
{
  return s->rows ? w->n * window_out(w) / (s->rows * s->window.out[2])
                 : w->n / s->images * s->parts;
}

/* Returns how many calls of forward may run concurrently. */
static int64_t count_slots(const struct window *w, const struct onednn_shape *s)
{
  return MIN(count_units(w, s), parallel_most());
}

/* Finds the bytes of a direction; false: oneDNN does not support it. The activation is left out,
** since it is not known when scratch is planned. */
static bool find_bytes(const struct call *c, const struct window *w, int which,
    struct onednn_shape *s, struct onednn_bytes *r)
{
  *s = which == FORWARD ? forward_shape(c, w) : make_shape(c, w, which);
  if (!part_bytes(s, r)) return false;
  if (s->rows) {
    r->x = band_in(&s->window);
    r->y = band_out(&s->window);
  }
  return true;
}

/* Returns the bytes of a gradient that is then added to the output: of the weight, or of the data
** of a piece. */
static size_t spare_bytes(const struct call *c, const struct window *w)
{
  struct onednn_shape data = make_shape(c, w, DATA);
  size_t image = desc_bytes(data.x) / (size_t)w->n, most = 0;
  if (needs_weight(c, w) && (c->add & 2 || make_shape(c, w, WEIGHT).images < w->n))
    most = align_up(desc_bytes(data.w), ALIGN);
  return c->add & 1 ? MAX(most, align_up(image * (size_t)data.images, ALIGN)) : most;
}

/* Returns the bytes of a weight with scaled rows, before packing. */
static size_t scaled_bytes(const struct operand *w) { return align_up(desc_bytes(&w->d), ALIGN); }

/* Returns the bytes of forward, or of both gradients, where the weight's gradient reuses the memory
** of the packed weight. For forward all but `packed` are per slot. */
static struct onednn_bytes bytes_for(const struct call *c, const struct window *w, bool back)
{
  struct onednn_shape s;
  struct onednn_bytes all = { 0 }, r = { 0 };
  if (!back && find_bytes(c, w, FORWARD, &s, &r)) {
    all = r;
    all.packed *= (size_t)s.parts;
  }
  if (back && needs_data(c) && find_bytes(c, w, DATA, &s, &r)) onednn_bytes_widen(&all, &r);
  if (back && needs_weight(c, w) && find_bytes(c, w, WEIGHT, &s, &r)) onednn_bytes_widen(&all, &r);
  if (!back && fused_scaling(c)) all.packed += scaled_bytes(&c->in[1]);
  if (!back && keeps_weight(c, w)) all.packed = 0; /* in the state */
  if (back) all.w = MAX(all.w, all.packed), all.packed = 0;
  return all;
}

size_t onednn_conv_scratch(const struct call *c)
{
  struct window w = conv_make_window(c);
  struct onednn_bytes r = bytes_for(c, &w, false);
  size_t own = depthwise_profitable(&w) ? depth_scratch(&w) : convolve_forward_scratch(&w),
         slots = 1;
  const struct onednn_shape s = forward_shape(c, &w);
  if (s.divided) slots = (size_t)count_slots(&w, &s);
  return MAX(r.packed + slots * (r.x + r.y + r.pad), own);
}

/* Returns the bytes of blocked X, blocked Y, the primitives' own scratch, packed W or blocked dW,
** and a gradient that is then added. */
size_t onednn_conv_back_scratch(const struct call *c)
{
  struct window w = conv_window_back(c);
  struct onednn_bytes r = bytes_for(c, &w, true);
  size_t most = r.x + r.y + r.pad + r.w + spare_bytes(c, &w);
  if (in_blocks(c)) return most;
  if (depthwise_profitable(&w)) return most;
  if (c->out[0].p) most = MAX(most, convolve_data_scratch(&w));
  return c->out[1].p ? MAX(most, convolve_weight_scratch(&w)) : most;
}

/* -- candidates -------------------------------------------------------------------------------- */

static const char *const FEW_CHANNELS = "a gradient of few channels";
static const char *const NO_BLOCKS = "oneDNN has no fast kernel for these blocks";

/* Returns whether oneDNN supports the operands' layout. */
static bool has_primitive(const struct call *c, const struct window *w, int which)
{
  struct onednn_shape s;
  struct onednn_bytes r;
  return !in_blocks(c) || find_bytes(c, w, which, &s, &r);
}

/* Refuses scale with sum if it would need a copy of the output's contents. */
static const char *refuse_scaling(const struct call *c, const struct window *w)
{
  struct onednn_shape s;
  struct onednn_bytes r;
  if (!c->out[0].block && find_fused(c, POST_ACCUMULATE)) return "channels are not in blocks";
  return find_bytes(c, w, FORWARD, &s, &r) ? NULL : "oneDNN has no such end for this product";
}

const char *onednn_conv_refuse(const struct call *c)
{
  struct window w = conv_make_window(c);
  const char *no = refuse_window(c, &w);
  if (!no && fused_scaling(c)) no = refuse_scaling(c, &w);
  return no ? no : has_primitive(c, &w, FORWARD) ? NULL : NO_BLOCKS;
}

const char *onednn_conv_back_refuse(const struct call *c)
{
  struct window w = conv_window_back(c);
  if (!needs_data(c) && !needs_weight(c, &w)) return "no gradient of a kind that it makes";
  const char *no = refuse_window(c, &w);
  if (no) return no;
  if (in_blocks(c) && needs_data(c) && !c->out[0].block &&
      w.groups * w.channels < cpu_channel_block())
    return FEW_CHANNELS;
  bool can = (!needs_data(c) || has_primitive(c, &w, DATA)) &&
      (!needs_weight(c, &w) || has_primitive(c, &w, WEIGHT));
  return can ? NULL : NO_BLOCKS;
}

/* -- running ----------------------------------------------------------------------------------- */

static void scale_rows(const struct operand *w, const struct scaling *a, float *to)
{
  const int64_t rows = w->d.dim[0], n = desc_count(&w->d) / rows;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = i * n; k < (i + 1) * n; k++) to[k] = ((const float *)w->p)[k] * a->scale[i];
}

/* Copies a weight to the primitive's layout, part by part. */
static bool pack_parts(struct onednn_primitive *p, char *from, char *to)
{
  for (int i = 0; i < p->parts; i++)
    if (!onednn_copy(p->copy[W], p->stream, p->outside[W], from + (size_t)i * p->plain_part,
            p->inside[W], to + (size_t)i * p->packed_part))
      return false;
  return true;
}

/* Writes the weight to `to` in the primitive's layout, with scaled rows unless a is NULL. rows:
** scratch for scaled rows. */
static bool write_weight(struct onednn_primitive *p, const struct operand *w,
    const struct scaling *a, float *rows, char *to)
{
  if (!a) return pack_parts(p, w->p, to);
  if (!p->copy[W]) {
    scale_rows(w, a, (float *)to);
    return true;
  }
  scale_rows(w, a, rows);
  return pack_parts(p, (char *)rows, to);
}

/* Returns the weight in the primitive's layout; NULL: failed. scratch: memory for it if no copy is
** kept, preceded by the scaled weight, if any. */
static char *pack_weight(struct onednn_primitive *p, const struct operand *w,
    const struct scaling *a, char *scratch)
{
  if (!p->copy[W] && !a) return w->p;
  if (!p->packed) {
    char *to = p->copy[W] && a ? scratch + scaled_bytes(w) : scratch;
    return write_weight(p, w, a, (float *)scratch, to) ? to : NULL;
  }
  if (w->version && p->of == w->p && p->version == *w->version && (!a || p->scale == a->version))
    return p->packed;
  float *rows = p->copy[W] && a ? mem_new(desc_bytes(&w->d)) : NULL;
  const bool ok = (rows || !p->copy[W] || !a) && write_weight(p, w, a, rows, p->packed);
  mem_free(rows);
  p->of = ok ? w->p : NULL;
  p->version = w->version ? *w->version : 0;
  p->scale = a ? a->version : 0;
  return ok ? p->packed : NULL;
}

/* Copies a plain operand o to blocks, if the primitive reads a copy, or sets its address. Returns
** false if oneDNN fails. */
static bool enter_operand(struct onednn_primitive *p, int o, void *plain, void *blocked)
{
  if (!p->copy[o]) return !dnnl_memory_set_data_handle(p->outside[o], plain);
  return onednn_copy(p->copy[o], p->stream, p->outside[o], plain, p->inside[o], blocked);
}

/* Sets the address of operand o to `blocked` if the primitive uses a copy, else to `plain`. */
static bool aim_operand(struct onednn_primitive *p, int o, void *plain, void *blocked)
{
  return !dnnl_memory_set_data_handle(
      p->copy[o] ? p->inside[o] : p->outside[o], p->copy[o] ? blocked : plain);
}

/* Copies operand o back from blocks, if the primitive wrote a copy. */
static bool leave_operand(struct onednn_primitive *p, int o, void *plain, void *blocked)
{
  return !p->copy[o] ||
      onednn_copy(p->copy[o], p->stream, p->inside[o], blocked, p->outside[o], plain);
}

static bool execute_primitive(struct onednn_primitive *p, int which)
{
  static const int names[3][OPERANDS] = {
    [FORWARD] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST },
    [DATA] = { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST },
    [WEIGHT] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST },
  };
  dnnl_exec_arg_t arg[OPERANDS + 2];
  for (int o = 0; o < OPERANDS; o++)
    arg[o] = (dnnl_exec_arg_t){ names[which][o], p->copy[o] ? p->inside[o] : p->outside[o] };
  arg[OPERANDS] = (dnnl_exec_arg_t){ DNNL_ARG_SCRATCHPAD, p->pad };
  arg[OPERANDS + 1] = (dnnl_exec_arg_t){ DNNL_ARG_BIAS, p->bias };
  return !dnnl_primitive_execute(p->conv, p->stream, OPERANDS + 1 + (p->bias != NULL), arg);
}

/* Arrays of a call. w is read, or written by WEIGHT. */
struct plain_arrays { char *x, *y; const struct operand *w; void *bias; bool add; };
struct blocks { char *x, *y, *pad, *packed, *w, *spare; };

/* Divides scratch. Where gradients need no packed weight, its place has the blocked gradient of the
** weight later. */
static struct blocks make_blocks(const struct onednn_bytes *r, char *tmp)
{
  struct blocks b = { .x = tmp + r->packed };
  b.y = b.x + r->x;
  b.pad = b.y + r->y;
  b.w = b.pad + r->pad;
  b.packed = r->packed ? tmp : b.w;
  b.spare = b.w + r->w;
  return b;
}

/* Runs one piece of the batch. A weight's gradient is added to that of earlier pieces, or to the
** output's contents. */
static bool run_piece(struct onednn_primitive *p, const struct onednn_shape *s,
    const struct blocks *b, const struct plain_arrays *a, bool add)
{
  switch (s->which) {
  case FORWARD:
    return enter_operand(p, X, a->x, b->x) && aim_operand(p, Y, a->y, b->y) &&
        execute_primitive(p, FORWARD) && leave_operand(p, Y, a->y, b->y);
  case DATA: {
    void *x = a->add ? b->spare : a->x;
    if (!enter_operand(p, Y, a->y, b->y) || !aim_operand(p, X, x, b->x) ||
        !execute_primitive(p, DATA) || !leave_operand(p, X, x, b->x))
      return false;
    if (a->add) add_to(TY_F32, desc_count(s->x) / s->x->dim[0] * s->images, x, a->x);
    return true;
  }
  default: break;
  }
  void *w = add ? b->spare : a->w->p;
  if (!enter_operand(p, X, a->x, b->x) || !enter_operand(p, Y, a->y, b->y) ||
      !aim_operand(p, W, w, b->w) || !execute_primitive(p, WEIGHT) || !leave_operand(p, W, w, b->w))
    return false;
  if (add) add_to(TY_F32, desc_count(s->w), w, a->w->p);
  return true;
}

/* Makes the primitive at the first run, and again for another team. */
static bool make_primitive(struct onednn_primitive *p, struct call *c, const struct window *w,
    int which, struct onednn_shape *s)
{
  struct onednn_bytes r = { 0 };
  if (p->made == NEW || p->threads != parallel_threads()) {
    bool can = find_bytes(c, w, which, s, &r);
    s->act = which == FORWARD ? fused_act(c) : ACT_NONE;
    if (can)
      part_make(p, s, &r);
    else
      p->made = UNABLE, p->threads = parallel_threads();
  }
  *s = which == FORWARD ? forward_shape(c, w) : make_shape(c, w, which);
  return p->made == READY;
}

/* Prepares the primitive for this team: makes it and sets its memory. */
static bool prepare_primitive(struct onednn_primitive *p, struct call *c, const struct window *w,
    int which, const struct blocks *b, const struct plain_arrays *a, struct onednn_shape *s)
{
  parallel_library();
  if (!make_primitive(p, c, w, which, s)) return false;
  if (which != WEIGHT) {
    char *weight = pack_weight(p, a->w, fused_scaling(c), b->packed);
    if (!weight || !aim_operand(p, W, weight, weight)) return false;
  }
  return !dnnl_memory_set_data_handle(p->pad, p->own_pad ? p->own_pad : b->pad) &&
      !(p->bias && dnnl_memory_set_data_handle(p->bias, a->bias));
}

/* Advances a to the images of the next piece. */
static void next_piece(struct plain_arrays *a, const struct onednn_shape *s)
{
  a->x += desc_bytes(s->x) / (size_t)s->x->dim[0] * (size_t)s->images;
  a->y += desc_bytes(s->y) / (size_t)s->y->dim[0] * (size_t)s->images;
}

/* Returns the parts of scratch of forward, or of both gradients. */
static struct blocks plan_blocks(
    struct onednn_state *p, const struct call *c, const struct window *w, bool back)
{
  const int i = fused_scaling(c) != NULL;
  if (!p->need[i].asked) p->need[i].bytes = bytes_for(c, w, back);
  p->need[i].asked = true;
  return make_blocks(&p->need[i].bytes, c->tmp);
}

/* The forward product in calls of one thread each. Slot 0 is `first`, the others are `more`. */
struct forward_run {
  struct onednn_primitive *first, *more;
  const struct window *w;                             /* upright */
  const struct onednn_shape *s;
  const struct onednn_bytes *bytes;
  struct plain_arrays a;
  struct blocks b;                                    /* of slot 0 */
  int block_x, block_y;                               /* of the arrays; 0: they are plain */
  char *weight;
  int64_t units;
  int failed;                                         /* atomic */
};

/* Returns a slot's primitive with its memory set; NULL: it cannot be made. of: offset of its
** scratch from that of slot 0. */
static struct onednn_primitive *slot_primitive(
    struct forward_run *r, int64_t slot, size_t of, char *weight, float *bias)
{
  struct onednn_primitive *p = slot ? &r->more[slot - 1] : r->first;
  parallel_library_set(1);
  if (p->made == NEW) {
    struct onednn_shape again = *r->s;
    struct onednn_bytes all = *r->bytes;
    again.keeps = false;                              /* all use the first one's packed weight */
    all.packed = SIZE_MAX;
    part_make(p, &again, &all);
  }
  const bool ready = p->made == READY && aim_operand(p, W, weight, weight) &&
      !dnnl_memory_set_data_handle(p->pad, p->own_pad ? p->own_pad : r->b.pad + of) &&
      !(p->bias && dnnl_memory_set_data_handle(p->bias, bias));
  return ready ? p : NULL;
}

/* Copies rows of an image from row `first` on to blocks, with zeros outside and for missing
** channels of the last block. */
static void enter_band(const struct forward_run *r, const float *image, int64_t first, float *to)
{
  const struct window *w = r->w, *band = &r->s->window;
  const int64_t b = cpu_channel_block(), plane = w->in[1] * w->in[2],
                begin = MIN(MAX(first, 0), w->in[1]),
                end = MAX(begin, MIN(first + band->in[1], w->in[1])), above = begin - first,
                line = band->in[2] * b;
  for (int64_t k = 0; k < w->channels; k += b, to += band->in[1] * line) {
    const int64_t n = end - begin, below = band->in[1] - above - n;
    const float *from = image + k * plane + begin * w->in[2] * (r->block_x ? b : 1);
    memset(to, 0, (size_t)((k + b > w->channels ? band->in[1] : above) * line) * sizeof *to);
    if (r->block_x)
      memcpy(to + above * line, from, (size_t)(n * line) * sizeof *to);
    else
      block_enter_span(MIN(b, w->channels - k), n * w->in[2], from, plane, to + above * line);
    memset(to + (above + n) * line, 0, (size_t)(below * line) * sizeof *to);
  }
}

/* Copies rows of the output, from row `first` on, from blocks. */
static void leave_band(const struct forward_run *r, const float *from, int64_t first, float *image)
{
  const struct window *w = r->w;
  const int64_t b = cpu_channel_block(), plane = w->out[1] * w->out[2], n = r->s->rows * w->out[2];
  for (int64_t k = 0; k < w->filters; k += b, from += n * b) {
    float *to = image + k * plane + first * w->out[2] * (r->block_y ? b : 1);
    if (r->block_y)
      memcpy(to, from, (size_t)(n * b) * sizeof *to);
    else
      block_leave_span(n, from, plane, to);
  }
}

/* Computes a band of rows in a slot. Rows that are contiguous in arrays in blocks are not copied.
** Returns false if oneDNN fails. */
static bool run_band(struct forward_run *r, int64_t unit, int64_t slot, size_t of)
{
  const struct window *w = r->w, *band = &r->s->window;
  const int64_t bands = w->out[1] / r->s->rows, image = unit / bands,
                row = unit % bands * r->s->rows, first = row * w->stride[1] - w->pad[1],
                b = cpu_channel_block();
  float *x = (float *)r->a.x + image * w->channels * window_in(w),
        *y = (float *)r->a.y + image * w->filters * window_out(w), *from = (float *)(r->b.x + of),
        *to = (float *)(r->b.y + of);
  struct onednn_primitive *p = slot_primitive(r, slot, of, r->weight, r->a.bias);
  const bool direct_x = r->block_x && w->channels == b && first >= 0 &&
                 first + band->in[1] <= w->in[1],
             direct_y = r->block_y && w->filters == b;
  if (direct_x)
    from = x + first * w->in[2] * b;
  else
    enter_band(r, x, first, from);
  if (direct_y) to = y + row * w->out[2] * b;
  if (!p || !aim_operand(p, X, from, NULL) || !aim_operand(p, Y, to, NULL) ||
      !execute_primitive(p, FORWARD))
    return false;
  if (!direct_y) leave_band(r, to, row, y);
  return true;
}

/* Computes some images, or a part of the filters of one, in a slot. Returns false if oneDNN fails.
*/
static bool run_images(struct forward_run *r, int64_t unit, int64_t slot, size_t of)
{
  const struct onednn_shape *s = r->s;
  const int64_t image = unit / s->parts * s->images, part = unit % s->parts;
  const size_t x = desc_bytes(s->x) / (size_t)s->x->dim[0],
               y = desc_bytes(s->y) / (size_t)s->y->dim[0], parts = (size_t)s->parts;
  char *data = r->a.x + (size_t)image * x + (s->window.groups > 1 ? (size_t)part * (x / parts) : 0),
       *out = r->a.y + (size_t)image * y + (size_t)part * (y / parts);
  float *bias = r->a.bias;
  struct onednn_primitive *p = slot_primitive(r, slot, of,
      r->weight + (size_t)part * r->first->packed_part,
      bias ? bias + part * s->window.groups * s->window.filters : NULL);
  return p && enter_operand(p, X, data, r->b.x + of) && aim_operand(p, Y, out, r->b.y + of) &&
      execute_primitive(p, FORWARD) && leave_operand(p, Y, out, r->b.y + of);
}

/* Computes a unit in a slot that no other unit uses at the same time. */
static bool run_unit(struct forward_run *r, int64_t unit)
{
  const int64_t slot = r->units < parallel_most() ? unit : parallel_index();
  const size_t of = (size_t)slot * (r->bytes->x + r->bytes->y + r->bytes->pad);
  return r->s->rows ? run_band(r, unit, slot, of) : run_images(r, unit, slot, of);
}

static void units_range(int64_t begin, int64_t end, void *context)
{
  struct forward_run *r = context;
  for (int64_t i = begin; i < end; i++)
    if (!run_unit(r, i)) __atomic_store_n(&r->failed, 1, __ATOMIC_RELAXED);
}

/* Runs forward in calls of one thread each. Returns false if oneDNN or an allocation fails. */
static bool run_divided(
    struct onednn_state *p, struct call *c, const struct window *w, struct plain_arrays a)
{
  const int which = fused_scaling(c) ? SCALED : FORWARD;
  struct onednn_shape s;
  const struct window column = upright_window(w);
  struct forward_run r = { .first = &p->part[which],
    .w = &column,
    .s = &s,
    .a = a,
    .block_x = c->in[0].block,
    .block_y = c->out[0].block };
  r.b = plan_blocks(p, c, w, false);
  r.bytes = &p->need[which == SCALED].bytes;
  parallel_library_set(1);
  if (!make_primitive(r.first, c, w, FORWARD, &s)) return false;
  s.act = fused_act(c);
  r.units = count_units(w, &s);
  const int64_t others = count_slots(w, &s) - 1;
  struct onednn_primitive **more = &p->more[which == SCALED];
  if (others && !*more) *more = NEWS(struct onednn_primitive, others);
  if (others && !*more) return false;
  p->others = (int)others;
  r.more = *more;
  r.weight = pack_weight(r.first, a.w, fused_scaling(c), r.b.packed);
  if (!r.weight) return false;
  parallel_chunks_stoppable(r.units, 1, units_range, &r);
  return !r.failed;
}

/* Runs one direction. Returns false if it fails; the caller can then compute the output without
** oneDNN, except where results were to be added to it. */
static bool run_part(struct onednn_state *p, struct call *c, const struct window *w, int which,
    struct plain_arrays a)
{
  struct onednn_shape s;
  if (which == FORWARD && forward_shape(c, w).divided) return run_divided(p, c, w, a);
  struct blocks b = plan_blocks(p, c, w, which != FORWARD);
  struct onednn_primitive *part = &p->part[fused_scaling(c) ? SCALED : which];
  if (!prepare_primitive(part, c, w, which, &b, &a, &s)) return false;
  for (int64_t i = 0; i < w->n && !stop_wanted(); i += s.images, next_piece(&a, &s))
    if (!run_piece(part, &s, &b, &a, which == WEIGHT && (a.add || i))) return false;
  return true;
}

/* Fails, where there is no other way to compute `what`. */
static int report_lost(const char *what)
{
  return fail(TY_ERUN, "oneDNN failed at the %s of a convolution", what);
}

int onednn_conv(struct call *c)
{
  struct window w = conv_make_window(c);
  struct onednn_state *s = c->state;
  const struct scaling *scaling = fused_scaling(c);
  void *bias = scaling ? scaling->shift : c->nin > 2 ? c->in[2].p : NULL;
  struct plain_arrays a = { c->in[0].p, c->out[0].p, &c->in[1], bias, false };
  if (s && run_part(s, c, &w, FORWARD, a)) return TY_OK;
  if (in_blocks(c) || scaling) return report_lost("product");
  const struct convolve_end end = conv_make_end(c);
  if (depthwise_profitable(&w)) {
    depth_forward(&w, c->in[0].p, c->in[1].p, &end, c->out[0].p, c->tmp);
    return TY_OK;
  }
  return convolve_forward(
      &w, c->in[0].p, &c->in[1], &end, c->out[0].p, s ? &s->own : NULL, c->tmp);
}

static struct plain_arrays data_arrays(struct call *c)
{
  return (struct plain_arrays){ c->out[0].p, c->in[0].p, &c->in[2], NULL, c->add & 1 };
}

static struct plain_arrays weight_arrays(struct call *c)
{
  return (struct plain_arrays){ c->in[1].p, c->in[0].p, &c->out[1], NULL, c->add >> 1 & 1 };
}

static int data_gradient(struct call *c, const struct window *w, struct onednn_state *s)
{
  if (s && needs_data(c) && run_part(s, c, w, DATA, data_arrays(c))) return TY_OK;
  if (in_blocks(c)) return report_lost("data's gradient");
  if (depthwise_profitable(w)) {
    depth_data(w, c->in[0].p, c->in[2].p, c->out[0].p, c->add & 1);
    return TY_OK;
  }
  return convolve_data(w, c->in[0].p, &c->in[2], c->out[0].p, c->add & 1, NULL, ACT_NONE,
      s ? &s->own : NULL, c->tmp);
}

static int weight_gradient(struct call *c, const struct window *w, struct onednn_state *s)
{
  const bool add = c->add >> 1 & 1;
  if (s && needs_weight(c, w) && run_part(s, c, w, WEIGHT, weight_arrays(c))) return TY_OK;
  if (in_blocks(c)) return report_lost("weight's gradient");
  if (depthwise_profitable(w)) {
    depth_weight(w, c->in[1].p, c->in[0].p, c->out[1].p, add);
    return TY_OK;
  }
  return convolve_weight(w, c->in[1].p, c->in[0].p, c->out[1].p, add, c->tmp);
}

int onednn_conv_back(struct call *c)
{
  struct window w = conv_window_back(c);
  if (c->out[0].p) TRY(data_gradient(c, &w, c->state));
  if (c->out[1].p) TRY(weight_gradient(c, &w, c->state));
  conv_bias_gradient(c);
  return TY_OK;
}

void onednn_conv_done(void *state)
{
  struct onednn_state *s = state;
  for (int i = 0; i < COUNT(s->part); i++) part_release(&s->part[i]);
  for (int i = 0; i < COUNT(s->more); i++) {
    for (int k = 0; s->more[i] && k < s->others; k++) part_release(&s->more[i][k]);
    mem_free(s->more[i]);
  }
  gemm_kept_done(&s->own);
}
