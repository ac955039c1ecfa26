/* flash_attention.c - _contrib_attention on a GPU (kernels/flash_attention.cu). Its inputs and the
** layout of heads are described in operators/nn/flash_attention.c. */
#include "cuda/family.h"
#include "cuda/product.h"
#include "kernel/attention.h"

/* Same as in kernels/flash_attention.cu. */
struct tile_side { int64_t sample, head, row; };
struct tile_args {
  int64_t batch, heads, group, tq, tk, window, causal;
  struct tile_side q, k, v, y, dy, dq, dk, dv;
  int64_t mask[4], bias[4];
  double scale, empty;
  struct cuda_draw_key key;
  double keep;
  uint32_t limit;
  int32_t drops;
};
struct tile_extra { const void *mask, *bias, *valid_length, *offset; };

/* The inputs and their parts that are queries, keys and values (struct flash_packing of
** operators/nn/flash_attention.h). */
struct attention_packing {
  const char *word;                                   /* value of `packed` */
  int inputs, q_parts, kv_parts, key, key_part, value, value_part;
};
static const struct attention_packing packings[] = {
  { "none", .inputs = 3, .q_parts = 1, .kv_parts = 1, .key = 1, .value = 2 },
  { "kv", .inputs = 2, .q_parts = 1, .kv_parts = 2, .key = 1, .value = 1, .value_part = 1 },
  { "qkv", .inputs = 1, .q_parts = 3, .kv_parts = 3, .key_part = 1, .value_part = 2 },
};

/* A call. */
struct attention_tiles {
  struct tile_args args;
  struct tile_extra extra;
  struct attention_packing packing;
  int first;                                          /* index of the first input of forward */
  /* indices of the optional inputs, -1 if absent */
  int mask, bias, valid_length, offset;
  int end;                                            /* index after the last input of forward */
  int64_t d;                                          /* size of a key, in numbers */
  int64_t dv;                                         /* size of a value, in numbers */
  void *q, *k, *v;
  bool nhtc, time_first;                              /* the layout */
};

/* Returns the strides of x, whose heads have `parts` parts, one after the other. *p: address of
** part `part` of the first head. */
static struct tile_side make_side(const struct attention_tiles *f, const struct operand *x,
    int64_t heads, int parts, int part, void **p)
{
  const int64_t *dim = x->d.dim;
  if (p) *p = x->p;
  if (f->nhtc)
    return (struct tile_side){ dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3] };
  const int64_t d = dim[2] / (heads * parts);
  if (p && x->p) *p = (char *)x->p + (size_t)(part * d) * dtype_size(x->d.dtype);
  return (struct tile_side){ f->time_first ? dim[2] : dim[1] * dim[2], parts * d,
    f->time_first ? dim[1] * dim[2] : dim[2] };
}

/* Fills in the strides of a mask or a bias; 0 along axes that broadcast. */
static void fill_grid(const struct operand *x, int64_t step[4])
{
  int64_t of = 1;
  for (int i = x->d.ndim - 1, axis = 3; i >= 0; i--, axis--) {
    if (x->d.dim[i] > 1) step[axis] = of;
    of *= x->d.dim[i];
  }
}

static struct attention_packing find_packing(const struct call *c)
{
  int i = COUNT(packings) - 1;
  while (i && !cuda_word(c, "packed", packings[i].word)) i--;
  return packings[i];
}

static void find_ports(const struct call *c, struct attention_tiles *f)
{
  int n = f->first + f->packing.inputs;
  f->mask = cuda_flag(c, "use_mask") ? n++ : -1;
  f->bias = cuda_flag(c, "use_bias") ? n++ : -1;
  f->valid_length = cuda_flag(c, "use_valid_length") ? n++ : -1;
  f->offset = cuda_flag(c, "use_offset") ? n++ : -1;
  f->end = n;
}

