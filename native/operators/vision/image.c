/* image.c - images as arrays: to_tensor, normalize, resize, crop, flips, borders (_image_*,
** _cvimresize, _cvcopyMakeBorder).
**
** Images are (height, width, channels) or (batch, height, width, channels); to_tensor moves the
** channels first. The functions on pixels (image/image.h) process a batch image by image.
*/
#include "kernel/strided_copy.h"
#include "image/image.h"
#include "op/op.h"

static struct pixels make_pixels(const struct operand *a, int64_t image)
{
  const int64_t *dim = a->d.dim + a->d.ndim - 3;
  struct pixels v = { a->p, a->d.dtype, dim[0], dim[1], dim[2] };
  if (a->p) v.p = (char *)a->p + (size_t)(image * v.h * v.w * v.c) * dtype_size(a->d.dtype);
  return v;
}

static int64_t images_of(const ty_desc *d) { return d->ndim == 4 ? d->dim[0] : 1; }

/* Checks that a shape, if known, is that of an image or, if `batch`, of a batch of images. */
static int want_image(struct infer *s, const ty_desc *d, bool batch)
{
  if (!d->ndim || d->ndim == 3 || (batch && d->ndim == 4)) return TY_OK;
  return infer_fail(s, TY_ESHAPE, d,
      "expected an image (height, width, channels)%s, got %d dimensions",
      batch ? " or a batch of them" : "", d->ndim);
}

/* -- to_tensor: (..., H, W, C) in 0..255 -> (..., C, H, W) in 0..1 ----------------------------- */

static int tensor_shape(struct infer *s)
{
  const ty_desc *in = &s->in[0], *out = &s->out[0];
  TRY(want_image(s, in, true));
  if (in->ndim) {
    ty_desc d = *in;
    int64_t *dim = d.dim + d.ndim - 3, h = dim[0], w = dim[1];
    dim[0] = dim[2], dim[1] = h, dim[2] = w;
    TRY(shape_as(s, &s->out[0], &d));
  }
  if (out->ndim != 3 && out->ndim != 4) return TY_OK;
  ty_desc d = *out;
  int64_t *dim = d.dim + d.ndim - 3, c = dim[0];
  dim[0] = dim[1], dim[1] = dim[2], dim[2] = c;
  return shape_as(s, &s->in[0], &d);
}

static int tensor_type(struct infer *s) { return type_is(s, &s->out[0], TY_F32); }

struct image_planes { const struct operand *image, *plane; int64_t pixels, channels; };

static struct image_planes make_image_planes(
    const struct operand *image, const struct operand *plane)
{
  const int64_t *dim = image->d.dim + image->d.ndim - 3;
  return (struct image_planes){ image, plane, dim[0] * dim[1], dim[2] };
}

static void tensor_body(int64_t begin, int64_t end, void *context)
{
  const struct image_planes *a = context;
  for (int64_t i = begin; i < end; i++) { /* plane i of the result */
    int64_t at = i / a->channels * a->pixels * a->channels + i % a->channels;
    float *out = (float *)a->plane->p + i * a->pixels;
    if (a->image->d.dtype == TY_U8)
      for (int64_t k = 0; k < a->pixels; k++)
        out[k] = (float)((const uint8_t *)a->image->p)[at + k * a->channels] / 255;
    else
      for (int64_t k = 0; k < a->pixels; k++)
        out[k] = (float)real_of(a->image, at + k * a->channels) / 255;
  }
}

static void tensor_back_body(int64_t begin, int64_t end, void *context)
{
  const struct image_planes *a = context;
  for (int64_t i = begin; i < end; i++) {
    int64_t at = i / a->channels * a->pixels * a->channels + i % a->channels;
    const float *g = (const float *)a->plane->p + i * a->pixels;
    for (int64_t k = 0; k < a->pixels; k++)
      if (a->image->d.dtype == TY_F64)
        ((double *)a->image->p)[at + k * a->channels] = g[k] / 255;
      else
        ((float *)a->image->p)[at + k * a->channels] = g[k] / 255;
  }
}

static int tensor_run(struct call *c)
{
  struct image_planes a = make_image_planes(&c->in[0], &c->out[0]);
  parallel_for(images_of(&c->in[0].d) * a.channels, elements_ns(a.pixels), tensor_body, &a);
  return TY_OK;
}

static int tensor_back(struct call *c)
{
  struct image_planes a = make_image_planes(&c->out[0], &c->in[0]);
  if (a.image->p)
    parallel_for(
        images_of(&c->out[0].d) * a.channels, elements_ns(a.pixels), tensor_back_body, &a);
  return TY_OK;
}

