/* decoding.c - _contrib_rotary_embedding and _contrib_cache_append on a GPU
** (kernels/decoding.cu); operators/nn/rotary_embedding.c describes the layout of heads. */
#include "cuda/row.h"

/* -- rotary embedding -------------------------------------------------------------------------- */

struct rotary_args {
  int64_t samples, heads, length, size, sample, head, row, turned;
  double base, scale;
  int32_t interleaved;
};

static struct rotary_args make_rotary_args(const struct call *c, double sense)
{
  const int64_t *dim = c->in[0].d.dim;
  struct rotary_args s = { .base = cuda_number(c, "base", 10000),
    .scale = sense * cuda_number(c, "scale", 1),
    .interleaved = cuda_flag(c, "interleaved") };
  if (cuda_word(c, "layout", "NHTC")) {
    s.samples = dim[0], s.heads = dim[1], s.length = dim[2], s.size = dim[3];
    s.sample = dim[1] * dim[2] * dim[3], s.head = dim[2] * dim[3], s.row = dim[3];
  }
  else {
    const bool time_first = cuda_word(c, "layout", "TNC");
    s.samples = dim[time_first], s.length = dim[!time_first];
    s.heads = (int64_t)cuda_number(c, "heads", 1);
    s.size = s.head = dim[2] / s.heads;
    s.sample = time_first ? dim[2] : dim[1] * dim[2];
    s.row = time_first ? dim[1] * dim[2] : dim[2];
  }
  s.turned = (int64_t)cuda_number(c, "size", 0);
  if (!s.turned) s.turned = s.size;
  return s;
}

static int64_t rotary_threads(const struct rotary_args *s)
{
  return s->samples * s->length * (s->size - s->turned / 2);
}

/* Fills in the sizes; in: data or the head gradient, then the offset if there is one. */
static int64_t turn_sizes(const struct call *c, void *s)
{
  *(struct rotary_args *)s = make_rotary_args(c, 1);
  return rotary_threads(s);
}

static int64_t turn_back_sizes(const struct call *c, void *s)
{
  *(struct rotary_args *)s = make_rotary_args(c, -1);
  return rotary_threads(s);
}

/* -- caches ------------------------------------------------------------------------------------ */

enum { NEW_KEY, NEW_VALUE, LENGTH, KEY_CACHE, VALUE_CACHE };   /* inputs */

/* The text for faults, then the struct of kernels/decoding.cu. */
struct append_args {
  const char *what;
  int64_t batch, more, capacity, key_width, value_width;
};
static int64_t append_sizes(const struct call *c, void *s)
{
  const struct operand *in = c->in;
  struct append_args *a = s;
  *a = (struct append_args){ "a length", in[NEW_KEY].d.dim[0], in[NEW_KEY].d.dim[1],
    in[KEY_CACHE].d.dim[1], in[NEW_KEY].d.dim[2], in[NEW_VALUE].d.dim[2] };
  return a->batch * a->more * (a->key_width + a->value_width);
}

/* The type of offsets, NUMBER, has a default if there is no such input; the kernel then reads
** none. */
#define ROTARY(table, sizes) \
  static const struct kernel table[] = { \
    { "pairs", CUDA_ROW(FAMILY_decoding, "rotary", "T=$i0 VALUE=$i0 NUMBER=$i1 TEAM=256", \
      "o0 i0 i1 s", sizes, 2), .types = T_ANY }, { 0 } };
ROTARY(rotary, turn_sizes)
ROTARY(rotary_back, turn_back_sizes)
static const struct kernel appends[] = {
  { "rows", CUDA_ROW(FAMILY_decoding, "cache_append", "T=$i0 VALUE=$i1 NUMBER=$i2 TEAM=256",
    "fault op s0 o0 i3~ i4~ i0 i1 i2 s1", append_sizes), .types = T_ANY }, { 0 }
};

const struct op_kernels cuda_decoding[] = {
  { "_contrib_rotary_embedding", rotary, rotary_back },
  { "_contrib_cache_append", appends, NULL },
  { 0 }
};
