/* codec.c - converts image files to tensors and back (ty_image_*): choice of codec, sizes, order of
** channels. */
#include "image/codec.h"

enum { MOST_PIXELS = 1 << 30 };                       /* of an image */

static int find_codec(struct file_bytes file, struct pixels *out)
{
  NEED(file.n > 0, TY_EFORMAT, "the image file is empty");
  if (jpeg_is(file)) return jpeg_measure(file, out);
  if (png_is(file)) return png_measure(file, out);
  return fail(TY_EFORMAT, "the bytes are neither a JPEG nor a PNG file");
}

int image_measure(struct file_bytes file, int flag, struct pixels *out)
{
  TRY(find_codec(file, out));
  NEED(out->h > 0 && out->w > 0 && out->h <= MOST_PIXELS / out->w, TY_EFORMAT,
      "an image of %lld x %lld pixels", (long long)out->h, (long long)out->w);
  if (flag >= 0) out->c = flag ? 3 : 1;
  out->dtype = TY_U8;
  return TY_OK;
}

int image_decode(struct file_bytes file, const struct pixels *to)
{
  return jpeg_is(file) ? jpeg_decode(file, to) : png_decode(file, to);
}

void swap_red_blue(const struct pixels *a)
{
  uint8_t *p = a->p;
  for (int64_t i = 0; a->c >= 3 && i < a->h * a->w; i++, p += a->c) {
    uint8_t red = p[0];
    p[0] = p[2];
    p[2] = red;
  }
}

/* -- the public functions ---------------------------------------------------------------------- */

int ty_image_decode(const void *data, size_t bytes, int flag, int to_rgb, ty_tensor **out)
{
  struct file_bytes file = { data, bytes };
  struct pixels to = { 0 };
  void *p;
  NEED(out && (data || !bytes), TY_ETYPE,
      "ty_image_decode: the bytes or the result's place are missing");
  TRY(image_measure(file, flag, &to));
  ty_desc d = { .dtype = TY_U8, .device = TY_CPU, .ndim = 3, .dim = { to.h, to.w, to.c } };
  TRY(ty_tensor_new(&d, out));
  int code = ty_tensor_data(*out, &p);
  to.p = p;
  if (code == TY_OK) code = image_decode(file, &to);
  if (code != TY_OK) {
    ty_tensor_free(*out);
    *out = NULL;
    return code;
  }
  if (!to_rgb) swap_red_blue(&to);
  return TY_OK;
}

static int count_pixels(ty_tensor *t, struct pixels *out)
{
  char text[96];
  const ty_desc *d = &t->d;
  NEED(d->dtype == TY_U8, TY_EDTYPE, "an image is made of uint8, not %s", dtype_name(d->dtype));
  *out = (struct pixels){ NULL, TY_U8, d->dim[0], d->dim[1], d->ndim == 3 ? d->dim[2] : 1 };
  NEED((d->ndim == 2 || d->ndim == 3) && (out->c == 1 || out->c == 3 || out->c == 4), TY_ESHAPE,
      "an image is (height, width, 1, 3 or 4 channels), not %s", text_shape(d, text, sizeof text));
  return ty_tensor_data(t, &out->p);
}

int ty_image_encode(ty_tensor *image, const char *format, int quality, ty_tensor **out)
{
  NEED(image && format && out, TY_ETYPE, "image_encode: null argument");
  struct pixels from;
  struct text file = { 0 };
  bool jpeg = !strcmp(format, "jpeg");
  NEED(jpeg || !strcmp(format, "png"), TY_EVALUE, "the format is '%s', neither 'jpeg' nor 'png'",
      format);
  TRY(count_pixels(image, &from));
  NEED(!jpeg || from.c < 4, TY_ESHAPE, "JPEG has no transparency: 1 or 3 channels, not %lld",
      (long long)from.c);
  NEED(!jpeg || (from.h <= 65500 && from.w <= 65500), TY_ESHAPE,
      "JPEG has at most 65500 pixels per side");
  NEED(quality >= 0 && quality <= (jpeg ? 100 : 9), TY_EVALUE,
      "the quality is %d, expected 0 to %d", quality, jpeg ? 100 : 9);
  int code = jpeg ? jpeg_encode(&from, quality, &file) : png_encode(&from, quality, &file);
  ty_desc d = { .dtype = TY_U8, .device = TY_CPU, .ndim = 1, .dim = { (int64_t)file.n } };
  if (code == TY_OK) code = ty_tensor_new(&d, out);
  if (code == TY_OK) code = ty_tensor_write(*out, file.s, file.n);
  text_done(&file);
  return code;
}
