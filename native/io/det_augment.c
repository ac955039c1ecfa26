/* det_augment.c - the augmentation of an image with boxes, in this order: decode, shorter side to
** `resize`, hue lightness saturation, contrast, mirror image, border, window, size; then mean,
** scale, deviation. Each random step has its own probability.
*/
#include "io/det_augment.h"

enum {
  LEAST_HEADER = 2,                                   /* fewest numbers of a label's header */
  LEAST_OBJECT = 5,                                   /* fewest numbers of an object */
  MOST_OBJECT = 1 << 20                               /* most numbers of an object */
};
enum { FORCE, SHRINK, FIT };
enum { CENTER, OVERLAP };

/* -- parameters -------------------------------------------------------------------------------- */

#define AT(field) offsetof(struct det_augment, field)
static const struct integer_option WHOLES[] = {
  { "resize", AT(resize), -1, -1 }, { "fill_value", AT(fill_value), 127, 0 },
  { "inter_method", AT(inter_method), 1, 0 }, { "max_random_hue", AT(max_random_hue), 0, 0 },
  { "max_random_saturation", AT(max_random_saturation), 0, 0 },
  { "max_random_illumination", AT(max_random_illumination), 0, 0 },
  { "num_crop_sampler", AT(num_crop_sampler), 1, 0 },
};
static const struct real_option REALS[] = {
  { "rand_crop_prob", AT(rand_crop_prob), 0 },
  { "emit_overlap_thresh", AT(emit_overlap_thresh), 0.3 },
  { "rand_pad_prob", AT(rand_pad_prob), 0 }, { "max_pad_scale", AT(max_pad_scale), 1 },
  { "random_hue_prob", AT(random_hue_prob), 0 },
  { "random_saturation_prob", AT(random_saturation_prob), 0 },
  { "random_illumination_prob", AT(random_illumination_prob), 0 },
  { "max_random_contrast", AT(max_random_contrast), 0 },
  { "random_contrast_prob", AT(random_contrast_prob), 0 },
  { "rand_mirror_prob", AT(rand_mirror_prob), 0 },
  { "mean_r", AT(mean[0]), 0 }, { "mean_g", AT(mean[1]), 0 }, { "mean_b", AT(mean[2]), 0 },
  { "mean_a", AT(mean[3]), 0 }, { "std_r", AT(std[0]), 1 }, { "std_g", AT(std[1]), 1 },
  { "std_b", AT(std[2]), 1 }, { "std_a", AT(std[3]), 1 }, { "scale", AT(scale), 1 },
};

/* parameters that are lists: a number per sampler, or one for all */
#define IN(field) offsetof(struct window_sampler, field)
static const struct real_option LISTS[] = {
  { "min_crop_scales", IN(scale[0]), 0 }, { "max_crop_scales", IN(scale[1]), 1 },
  { "min_crop_aspect_ratios", IN(ratio[0]), 1 }, { "max_crop_aspect_ratios", IN(ratio[1]), 1 },
  { "min_crop_overlaps", IN(overlap[0]), 0 }, { "max_crop_overlaps", IN(overlap[1]), 1 },
  { "min_crop_sample_coverages", IN(sample_coverage[0]), 0 },
  { "max_crop_sample_coverages", IN(sample_coverage[1]), 1 },
  { "min_crop_object_coverages", IN(object_coverage[0]), 0 },
  { "max_crop_object_coverages", IN(object_coverage[1]), 1 },
};

/* Reads "(0.1, 0.3)", n numbers, or "0.1", one for all. */
static int read_list(const struct options *o, const char *key, double init, int64_t n, double *out)
{
  const char *text = option_text(o, key, "");
  int64_t count = 0;
  while (*text == '(' || *text == '[' || *text == ' ') text++;
  while (*text && count < n) {
    char *end;
    double v = number_read(text, &end);
    if (end == text) break;
    out[count++] = v;
    for (text = end; *text == ',' || *text == ' ';) text++;
  }
  if ((*text && *text != ')' && *text != ']') || (count > 1 && count < n))
    return option_bad(key, "one number, or one for each of num_crop_sampler");
  for (int64_t i = count; i < n; i++) out[i] = count ? out[0] : init;
  return TY_OK;
}

