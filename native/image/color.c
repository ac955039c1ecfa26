/* color.c - adjusts colours of images: brightness, contrast, saturation, hue, lighting. */
#include "base/parallel.h"
#include "image/image.h"

/* ns of a pixel with all channels: 1.2, an estimate */
#define PIXEL_NS (PARALLEL_CHUNK_NS / 8192)

static void load_pixel(const struct pixels *a, int64_t i, float *v)
{
  for (int64_t k = 0; k < a->c; k++)
    v[k] = a->dtype == TY_U8 ? ((const uint8_t *)a->p)[i * a->c + k]
                             : ((const float *)a->p)[i * a->c + k];
}

static void store_pixel(const struct pixels *a, int64_t i, const float *v)
{
  for (int64_t k = 0; k < a->c; k++)
    if (a->dtype == TY_U8)
      ((uint8_t *)a->p)[i * a->c + k] = byte_of(v[k]);
    else
      ((float *)a->p)[i * a->c + k] = v[k];
}

static float mean_grey(const struct pixels *a)
{
  double sum = 0;
  float v[4];
  for (int64_t i = 0; i < a->h * a->w; i++) {
    load_pixel(a, i, v);
    sum += grey_of(v, a->c);
  }
  return (float)(sum / (double)(a->h * a->w));
}

struct tune { const struct pixels *to, *from; struct tuning t; float mean; };

static void tune_body(int64_t begin, int64_t end, void *context)
{
  const struct tune *a = context;
  float v[4];
  for (int64_t i = begin; i < end; i++) {
    load_pixel(a->from, i, v);
    tune_pixel(&a->t, a->mean, v, a->to->c);
    store_pixel(a->to, i, v);
  }
}

void tune_pixels(const struct pixels *to, const struct pixels *from, struct tuning t)
{
  struct tune a = { to, from, t, 0 };
  if (t.kind == CONTRAST) a.mean = mean_grey(from);
  parallel_for(to->h * to->w, PIXEL_NS, tune_body, &a);
}
