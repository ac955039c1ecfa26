/* image_file.c - image files as arrays: _cvimdecode (bytes in an array) and _cvimread (a file).
**
** The size of the result is known only from the file, so these operators work on arrays, not in
** symbols. _cvimread allocates memory for the bytes of the file while it runs.
*/
#include "base/whole_file.h"
#include "image/codec.h"
#include "kernel/strided_copy.h"
#include "op/op.h"

struct decode { const char *filename; int64_t flag, to_rgb; };
#define READING \
  { "flag",   P_INT,  offsetof(struct decode, flag),   "1", \
    "0: grey, 1: three channels, -1: as stored" }, \
  { "to_rgb", P_BOOL, offsetof(struct decode, to_rgb), "1", \
    "red comes first; otherwise blue does" }, \
  { 0 }
static const struct param decode_params[] = { READING };
static const struct param read_params[] = {
  { "filename", P_TEXT, offsetof(struct decode, filename), NULL, "path of the file" }, READING
};

static int no_shape(struct infer *s)
{
  if (s->nin && s->in[0].ndim && s->in[0].ndim != 1)
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "expected the bytes of a file, one dimension, got %d", s->in[0].ndim);
  return TY_OK;
}

static int bytes_type(struct infer *s)
{
  if (s->nin) TRY(type_is(s, &s->in[0], TY_U8));
  return type_is(s, &s->out[0], TY_U8);
}

/* Sets the shape of the output to the size of the image. */
static int measure_image(const struct call *c, struct file_bytes file)
{
  struct pixels size;
  TRY(image_measure(file, (int)((const struct decode *)c->param)->flag, &size));
  c->out[0].d.ndim = 3;
  c->out[0].d.dim[0] = size.h;
  c->out[0].d.dim[1] = size.w;
  c->out[0].d.dim[2] = size.c;
  return TY_OK;
}

static int decode_image(const struct call *c, struct file_bytes file)
{
  const int64_t *dim = c->out[0].d.dim;
  struct pixels to = { c->out[0].p, TY_U8, dim[0], dim[1], dim[2] }, size;
  TRY(image_measure(file, (int)((const struct decode *)c->param)->flag, &size));
  NEED(size.h == to.h && size.w == to.w && size.c == to.c, TY_ERUN,
      "the image changed while it was read");
  TRY(image_decode(file, &to));
  if (!((const struct decode *)c->param)->to_rgb) swap_red_blue(&to);
  return TY_OK;
}

static struct file_bytes bytes_in(const struct call *c)
{
  return (struct file_bytes){ c->in[0].p, (size_t)c->in[0].d.dim[0] };
}
static int decode_measure(struct call *c) { return measure_image(c, bytes_in(c)); }
static int decode_run(struct call *c)     { return decode_image(c, bytes_in(c)); }

/* Calls act with the contents of the file, which are freed afterwards. */
static int with_file(const struct call *c, int (*act)(const struct call *, struct file_bytes))
{
  char *data;
  size_t n;
  TRY(file_read(((const struct decode *)c->param)->filename, &data, &n));
  int code = act(c, (struct file_bytes){ (const uint8_t *)data, n });
  mem_free(data);
  return code;
}
static int read_measure(struct call *c) { return with_file(c, measure_image); }
static int read_run(struct call *c)     { return with_file(c, decode_image); }

static const struct kernel decode_cpu[] = { { .name = "codec", .run = decode_run, .types = T(TY_U8) }, { 0 } };
static const struct kernel read_cpu[]   = { { .name = "codec", .run = read_run, .types = T(TY_U8) }, { 0 } };

const struct op op_image_file[] = {
  { .name = "_cvimdecode", .alias = "_npi_cvimdecode", .in = "buf",
    .doc = "The image (height, width, channels) in the bytes of a JPEG or PNG file.",
    .param = decode_params, .param_size = sizeof(struct decode), .shape = no_shape, .type = bytes_type,
    .measure = decode_measure, .cpu = decode_cpu },
  { .name = "_cvimread", .alias = "_npi_cvimread", .in = "",
    .doc = "The image (height, width, channels) in a JPEG or PNG file.",
    .param = read_params, .param_size = sizeof(struct decode), .shape = no_shape, .type = bytes_type,
    .measure = read_measure, .cpu = read_cpu },
  { 0 }
};
