/* resize.c - resampling of images: one pass over rows, one over columns, by tables of weights.
**
** A table gives for every position of the result the source positions it reads and their weights.
** Bytes under bilinear, cubic and Lanczos rules use weights of 11 bits; the bilinear column pass
** drops 4 bits of its sums first and rounds once, as the fixed point of OpenCV does. Averages
** over areas and float images are computed in float32.
*/
#include "base/parallel.h"
#include "image/image.h"

enum { WEIGHT_BITS = 11, WEIGHT_ONE = 1 << WEIGHT_BITS, MOST_TAPS = 8 };

/* Place i of the result reads entries start[i] .. start[i + 1] - 1. */
struct resize_taps { int32_t *start, *index, *fixed; float *weight; };

struct resize_job {
  const struct pixels *to, *from;
  struct resize_taps x, y;
  /* (source height, new width, channels): int32 or float32 */
  void *middle;
  int how;
  bool twice;                                         /* exactly half of the size on both axes */
};

static int taps_of(int how) { return how == LINEAR ? 2 : how == CUBIC ? 4 : MOST_TAPS; }

static int64_t entries_of(int how, int64_t from, int64_t to)
{
  return how == AREA ? from + 2 * to : to * taps_of(how);
}

static bool halves(const struct pixels *to, const struct pixels *from)
{
  return from->h == 2 * to->h && from->w == 2 * to->w;
}

/* AREA is left only where both axes shrink; WIDE is AREA that enlarges. */
enum { WIDE = RESAMPLINGS };
static int rule_of(int how, const struct pixels *to, const struct pixels *from)
{
  if (how == LINEAR && halves(to, from)) return AREA;
  if (how == AREA && (to->h > from->h || to->w > from->w)) return WIDE;
  return how;
}
static bool is_fixed(int how, int dtype) { return dtype == TY_U8 && how != AREA; }

/* -- tables ------------------------------------------------------------------------------------ */

static void cubic_weights(float x, float *w)
{
  const float a = -0.75f;
  w[0] = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a;
  w[1] = ((a + 2) * x - (a + 3)) * x * x + 1;
  w[2] = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1;
  w[3] = 1 - w[0] - w[1] - w[2];
}

/* sinc(t) sinc(t / 4) at t = x + 3 - i: its first factor only alternates in sign, up to a common
** one. */
static void lanczos_weights(float x, float *w)
{
  double sum = 0, v[MOST_TAPS];
  for (int i = 0; i < MOST_TAPS; i++) w[i] = i == 3;
  if (x < 1e-7f) return;
  for (int i = 0; i < MOST_TAPS; i++) {
    double t = x + 3 - i;
    v[i] = (i % 2 ? -1 : 1) * sin(t * 0.7853981633974483) / (t * t);
    sum += v[i];
  }
  for (int i = 0; i < MOST_TAPS; i++) w[i] = (float)(v[i] / sum);
}

/* Where position i of the result lies in the source, and how far beyond the pixel there. */
static int64_t source_of(int how, int64_t i, double scale, float *beyond)
{
  if (how == WIDE) {
    int64_t s = (int64_t)floor((double)i * scale);
    float f = (float)((double)(i + 1) - (double)(s + 1) / scale);
    *beyond = f <= 0 ? 0 : f - floorf(f);
    return s;
  }
  float f = (float)(((double)i + 0.5) * scale - 0.5);
  int64_t s = (int64_t)floorf(f);
  *beyond = f - (float)s;
  return s;
}

static void put_taps(
    struct resize_taps *t, int64_t i, int how, int64_t from, double scale, bool inside)
{
  float beyond, w[MOST_TAPS];
  int n = how == WIDE ? 2 : taps_of(how);
  int64_t s = source_of(how, i, scale, &beyond);
  if (n == 2 && inside && s < 0) s = 0, beyond = 0;
  if (n == 2 && inside && s >= from - 1) s = from - 1, beyond = 0;
  if (n == 2)
    w[0] = 1 - beyond, w[1] = beyond;
  else if (n == 4)
    cubic_weights(beyond, w);
  else
    lanczos_weights(beyond, w);
  t->start[i] = (int32_t)i * n;
  t->start[i + 1] = (int32_t)(i + 1) * n;
  for (int k = 0; k < n; k++) {
    int64_t position = s - n / 2 + 1 + k, e = i * n + k;
    t->index[e] = (int32_t)(position < 0 ? 0 : position >= from ? from - 1 : position);
    t->weight[e] = w[k];
    t->fixed[e] = (int32_t)lrintf(w[k] * WEIGHT_ONE);
  }
}

