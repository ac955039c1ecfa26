/* fully_connected.c - FullyConnected: Y = X W^T + b.
**
** X is treated as m rows of k elements, the elements of all axes but the first (flatten) or of the
** last axis. W is (num_hidden, k). A bound weight that is not too large stays packed until its
** contents change;
** then a run of a small layer is one block of tiles, with bias and activation applied in registers.
*/
#include "base/convert.h"
#include "kernel/gemm/gemm.h"
#include "op/op.h"
#include "operators/nn/linear_loss.h"
#include "operators/quantized/quantize.h"

struct linear { int64_t num_hidden, no_bias, flatten; };

static const struct param params[] = {
  { "num_hidden", P_INT,  offsetof(struct linear, num_hidden), NULL, "columns of the output", NULL,
     "[1,]" },
  { "no_bias",    P_BOOL, offsetof(struct linear, no_bias),    "0",  "there is no bias input" },
  { "flatten",    P_BOOL, offsetof(struct linear, flatten),    "1",
     "axes 1 and on are one; else the last axis alone is contracted" },
  { 0 }
};

static const char *linear_ports(const void *param)
{
  return ((const struct linear *)param)->no_bias ? "data weight" : "data weight bias";
}

/* -- inference --------------------------------------------------------------------------------- */

static int linear_shape(struct infer *s)
{
  const struct linear *p = s->param;
  ty_desc *x = &s->in[0], *y = &s->out[0];
  if (!x->ndim) return TY_OK;
  int64_t k = 1, dim[TY_MAXDIM];
  for (int i = p->flatten ? 1 : x->ndim - 1; i < x->ndim; i++) k *= x->dim[i];
  TRY(shape_is(s, &s->in[1], 2, (int64_t[]){ p->num_hidden, k }));
  if (s->nin > 2)
    TRY(shape_is(s, &s->in[2], s->in[2].ndim == 2 ? 2 : 1, (int64_t[]){ p->num_hidden, 1 }));
  memcpy(dim, x->dim, sizeof dim);
  int n = p->flatten ? 2 : x->ndim;
  dim[n - 1] = p->num_hidden;
  TRY(shape_is(s, y, n, dim));
  return n > 1 ? shape_dim(s, x, 0, y->dim[0]) : TY_OK;
}

/* -- forward ----------------------------------------------------------------------------------- */

enum {
  /* least rows of data for which a weight is kept packed */
  KEPT_MIN_ROWS = 4,
  /* rows from which packing a weight for one product is little work in comparison */
  PACK_ROWS = 256,
};

/* Returns whether the packed weight is kept, for m rows of data. */
static bool keeps_weight(const struct call *c, const struct operand *w, int64_t m)
{
  return m >= KEPT_MIN_ROWS && gemm_keeps(c, w);
}

/* Computes out (m x n) = a (m x k) times the kept weight, packed as k x n (tb: it is stored as n x
** k). */
static int times_kept(struct call *c, const struct operand *w, bool tb, int64_t m, const void *a,
    void *out, const struct gemm_epilogue *e)
{
  const int type = gemm_type_for(c, w->d.dtype);
  const int64_t n = w->d.dim[!tb], k = w->d.dim[tb];
  const void *packed = gemm_keep(c->state, type, w, tb, n, k, w->d.dim[1]);
  NEED(packed, TY_EMEMORY, "out of memory: packed weight of %lld bytes",
      (long long)gemm_pack_bytes(type, n, k));
  return gemm_packed(type, false, m, n, k, a, k, packed, out, n, e);
}

static int linear_forward(struct call *c)
{
  const struct operand *x = &c->in[0], *w = &c->in[1];
  struct linear_sizes z = make_linear_sizes(&x->d, &w->d);
  struct gemm_epilogue e = { .bias = c->nin > 2 ? c->in[2].p : NULL, .act = fused_act(c) };
  if (!keeps_weight(c, w, z.m))
    return gemm_fused(gemm_type_for(c, w->d.dtype), false, true, z.m, z.n, z.k, x->p, z.k, w->p,
        z.k, c->out[0].p, z.n, &e);
  return times_kept(c, w, true, z.m, x->p, c->out[0].p, &e);
}

/* -- forward of bfloat16: sums in float32, a weight is read once, in place --------------------- */