static int read_samplers(const struct options *o, struct det_augment *a)
{
  double list[MOST_SAMPLERS];
  if (a->num_crop_sampler > MOST_SAMPLERS) return option_bad("num_crop_sampler", "at most 32");
  for (int k = 0; k < COUNT(LISTS); k++) {
    TRY(read_list(o, LISTS[k].key, LISTS[k].init, a->num_crop_sampler, list));
    for (int64_t i = 0; i < a->num_crop_sampler; i++)
      memcpy((char *)&a->sampler[i] + LISTS[k].at, &list[i], sizeof(double));
  }
  TRY(read_list(o, "max_crop_trials", 25, a->num_crop_sampler, list));
  for (int64_t i = 0; i < a->num_crop_sampler; i++) {
    struct window_sampler *s = &a->sampler[i];
    if (!(list[i] >= 0 && list[i] <= 100000))
      return option_bad("max_crop_trials", "0 to 100000");
    s->trials = (int64_t)list[i];
    if (!(s->scale[0] >= 0 && s->scale[0] <= s->scale[1] && s->scale[1] > 0 && s->scale[1] <= 1))
      return option_bad("min_crop_scales", "0 to 1, at most max_crop_scales");
    if (!(s->ratio[0] > 0 && s->ratio[0] <= s->ratio[1]))
      return option_bad("min_crop_aspect_ratios", "above 0, at most max_crop_aspect_ratios");
  }
  return TY_OK;
}

static int read_word(
    const struct options *o, const char *key, const char *const *words, int n, int *out)
{
  const char *text = option_text(o, key, words[0]);
  for (*out = 0; *out < n; ++*out)
    if (!strcmp(text, words[*out])) return TY_OK;
  return option_bad(key, n == 2 ? "center or overlap" : "force, shrink or fit");
}

static int check_samplers(const struct det_augment *a)
{
  const double shares[] = { a->rand_crop_prob, a->rand_pad_prob, a->random_hue_prob,
    a->random_saturation_prob, a->random_illumination_prob, a->random_contrast_prob,
    a->rand_mirror_prob };
  int64_t c = a->shape.dim[0], h = a->shape.dim[1], w = a->shape.dim[2];
  if (a->shape.ndim != 3 || (c != 1 && c != 3 && c != 4))
    return option_bad("data_shape", "1, 3 or 4 channels, height, width");
  if (w > 1 << 20 || h > (1 << 28) / w)
    return option_bad("data_shape", "at most 268435456 pixels");
  for (int i = 0; i < COUNT(shares); i++)
    if (!(shares[i] >= 0 && shares[i] <= 1)) return option_bad("..._prob", "0 to 1");
  if (a->inter_method > LANCZOS && a->inter_method != 9 && a->inter_method != 10)
    return option_bad("inter_method", "0 to 4, 9 or 10");
  if (a->resize == 0) return option_bad("resize", "-1 or a size above 0");
  if (!(a->max_pad_scale >= 1 && a->max_pad_scale <= 100))
    return option_bad("max_pad_scale", "1 to 100");
  for (int i = 0; i < 4; i++)
    if (a->std[i] == 0) return option_bad("std_r, std_g, std_b or std_a", "not 0");
  return TY_OK;
}

int det_augment_open(const struct options *o, const ty_desc *shape, int dtype,
    struct det_augment *a)
{
  static const char *const EMITS[] = { "center", "overlap" },
                           *const MODES[] = { "force", "shrink", "fit" };
  *a = (struct det_augment){ .shape = *shape, .dtype = dtype };
  TRY(options_integers(o, WHOLES, COUNT(WHOLES), a));
  TRY(options_reals(o, REALS, COUNT(REALS), a));
  TRY(read_word(o, "crop_emit_mode", EMITS, COUNT(EMITS), &a->emit));
  TRY(read_word(o, "resize_mode", MODES, COUNT(MODES), &a->mode));
  TRY(check_samplers(a));
  TRY(read_samplers(o, a));
  const char *path = option_text(o, "mean_img", "");
  return *path ? mean_image_load(path, shape, &a->mean_img) : TY_OK;
}

