/* resize.c - resampling of images: one pass over rows, one over columns, by tables of weights.
**
** A table lists for each position of the result the source positions and weights. For bytes the
** bilinear, cubic and Lanczos rules use weights of 11 bits; the bilinear pass over columns drops 4
** bits of its sums first and rounds once, as OpenCV's fixed point does; the cubic one computes most
** of a row in float32, as OpenCV's vectors do. Means over areas and float32 images are computed in
** float32, float64 images in float64 with the same float32 weights.
*/
#include "base/parallel.h"
#include "image/image.h"

/* ns of a pixel with all channels: 1.2, an estimate */
#define PIXEL_NS (PARALLEL_CHUNK_NS / 8192)

/* Position i of the result reads entries start[i] .. start[i + 1] - 1. */
struct resize_taps { int32_t *start, *index, *fixed; float *weight; };

struct resize_job {
  const struct pixels *to, *from;
  struct resize_taps x, y;
  /* (source height, new width, channels): int32, float32, or float64 */
  void *middle;
  int how;
  /* the result has exactly half the size on both axes */
  bool twice;
};

static int64_t count_entries(int how, int64_t from, int64_t to)
{
  return how == AREA ? from + 2 * to : to * taps_of(how);
}

bool resize_halves(const struct pixels *to, const struct pixels *from)
{
  return from->h == 2 * to->h && from->w == 2 * to->w;
}

int resize_rule(const struct pixels *to, const struct pixels *from, int how)
{
  if (how == LINEAR && resize_halves(to, from)) return AREA;
  if (how == AREA && (to->h > from->h || to->w > from->w)) return WIDE;
  return how;
}
static bool is_fixed(int how, int dtype) { return dtype == TY_U8 && how != AREA; }

/* Computes the taps of all `to` positions of an axis. inside: see taps_at. */
static void fill_taps(struct resize_taps *t, int how, int64_t from, int64_t to, bool inside)
{
  double scale = tap_scale(from, to);
  t->start[0] = 0;
  for (int64_t i = 0; i < to; i++) {
    int32_t begin = t->start[i];
    int n = taps_at(how, i, from, scale, inside, t->index + begin, t->weight + begin);
    for (int k = 0; k < n; k++) t->fixed[begin + k] = fixed_weight(t->weight[begin + k]);
    t->start[i + 1] = begin + n;
  }
}

/* -- memory ------------------------------------------------------------------------------------ */

static size_t taps_bytes(int how, int64_t from, int64_t to)
{
  return align_up((size_t)(to + 1) * 4, ALIGN) +
      3 * align_up((size_t)count_entries(how, from, to) * 4, ALIGN);
}

static char *take_taps(struct resize_taps *t, char *at, int how, int64_t from, int64_t to)
{
  size_t list = align_up((size_t)count_entries(how, from, to) * 4, ALIGN);
  t->start = (int32_t *)at;
  t->index = (int32_t *)(at += align_up((size_t)(to + 1) * 4, ALIGN));
  t->fixed = (int32_t *)(at += list);
  t->weight = (float *)(at += list);
  return at + list;
}

size_t resize_scratch(const struct pixels *to, const struct pixels *from, int how)
{
  how = resize_rule(to, from, how);
  if (how == NEAREST || (to->h == from->h && to->w == from->w)) return 0;
  return taps_bytes(how, from->w, to->w) + taps_bytes(how, from->h, to->h) +
      (size_t)(from->h * to->w * to->c) * (to->dtype == TY_F64 ? 8 : 4) + ALIGN;
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
ROW_PASS(row_doubles, double, double, weight)

/* Computes a row with two taps per position, the usual case. */
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
    if (r->from->dtype == TY_F64)
      row_doubles(r, y);
    else if (r->from->dtype == TY_F32)
      row_floats(r, y);
    else if (r->how == LINEAR || r->how == WIDE)
      row_pairs(r, y);
    else if (is_fixed(r->how, TY_U8))
      row_fixed(r, y);
    else
      row_bytes(r, y);
}

static void column_linear(const struct resize_job *r, int64_t y, int64_t n)
{
  int32_t e = r->y.start[y];
  const int32_t *a = (const int32_t *)r->middle + r->y.index[e] * n,
                *b = (const int32_t *)r->middle + r->y.index[e + 1] * n;
  int32_t wa = r->y.fixed[e], wb = r->y.fixed[e + 1];
  uint8_t *out = (uint8_t *)r->to->p + y * n;
  for (int64_t i = 0; i < n; i++)
    out[i] = byte_of_pair(a[i], b[i], wa, wb);
}

