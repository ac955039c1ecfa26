/* workspace.c - see workspace.h. */
#include <math.h>
#include "io/workspace.h"

/* -- random numbers ---------------------------------------------------------------------------- */

static struct philox rng_words(struct rng *c)
{
  return philox(c->seed, c->epoch, 0, c->sample + ((uint64_t)(c->used++) << 40));
}

uint32_t rng_word(struct rng *c) { return rng_words(c).w[0]; }

double rng_unit(struct rng *c)
{
  struct philox p = rng_words(c);
  return unit_f64(p.w[0], p.w[1]);
}

int64_t rng_below(struct rng *c, int64_t n)
{
  int64_t i = (int64_t)(rng_unit(c) * (double)n);
  return MIN(i, n - 1);
}

double rng_between(struct rng *c, double low, double high)
{
  return low + (high - low) * rng_unit(c);
}

/* -- parameters -------------------------------------------------------------------------------- */

/* bound of integers: keeps sizes from overflowing */
enum { MOST_WHOLE = 1 << 20 };

int option_bad(const char *key, const char *expected)
{
  fail(TY_EVALUE, "bad '%s': expected %s", key, expected);
  fail_argument(key, expected, NULL);
  return TY_EVALUE;
}

int options_integers(const struct options *o, const struct integer_option *list, int n, void *to)
{
  for (int i = 0; i < n; i++) {
    int64_t *slot = (int64_t *)((char *)to + list[i].at);
    TRY(option_int(o, list[i].key, list[i].init, list[i].least, slot));
    if (*slot > MOST_WHOLE) return option_bad(list[i].key, "at most 1048576");
  }
  return TY_OK;
}

int options_reals(const struct options *o, const struct real_option *list, int n, void *to)
{
  for (int i = 0; i < n; i++)
    TRY(option_real(o, list[i].key, list[i].init, (double *)((char *)to + list[i].at)));
  return TY_OK;
}

int mean_image_load(const char *path, const ty_desc *shape, float **out)
{
  ty_bag *bag;
  int named;
  const char *name;
  ty_tensor *t = NULL;
  int64_t n = desc_count(shape);
  TRY(ty_params_load(path, &bag, &named));
  int code = ty_bag_at(bag, 0, &name, &t);
  if (code == TY_OK && (!t || t->d.dtype != TY_F32 || desc_count(&t->d) != n))
    code = fail(
        TY_ESHAPE, "'%s': the mean image is no float32 array of %lld elements", path, (long long)n);
  if (code == TY_OK && !(*out = NEWS(float, n))) code = TY_EMEMORY;
  if (code == TY_OK) code = ty_tensor_read(t, *out, sizeof(float) * (size_t)n);
  ty_bag_free(bag);
  return code;
}

/* -- buffers ----------------------------------------------------------------------------------- */

static int reserve_block(struct buffer *r, size_t n)
{
  if (n <= r->n) return TY_OK;
  mem_free(r->p);
  r->n = 0;
  r->p = mem_new(n);
  if (!r->p) return TY_EMEMORY;
  r->n = n;
  return TY_OK;
}

void workspace_done(struct workspace *s)
{
  for (int i = 0; i < 2; i++) mem_free(s->image[i].p);
  mem_free(s->scratch.p);
}

int workspace_other(struct workspace *s, int dtype, int64_t h, int64_t w, struct pixels *out)
{
  struct buffer *r = &s->image[!s->at];
  *out = (struct pixels){ NULL, dtype, h, w, s->now.c };
  NEED(h > 0 && w > 0 && h <= (1 << 30) / w, TY_EVALUE, "the image would have %lld x %lld pixels",
      (long long)h, (long long)w);
  TRY(reserve_block(r, (size_t)(h * w * s->now.c) * dtype_size(dtype)));
  out->p = r->p;
  return TY_OK;
}

void workspace_swap(struct workspace *s, struct pixels image)
{
  s->now = image;
  s->at = !s->at;
}

/* -- steps ------------------------------------------------------------------------------------- */

int workspace_decode(struct workspace *s, struct file_bytes file, int64_t channels)
{
  struct pixels size;
  TRY(image_measure(file, 1, &size));
  s->now.c = channels;
  TRY(workspace_other(s, TY_U8, size.h, size.w, &size));
  TRY(image_decode(file, &size));
  workspace_swap(s, size);
  return TY_OK;
}

int64_t workspace_choose_rule(
    const struct workspace *s, int64_t how, struct rng *c, int64_t h, int64_t w)
{
  if (how == BY_SIZES) return resampling_for(s->now.h, s->now.w, h, w);
  return how == AT_RANDOM ? rng_below(c, RESAMPLINGS) : how;
}