static void put_area(struct resize_taps *t, int64_t i, int64_t from, double scale)
{
  double begin = (double)i * scale, end = begin + scale, size = MIN(scale, (double)from - begin);
  int64_t last = MIN((int64_t)floor(end), from - 1), first = MIN((int64_t)ceil(begin), last);
  int32_t e = t->start[i];
  if ((double)first - begin > 1e-3)
    t->index[e] = (int32_t)first - 1, t->weight[e++] = (float)(((double)first - begin) / size);
  for (int64_t s = first; s < last; s++)
    t->index[e] = (int32_t)s, t->weight[e++] = (float)(1 / size);
  if (end - (double)last > 1e-3)
    t->index[e] = (int32_t)last,
    t->weight[e++] = (float)(MIN(MIN(end - (double)last, 1), size) / size);
  t->start[i + 1] = e;
}

/* inside: the columns of a bilinear image do not reach over its edge; its rows do, onto the edge
** itself. */
static void fill_taps(struct resize_taps *t, int how, int64_t from, int64_t to, bool inside)
{
  double scale = 1 / ((double)to / (double)from);
  t->start[0] = 0;
  for (int64_t i = 0; i < to; i++)
    if (how == AREA)
      put_area(t, i, from, scale);
    else
      put_taps(t, i, how, from, scale, inside);
}

/* -- memory ------------------------------------------------------------------------------------ */

static size_t taps_bytes(int how, int64_t from, int64_t to)
{
  return align_up((size_t)(to + 1) * 4, ALIGN) +
      3 * align_up((size_t)entries_of(how, from, to) * 4, ALIGN);
}

static char *take_taps(struct resize_taps *t, char *at, int how, int64_t from, int64_t to)
{
  size_t list = align_up((size_t)entries_of(how, from, to) * 4, ALIGN);
  t->start = (int32_t *)at;
  t->index = (int32_t *)(at += align_up((size_t)(to + 1) * 4, ALIGN));
  t->fixed = (int32_t *)(at += list);
  t->weight = (float *)(at += list);
  return at + list;
}

size_t resize_scratch(const struct pixels *to, const struct pixels *from, int how)
{
  how = rule_of(how, to, from);
  if (how == NEAREST || (to->h == from->h && to->w == from->w)) return 0;
  if (how == WIDE) how = LINEAR;
  return taps_bytes(how, from->w, to->w) + taps_bytes(how, from->h, to->h) +
      (size_t)(from->h * to->w * to->c) * 4 + ALIGN;
}

/* -- the two passes ---------------------------------------------------------------------------- */

#define ROW_PASS(name, T, S, field) \
static void name(const struct resize_job *r, int64_t row) \
{ \
  const T *in = (const T *)r->from->p + row * r->from->w * r->from->c; \
  S *out = (S *)r->middle + row * r->to->w * r->to->c; \
  int64_t c = r->from->c; \
  for (int64_t x = 0; x < r->to->w; x++, out += c) { \
    int32_t begin = r->x.start[x], end = r->x.start[x + 1]; \
    for (int64_t k = 0; k < c; k++) { \
      S sum = 0; \
      for (int32_t e = begin; e < end; e++) sum += (S)in[r->x.index[e] * c + k] * r->x.field[e]; \
      out[k] = sum; \
    } \
  } \
}
ROW_PASS(row_fixed, uint8_t, int32_t, fixed)
ROW_PASS(row_bytes, uint8_t, float, weight)
ROW_PASS(row_floats, float, float, weight)

/* Two entries per position, the usual case. */
static void row_pairs(const struct resize_job *r, int64_t row)
{
  const uint8_t *in = (const uint8_t *)r->from->p + row * r->from->w * r->from->c;
  int32_t *out = (int32_t *)r->middle + row * r->to->w * r->to->c;
  int64_t c = r->from->c;
  for (int64_t x = 0; x < r->to->w; x++, out += c) {
    const uint8_t *a = in + r->x.index[2 * x] * c, *b = in + r->x.index[2 * x + 1] * c;
    int32_t wa = r->x.fixed[2 * x], wb = r->x.fixed[2 * x + 1];
    if (c == 3)
      out[0] = a[0] * wa + b[0] * wb, out[1] = a[1] * wa + b[1] * wb,
      out[2] = a[2] * wa + b[2] * wb;
    else
      for (int64_t k = 0; k < c; k++) out[k] = a[k] * wa + b[k] * wb;
  }
}

static void row_body(int64_t begin, int64_t end, void *context)
{
  const struct resize_job *r = context;
  for (int64_t y = begin; y < end; y++)
    if (r->from->dtype == TY_F32)
      row_floats(r, y);
    else if (r->how == LINEAR || r->how == WIDE)
      row_pairs(r, y);
    else if (is_fixed(r->how, TY_U8))
      row_fixed(r, y);
    else
      row_bytes(r, y);
}

