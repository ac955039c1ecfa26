/* png.c - PNG through libpng.
**
** The library reports errors by calling a function that must not return: on_error jumps back
** (longjmp) to where the codec was entered, which frees the library's objects.
*/
#include <setjmp.h>
#include <png.h>
#include "image/codec.h"

struct png_source { struct file_bytes file; size_t at; char problem[160]; };

static void on_error(png_structp png, png_const_charp text)
{
  struct png_source *s = png_get_error_ptr(png);
  snprintf(s->problem, sizeof s->problem, "%s", text);
  png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) {}

static void on_read(png_structp png, png_bytep out, size_t n)
{
  struct png_source *s = png_get_io_ptr(png);
  if (n > s->file.n - s->at) png_error(png, "the file ends early");
  memcpy(out, s->file.data + s->at, n);
  s->at += n;
}

/* -- decoding ---------------------------------------------------------------------------------- */

bool png_is(struct file_bytes file)
{
  return file.n >= 8 && !png_sig_cmp((png_bytep)file.data, 0, 8);
}

/* Reads the head of the file: size and stored channels. */
static void read_head(png_structp png, png_infop info, struct pixels *out)
{
  png_read_info(png, info);
  int color = png_get_color_type(png, info);
  bool clear = (color & PNG_COLOR_MASK_ALPHA) || png_get_valid(png, info, PNG_INFO_tRNS);
  out->w = png_get_image_width(png, info);
  out->h = png_get_image_height(png, info);
  out->c = clear ? 4 : (color & PNG_COLOR_MASK_COLOR) ? 3 : 1;
  if (out->h * (int64_t)png_get_rowbytes(png, info) / 1040 >
      (int64_t)((struct png_source *)png_get_io_ptr(png))->file.n)
    png_error(png, "the file is too short for its size"); /* deflate shrinks 1032 times at most */
}

static void read_rows(png_structp png, png_infop info, const struct pixels *to)
{
  bool colored = png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR;
  png_set_expand(png);
  png_set_strip_16(png);
  if (to->c < 4)
    png_set_strip_alpha(png);
  else
    png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
  if (to->c > 1 && !colored) png_set_gray_to_rgb(png);
  if (to->c == 1 && colored) png_set_rgb_to_gray(png, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
  int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if ((int64_t)png_get_rowbytes(png, info) != to->w * to->c ||
      png_get_image_height(png, info) != to->h)
    png_error(png, "the file changed while it was read");
  for (int pass = 0; pass < passes; pass++)
    for (int64_t y = 0; y < to->h; y++)
      png_read_row(png, (png_bytep)to->p + y * to->w * to->c, NULL);
  png_read_end(png, NULL);
}

/* Reads the head into *out and, if `to` is not NULL, the pixels. Errors of libpng arrive by
** longjmp. */
static int read_png(struct file_bytes file, struct pixels *out, const struct pixels *to)
{
  struct png_source s = { file, 0, "" };
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  if (!info) {
    png_destroy_read_struct(&png, NULL, NULL);
    return fail(TY_EMEMORY, "out of memory");
  }
  if (setjmp(png_jmpbuf(png))) {
    png_destroy_read_struct(&png, &info, NULL);
    return fail(TY_EFORMAT, "PNG: %s", s.problem);
  }
  png_set_read_fn(png, &s, on_read);
  read_head(png, info, out);
  if (to) read_rows(png, info, to);
  png_destroy_read_struct(&png, &info, NULL);
  return TY_OK;
}

int png_measure(struct file_bytes file, struct pixels *out) { return read_png(file, out, NULL); }

int png_decode(struct file_bytes file, const struct pixels *to)
{
  struct pixels found;
  return read_png(file, &found, to);
}

/* -- encoding ---------------------------------------------------------------------------------- */

static void on_write(png_structp png, png_bytep data, size_t n)
{
  struct text *out = png_get_io_ptr(png);
  text_put(out, (const char *)data, n);
  if (out->lost) png_error(png, "out of memory");
}

static void on_flush(png_structp png) {}

static void write_rows(png_structp png, png_infop info, const struct pixels *from, int level)
{
  int color = from->c == 1 ? PNG_COLOR_TYPE_GRAY
      : from->c == 3       ? PNG_COLOR_TYPE_RGB
                           : PNG_COLOR_TYPE_RGB_ALPHA;
  png_set_compression_level(png, level);
  png_set_IHDR(png, info, (png_uint_32)from->w, (png_uint_32)from->h, 8, color, PNG_INTERLACE_NONE,
      PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int64_t y = 0; y < from->h; y++)
    png_write_row(png, (png_bytep)from->p + y * from->w * from->c);
  png_write_end(png, info);
}

int png_encode(const struct pixels *from, int level, struct text *out)
{
  struct png_source problem = { .problem = "" };
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &problem, on_error, on_warning);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  if (!info) {
    png_destroy_write_struct(&png, NULL);
    return fail(TY_EMEMORY, "out of memory");
  }
  if (setjmp(png_jmpbuf(png))) {
    png_destroy_write_struct(&png, &info);
    return out->lost ? TY_EMEMORY : fail(TY_ERUN, "PNG: %s", problem.problem);
  }
  png_set_write_fn(png, out, on_write, on_flush);
  write_rows(png, info, from, level);
  png_destroy_write_struct(&png, &info);
  return TY_OK;
}