static const char *refuse_bfloat16(const struct call *c)
{
  for (int i = 0; i < c->nin; i++)
    if (c->in[i].d.dtype != TY_BF16) return "operands are not all bfloat16";
  return gemm_refuse(c);
}

/* Refuses all calls but those with bfloat16 data and a float32 weight, which the kernel rounds
** (pass/weight_casts.c). */
static const char *refuse_rounding(const struct call *c)
{
  if (c->in[0].d.dtype != TY_BF16 || c->out[0].d.dtype != TY_BF16) return "data is not bfloat16";
  if (c->in[1].d.dtype != TY_F32) return "the weight is not float32";
  return gemm_refuse(c);
}

static size_t bfloat16_scratch(const struct call *c)
{
  const size_t sums = align_up((size_t)desc_count(&c->out[0].d) * sizeof(float), ALIGN);
  return sums + (c->nin > 2 ? (size_t)desc_count(&c->in[2].d) * sizeof(float) : 0);
}

/* Reads a bias of bfloat16, or of float32 rounded to bfloat16, to `bias` as float32. part: scratch
** for the rounded bias. */
static void read_bias(const struct operand *x, float *bias, void *part)
{
  const int64_t n = desc_count(&x->d);
  const void *rounded = x->p;
  if (x->d.dtype == TY_F32) {
    dtype_convert(part, TY_BF16, x->p, TY_F32, n);
    rounded = part;
  }
  dtype_convert(bias, TY_F32, rounded, TY_BF16, n);
}

/* Multiplies bfloat16 data by a weight of bfloat16 or, rounded here, float32. Sums are float32. */
static int bfloat16_forward(struct call *c)
{
  const struct operand *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
  const struct linear_sizes z = make_linear_sizes(&x->d, &w->d);
  const int64_t count = desc_count(&y->d);
  const bool rounds = w->d.dtype == TY_F32;
  float *sums = c->tmp, *bias = NULL;
  if (!count) return TY_OK;
  if (c->nin > 2) {
    bias = (float *)((char *)c->tmp + align_up((size_t)count * sizeof(float), ALIGN));
    read_bias(&c->in[2], bias, sums);
  }
  const struct gemm_epilogue e = { .bias = bias, .act = fused_act(c) };
  /* rounding a weight at each run takes longer than reading a packed one */
  if (!rounds && !keeps_weight(c, w, z.m))
    TRY(gemm_fused(GEMM_BF16, false, true, z.m, z.n, z.k, x->p, z.k, w->p, z.k, sums, z.n, &e));
  else {
    const void *packed = gemm_keep(
        c->state, rounds ? GEMM_ROUNDED : GEMM_BF16, w, true, z.n, z.k, z.k);
    NEED(packed, TY_EMEMORY, "out of memory: packed weight of %lld bytes",
        (long long)gemm_pack_bytes(GEMM_BF16, z.n, z.k));
    TRY(gemm_packed(GEMM_BF16, false, z.m, z.n, z.k, x->p, z.k, packed, sums, z.n, &e));
  }
  dtype_convert(y->p, TY_BF16, sums, TY_F32, count);
  return TY_OK;
}

/* -- backward: in: gradient of the output, data, weight; more gradients and data (K_BATCHES) */

enum { OWN_INPUTS = 3 };                                     /* inputs without further pairs */

static int64_t all_rows(const struct call *c)
{
  int64_t m = make_linear_sizes(&c->in[1].d, &c->in[2].d).m;
  for (int i = OWN_INPUTS; i < c->nin; i += 2)
    m += make_linear_sizes(&c->in[i + 1].d, &c->in[2].d).m;
  return m;
}

static size_t back_scratch(const struct call *c)
{
  if (has_linear_loss(c)) return linear_loss_scratch(c);
  const ty_desc *w = &c->in[2].d;
  if (c->nin == OWN_INPUTS) return 0;
  return (size_t)(all_rows(c) * (w->dim[0] + w->dim[1])) * dtype_size(w->dtype);
}

