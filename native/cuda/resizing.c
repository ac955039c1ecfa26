/* resizing.c - _image_resize, _cvimresize (kernels/resize.cu). */
#include "cuda/row.h"
#include "image/image.h"

/* Same as in kernels/resize.cu. */
struct axis_taps { void *count, *index, *weight; int64_t pitch, from, to; };
struct resize_args { int64_t n, channels; struct axis_taps y, x; int32_t twice, cubic; };

static struct pixels make_pixels(const ty_desc *d)
{
  const int64_t *dim = d->dim + d->ndim - 3;
  return (struct pixels){ NULL, d->dtype, dim[0], dim[1], dim[2] };
}

static bool keeps_size(const struct pixels *to, const struct pixels *from)
{
  return to->h == from->h && to->w == from->w;
}

static int rule_of(const struct call *c)
{
  struct pixels to = make_pixels(&c->out[0].d), from = make_pixels(&c->in[0].d);
  return resize_rule(&to, &from, (int)cuda_number(c, "interp", LINEAR));
}

/* Returns an axis without its tables. pitch: a mean over an area reads a part of a pixel at both
** ends. */
static struct axis_taps axis_of_taps(int how, int64_t from, int64_t to)
{
  int64_t pitch = how == AREA ? from / to + 3 : taps_of(how);
  return (struct axis_taps){ .pitch = pitch, .from = from, .to = to };
}

static size_t axis_bytes(const struct axis_taps *a)
{
  return align_up((size_t)a->to * 4, ALIGN) + 2 * align_up((size_t)(a->to * a->pitch) * 4, ALIGN);
}

static void lay_tables(struct axis_taps *a, char **at)
{
  a->count = cuda_piece(at, (size_t)a->to * 4);
  a->index = cuda_piece(at, (size_t)(a->to * a->pitch) * 4);
  a->weight = cuda_piece(at, (size_t)(a->to * a->pitch) * 4);
}

static struct resize_args make_args(const struct call *c, int how)
{
  struct pixels to = make_pixels(&c->out[0].d), from = make_pixels(&c->in[0].d);
  return (struct resize_args){ desc_count(&c->out[0].d), to.c, axis_of_taps(how, from.h, to.h),
    axis_of_taps(how, from.w, to.w), resize_halves(&to, &from), how == CUBIC };
}

static size_t table_scratch(const struct call *c)
{
  struct resize_args s = make_args(c, rule_of(c));
  return axis_bytes(&s.y) + axis_bytes(&s.x);
}

static int resize_images(struct call *c)
{
  struct pixels to = make_pixels(&c->out[0].d), from = make_pixels(&c->in[0].d);
  int32_t how = rule_of(c), across = 1, down = 0;
  struct resize_args s = make_args(c, how);
  bool fixed = from.dtype == TY_U8 && how != AREA, pairs = fixed && taps_of(how) == 2;
  char *at = c->tmp;
  if (!c->out[0].p) return TY_OK;
  if (keeps_size(&to, &from))
    return device_copy(
        c->device, c->out[0].p, c->device, c->in[0].p, desc_bytes(&c->in[0].d));
  lay_tables(&s.y, &at);
  lay_tables(&s.x, &at);
  if (how != NEAREST) {
    const char *words = "T=u8 SUM=i32 PAIRS=1";
    TRY(cuda_start(c, FAMILY_resize, "list_taps", words, s.y.to,
        (void *[]){ &s.y, &how, &down }));
    TRY(cuda_start(c, FAMILY_resize, "list_taps", words, s.x.to,
        (void *[]){ &s.x, &how, &across }));
  }
  return cuda_start_words(c, FAMILY_resize, how == NEAREST ? "nearest" : "resize", s.n,
      (void *[]){ &c->out[0].p, &c->in[0].p, &s }, "T=$i0 SUM=%s PAIRS=%d",
      fixed ? "i32" : from.dtype == TY_F64 ? "double" : "float", pairs);
}

static const struct kernel resizes[] = {
  { "taps", resize_images, T(TY_U8) | T(TY_F32) | T(TY_F64), .scratch = table_scratch }, { 0 }
};

const struct op_kernels cuda_resizing[] = {
  { "_image_resize", resizes, NULL },
  { "_cvimresize", resizes, NULL },
  { 0 }
};