static void read_extra(const struct call *c, struct attention_tiles *f)
{
  const struct operand *in = c->in;
  if (f->mask >= 0) f->extra.mask = in[f->mask].p, fill_grid(&in[f->mask], f->args.mask);
  if (f->bias >= 0) f->extra.bias = in[f->bias].p, fill_grid(&in[f->bias], f->args.bias);
  if (f->valid_length >= 0) f->extra.valid_length = in[f->valid_length].p;
  if (f->offset >= 0) f->extra.offset = in[f->offset].p;
}

static void read_dropout(const struct call *c, struct tile_args *s)
{
  const double share = cuda_number(c, "dropout", 0), keep = 1 - share;
  if (!c->run) return;
  s->drops = c->run->is_train && share > 0;
  s->key = cuda_draw_key(c);
  s->keep = 1 / keep;
  s->limit = keep >= 1 ? UINT32_MAX : (uint32_t)(keep * 4294967296.0);
}

/* Describes a call whose inputs of forward begin with in[first]: 0 forward; 1 backward, where in[0]
** is the gradient of the output. */
static struct attention_tiles make_tiles(const struct call *c, int first)
{
  struct attention_tiles f = { .first = first, .packing = find_packing(c),
    .nhtc = cuda_word(c, "layout", "NHTC"), .time_first = cuda_word(c, "layout", "TNC") };
  struct tile_args *s = &f.args;
  const struct attention_packing z = f.packing;
  const struct operand *q = &c->in[first], *k = q + z.key, *v = q + z.value;
  s->batch = q->d.dim[f.time_first];
  s->heads = f.nhtc ? q->d.dim[1] : (int64_t)cuda_number(c, "heads", 1);
  const int64_t kv_heads = f.nhtc ? k->d.dim[1] : (int64_t)cuda_number(c, "kv_heads", 0);
  s->group = s->heads / kv_heads;
  s->tq = q->d.dim[f.nhtc ? 2 : !f.time_first];
  s->tk = k->d.dim[f.nhtc ? 2 : !f.time_first];
  f.d = f.nhtc ? q->d.dim[3] : q->d.dim[2] / (s->heads * z.q_parts);
  f.dv = f.nhtc ? v->d.dim[3] : v->d.dim[2] / (kv_heads * z.kv_parts);
  s->q = make_side(&f, q, s->heads, z.q_parts, 0, &f.q);
  s->k = make_side(&f, k, kv_heads, z.kv_parts, z.key_part, &f.k);
  s->v = make_side(&f, v, kv_heads, z.kv_parts, z.value_part, &f.v);
  s->causal = cuda_flag(c, "causal");
  s->window = (int64_t)MIN(cuda_number(c, "window", 0), (double)ATTENTION_MOST_WINDOW);
  s->scale = cuda_number(c, "scale", 0);
  if (s->scale == 0) s->scale = 1 / sqrt((double)f.d);
  s->empty = cuda_word(c, "empty", "nan") ? NAN : 0;
  find_ports(c, &f);
  read_extra(c, &f);
  read_dropout(c, s);
  return f;
}

enum {
  NARROW = 512,                                       /* most bytes for tiles of 32 rows */
  WIDE   = 1024,                                      /* most bytes for tiles of 16, and at all */
};
/* Returns the bytes of a row, a key and a value, in shared memory (kernels/flash_attention.cu). */
static int64_t count_row_bytes(const struct attention_tiles *f, int dtype)
{
  const int64_t each = dtype == TY_F64 ? sizeof(double) : sizeof(float);
  return (align_up((size_t)f->d, 8) + align_up((size_t)f->dv, 8)) * each;
}

/* Returns the elements of a load: a power of two that divides all strides, sizes and addresses. */
static int choose_pack(const struct attention_tiles *f, int dtype, const struct tile_side *dy,
    void *const *p, int count)
{
  const struct tile_side *sides[] = { &f->args.q, &f->args.k, &f->args.v, dy };
  int64_t all = f->d | f->dv;
  for (int i = 0; i < COUNT(sides); i++)
    if (sides[i]) all |= sides[i]->sample | sides[i]->head | sides[i]->row;
  return cuda_pack(dtype, all & -all, p, count);
}