/* Concatenates the rows of input `which` of all pairs at `at`. */
static const void *concatenate_rows(const struct call *c, int which, char *at)
{
  const void *begin = at;
  for (int i = 0; i < c->nin; i += i ? 2 : OWN_INPUTS) {
    size_t bytes = desc_bytes(&c->in[i + which].d);
    memcpy(at, c->in[i + which].p, bytes);
    at += bytes;
  }
  return begin;
}

/* Computes the gradient of data. A weight that many time steps use is packed once for all. */
static int data_gradient(struct call *c, struct linear_sizes z)
{
  const struct operand *w = &c->in[2], *g = &c->in[0], *out = &c->out[0];
  struct gemm_epilogue e = { .add = c->add & 1 };
  if (!keeps_weight(c, w, z.m) || z.m >= PACK_ROWS)
    return gemm_one(gemm_type_for(c, w->d.dtype), false, false, z.m, z.k, z.n, 1, g->p, z.n, w->p,
        z.k, e.add, out->p, z.k);
  return times_kept(c, w, false, z.m, g->p, out->p, &e);
}

static int linear_backward(struct call *c)
{
  if (has_linear_loss(c)) return linear_loss_backward(c);
  const struct operand *w = &c->in[2], *out = c->out;
  const void *g = c->in[0].p, *x = c->in[1].p;
  const int dtype = w->d.dtype;
  const struct linear_sizes own = make_linear_sizes(&c->in[1].d, &w->d);
  struct linear_sizes z = own;
  if (c->nin > OWN_INPUTS) {
    z.m = all_rows(c);
    g = concatenate_rows(c, 0, c->tmp);
    x = concatenate_rows(c, 1, (char *)c->tmp + (size_t)(z.m * z.n) * dtype_size(dtype));
  }
  if (out[1].p)
    TRY(gemm_one(gemm_type_for(c, dtype), true, false, z.n, z.k, z.m, 1, g, z.n, x, z.k,
        c->add >> 1 & 1, out[1].p, z.k));
  if (c->nout > 2 && out[2].p) sum_columns(dtype, z.m, z.n, g, out[2].p, c->add >> 2 & 1);
  return out[0].p ? data_gradient(c, own) : TY_OK; /* last, since it may overwrite the data */
}

/* -- the same in loops, for reference ---------------------------------------------------------- */

static double get_number(const struct operand *a, int64_t i)
{
  return a->d.dtype == TY_F64 ? ((const double *)a->p)[i] : (double)((const float *)a->p)[i];
}

static void store_number(const struct operand *a, int64_t i, double v, bool add)
{
  if (a->d.dtype == TY_F64)
    ((double *)a->p)[i] = v + (add ? ((double *)a->p)[i] : 0);
  else
    ((float *)a->p)[i] = (float)(v + (add ? ((float *)a->p)[i] : 0));
}

static int reference_forward(struct call *c)
{
  struct linear_sizes z = make_linear_sizes(&c->in[0].d, &c->in[1].d);
  for (int64_t i = 0; i < z.m; i++)
    for (int64_t j = 0; j < z.n; j++) {
      double s = c->nin > 2 ? get_number(&c->in[2], j) : 0;
      for (int64_t p = 0; p < z.k; p++)
        s += get_number(&c->in[0], i * z.k + p) * get_number(&c->in[1], j * z.k + p);
      store_number(&c->out[0], i * z.n + j, s, false);
    }
  epilogue_act(c);
  return TY_OK;
}

/* Computes out[i, j] = sum over p of a[i * ai + p * ap] b[j * bj + p * bp]. */
static void contract_indices(const struct operand *out, int64_t m, int64_t n, int64_t k,
    const struct operand *a, int64_t ai, int64_t ap, const struct operand *b, int64_t bj,
    int64_t bp, bool add)
{
  for (int64_t i = 0; out->p && i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double s = 0;
      for (int64_t p = 0; p < k; p++)
        s += get_number(a, i * ai + p * ap) * (b ? get_number(b, j * bj + p * bp) : 1);
      store_number(out, i * n + j, s, add);
    }
}