int workspace_resize(struct workspace *s, int64_t how, struct rng *c, int64_t h, int64_t w)
{
  struct pixels to;
  how = workspace_choose_rule(s, how, c, h, w);
  TRY(workspace_other(s, s->now.dtype, h, w, &to));
  TRY(reserve_block(&s->scratch, resize_scratch(&to, &s->now, (int)how)));
  resize_pixels(&to, &s->now, (int)how, s->scratch.p);
  workspace_swap(s, to);
  return TY_OK;
}

int workspace_resize_short(struct workspace *s, int64_t how, struct rng *c, int64_t size)
{
  int64_t h = size, w = size;
  if (s->now.h > s->now.w)
    h = size * s->now.h / s->now.w;
  else
    w = size * s->now.w / s->now.h;
  return workspace_resize(s, how, c, h, w);
}

int workspace_crop(struct workspace *s, int64_t y, int64_t x, int64_t h, int64_t w)
{
  struct pixels to;
  if (h == s->now.h && w == s->now.w) return TY_OK;
  TRY(workspace_other(s, s->now.dtype, h, w, &to));
  crop_pixels(&to, &s->now, y, x);
  workspace_swap(s, to);
  return TY_OK;
}

int workspace_border(
    struct workspace *s, int64_t h, int64_t w, int64_t top, int64_t left, int64_t fill)
{
  struct pixels to;
  double v = (double)fill, value[4] = { v, v, v, v };
  TRY(workspace_other(s, s->now.dtype, h, w, &to));
  border_pixels(&to, &s->now, top, left, BORDER_CONSTANT, value);
  workspace_swap(s, to);
  return TY_OK;
}

static float clamp_level(float v, float most) { return v < 0 ? 0 : v > most ? most : v; }

void workspace_shift_hls(struct workspace *s, float hue, float light, float saturation)
{
  float rgb[3], hls[3];
  uint8_t *p = s->now.p;
  for (int64_t i = 0; s->now.c >= 3 && i < s->now.h * s->now.w; i++, p += s->now.c) {
    for (int k = 0; k < 3; k++) rgb[k] = (float)p[k] / 255;
    hls_of_rgb(rgb, hls);
    hls[0] = clamp_level(hls[0] / 2 + hue, 180) * 2;
    hls[1] = clamp_level(hls[1] * 255 + light, 255) / 255;
    hls[2] = clamp_level(hls[2] * 255 + saturation, 255) / 255;
    rgb_of_hls(hls, rgb);
    for (int k = 0; k < 3; k++) p[k] = byte_of(rgb[k] * 255 + 0.5f);
  }
}

/* -- the numbers of a sample ------------------------------------------------------------------- */

/* Writes planes of factor x (pixel - mean image) + offset. */
static void put_floats(const struct pixels *now, const struct levels *l, bool mirror, float *out)
{
  float table[256];
  for (int64_t k = 0; k < now->c; k++) {
    for (int v = 0; v < 256; v++) table[v] = (float)v * l->factor[k] + l->offset[k];
    for (int64_t y = 0; y < now->h; y++) {
      const uint8_t *row = (const uint8_t *)now->p + y * now->w * now->c + k;
      const float *mean = l->mean ? l->mean + (k * now->h + y) * now->w : NULL;
      for (int64_t x = 0; x < now->w; x++) {
        int64_t from = mirror ? now->w - 1 - x : x;
        *out++ = mean ? table[row[from * now->c]] - mean[from] * l->factor[k]
                      : table[row[from * now->c]];
      }
    }
  }
}

static void put_bytes(const struct pixels *now, bool mirror, uint8_t *out)
{
  for (int64_t k = 0; k < now->c; k++)
    for (int64_t y = 0; y < now->h; y++)
      for (int64_t x = 0; x < now->w; x++)
        *out++ =
            ((const uint8_t *)now->p)[(y * now->w + (mirror ? now->w - 1 - x : x)) * now->c + k];
}

static int8_t quantize_level(float v) { return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v); }

/* Writes pixels minus the rounded mean: the negated offset, or the mean image. */
static void put_signed(const struct pixels *now, const struct levels *l, bool mirror, int8_t *out)
{
  for (int64_t k = 0; k < now->c; k++)
    for (int64_t y = 0; y < now->h; y++) {
      const uint8_t *row = (const uint8_t *)now->p + y * now->w * now->c + k;
      const float *mean = l->mean ? l->mean + (k * now->h + y) * now->w : NULL;
      for (int64_t x = 0; x < now->w; x++) {
        int64_t from = mirror ? now->w - 1 - x : x;
        *out++ = quantize_level(
            (float)row[from * now->c] - roundf(mean ? mean[from] : -l->offset[k]));
      }
    }
}

void workspace_put(
    const struct workspace *s, int dtype, const struct levels *l, bool mirror, void *out)
{
  if (dtype == TY_F32)
    put_floats(&s->now, l, mirror, out);
  else if (dtype == TY_I8)
    put_signed(&s->now, l, mirror, out);
  else
    put_bytes(&s->now, mirror, out);
}