void det_augment_close(struct det_augment *a) { mem_free(a->mean_img); }

/* -- boxes ------------------------------------------------------------------------------------- */

struct det_box { double x, y, w, h; };

int det_label_check(const float *label, int64_t n)
{
  bool good = n >= LEAST_HEADER && label[0] >= LEAST_HEADER && label[0] <= n &&
      label[1] >= LEAST_OBJECT && label[1] <= MOST_OBJECT && (float)(int64_t)label[0] == label[0] &&
      (float)(int64_t)label[1] == label[1] && (n - (int64_t)label[0]) % (int64_t)label[1] == 0;
  NEED(good, TY_EFORMAT,
      "the %lld numbers are no label of boxes: the length of what comes before the objects (at "
      "least 2), the numbers of an object (at least 5), ..., objects",
      (long long)n);
  return TY_OK;
}

/* The objects of a label. */
struct objects { float *at; int64_t n, width; };

static struct objects label_objects(float *label, int64_t n)
{
  int64_t header = (int64_t)label[0], width = (int64_t)label[1];
  return (struct objects){ label + header, (n - header) / width, width };
}

static struct det_box label_box(const float *object)
{
  return (struct det_box){ object[1], object[2], (double)object[3] - object[1],
    (double)object[4] - object[2] };
}

static double shared_area(struct det_box a, struct det_box b)
{
  double w = MIN(a.x + a.w, b.x + b.w) - MAX(a.x, b.x);
  double h = MIN(a.y + a.h, b.y + b.h) - MAX(a.y, b.y);
  return w > 0 && h > 0 ? w * h : 0;
}

static double box_area(struct det_box a) { return a.w > 0 && a.h > 0 ? a.w * a.h : 0; }

/* Converts an object's box to fractions of a window. */
static void box_project(float *object, struct det_box window)
{
  double left = (object[1] - window.x) / window.w, right = (object[3] - window.x) / window.w;
  double top = (object[2] - window.y) / window.h, bottom = (object[4] - window.y) / window.h;
  object[1] = (float)MAX(0, left), object[2] = (float)MAX(0, top);
  object[3] = (float)MIN(1, right), object[4] = (float)MIN(1, bottom);
}

/* Returns whether v / total is within bounds; always if these are 0 and 1. */
static bool box_contains_center(double v, double total, const double bounds[2])
{
  if (bounds[0] <= 0 && bounds[1] >= 1) return true;
  return total > 0 && v / total >= bounds[0] && v / total <= bounds[1];
}

/* Returns whether some object satisfies the sampler's bounds in the window. */
static bool sampler_accepts(
    const struct window_sampler *s, struct objects all, struct det_box window)
{
  for (int64_t i = 0; i < all.n; i++) {
    struct det_box b = label_box(all.at + i * all.width);
    double both = shared_area(b, window);
    if (box_contains_center(both, box_area(b) + box_area(window) - both, s->overlap) &&
        box_contains_center(both, box_area(window), s->sample_coverage) &&
        box_contains_center(both, box_area(b), s->object_coverage))
      return true;
  }
  return false;
}

static bool box_stays(const struct det_augment *a, struct det_box b, struct det_box window)
{
  if (a->emit == OVERLAP)
    return box_area(b) > 0 && shared_area(b, window) / box_area(b) > a->emit_overlap_thresh;
  double x = b.x + b.w / 2, y = b.y + b.h / 2;
  return x >= window.x && x < window.x + window.w && y >= window.y && y < window.y + window.h;
}

/* Moves the objects that remain in the window to the front, as fractions of it. Returns their
** number. */
static int64_t keep_objects(const struct det_augment *a, struct objects all, struct det_box window)
{
  int64_t kept = 0;
  for (int64_t i = 0; i < all.n; i++) {
    float *from = all.at + i * all.width, *to = all.at + kept * all.width;
    if (!box_stays(a, label_box(from), window)) continue;
    memmove(to, from, sizeof(float) * (size_t)all.width);
    box_project(to, window);
    kept++;
  }
  return kept;
}

