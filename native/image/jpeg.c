/* jpeg.c - JPEG through libjpeg-turbo.
**
** The library reports fatal errors by calling a function that must not return: on_error jumps back
** (longjmp) to where the codec was entered, which frees the library's objects. Warnings of missing
** or wrong pixels are treated as fatal.
*/
#include <setjmp.h>
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>
#include "image/codec.h"

struct problem { struct jpeg_error_mgr base; jmp_buf back; };

static void on_error(j_common_ptr jpeg) { longjmp(((struct problem *)jpeg->err)->back, 1); }

static void on_message(j_common_ptr jpeg, int level)
{
  int code = jpeg->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE))
    on_error(jpeg);
}

static void on_output(j_common_ptr jpeg) {}

static struct jpeg_error_mgr *watch_errors(struct problem *p)
{
  jpeg_std_error(&p->base);
  p->base.error_exit = on_error;
  p->base.emit_message = on_message;
  p->base.output_message = on_output;
  return &p->base;
}

static int fail_jpeg(j_common_ptr jpeg)
{
  char text[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, text);
  return fail(
      jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? TY_EMEMORY : TY_EFORMAT, "JPEG: %s", text);
}

/* -- decoding ---------------------------------------------------------------------------------- */

bool jpeg_is(struct file_bytes file)
{
  return file.n >= 3 && !memcmp(file.data, "\xff\xd8\xff", 3);
}

/* Reads the header, then calls work(in, file, to). */
static int decompress_image(struct file_bytes file, struct pixels *to,
    int (*work)(struct jpeg_decompress_struct *in, struct file_bytes file, struct pixels *to))
{
  struct jpeg_decompress_struct in;
  struct problem problem;
  int code;
  memset(&in, 0, sizeof in);
  in.err = watch_errors(&problem);
  if (setjmp(problem.back))
    code = fail_jpeg((j_common_ptr)&in);
  else {
    jpeg_create_decompress(&in);
    jpeg_mem_src(&in, (unsigned char *)file.data, (unsigned long)file.n);
    jpeg_read_header(&in, TRUE);
    code = work(&in, file, to);
  }
  jpeg_destroy_decompress(&in);
  return code;
}

/* Reads the size, and checks it against the length of the file: unless coding is arithmetic, a
** block of 64 pixels takes at least one bit. */
static int read_size(struct jpeg_decompress_struct *in, struct file_bytes file, struct pixels *out)
{
  out->w = in->image_width;
  out->h = in->image_height;
  out->c = in->num_components == 1 ? 1 : 3;
  bool liar = !in->arith_code && (uint64_t)in->image_width * in->image_height / 512 > file.n;
  NEED(!liar, TY_EFORMAT, "JPEG: %zu bytes are too few for %lld x %lld pixels", file.n,
      (long long)out->h, (long long)out->w);
  return TY_OK;
}

int jpeg_measure(struct file_bytes file, struct pixels *out)
{
  return decompress_image(file, out, read_size);
}

/* Converts four inks. paper: numbers say how much of the paper shows (Adobe), else the amount of
** ink. */
static void put_inks(const uint8_t *in, uint8_t *out, const struct pixels *to, bool paper)
{
  for (int64_t x = 0; x < to->w; x++, in += 4, out += to->c) {
    uint8_t rgb[4] = { 0, 0, 0, 255 };
    for (int k = 0; k < 3; k++) {
      int ink = paper ? in[k] : 255 - in[k], black = paper ? in[3] : 255 - in[3];
      rgb[k] = (uint8_t)((ink * black + 127) / 255);
    }
    if (to->c == 1)
      out[0] = (uint8_t)(GREY_R * rgb[0] + GREY_G * rgb[1] + GREY_B * rgb[2]);
    else
      memcpy(out, rgb, (size_t)to->c);
  }
}

static int read_rows(struct jpeg_decompress_struct *in, struct file_bytes file, struct pixels *to)
{
  NEED(in->image_width == to->w && in->image_height == to->h, TY_EFORMAT,
      "JPEG: the file changed while it was read");
  bool inks = in->jpeg_color_space == JCS_CMYK || in->jpeg_color_space == JCS_YCCK;
  in->out_color_space = inks ? JCS_CMYK
      : to->c == 1           ? JCS_GRAYSCALE
      : to->c == 3           ? JCS_RGB
                             : JCS_EXT_RGBA;
  jpeg_start_decompress(in);
  JSAMPARRAY line = inks
      ? in->mem->alloc_sarray((j_common_ptr)in, JPOOL_IMAGE, in->output_width * 4, 1)
      : NULL;
  while (in->output_scanline < in->output_height) {
    uint8_t *row = (uint8_t *)to->p + (int64_t)in->output_scanline * to->w * to->c;
    jpeg_read_scanlines(in, inks ? line : &row, 1);
    if (inks) put_inks(line[0], row, to, in->saw_Adobe_marker);
  }
  jpeg_finish_decompress(in);
  return TY_OK;
}

int jpeg_decode(struct file_bytes file, const struct pixels *to)
{
  struct pixels out = *to;
  return decompress_image(file, &out, read_rows);
}

/* -- encoding ---------------------------------------------------------------------------------- */

/* The library's destination: a buffer that is appended to the text when it is full. */
struct destination { struct jpeg_destination_mgr base; struct text *text; JOCTET buffer[1 << 12]; };

static void begin_buffer(j_compress_ptr jpeg)
{
  struct destination *d = (struct destination *)jpeg->dest;
  d->base.next_output_byte = d->buffer;
  d->base.free_in_buffer = sizeof d->buffer;
}

static void add_bytes(j_compress_ptr jpeg, size_t n)
{
  struct destination *d = (struct destination *)jpeg->dest;
  text_put(d->text, (const char *)d->buffer, n);
  if (d->text->lost) ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 0);
}

static boolean empty_buffer(j_compress_ptr jpeg)
{
  add_bytes(jpeg, sizeof ((struct destination *)jpeg->dest)->buffer);
  begin_buffer(jpeg);
  return TRUE;
}

static void end_buffer(j_compress_ptr jpeg)
{
  struct destination *d = (struct destination *)jpeg->dest;
  add_bytes(jpeg, sizeof d->buffer - d->base.free_in_buffer);
}

static void write_rows(struct jpeg_compress_struct *out, const struct pixels *from, int quality)
{
  out->image_width = (JDIMENSION)from->w;
  out->image_height = (JDIMENSION)from->h;
  out->input_components = (int)from->c;
  out->in_color_space = from->c == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(out);
  jpeg_set_quality(out, quality, TRUE);
  jpeg_start_compress(out, TRUE);
  while (out->next_scanline < out->image_height) {
    uint8_t *row = (uint8_t *)from->p + (int64_t)out->next_scanline * from->w * from->c;
    jpeg_write_scanlines(out, &row, 1);
  }
  jpeg_finish_compress(out);
}

int jpeg_encode(const struct pixels *from, int quality, struct text *to)
{
  struct jpeg_compress_struct out;
  struct problem problem;
  struct destination destination = { { .init_destination = begin_buffer,
      .empty_output_buffer = empty_buffer, .term_destination = end_buffer }, .text = to };
  memset(&out, 0, sizeof out);
  out.err = watch_errors(&problem);
  if (setjmp(problem.back)) {
    int code = fail_jpeg((j_common_ptr)&out);
    jpeg_destroy_compress(&out);
    return code;
  }
  jpeg_create_compress(&out);
  out.dest = &destination.base;
  write_rows(&out, from, quality);
  jpeg_destroy_compress(&out);
  return TY_OK;
}