/* -- normalize: (..., C, H, W) -> (x - mean of C) / std of C ----------------------------------- */

struct normalize { struct reals mean, std; };
static const struct param normalize_params[] = {
  { "mean", P_FLOATS, offsetof(struct normalize, mean), "(0, 0, 0, 0)", "what is taken from each channel; one for all" },
  { "std",  P_FLOATS, offsetof(struct normalize, std),  "(1, 1, 1, 1)", "what each channel is divided by; one for all" },
  { 0 }
};

static int normalize_check(void *param)
{
  const struct normalize *p = param;
  for (int64_t i = 0; i < p->std.n; i++)
    NEED(p->std.d[i] != 0, TY_EVALUE, "std: entry %lld is 0", (long long)i);
  return TY_OK;
}

/* Returns whether a list has one number, one per channel, or its default value. */
static bool has_valid_count(const struct reals *list, int64_t channels, double neutral)
{
  bool untouched = list->n == 4; /* the default has four numbers for any number of channels */
  for (int64_t i = 0; i < list->n; i++) untouched = untouched && list->d[i] == neutral;
  return list->n == 1 || list->n == channels || untouched;
}

static int normalize_shape(struct infer *s)
{
  const struct normalize *p = s->param;
  TRY(shape_all(s));
  const ty_desc *in = &s->in[0];
  if (!in->ndim) return TY_OK;
  if (in->ndim != 3 && in->ndim != 4)
    return infer_fail(s, TY_ESHAPE, in,
        "expected (channels, height, width) or a batch of them, got %d dimensions", in->ndim);
  int64_t channels = in->dim[in->ndim - 3];
  if (channels && channels != 1 && channels != 3)
    return infer_fail(s, TY_ESHAPE, in, "expected 1 or 3 channels, got %lld", (long long)channels);
  if (channels && !has_valid_count(&p->mean, channels, 0))
    return infer_fail(s, TY_EVALUE, NULL, "mean: expected 1 or %lld numbers, got %lld",
        (long long)channels, (long long)p->mean.n);
  if (channels && !has_valid_count(&p->std, channels, 1))
    return infer_fail(s, TY_EVALUE, NULL, "std: expected 1 or %lld numbers, got %lld",
        (long long)channels, (long long)p->std.n);
  return TY_OK;
}

struct scale {
  const struct operand *from, *to;
  const struct normalize *p;
  int64_t pixels, channels;
  bool back;
};

#define SCALE(T) \
static void scale_##T(const struct scale *a, int64_t plane) \
{ \
  int64_t k = plane % a->channels; \
  T mean = (T)a->p->mean.d[a->p->mean.n == 1 ? 0 : k], \
      std = (T)a->p->std.d[a->p->std.n == 1 ? 0 : k]; \
  const T *x = (const T *)a->from->p + plane * a->pixels; \
  T *y = (T *)a->to->p + plane * a->pixels; \
  if (a->back) mean = 0; \
  for (int64_t i = 0; i < a->pixels; i++) y[i] = (x[i] - mean) / std; \
}
SCALE(float)
SCALE(double)

static void scale_body(int64_t begin, int64_t end, void *context)
{
  const struct scale *a = context;
  for (int64_t i = begin; i < end; i++)
    if (a->from->d.dtype == TY_F64)
      scale_double(a, i);
    else
      scale_float(a, i);
}

static int scale_run(struct call *c, bool back)
{
  const ty_desc *d = &c->in[0].d;
  const int64_t *dim = d->dim + d->ndim - 3;
  struct scale a = { &c->in[0], &c->out[0], c->param, dim[1] * dim[2], dim[0], back };
  if (a.to->p)
    parallel_for(images_of(d) * a.channels, cost_ns(NS_MOVE, a.pixels), scale_body, &a);
  return TY_OK;
}
static int normalize_run(struct call *c)  { return scale_run(c, false); }
static int normalize_back(struct call *c) { return scale_run(c, true); }

/* -- crop and flips: moves of pixels ----------------------------------------------------------- */

struct crop_window { int64_t x, y, width, height; };
static const struct param crop_params[] = {
  { "x",      P_INT, offsetof(struct crop_window, x),      NULL, "first column", NULL, "[0,]" },
  { "y",      P_INT, offsetof(struct crop_window, y),      NULL, "first row", NULL, "[0,]" },
  { "width",  P_INT, offsetof(struct crop_window, width),  NULL, "columns", NULL, "[1,]" },
  { "height", P_INT, offsetof(struct crop_window, height), NULL, "rows", NULL, "[1,]" },
  { 0 }
};