static uint8_t clamp_byte(int64_t v) { return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v; }

static void column_linear(const struct resize_job *r, int64_t y, int64_t n)
{
  int32_t e = r->y.start[y];
  const int32_t *a = (const int32_t *)r->middle + r->y.index[e] * n,
                *b = (const int32_t *)r->middle + r->y.index[e + 1] * n;
  int32_t wa = r->y.fixed[e], wb = r->y.fixed[e + 1];
  uint8_t *out = (uint8_t *)r->to->p + y * n;
  for (int64_t i = 0; i < n; i++)
    out[i] = (uint8_t)(((wa * (a[i] >> 4) >> 16) + (wb * (b[i] >> 4) >> 16) + 2) >> 2);
}

static void column_fixed(const struct resize_job *r, int64_t y, int64_t n)
{
  int32_t begin = r->y.start[y], end = r->y.start[y + 1];
  uint8_t *out = (uint8_t *)r->to->p + y * n;
  for (int64_t i = 0; i < n; i++) {
    int64_t sum = 1 << (2 * WEIGHT_BITS - 1);
    for (int32_t e = begin; e < end; e++)
      sum += (int64_t)((const int32_t *)r->middle)[r->y.index[e] * n + i] * r->y.fixed[e];
    out[i] = clamp_byte(sum >> 2 * WEIGHT_BITS);
  }
}

static void column_floats(const struct resize_job *r, int64_t y, int64_t n)
{
  int32_t begin = r->y.start[y], end = r->y.start[y + 1];
  for (int64_t i = 0; i < n; i++) {
    float sum = 0;
    for (int32_t e = begin; e < end; e++)
      sum += ((const float *)r->middle)[r->y.index[e] * n + i] * r->y.weight[e];
    if (r->to->dtype == TY_F32)
      ((float *)r->to->p)[y * n + i] = sum;
    else
      ((uint8_t *)r->to->p)[y * n + i] = clamp_byte(r->twice ? (int64_t)(sum + 0.5f) : lrintf(sum));
  }
}

static void column_body(int64_t begin, int64_t end, void *context)
{
  const struct resize_job *r = context;
  int64_t n = r->to->w * r->to->c;
  for (int64_t y = begin; y < end; y++)
    if (!is_fixed(r->how, r->to->dtype))
      column_floats(r, y, n);
    else if (r->how == LINEAR || r->how == WIDE)
      column_linear(r, y, n);
    else
      column_fixed(r, y, n);
}

static void nearest_body(int64_t begin, int64_t end, void *context)
{
  const struct resize_job *r = context;
  size_t size = dtype_size(r->to->dtype) * (size_t)r->to->c;
  double sy = 1 / ((double)r->to->h / (double)r->from->h),
         sx = 1 / ((double)r->to->w / (double)r->from->w);
  for (int64_t y = begin; y < end; y++) {
    int64_t row = MIN((int64_t)floor((double)y * sy), r->from->h - 1) * r->from->w;
    char *to = (char *)r->to->p + (size_t)(y * r->to->w) * size;
    for (int64_t x = 0; x < r->to->w; x++)
      memcpy(to + (size_t)x * size,
          (const char *)r->from->p +
              (size_t)(row + MIN((int64_t)floor((double)x * sx), r->from->w - 1)) * size,
          size);
  }
}

void resize_pixels(const struct pixels *to, const struct pixels *from, int how, void *scratch)
{
  struct resize_job r = {
    .to = to, .from = from, .how = rule_of(how, to, from), .twice = halves(to, from)
  };
  int64_t wide = to->w * to->c;
  if (to->h == from->h && to->w == from->w) {
    memcpy(to->p, from->p, (size_t)(to->h * wide) * dtype_size(to->dtype));
    return;
  }
  if (r.how == NEAREST) {
    parallel_for(to->h, MAX(1, 16384 / wide), nearest_body, &r);
    return;
  }
  int reach = r.how == WIDE ? LINEAR : r.how;
  char *at = take_taps(&r.x, scratch, reach, from->w, to->w);
  r.middle = take_taps(&r.y, at, reach, from->h, to->h);
  fill_taps(&r.x, r.how, from->w, to->w, true);
  fill_taps(&r.y, r.how, from->h, to->h, false);
  parallel_for(from->h, MAX(1, 8192 / wide), row_body, &r);
  parallel_for(to->h, MAX(1, 8192 / wide), column_body, &r);
}

int resampling_for(int64_t h, int64_t w, int64_t to_h, int64_t to_w)
{
  if (to_h > h && to_w > w) return CUBIC;
  return to_h < h && to_w < w ? AREA : LINEAR;
}
