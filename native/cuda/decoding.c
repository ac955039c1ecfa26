/* decoding.c - _contrib_rotary_embedding and _contrib_cache_append on a GPU
** (kernels/decoding.cu); operators/nn/rotary_embedding.c describes the layout of heads. */
#include "cuda/family.h"

static int decoding_family(const struct call *c, const char *name, int data, int values,
    int numbers, cu_function *f)
{
  return cuda_family(c->device, FAMILY_decoding, name, f, "T=%s VALUE=%s NUMBER=%s TEAM=%d",
      cuda_type(data), cuda_type(values), cuda_type(numbers), CUDA_BLOCK);
}

/* -- rotary embedding -------------------------------------------------------------------------- */

struct rotary_args {
  int64_t samples, heads, length, size, sample, head, row, turned;
  double base, scale;
  int32_t interleaved;
};

static struct rotary_args rotary_of(const struct call *c, double sense)
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

/* in: data or the head gradient, offset */
static int rotate_pairs(struct call *c, double sense)
{
  struct rotary_args s = rotary_of(c, sense);
  const bool moved = cuda_flag(c, "use_offset");
  void *offset = moved ? c->in[1].p : NULL;
  const int dtype = c->in[0].d.dtype;
  cu_function f;
  if (c->nout > 1) TRY(cuda_zero(c, &c->out[1]));
  if (!c->out[0].p) return TY_OK;
  TRY(decoding_family(c, "rotary", dtype, dtype, moved ? c->in[1].d.dtype : TY_I32, &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &offset, &s };
  return cuda_run(c, f, s.samples * s.length * (s.size - s.turned / 2), params);
}

static int rotary_forward(struct call *c)  { return rotate_pairs(c, 1); }
static int rotary_backward(struct call *c) { return rotate_pairs(c, -1); }

/* -- caches ------------------------------------------------------------------------------------ */

enum { NEW_KEY, NEW_VALUE, LENGTH, KEY_CACHE, VALUE_CACHE };   /* inputs */

static int append_rows(struct call *c)
{
  const struct operand *in = c->in;
  struct { int64_t batch, more, capacity, key_width, value_width; } s = { in[NEW_KEY].d.dim[0],
    in[NEW_KEY].d.dim[1], in[KEY_CACHE].d.dim[1], in[NEW_KEY].d.dim[2], in[NEW_VALUE].d.dim[2] };
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  const char *op = c->op->name, *what = "a length";
  cu_function f;
  TRY(decoding_family(c, "cache_append", in[NEW_KEY].d.dtype, in[NEW_VALUE].d.dtype,
      in[LENGTH].d.dtype, &f));
  void *params[] = { &fault, &op, &what, &c->out[0].p, &c->in[KEY_CACHE].p,
    &c->in[VALUE_CACHE].p, &c->in[NEW_KEY].p, &c->in[NEW_VALUE].p, &c->in[LENGTH].p, &s };
  return cuda_run(c, f, s.batch * s.more * (s.key_width + s.value_width), params);
}

static const struct kernel rotary[] = { { "pairs", rotary_forward, T_ANY }, { 0 } };
static const struct kernel rotary_back[] = { { "pairs", rotary_backward, T_ANY }, { 0 } };
static const struct kernel appends[] = { { "rows", append_rows, T_ANY }, { 0 } };

const struct op_kernels cuda_decoding[] = {
  { "_contrib_rotary_embedding", rotary, rotary_back },
  { "_contrib_cache_append", appends, NULL },
  { 0 }
};
