/* warp.c - borders, affine maps, cropping. */
#include "image/image.h"

/* -- borders ----------------------------------------------------------------------------------- */

bool border_fits(int kind, int64_t n, int64_t before, int64_t after)
{
  int64_t most = MAX(before, after);
  return kind == BORDER_CONSTANT || kind == BORDER_EDGE ||
      most <= (kind == BORDER_REFLECT_101 ? n - 1 : n);
}

/* Writes n pixels of one colour. */
static void fill_pixels(const struct pixels *to, char *out, int64_t n, const double *value)
{
  size_t size = dtype_size(to->dtype) * (size_t)to->c;
  if (n <= 0) return;
  for (int64_t k = 0; k < to->c; k++)
    if (to->dtype == TY_U8)
      ((uint8_t *)out)[k] = byte_of((float)rint(value[MIN(k, 3)]));
    else if (to->dtype == TY_F64)
      ((double *)(void *)out)[k] = value[MIN(k, 3)];
    else
      ((float *)(void *)out)[k] = (float)value[MIN(k, 3)];
  for (int64_t done = 1; done < n; done *= 2)
    memcpy(out + (size_t)done * size, out, (size_t)MIN(done, n - done) * size);
}

/* Fills pixels [begin, end) of a row, which are outside the image, from the image's row `in`. */
static void continue_row(const struct pixels *to, const struct pixels *from, const char *in,
    char *out, int64_t left, int kind, const double *value, int64_t begin, int64_t end)
{
  size_t size = dtype_size(to->dtype) * (size_t)to->c;
  if (kind == BORDER_CONSTANT) {
    fill_pixels(to, out + (size_t)begin * size, end - begin, value);
    return;
  }
  for (int64_t x = begin; x < end; x++)
    memcpy(out + (size_t)x * size,
        in + (size_t)border_source(kind, x - left, from->w) * size, size);
}

void border_pixels(const struct pixels *to, const struct pixels *from, int64_t top, int64_t left,
    int kind, const double *value)
{
  size_t size = dtype_size(to->dtype) * (size_t)to->c;
  for (int64_t y = 0; y < to->h; y++) {
    char *out = (char *)to->p + (size_t)(y * to->w) * size;
    int64_t sy = border_source(kind, y - top, from->h);
    if (sy < 0) {
      fill_pixels(to, out, to->w, value);
      continue;
    }
    const char *in = (const char *)from->p + (size_t)(sy * from->w) * size;
    continue_row(to, from, in, out, left, kind, value, 0, left);
    int64_t inner = MIN(from->w, to->w - left);
    memcpy(out + (size_t)left * size, in, (size_t)inner * size);
    continue_row(to, from, in, out, left, kind, value, left + inner, to->w);
  }
}

void crop_pixels(const struct pixels *to, const struct pixels *from, int64_t y, int64_t x)
{
  size_t size = dtype_size(to->dtype) * (size_t)to->c, row = size * (size_t)to->w;
  for (int64_t i = 0; i < to->h; i++)
    memcpy((char *)to->p + (size_t)i * row,
        (const char *)from->p + (size_t)((y + i) * from->w + x) * size, row);
}

/* -- affine maps: places in 1/32 of a pixel ---------------------------------------------------- */

static int pixel_at(const struct pixels *from, int64_t y, int64_t x, int64_t k, uint8_t fill)
{
  bool inside = y >= 0 && y < from->h && x >= 0 && x < from->w;
  return inside ? ((const uint8_t *)from->p)[(y * from->w + x) * from->c + k] : fill;
}

/* Returns v in units of 1/32, clamped where nothing is inside any image. */
static int64_t to_fixed(double v)
{
  return (int64_t)floor(MIN(MAX(v, -0x1p40), 0x1p40) * 32 + 0.5);
}

/* n pixels along one axis from `first` on, and their weights. */
struct warp_taps { int64_t first; int n; float weight[MOST_TAPS]; };

/* Returns the taps of a rule at a position in 1/32 of a pixel. */
static struct warp_taps find_taps(int how, int64_t at)
{
  struct warp_taps t = { .n = how == NEAREST ? 1 : taps_of(how) };
  int64_t pixel = how == NEAREST ? (at + 16) >> 5 : at >> 5;
  float beyond = (float)(at & 31) / 32;
  t.first = pixel - (t.n - 1) / 2;
  if (t.n == 1)
    t.weight[0] = 1;
  else if (t.n == 4)
    cubic_weights(beyond, t.weight);
  else
    lanczos_weights(beyond, t.weight);
  return t;
}

/* Sets a pixel to the weighted mean of those around a position in 1/32 of a pixel. */
static void mix_taps(
    uint8_t *out, const struct pixels *from, int how, int64_t px, int64_t py, uint8_t fill)
{
  const struct warp_taps x = find_taps(how, px), y = find_taps(how, py);
  for (int64_t k = 0; k < from->c; k++) {
    float sum = 0.5f;
    for (int i = 0; i < y.n; i++)
      for (int j = 0; j < x.n; j++)
        sum += (float)pixel_at(from, y.first + i, x.first + j, k, fill) *
            (y.weight[i] * x.weight[j]);
    out[k] = (uint8_t)MIN(MAX(sum, 0.f), 255.f);
  }
}

/* Sets a pixel to the bilinear mean of the nearest four, computed in integers. */
static void mix_four(
    uint8_t *out, const struct pixels *from, int64_t px, int64_t py, uint8_t fill)
{
  int64_t sx = px >> 5, sy = py >> 5;
  int fx = (int)(px & 31), fy = (int)(py & 31);
  for (int64_t k = 0; k < from->c; k++) {
    int sum = pixel_at(from, sy, sx, k, fill) * (32 - fx) * (32 - fy) +
        pixel_at(from, sy, sx + 1, k, fill) * fx * (32 - fy) +
        pixel_at(from, sy + 1, sx, k, fill) * (32 - fx) * fy +
        pixel_at(from, sy + 1, sx + 1, k, fill) * fx * fy;
    out[k] = (uint8_t)((sum + 512) >> 10);
  }
}

void warp_pixels(
    const struct pixels *to, const struct pixels *from, const double m[6], int how, uint8_t fill)
{
  uint8_t *out = to->p;
  for (int64_t y = 0; y < to->h; y++)
    for (int64_t x = 0; x < to->w; x++, out += to->c) {
      int64_t px = to_fixed(m[0] * (double)x + m[1] * (double)y + m[2]),
              py = to_fixed(m[3] * (double)x + m[4] * (double)y + m[5]);
      if (how == LINEAR || how == AREA)
        mix_four(out, from, px, py, fill);
      else
        mix_taps(out, from, how, px, py, fill);
    }
}