static bool any_stays(const struct det_augment *a, struct objects all, struct det_box window)
{
  for (int64_t i = 0; i < all.n; i++)
    if (box_stays(a, label_box(all.at + i * all.width), window)) return true;
  return all.n == 0;
}

/* -- steps ------------------------------------------------------------------------------------- */

static bool draw_random_bool(struct rng *c, double share)
{
  return share > 0 && rng_unit(c) < share;
}

static float draw_shift(struct rng *c, double share, int64_t most)
{
  return draw_random_bool(c, share) ? truncf((float)rng_between(c, (double)-most, (double)most))
                                    : 0;
}

static void augment_colors(const struct det_augment *a, struct workspace *s, struct rng *c)
{
  float hue = draw_shift(c, a->random_hue_prob, a->max_random_hue);
  float saturation = draw_shift(c, a->random_saturation_prob, a->max_random_saturation);
  float light = draw_shift(c, a->random_illumination_prob, a->max_random_illumination);
  if (hue != 0 || saturation != 0 || light != 0) workspace_shift_hls(s, hue, light, saturation);
  if (!draw_random_bool(c, a->random_contrast_prob)) return;
  double factor = 1 + rng_between(c, -a->max_random_contrast, a->max_random_contrast);
  tune_pixels(&s->now, &s->now, (struct tuning){ .kind = BRIGHTNESS, .alpha = (float)factor });
}

static void mirror_sample(struct workspace *s, struct objects all)
{
  uint8_t *p = s->now.p, held[4];
  size_t c = (size_t)s->now.c;
  for (int64_t y = 0; y < s->now.h; y++, p += s->now.w * s->now.c)
    for (int64_t i = 0, k = s->now.w - 1; i < k; i++, k--) {
      memcpy(held, p + i * s->now.c, c);
      memcpy(p + i * s->now.c, p + k * s->now.c, c);
      memcpy(p + k * s->now.c, held, c);
    }
  for (int64_t i = 0; i < all.n; i++) {
    float *object = all.at + i * all.width, left = object[1];
    object[1] = 1 - object[3];
    object[3] = 1 - left;
  }
}

/* per cent: smaller enlargements are skipped */
enum { LEAST_GROWTH = 105 };

static int add_border(
    const struct det_augment *a, struct workspace *s, struct rng *c, struct objects all)
{
  double grown = rng_between(c, 1, a->max_pad_scale);
  if (grown * 100 < LEAST_GROWTH) return TY_OK;
  int64_t h = (int64_t)(grown * (double)s->now.h), w = (int64_t)(grown * (double)s->now.w);
  int64_t top = rng_below(c, h - s->now.h + 1), left = rng_below(c, w - s->now.w + 1);
  double wide = (double)s->now.w, high = (double)s->now.h;
  struct det_box window = { -(double)left / wide, -(double)top / high, (double)w / wide,
    (double)h / high };
  TRY(workspace_border(s, h, w, top, left, a->fill_value));
  for (int64_t i = 0; i < all.n; i++) box_project(all.at + i * all.width, window);
  return TY_OK;
}

/* Draws a window, as fractions of an image. image: width / height of the image. */
static struct det_box random_window(const struct window_sampler *s, struct rng *c, double image)
{
  double scale = MAX(rng_between(c, s->scale[0], s->scale[1]), 1e-6);
  double least = MAX(s->ratio[0] / image, scale * scale);
  double most = MIN(s->ratio[1] / image, 1 / (scale * scale));
  double ratio = sqrt(most > least ? rng_between(c, least, most) : least);
  double w = MIN(1, scale * ratio), h = MIN(1, scale / ratio);
  return (struct det_box){ rng_between(c, 0, 1 - w), rng_between(c, 0, 1 - h), w, h };
}