/* With up to this many queries, several teams of threads share a row of a tile, each with a part of
** the keys. */
enum { FEW_ROWS = 8 };

/* Returns whether tensor cores can be used: half types, heads that fit into registers, enough
** queries, and a GPU with the instructions of kernels/tensor.cuh. */
static bool has_tensor_kernels(const struct attention_widths *h)
{
  enum { REGISTERS = 128 };                           /* columns of a head */
  enum { ARCHITECTURE = 80 };
  return (h->dtype == TY_F16 || h->dtype == TY_BF16) && h->queries > FEW_ROWS &&
      h->key <= REGISTERS && h->value <= REGISTERS && cuda_device(h->device)->arch >= ARCHITECTURE;
}

/* Implements attention_multiplies_alike. Plain products of half types use tensor cores, those of
** float32 if TF32 is allowed. */
static bool multiplies_alike(const struct attention_widths *h)
{
  return h->dtype == TY_F64 || (h->dtype == TY_F32 && !precision_allows_tf32(h->precision)) ||
      has_tensor_kernels(h);
}

__attribute__((constructor)) static void register_heads(void)
{
  attention_register(TY_GPU, multiplies_alike);
}

struct tile_launch { cu_function f; int64_t blocks; };

/* Finds a kernel for ordinary cores, and the number of blocks for `rows` rows of each of `heads`
** heads. */
static int find_tile_kernel(const struct call *c, const struct attention_tiles *f, const char *name,
    int pack, int64_t rows, int64_t heads, struct tile_launch *out)
{
  const int dtype = c->in[0].d.dtype;
  const bool wide = count_row_bytes(f, dtype) > NARROW;
  const int tile = rows <= FEW_ROWS ? FEW_ROWS : wide ? 16 : 32, columns = tile == 16 ? 16 : 32;
  out->blocks = (rows + tile - 1) / tile * heads * f->args.batch;
  return cuda_family(c->device, FAMILY_flash_attention, name, &out->f,
      "T=%s MASK=%s LENGTH=%s OFFSET=%s D=%lld DV=%lld PACK=%d ROWS=%d COLUMNS=%d TEAM=8",
      cuda_type(dtype), cuda_type(f->mask >= 0 ? c->in[f->mask].d.dtype : TY_F32),
      cuda_type(f->valid_length >= 0 ? c->in[f->valid_length].d.dtype : TY_I32),
      cuda_type(f->offset >= 0 ? c->in[f->offset].d.dtype : TY_I32), (long long)f->d,
      (long long)f->dv, pack, tile, columns);
}

/* Same as in kernels/flash_attention.cu. */
enum {
  TENSOR_ROWS = 64,                                   /* rows of a block on tensor cores */
  TENSOR_THREADS = 128,                               /* its threads */
};

/* Names of two kernels that compute the same result. */
struct tile_kernels {
  const char *name;                                   /* on ordinary cores */
  const char *on_tensor;                              /* on tensor cores */
};
static const struct tile_kernels attend = { "attend", "attend_tensor" },
                                 back_queries = { "attend_back_queries",
                                   "attend_back_queries_tensor" },
                                 back_keys = { "attend_back_keys", "attend_back_keys_tensor" };

/* Starts one of two kernels for `rows` of each of `heads` heads. */
static int start_tiles(const struct call *c, const struct attention_tiles *f,
    const struct tile_kernels *kernels, int pack, int64_t rows, int64_t heads, void **params)
{
  struct tile_launch l;
  const bool tensor = has_tensor_kernels(&(struct attention_widths){ c->device,
    c->in[0].d.dtype, c->precision, f->args.tq, f->d, f->dv });
  TRY(find_tile_kernel(c, f, tensor ? kernels->on_tensor : kernels->name, pack, rows, heads, &l));
  if (tensor) l.blocks = (rows + TENSOR_ROWS - 1) / TENSOR_ROWS * heads * f->args.batch;
  return l.blocks
      ? cuda_launch(c->device, l.f, l.blocks, tensor ? TENSOR_THREADS : CUDA_BLOCK, 0, params)
      : TY_OK;
}