static int crop_shape(struct infer *s)
{
  const struct crop_window *p = s->param;
  ty_desc d = s->in[0];
  TRY(want_image(s, &d, true));
  if (!d.ndim) return TY_OK;
  int64_t *dim = d.dim + d.ndim - 3;
  if ((dim[0] && (p->y > dim[0] || p->height > dim[0] - p->y)) ||
      (dim[1] && (p->x > dim[1] || p->width > dim[1] - p->x)))
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "a window of %lld x %lld at row %lld, column %lld sticks out", (long long)p->height,
        (long long)p->width, (long long)p->y, (long long)p->x);
  dim[0] = p->height;
  dim[1] = p->width;
  return shape_as(s, &s->out[0], &d);
}

/* Copies the window of `whole` to `part` or, if `in`, `part` into the window. */
static int move_window(
    const struct call *c, const struct operand *whole, const struct operand *part, bool in)
{
  const struct crop_window *p = c->param;
  const int64_t *n = whole->d.dim + whole->d.ndim - 3;
  int64_t wide[4] = { n[0] * n[1] * n[2], n[1] * n[2], n[2], 1 },
          small[4] = { p->height * p->width * n[2], p->width * n[2], n[2], 1 };
  int64_t dim[4] = { images_of(&whole->d), p->height, p->width, n[2] };
  size_t size = dtype_size(whole->d.dtype);
  struct move m = { 0 };
  for (int i = 0; i < 4; i++)
    move_axis(&m, dim[i], in ? wide[i] : small[i], in ? small[i] : wide[i]);
  void *at = elements_at(whole->p, (p->y * n[1] + p->x) * n[2], size);
  return move_run(c->device, &m, in ? at : part->p, in ? part->p : at, size);
}

static int crop_run(struct call *c)
{
  return move_window(c, &c->in[0], &c->out[0], false);
}

static int crop_back(struct call *c)
{
  if (!c->out[0].p) return TY_OK;
  TRY(move_zeros(c, 0));
  return move_window(c, &c->out[0], &c->in[0], true);
}

static int flip_shape(struct infer *s)
{
  TRY(shape_all(s));
  return want_image(s, &s->in[0], false);
}

static int flip_axis(const struct call *c, int axis)
{
  const int64_t *n = c->in[0].d.dim;
  int64_t stride[3] = { n[1] * n[2], n[2], 1 };
  size_t size = dtype_size(c->in[0].d.dtype);
  struct move m = { 0 };
  for (int i = 0; i < 3; i++) move_axis(&m, n[i], stride[i], i == axis ? -stride[i] : stride[i]);
  if (!c->out[0].p) return TY_OK;
  const void *last = elements_at(c->in[0].p, (n[axis] - 1) * stride[axis], size);
  return move_run(c->device, &m, c->out[0].p, last, size);
}
static int flip_left_right(struct call *c) { return flip_axis(c, 1); }
static int flip_top_bottom(struct call *c) { return flip_axis(c, 0); }

/* -- resize ------------------------------------------------------------------------------------ */

#define INTERP "0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos"
struct image_resize_param { struct dims size; int64_t keep_ratio, interp; };
static const struct param resize_params[] = {
  { "size",       P_SHAPE, offsetof(struct image_resize_param, size),       "()",
    "(width, height), or one number for both", NULL, SIZES_RANGE },
  { "keep_ratio", P_BOOL,  offsetof(struct image_resize_param, keep_ratio), "False",
    "the one number is the shorter side; the other follows" },
  { "interp",     P_INT,   offsetof(struct image_resize_param, interp),     "1", INTERP, NULL, "[0,4]" },
  { 0 }
};
struct cv_resize { int64_t w, h, interp; };
static const struct param cv_resize_params[] = {
  { "w",      P_INT, offsetof(struct cv_resize, w),      NULL, "new width", NULL, "[1,]" },
  { "h",      P_INT, offsetof(struct cv_resize, h),      NULL, "new height", NULL, "[1,]" },
  { "interp", P_INT, offsetof(struct cv_resize, interp), "1", INTERP, NULL, "[0,4]" },
  { 0 }
};

static int resize_check(void *param)
{
  const struct image_resize_param *p = param;
  NEED(p->size.n == 1 || p->size.n == 2, TY_EVALUE,
      "parameter size: expected 1 or 2 numbers, got %lld", (long long)p->size.n);
  for (int64_t i = 0; i < p->size.n; i++)
    NEED(p->size.d[i] > 0, TY_EVALUE, "parameter size: expected positive numbers, got %lld",
        (long long)p->size.d[i]);
  return TY_OK;
}

/* largest side of a resized image, and largest border, in pixels */
enum { MOST_SIDE = 1 << 20 };

