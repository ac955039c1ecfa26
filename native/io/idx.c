/* idx.c - "mnist": images and labels in two idx files, plain or compressed.
**
** idx: two zero bytes, type (8: uint8), number of dimensions, the dimensions as big-endian uint32,
** elements. Pixels are divided by 256. All samples of the part are kept in memory; they are
** shuffled once, when they are read. If a file is missing, its name with ".gz" is tried.
*/
#include <unistd.h>
#include "io/reader.h"

struct mnist {
  struct reader base;
  uint8_t *image, *label;
  int32_t *order;
  int64_t count, at, pixels;
};

static int open_either(struct gz_stream *s, const char *path)
{
  char other[4096];
  snprintf(other, sizeof other, "%s.gz", path);
  return stream_open(s, access(path, F_OK) != 0 && access(other, F_OK) == 0 ? other : path);
}

static uint32_t big_endian(const uint8_t *b)
{
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static int read_exactly(struct gz_stream *s, void *out, size_t bytes)
{
  size_t got;
  TRY(stream_read(s, out, bytes, &got));
  NEED(got == bytes, TY_EFORMAT, "'%s' is truncated: %zu bytes are missing", s->path, bytes - got);
  return TY_OK;
}

static int read_head(struct gz_stream *s, int ndim, int64_t *dim)
{
  uint8_t b[16];
  TRY(read_exactly(s, b, 4 + 4 * (size_t)ndim));
  NEED(b[0] == 0 && b[1] == 0 && b[2] == 8 && b[3] == ndim, TY_EFORMAT,
      "'%s' is no idx file of %d dimensions of bytes (magic %08x)", s->path, ndim, big_endian(b));
  for (int i = 0; i < ndim; i++) {
    dim[i] = big_endian(b + 4 + 4 * i);
    NEED(dim[i] > 0 && dim[i] <= INT32_MAX, TY_EFORMAT, "'%s' has a dimension of %lld", s->path,
        (long long)dim[i]);
  }
  return TY_OK;
}

static int skip_bytes(struct gz_stream *s, int64_t bytes)
{
  uint8_t skipped[1 << 12];
  for (int64_t n; bytes > 0; bytes -= n) {
    n = MIN(bytes, (int64_t)sizeof skipped);
    TRY(read_exactly(s, skipped, (size_t)n));
  }
  return TY_OK;
}

/* Reads items [from, to) of `bytes` bytes each, step by step, so that a damaged head causes no
** large allocation. */
static int read_part(struct gz_stream *s, int64_t from, int64_t to, int64_t bytes, uint8_t **out)
{
  size_t total = (size_t)((to - from) * bytes), done = 0;
  TRY(skip_bytes(s, from * bytes));
  do {
    size_t step = MIN(total - done, MAX(done, (size_t)1 << 24));
    uint8_t *grown = mem_grow(*out, done + step + 1);
    if (!grown) return TY_EMEMORY;
    *out = grown;
    TRY(read_exactly(s, *out + done, step));
    done += step;
  } while (done < total);
  return TY_OK;
}

static int read_files(
    struct mnist *m, const struct options *o, struct gz_stream *images, struct gz_stream *labels)
{
  int64_t dim[3], count, parts, index, from, to;
  bool flat;
  TRY(option_part(o, &parts, &index));
  TRY(option_bool(o, "flat", false, &flat));
  TRY(open_either(images, option_text(o, "image", "./train-images-idx3-ubyte")));
  TRY(open_either(labels, option_text(o, "label", "./train-labels-idx1-ubyte")));
  TRY(read_head(images, 3, dim));
  TRY(read_head(labels, 1, &count));
  NEED(count == dim[0], TY_EFORMAT, "'%s' has %lld images, '%s' has %lld labels", images->path,
      (long long)dim[0], labels->path, (long long)count);
  NEED(dim[1] * dim[2] <= 1 << 26, TY_EFORMAT, "'%s' has images of %lld x %lld", images->path,
      (long long)dim[1], (long long)dim[2]);
  cut_part(count, parts, index, &from, &to);
  m->count = to - from;
  m->pixels = dim[1] * dim[2];
  TRY(read_part(images, from, to, m->pixels, &m->image));
  TRY(read_part(labels, from, to, 1, &m->label));
  m->base.label = (ty_desc){ .dtype = TY_F32, .ndim = 1, .dim = { 1 } };
  m->base.data = (ty_desc){ .dtype = TY_F32, .ndim = 3, .dim = { 1, dim[1], dim[2] } };
  if (flat) m->base.data = (ty_desc){ .dtype = TY_F32, .ndim = 1, .dim = { m->pixels } };
  return TY_OK;
}

/* Returns the next number of splitmix64. */
static uint64_t mix_seed(uint64_t *state)
{
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* Sets the order of samples, shuffled once by `seed` unless shuffle is false. */
static int set_order(struct mnist *m, const struct options *o)
{
  int64_t seed;
  bool shuffle;
  TRY(option_int(o, "seed", 0, INT64_MIN, &seed));
  TRY(option_bool(o, "shuffle", true, &shuffle));
  m->order = NEWS(int32_t, m->count);
  if (!m->order) return TY_EMEMORY;
  uint64_t state = (uint64_t)seed;
  for (int64_t i = 0; i < m->count; i++) m->order[i] = (int32_t)i;
  for (int64_t i = m->count - 1; shuffle && i > 0; i--) {
    int64_t k = (int64_t)(mix_seed(&state) % (uint64_t)(i + 1));
    int32_t held = m->order[i];
    m->order[i] = m->order[k];
    m->order[k] = held;
  }
  return TY_OK;
}

static void close_mnist(struct reader *r)
{
  struct mnist *m = (struct mnist *)r;
  mem_free(m->image);
  mem_free(m->label);
  mem_free(m->order);
  mem_free(m);
}

static int open_mnist(const struct options *o, struct reader **out)
{
  struct gz_stream images = { 0 }, labels = { 0 };
  struct mnist *m = NEW(struct mnist);
  if (!m) return TY_EMEMORY;
  m->base.kind = &reader_mnist;
  int code = read_files(m, o, &images, &labels);
  if (code == TY_OK) code = set_order(m, o);
  stream_close(&images);
  stream_close(&labels);
  if (code != TY_OK) {
    close_mnist(&m->base);
    return code;
  }
  *out = &m->base;
  return TY_OK;
}

static int next_mnist(struct reader *r, void *data, float *label, bool *more)
{
  struct mnist *m = (struct mnist *)r;
  *more = m->at < m->count;
  if (!*more) return TY_OK;
  int64_t i = m->order[m->at++];
  float *out = data;
  const uint8_t *in = m->image + i * m->pixels;
  for (int64_t k = 0; k < m->pixels; k++) out[k] = (float)in[k] * (1.0f / 256);
  *label = m->label[i];
  return TY_OK;
}

static int rewind_mnist(struct reader *r)
{
  ((struct mnist *)r)->at = 0;
  return TY_OK;
}

const struct reader_kind reader_mnist = { "mnist", open_mnist, next_mnist, rewind_mnist,
  close_mnist, .drops = true };