static int reference_backward(struct call *c)
{
  const struct operand *w = &c->in[2];
  struct operand in[OWN_INPUTS];
  struct call whole = *c;
  if (has_linear_loss(c)) {
    linear_loss_whole(c, in);
    whole.in = in;
    whole.nin = OWN_INPUTS;
    c = &whole;
  }
  for (int i = 0; i < c->nin; i += i ? 2 : OWN_INPUTS) {
    const struct operand *g = &c->in[i], *x = &c->in[i + 1];
    const struct linear_sizes z = make_linear_sizes(&x->d, &w->d);
    uint32_t add = i ? ~0u : c->add;
    contract_indices(&c->out[1], z.n, z.k, z.m, g, 1, z.n, x, 1, z.k, add >> 1 & 1);
    if (c->nout > 2) contract_indices(&c->out[2], z.n, 1, z.m, g, 1, z.n, NULL, 0, 0, add >> 2 & 1);
  }
  const struct linear_sizes z = make_linear_sizes(&c->in[1].d, &w->d);
  contract_indices(&c->out[0], z.m, z.k, z.n, &c->in[0], z.n, 1, w, 1, z.k, c->add & 1);
  return TY_OK;
}

static size_t reference_scratch(const struct call *c)
{
  return has_linear_loss(c) ? linear_loss_whole_scratch(c) : 0;
}

static const struct kernel cpu[] = {
  { .name = "rounding", .run = bfloat16_forward, .types = T(TY_BF16) | T(TY_F32), .flags = K_MIXED,
    .refuse = refuse_rounding, .scratch = bfloat16_scratch, .state = gemm_kept_bytes,
    .done = gemm_kept_done, .fuses = CAN(POST_ACT) | CAN_GELU },
  { .name = "bfloat16", .run = bfloat16_forward, .types = T(TY_BF16), .refuse = refuse_bfloat16,
    .scratch = bfloat16_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done,
    .fuses = CAN(POST_ACT) | CAN_GELU },
  { .name = "gemm", .run = linear_forward, .types = T_FLOAT, .refuse = gemm_refuse,
    .state = gemm_kept_bytes, .done = gemm_kept_done, .flags = K_PRECISION, .packs = 2,
    .fuses = CAN(POST_ACT) | CAN_GELU },
  { .name = "reference", .run = reference_forward, .types = T_FLOAT, .fuses = CAN(POST_ACT) | CAN_GELU },
  { 0 }
};
static const struct kernel back[] = {
  { .name = "gemm", .run = linear_backward, .types = T_FLOAT, .refuse = gemm_refuse,
    .scratch = back_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done, .add = 7,
    .flags = K_BATCHES | K_REUSED | K_PRECISION, .packs = 3,
    .fuses = CAN(PRE_LOSS_GRAD) | CAN(PRE_LOG_GRAD) },
  { .name = "reference", .run = reference_backward, .types = T_FLOAT, .scratch = reference_scratch,
    .add = 7, .flags = K_BATCHES, .fuses = CAN(PRE_LOSS_GRAD) | CAN(PRE_LOG_GRAD) },
  { 0 }
};

static const char *layer8_ports(const void *param)
{
  return ((const struct linear *)param)->no_bias ? "data weight" LAYER8_RANGES
                                                 : "data weight bias" LAYER8_RANGES
                                                   " min_bias max_bias";
}

const struct op op_fully_connected[] = {
  { .name = "FullyConnected", .alias = "_npx_fully_connected _sparse_FullyConnected",
    .flags = OP_SPARED | OP_ROUNDS_WEIGHT,
    .doc = "output = data weight^T + bias. data (N, ...) is flattened to (N, in), or "
           "kept (..., in) with flatten = false; "
           "weight (num_hidden, in), bias (num_hidden,), output (N, num_hidden) or "
           "(..., num_hidden). Gradients of all inputs.",
    .in = "data weight bias", .out = "output", .in_of = linear_ports,
    .param = params, .param_size = sizeof(struct linear), .shape = linear_shape,
    .grad = "g0 i0 i1", .back_inplace = "0=1", .cpu = cpu, .back_cpu = back },
  { .name = "_contrib_quantized_fully_connected",
    .doc = "FullyConnected of 8-bit data with an int8 weight, and the range of its 32-bit result.",
    .in = "data weight bias", .out = "output min_output max_output", .in_of = layer8_ports,
    .param = params, .param_size = sizeof(struct linear),
    .shape = layer8_shape, .type = layer8_type,
    .layer = "FullyConnected", .cpu = layer8_cpu },
  { 0 }
};