static int resized_shape(struct infer *s, int64_t h, int64_t w)
{
  ty_desc d = s->in[0];
  if (h > MOST_SIDE || w > MOST_SIDE)
    return infer_fail(s, TY_EVALUE, NULL, "size: expected at most %d", (int)MOST_SIDE);
  d.dim[d.ndim - 3] = h;
  d.dim[d.ndim - 2] = w;
  return shape_as(s, &s->out[0], &d);
}

static int resize_shape(struct infer *s)
{
  const struct image_resize_param *p = s->param;
  const ty_desc *in = &s->in[0];
  TRY(want_image(s, in, true));
  if (!in->ndim) return TY_OK;
  int64_t w = p->size.d[0], h = p->size.d[p->size.n - 1];
  int64_t rows = in->dim[in->ndim - 3], columns = in->dim[in->ndim - 2];
  if (p->keep_ratio && p->size.n == 1) {
    if (!rows || !columns) return TY_OK;
    if (rows > columns)
      h = MAX(1, rows * w / columns);
    else
      w = MAX(1, columns * h / rows);
  }
  return resized_shape(s, h, w);
}

static int cv_resize_shape(struct infer *s)
{
  const struct cv_resize *p = s->param;
  TRY(want_image(s, &s->in[0], false));
  return s->in[0].ndim ? resized_shape(s, p->h, p->w) : TY_OK;
}

static int resize_all(struct call *c, int how)
{
  for (int64_t i = 0; i < images_of(&c->in[0].d); i++) {
    struct pixels to = make_pixels(&c->out[0], i), from = make_pixels(&c->in[0], i);
    resize_pixels(&to, &from, how, c->tmp);
  }
  return TY_OK;
}

static size_t resize_bytes(const struct call *c, int how)
{
  struct pixels to = make_pixels(&c->out[0], 0), from = make_pixels(&c->in[0], 0);
  return resize_scratch(&to, &from, how);
}
static int how_of(const struct call *c)
{
  return (int)((const struct image_resize_param *)c->param)->interp;
}
static int cv_how_of(const struct call *c)
{
  return (int)((const struct cv_resize *)c->param)->interp;
}
static int    resize_run(struct call *c)              { return resize_all(c, how_of(c)); }
static int    cv_resize_run(struct call *c)           { return resize_all(c, cv_how_of(c)); }
static size_t resize_tmp(const struct call *c)        { return resize_bytes(c, how_of(c)); }
static size_t cv_resize_tmp(const struct call *c)     { return resize_bytes(c, cv_how_of(c)); }

/* -- borders ----------------------------------------------------------------------------------- */

struct border { int64_t top, bot, left, right, type; double value; struct reals values; };
static const struct param border_params[] = {
  { "top",    P_INT,    offsetof(struct border, top),    NULL, "rows above", NULL, "[0,]" },
  { "bot",    P_INT,    offsetof(struct border, bot),    NULL, "rows below", NULL, "[0,]" },
  { "left",   P_INT,    offsetof(struct border, left),   NULL, "columns before", NULL, "[0,]" },
  { "right",  P_INT,    offsetof(struct border, right),  NULL, "columns after it", NULL, "[0,]" },
  { "type",   P_INT,    offsetof(struct border, type),   "0",
    "0 constant, 1 nearest pixel, 2 mirror image, 3 the other end, 4 mirror image without the outermost pixel", NULL, "[0,4]" },
  { "value",  P_FLOAT,  offsetof(struct border, value),  "0", "of a constant border" },
  { "values", P_FLOATS, offsetof(struct border, values), "()", "of a constant border, by channel" },
  { 0 }
};

static int border_shape(struct infer *s)
{
  const struct border *p = s->param;
  ty_desc d = s->in[0];
  TRY(want_image(s, &d, false));
  if (p->values.n > 4)
    return infer_fail(
        s, TY_EVALUE, NULL, "values: expected at most 4 numbers, got %lld", (long long)p->values.n);
  if (MAX(MAX(p->top, p->bot), MAX(p->left, p->right)) > MOST_SIDE)
    return infer_fail(s, TY_EVALUE, NULL, "a border has at most %d pixels", (int)MOST_SIDE);
  if (!d.ndim) return TY_OK;
  const int64_t ends[2][2] = { { p->top, p->bot }, { p->left, p->right } };
  for (int i = 0; i < 2; i++) {
    if (!d.dim[i]) continue;
    if (!border_fits((int)p->type, d.dim[i], ends[i][0], ends[i][1]))
      return infer_fail(s, TY_ESHAPE, &s->in[0], "it is too small to be continued by type %lld",
          (long long)p->type);
    d.dim[i] += ends[i][0] + ends[i][1];
  }
  return shape_as(s, &s->out[0], &d);
}