/* Computes the first `count` bytes of a cubic row in float32. */
static void column_vectors(const struct resize_job *r, int64_t y, int64_t n, int64_t count)
{
  const int32_t *index = r->y.index + r->y.start[y], *w = r->y.fixed + r->y.start[y];
  const int32_t *rows = r->middle, *a = rows + index[0] * n, *b = rows + index[1] * n,
                *c = rows + index[2] * n, *d = rows + index[3] * n;
  uint8_t *out = (uint8_t *)r->to->p + y * n;
  for (int64_t i = 0; i < count; i++)
    out[i] = byte_of_mean(part_of_byte(a[i], w[0]) + part_of_byte(b[i], w[1]) +
        part_of_byte(c[i], w[2]) + part_of_byte(d[i], w[3]), false);
}

static void column_fixed(const struct resize_job *r, int64_t y, int64_t n)
{
  int32_t begin = r->y.start[y], end = r->y.start[y + 1];
  int64_t vectors = r->how == CUBIC ? bytes_in_vectors(n) : 0;
  const int32_t *middle = r->middle;
  uint8_t *out = (uint8_t *)r->to->p + y * n;
  if (vectors) column_vectors(r, y, n, vectors);
  for (int64_t i = vectors; i < n; i++) {
    int64_t sum = 1 << (2 * WEIGHT_BITS - 1);
    for (int32_t e = begin; e < end; e++)
      sum += (int64_t)middle[r->y.index[e] * n + i] * r->y.fixed[e];
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
      ((uint8_t *)r->to->p)[y * n + i] = byte_of_mean(sum, r->twice);
  }
}

static void column_doubles(const struct resize_job *r, int64_t y, int64_t n)
{
  const double *middle = r->middle;
  double *out = (double *)r->to->p + y * n;
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int32_t e = r->y.start[y]; e < r->y.start[y + 1]; e++)
      sum += middle[r->y.index[e] * n + i] * r->y.weight[e];
    out[i] = sum;
  }
}

static void column_body(int64_t begin, int64_t end, void *context)
{
  const struct resize_job *r = context;
  int64_t n = r->to->w * r->to->c;
  for (int64_t y = begin; y < end; y++)
    if (r->to->dtype == TY_F64)
      column_doubles(r, y, n);
    else if (!is_fixed(r->how, r->to->dtype))
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
  double sy = tap_scale(r->from->h, r->to->h), sx = tap_scale(r->from->w, r->to->w);
  for (int64_t y = begin; y < end; y++) {
    int64_t row = nearest_tap(y, r->from->h, sy) * r->from->w;
    char *to = (char *)r->to->p + (size_t)(y * r->to->w) * size;
    for (int64_t x = 0; x < r->to->w; x++)
      memcpy(to + (size_t)x * size,
          (const char *)r->from->p + (size_t)(row + nearest_tap(x, r->from->w, sx)) * size, size);
  }
}

void resize_pixels(const struct pixels *to, const struct pixels *from, int how, void *scratch)
{
  struct resize_job r = {
    .to = to, .from = from, .how = resize_rule(to, from, how), .twice = resize_halves(to, from)
  };
  int64_t wide = to->w * to->c;
  if (to->h == from->h && to->w == from->w) {
    memcpy(to->p, from->p, (size_t)(to->h * wide) * dtype_size(to->dtype));
    return;
  }
  if (r.how == NEAREST) {
    parallel_for(to->h, PIXEL_NS / 2 * (double)wide, nearest_body, &r);
    return;
  }
  char *at = take_taps(&r.x, scratch, r.how, from->w, to->w);
  r.middle = take_taps(&r.y, at, r.how, from->h, to->h);
  fill_taps(&r.x, r.how, from->w, to->w, true);
  fill_taps(&r.y, r.how, from->h, to->h, false);
  parallel_for(from->h, PIXEL_NS * (double)wide, row_body, &r);
  parallel_for(to->h, PIXEL_NS * (double)wide, column_body, &r);
}

int resampling_for(int64_t h, int64_t w, int64_t to_h, int64_t to_w)
{
  if (to_h > h && to_w > w) return CUBIC;
  return to_h < h && to_w < w ? AREA : LINEAR;
}