static int attend_forward(struct call *c)
{
  struct attention_tiles f = make_tiles(c, 0);
  void *y;
  f.args.y = make_side(&f, &c->out[0], f.args.heads, 1, 0, &y);
  void *arrays[] = { f.q, f.k, f.v };
  const int pack = choose_pack(&f, c->in[0].d.dtype, NULL, arrays, COUNT(arrays));
  void *params[] = { &y, &c->out[1].p, &f.q, &f.k, &f.v, &f.extra, &f.args };
  return start_tiles(c, &f, &attend, pack, f.args.tq, f.args.heads, params);
}

/* -- gradients --------------------------------------------------------------------------------- */

/* Returns the bytes of scratch: a number for each query (gaps of kernels/flash_attention.cu). */
static size_t count_back_scratch(const struct call *c)
{
  return sizeof(double) * (size_t)desc_count(&c->in[c->nin - 1].d);
}

/* Computes the gradients. in: gradient of the output, the inputs, output, logsum. */
static int attend_backward(struct call *c)
{
  struct attention_tiles f = make_tiles(c, 1);
  struct tile_args *s = &f.args;
  const int64_t kv_heads = s->heads / s->group;
  const struct attention_packing z = f.packing;
  void *dy, *y, *dq, *dk, *dv, *gaps = c->tmp, **logsum = &c->in[f.end + 1].p;
  for (int i = 0; i < c->nout; i++)
    if (i + 1 == f.mask || i + 1 == f.valid_length || i + 1 == f.offset)
      TRY(cuda_zero(c, &c->out[i]));
  s->dy = make_side(&f, &c->in[0], s->heads, 1, 0, &dy);
  s->y = make_side(&f, &c->in[f.end], s->heads, 1, 0, &y);
  s->dq = make_side(&f, &c->out[0], s->heads, z.q_parts, 0, &dq);
  s->dk = make_side(&f, &c->out[z.key], kv_heads, z.kv_parts, z.key_part, &dk);
  s->dv = make_side(&f, &c->out[z.value], kv_heads, z.kv_parts, z.value_part, &dv);
  void *arrays[] = { f.q, f.k, f.v, dy, y };
  const int pack = choose_pack(&f, c->in[0].d.dtype, &s->dy, arrays, COUNT(arrays));
  if (!dq && !dk && !dv) return TY_OK;
  void *queries[] = { &dq, &gaps, &dy, &y, logsum, &f.q, &f.k, &f.v, &f.extra, s };
  TRY(start_tiles(c, &f, &back_queries, pack, s->tq, s->heads, queries));
  if (!dk && !dv) return TY_OK;
  void *keys[] = { &dk, &dv, &gaps, &dy, logsum, &f.q, &f.k, &f.v, &f.extra, s };
  return start_tiles(c, &f, &back_keys, pack, s->tk, kv_heads, keys);
}

static const char *refuse_wide(const struct call *c, int first)
{
  struct attention_tiles f = make_tiles(c, first);
  const bool fits = count_row_bytes(&f, c->in[0].d.dtype) <= WIDE;
  return fits ? NULL : "heads are too wide for shared memory";
}

static const char *refuse_forward(const struct call *c) { return refuse_wide(c, 0); }

static const char *refuse_backward(const struct call *c)
{
  struct attention_tiles f = make_tiles(c, 1);
  return f.bias >= 0 && c->out[f.bias - 1].p ? "the gradient of a bias" : refuse_wide(c, 1);
}

static const struct kernel in_tiles[] = {
  { "tiles", attend_forward, T_ANY, refuse_forward, .flags = K_DRAWS_ON_DEVICE }, { 0 }
};
static const struct kernel in_tiles_back[] = {
  { "tiles", attend_backward, T_ANY, refuse_backward, count_back_scratch,
    .flags = K_DRAWS_ON_DEVICE },
  { 0 }
};

const struct op_kernels cuda_flash_attention[] = {
  { "_contrib_attention", in_tiles, in_tiles_back },
  { 0 }
};