static int border_run(struct call *c)
{
  const struct border *p = c->param;
  double value[4];
  for (int i = 0; i < 4; i++)
    value[i] = p->values.n > 0 ? (i < p->values.n ? p->values.d[i] : 0) : p->value;
  struct pixels to = make_pixels(&c->out[0], 0), from = make_pixels(&c->in[0], 0);
  border_pixels(&to, &from, p->top, p->left, (int)p->type, value);
  return TY_OK;
}

/* -- the operators ----------------------------------------------------------------------------- */

enum { T_PIXEL = T(TY_U8) | T(TY_F32) | T(TY_F64) };
static const struct kernel tensor_cpu[]         = { { .name = "planes", .run = tensor_run, .types = T_ANY }, { 0 } };
static const struct kernel tensor_back_cpu[]    = { { .name = "planes", .run = tensor_back, .types = T_FLOAT }, { 0 } };
static const struct kernel normalize_cpu[]      = { { .name = "planes", .run = normalize_run, .types = T_FLOAT }, { 0 } };
static const struct kernel normalize_back_cpu[] = { { .name = "planes", .run = normalize_back, .types = T_FLOAT }, { 0 } };
MOVE_ANYWHERE(crop_cpu, crop_run)
MOVE_ANYWHERE(crop_back_cpu, crop_back)
MOVE_ANYWHERE(left_right_cpu, flip_left_right)
MOVE_ANYWHERE(top_bottom_cpu, flip_top_bottom)
static const struct kernel resize_cpu[]    = { { "taps", resize_run,    T_PIXEL, .scratch = resize_tmp }, { 0 } };
static const struct kernel cv_resize_cpu[] = { { "taps", cv_resize_run, T_PIXEL, .scratch = cv_resize_tmp }, { 0 } };
static const struct kernel border_cpu[]    = { { "pixels", border_run,  T_PIXEL }, { 0 } };

#define PARAMS(name) .param = name##_params, .param_size = sizeof(struct name)
const struct op op_image[] = {
  { .name = "_image_to_tensor", .alias = "_npx__image_to_tensor", .in = "data",
    .doc = "Images with channels last, 0 to 255, as float32 with channels first, 0 to 1.",
    .shape = tensor_shape, .type = tensor_type, .grad = "g0", .cpu = tensor_cpu, .back_cpu = tensor_back_cpu, .flags = OP_NAMED_INPUT },
  { .name = "_image_normalize", .alias = "_npx__image_normalize", .in = "data",
    .doc = "(x - mean) / std by channel; channels come first, 1 or 3 of them.",
    PARAMS(normalize), .check = normalize_check, .shape = normalize_shape, .grad = "g0", .cpu = normalize_cpu,
    .back_cpu = normalize_back_cpu, .flags = OP_NAMED_INPUT },
  { .name = "_image_crop", .alias = "_npx__image_crop", .in = "data",
    .doc = "A window of images with channels last. Pixels outside get no gradient.",
    .param = crop_params, .param_size = sizeof(struct crop_window), .shape = crop_shape, .grad = "g0",
    .cpu = crop_cpu, .back_cpu = crop_back_cpu },
  { .name = "_image_flip_left_right", .alias = "_npx__image_flip_left_right", .in = "data",
    .doc = "The mirror image: columns in reverse order.",
    .shape = flip_shape, .grad = "g0", .cpu = left_right_cpu, .back_cpu = left_right_cpu },
  { .name = "_image_flip_top_bottom", .alias = "_npx__image_flip_top_bottom", .in = "data",
    .doc = "The image upside down: rows in reverse order.",
    .shape = flip_shape, .grad = "g0", .cpu = top_bottom_cpu, .back_cpu = top_bottom_cpu },
  { .name = "_image_resize", .alias = "_npx__image_resize", .in = "data",
    .doc = "Images of another size, channels last. No gradient.",
    .param = resize_params, .param_size = sizeof(struct image_resize_param), .check = resize_check,
    .shape = resize_shape, .cpu = resize_cpu },
  { .name = "_cvimresize", .alias = "_npi_cvimresize", .in = "src",
    .doc = "An image (height, width, channels) of another size. No gradient.",
    PARAMS(cv_resize), .shape = cv_resize_shape, .cpu = cv_resize_cpu },
  { .name = "_cvcopyMakeBorder", .in = "src",
    .doc = "An image (height, width, channels) with a border. No gradient.",
    PARAMS(border), .shape = border_shape, .cpu = border_cpu },
  { 0 }
};