/* Returns the window in whole pixels of the image, and rounds *window to that. */
static struct det_box to_pixels(const struct pixels *image, struct det_box *window)
{
  double wide = (double)image->w, high = (double)image->h;
  struct det_box b = { floor(window->x * wide), floor(window->y * high), 0, 0 };
  b.w = MAX(1, MIN(floor(window->w * wide + 0.5), wide - b.x));
  b.h = MAX(1, MIN(floor(window->h * high + 0.5), high - b.y));
  *window = (struct det_box){ b.x / wide, b.y / high, b.w / wide, b.h / high };
  return b;
}

/* Tries the samplers in random order until one finds an acceptable window, and crops to it; if none
** does, the image stays as it is. */
static int take_window(
    const struct det_augment *a, struct workspace *s, struct rng *c, struct objects *all)
{
  int order[MOST_SAMPLERS] = { 0 };
  for (int i = 0; i < a->num_crop_sampler; i++) {
    int64_t k = rng_below(c, i + 1);
    order[i] = order[k];
    order[k] = i;
  }
  for (int i = 0; i < a->num_crop_sampler; i++) {
    const struct window_sampler *sampler = &a->sampler[order[i]];
    for (int64_t t = 0; t < sampler->trials; t++) {
      struct det_box window = random_window(sampler, c, (double)s->now.w / (double)s->now.h);
      struct det_box p = to_pixels(&s->now, &window);
      if ((all->n && !sampler_accepts(sampler, *all, window)) || !any_stays(a, *all, window))
        continue;
      all->n = keep_objects(a, *all, window);
      return workspace_crop(s, (int64_t)p.y, (int64_t)p.x, (int64_t)p.h, (int64_t)p.w);
    }
  }
  return TY_OK;
}

/* Resizes the image to data_shape, or, if it has to keep its proportions, to fit in it from the
** upper left corner. */
static int take_size(const struct det_augment *a, struct workspace *s, struct rng *c,
    struct objects all, float size[3])
{
  int64_t h = a->shape.dim[1], w = a->shape.dim[2], to_h = h, to_w = w;
  if (a->mode != FORCE) {
    double ratio = MIN((double)h / (double)s->now.h, (double)w / (double)s->now.w);
    if (a->mode == SHRINK) ratio = MIN(ratio, 1);
    to_h = MAX(1, MIN(h, (int64_t)((double)s->now.h * ratio + 0.5)));
    to_w = MAX(1, MIN(w, (int64_t)((double)s->now.w * ratio + 0.5)));
  }
  if (to_h != s->now.h || to_w != s->now.w)
    TRY(workspace_resize(s, a->inter_method, c, to_h, to_w));
  size[0] = (float)s->now.c, size[1] = (float)to_h, size[2] = (float)to_w;
  if (to_h == h && to_w == w) return TY_OK;
  struct det_box window = { 0, 0, (double)w / (double)to_w, (double)h / (double)to_h };
  for (int64_t i = 0; i < all.n; i++) box_project(all.at + i * all.width, window);
  return workspace_border(s, h, w, 0, 0, a->fill_value);
}

int det_augment_run(const struct det_augment *a, struct file_bytes file, struct rng *rng,
    struct workspace *s, float *label, int64_t *n, float size[3], void *out)
{
  struct objects all = label_objects(label, *n);
  struct levels l = { .mean = a->mean_img };
  TRY(workspace_decode(s, file, a->shape.dim[0]));
  if (a->resize > 0) TRY(workspace_resize_short(s, a->inter_method, rng, a->resize));
  augment_colors(a, s, rng);
  if (draw_random_bool(rng, a->rand_mirror_prob)) mirror_sample(s, all);
  if (draw_random_bool(rng, a->rand_pad_prob)) TRY(add_border(a, s, rng, all));
  if (draw_random_bool(rng, a->rand_crop_prob)) TRY(take_window(a, s, rng, &all));
  TRY(take_size(a, s, rng, all, size));
  for (int k = 0; k < 4; k++) {
    l.factor[k] = (float)(a->scale / a->std[k]);
    l.offset[k] = (float)(-(a->mean_img ? 0 : a->mean[k]) * a->scale / a->std[k]);
  }
  workspace_put(s, (int)a->dtype, &l, false, out);
  *n = (all.at - label) + all.n * all.width;
  return TY_OK;
}
