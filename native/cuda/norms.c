/* norms.c - normalisation over rows (LayerNorm, RMSNorm, InstanceNorm, GroupNorm, L2Normalization:
** kernels/norm_rows.cu) and over channels (BatchNorm and its variants: kernels/batch_norm.cu). */
#include "cuda/reduce.h"
#include "cuda/row.h"
#include "kernel/vec/vec.h"

/* -- rows -------------------------------------------------------------------------------------- */

enum { LAYER_NORM, INSTANCE_NORM, GROUP_NORM, RMS_NORM };
/* Same as in kernels/norm_rows.cu. */
struct norm_args { int64_t rows, k, inner, groups, parts; double eps; };
struct row_norm {
  struct norm_args args;
  bool shared;                                        /* a row has a single gamma and beta */
  bool deviation;                                     /* the third output is sqrt(var + eps) */
  bool centered;                                      /* there are a mean and a beta */
  int dtype;
  int team;                                           /* threads of a row */
  int pack;                                           /* elements of a load */
  int held;                                           /* packs of a row in registers of a thread */
};

static struct row_norm make_row_norm(const struct call *c, const ty_desc *d)
{
  struct row_norm n = { .deviation = true, .dtype = d->dtype, .centered = cuda_what(c) != RMS_NORM,
    .pack = 1 };
  n.args.groups = n.args.inner = 1;
  n.args.eps = cuda_number(c, "eps", n.centered ? 1e-5 : 1e-6);
  if (cuda_what(c) == LAYER_NORM || cuda_what(c) == RMS_NORM) {
    int axis = (int)cuda_number(c, "axis", -1);
    struct split s = split_at(d, axis_in(axis, d->ndim));
    n.args.rows = s.outer * s.inner;
    n.args.k = s.k;
    n.args.inner = s.inner;
  }
  else {
    n.shared = true;
    n.deviation = cuda_what(c) == GROUP_NORM;
    n.args.groups = n.deviation ? (int64_t)cuda_number(c, "num_groups", 1) : d->dim[1];
    n.args.rows = d->dim[0] * n.args.groups;
    n.args.k = desc_count(d) / n.args.rows;
  }
  n.args.parts = MAX(MIN(MIN(256, n.args.rows / 16), (1 << 17) / n.args.k), 1);
  n.team = cuda_team(n.args.rows, n.args.k, n.args.inner);
  return n;
}

/* Chooses whether threads keep their part of a row in registers, at most `most` elements; else
** (held 0) each pass reads the rows again. */
static void hold_rows(struct row_norm *n, int most, void *const *arrays, int count)
{
  if (n->args.inner > 1) return;
  n->pack = cuda_pack(n->dtype, n->args.k, arrays, count);
  n->held = cuda_held(n->args.k, n->team, n->pack, most);
  if (n->held || n->team == 1) return;
  n->held = cuda_held(n->args.k, CUDA_BLOCK, n->pack, most);
  if (n->held) n->team = CUDA_BLOCK;
}

/* Launches a kernel of kernels/norm_rows.cu. Not a struct cuda_row, since the kernel depends on
** whether rows are held, and a gradient needs up to three kernels. */
static int start_rows(const struct call *c, const struct row_norm *n, const char *name,
    int64_t threads, void **params)
{
  return cuda_start_words(c, FAMILY_norm_rows, name, threads, params,
      "T=%s SHARED=%d DEVIATION=%d CENTERED=%d TEAM=%d PACK=%d HELD=%d", cuda_type(n->dtype),
      n->shared, n->deviation, n->centered, n->team, n->pack, MAX(n->held, 1));
}

static int rows_forward(struct call *c)
{
  enum { HELD = 32 };
  struct row_norm n = make_row_norm(c, &c->in[0].d);
  void *arrays[] = { c->in[0].p, c->out[0].p }, *none = NULL;
  hold_rows(&n, HELD, arrays, COUNT(arrays));
  return start_rows(c, &n, n.held ? "norm_rows_held" : "norm_rows", n.args.rows * n.team,
      (void *[]){ &c->out[0].p, n.centered ? &c->out[1].p : &none, &c->out[1 + n.centered].p,
        &c->in[0].p, &c->in[1].p, n.centered ? &c->in[2].p : &none, &n.args });
}

/* Returns the reduction over samples of the gradients of a shared gamma and beta. */
static struct reduce gain_reduction(const struct row_norm *n)
{
  return cuda_reduce_all_but(TY_F64, n->args.rows / n->args.groups, n->args.groups, 1);
}

static size_t gain_bytes(const struct reduce *r)
{
  return align_up(sizeof(double) * (size_t)r->in, ALIGN);
}

/* Returns how many teams share the rows of a gradient. */
static int64_t gain_teams(const struct row_norm *n)
{
  enum { ROWS = 16 };                                 /* least rows of a team */
  enum { TEAMS = 1024 };                              /* at most */
  return MAX(MIN(n->args.rows / ROWS, TEAMS), 1);
}

static size_t rows_scratch(const struct call *c)
{
  struct row_norm n = make_row_norm(c, &c->in[1].d);
  struct reduce r = gain_reduction(&n);
  const size_t each = n.dtype == TY_F64 ? sizeof(double) : sizeof(float);
  if (!n.shared) return 2 * each * (size_t)(MAX(n.args.parts, gain_teams(&n)) * n.args.k);
  return 2 * gain_bytes(&r) + cuda_reduce_scratch(&r);
}

static int reduce_gains(
    struct call *c, const struct reduce *r, const struct operand *out, const void *parts, void *tmp)
{
  struct cuda_reduce f = { R_SUM, F_NONE, out->d.dtype, parts, .y = out->p };
  return out->p ? cuda_reduce(c->device, r, &f, tmp) : TY_OK;
}

/* Computes gradients where each element of a row has its own gamma. in: gradient of the output,
** data, gamma, mean (not of RMSNorm), third output. */
static int gains_backward(struct call *c)
{
  enum { HELD = 16 };                                 /* most elements of a row in a thread */
  enum { COLUMNS = 32 };                              /* of a block of "gain_sums" */
  struct row_norm n = make_row_norm(c, &c->in[1].d);
  const bool gains = c->out[1].p || (n.centered && c->out[2].p);
  void *part = gains ? c->tmp : NULL, *none = NULL;
  const struct fused_op *sum = find_fused(c, POST_ADD);
  void **more = sum ? &c->in[sum->operand].p : &none;
  void *arrays[] = { c->in[0].p, c->in[1].p, c->in[2].p, c->out[0].p, *more };
  void **mean = n.centered ? &c->in[3].p : &none, **third = &c->in[3 + n.centered].p;
  bool whole = false;                                 /* one block also sums dgamma and dbeta */
  hold_rows(&n, HELD, arrays, COUNT(arrays));
  if (n.held) {
    n.args.parts = gain_teams(&n);
    whole = n.args.parts * n.team <= CUDA_BLOCK;
    TRY(start_rows(c, &n, "norm_rows_back_held", n.args.parts * n.team,
        (void *[]){ &c->out[0].p, &part, whole ? &c->out[1].p : &none,
          whole && n.centered ? &c->out[2].p : &none, &c->in[0].p, &c->in[1].p, &c->in[2].p, mean,
          third, more, &n.args }));
  }
  if (!n.held && c->out[0].p)
    TRY(start_rows(c, &n, "norm_rows_back", n.args.rows * n.team,
        (void *[]){ &c->out[0].p, &none, &none, &c->in[0].p, &c->in[1].p, &c->in[2].p, mean,
          third, more, &n.args }));
  if (!gains || whole) return TY_OK;
  if (!n.held)
    TRY(start_rows(c, &n, "gain_parts", n.args.parts * n.args.k,
        (void *[]){ &part, &c->in[0].p, &c->in[1].p, mean, third, &n.args }));
  return start_rows(c, &n, "gain_sums", (n.args.k + COLUMNS - 1) / COLUMNS * CUDA_BLOCK,
      (void *[]){ &c->out[1].p, n.centered ? &c->out[2].p : &none, &part, &n.args });
}

/* Computes gradients where a row has one gamma. in: gradient of the output, data, gamma, mean,
** third output. */
static int rows_backward(struct call *c)
{
  struct row_norm n = make_row_norm(c, &c->in[1].d);
  struct reduce r = gain_reduction(&n);
  bool gains = c->out[1].p || c->out[2].p;
  char *at = c->tmp;
  void *dgamma = cuda_piece(&at, gain_bytes(&r)), *dbeta = cuda_piece(&at, gain_bytes(&r));
  void *none = NULL;
  if (c->out[0].p || gains)
    TRY(start_rows(c, &n, "norm_rows_back", n.args.rows * n.team,
        (void *[]){ &c->out[0].p, gains ? &dgamma : &none, &dbeta, &c->in[0].p, &c->in[1].p,
          &c->in[2].p, &c->in[3].p, &c->in[4].p, &none, &n.args }));
  if (!gains) return TY_OK;
  TRY(reduce_gains(c, &r, &c->out[1], dgamma, at));
  return reduce_gains(c, &r, &c->out[2], dbeta, at);
}

/* -- L2Normalization --------------------------------------------------------------------------- */

enum { L2_CHANNEL, L2_INSTANCE, L2_SPATIAL };

struct l2_args { int64_t team; struct norm_args norm; };
static int64_t l2_sizes(const struct call *c, void *to)
{
  const ty_desc *d = &c->in[0].d;
  const int mode = (int)cuda_number(c, "mode", L2_INSTANCE);
  const int64_t outer = d->dim[0] * (mode == L2_SPATIAL ? d->dim[1] : 1);
  const struct split s = mode == L2_CHANNEL
      ? split_at(d, 1)
      : (struct split){ outer, desc_count(d) / outer, 1 };
  const int64_t rows = s.outer * s.inner, team = cuda_team(rows, s.k, s.inner);
  *(struct l2_args *)to = (struct l2_args){ team,
    { .rows = rows, .k = s.k, .inner = s.inner, .eps = cuda_number(c, "eps", 1e-10) } };
  return rows * team;
}

/* -- BatchNorm --------------------------------------------------------------------------------- */

enum { PLAIN, WITH_VARIANCE, WITH_RELU };
struct channel_norm {
  int64_t n;                                          /* elements of the data */
  int dtype;
  int params;                                         /* dtype of gamma and its like */
  int relu;                                           /* RELU of kernels/batch_norm.cu */
  struct {                                            /* same as in kernels/batch_norm.cu */
    int64_t outer, k, inner;                          /* k: channels */
    int64_t parts;                                    /* blocks that share a channel's statistics */
    int64_t chunks;                                   /* blocks that apply them to a channel */
    int64_t width;                                    /* threads of a line, a power of two */
    double eps, momentum;
    int32_t fixed;                                    /* gamma is 1 */
    int32_t batch;                                    /* the batch's statistics are used */
    int32_t variance;                                 /* the third output is the variance */
    int32_t ones;                                     /* gamma is set to 1 */
  } args;
};

/* Returns how many blocks share a channel, at most `most`: parts must be long enough, and all
** channels together should have about `blocks` blocks. It depends on the shape alone, since results
** depend on it. */
static int64_t batch_pieces(const struct channel_norm *b, int64_t most, int64_t blocks)
{
  enum { LONG = 8192 };                               /* elements of a part */
  enum { TILE = 128 };                                /* channels of a tile */
  const bool last = b->args.inner == 1;
  const int64_t tiles = last ? (b->args.k + TILE - 1) / TILE : b->args.k;
  const int64_t elements = b->args.outer * (last ? MIN(b->args.k, TILE) : b->args.inner);
  most = MIN(MIN(most, b->args.outer), MIN(elements / LONG, blocks / tiles));
  return MAX(most, 1);
}

static struct channel_norm make_channel_norm(const struct call *c, int data)
{
  enum { PARTS = 128, PART_BLOCKS = 2048, CHUNKS = 1024, CHUNK_BLOCKS = 4096 };
  const ty_desc *d = &c->in[data].d;
  int axis = (int)cuda_number(c, "axis", 1);
  struct split s = split_at(d, axis_in(axis, d->ndim));
  struct channel_norm b = { .n = desc_count(d), .dtype = d->dtype,
    .params = c->in[data + 1].d.dtype };
  if (c->in[data].block) s = (struct split){ b.n / s.k, s.k, 1 };
  b.args.outer = s.outer;
  b.args.k = s.k;
  b.args.inner = s.inner;
  b.args.parts = batch_pieces(&b, PARTS, PART_BLOCKS);
  b.args.chunks = batch_pieces(&b, CHUNKS, CHUNK_BLOCKS);
  b.args.eps = cuda_number(c, "eps", 1e-3);
  b.args.momentum = cuda_number(c, "momentum", 0.9);
  b.args.fixed = cuda_flag(c, "fix_gamma");
  b.args.batch = c->run && c->run->is_train && !cuda_flag(c, "use_global_stats");
  b.args.variance = cuda_what(c) == WITH_VARIANCE;
  return b;
}

/* A kernel of kernels/batch_norm.cu. tiles: blocks per part. */
struct batch_launch { cu_function f; int64_t tiles; };

static int64_t power_of_two_up_to(int64_t n, int64_t most)
{
  int64_t p = 1;
  while (2 * p <= MIN(n, most)) p *= 2;
  return p;
}

/* Finds a kernel of batch_norm.cu and its launch. arrays: those of data, which allow loads of 16
** bytes where all are aligned; NULL: absent. */
static int batch_family(const struct call *c, struct channel_norm *b, const char *name,
    void *const *arrays, int count, struct batch_launch *out)
{
  enum { ROW_THREADS = 32, BLOCK_THREADS = 256 };
  const bool last = b->args.inner == 1;
  const int64_t line = last ? b->args.k : b->args.inner;
  int pack = cuda_pack(b->dtype, line, arrays, count);
  const int64_t packs = line / pack;
  b->args.width = last ? MIN(2 * power_of_two_up_to(MAX(packs - 1, 1), ROW_THREADS),
                             ROW_THREADS)
                       : power_of_two_up_to(packs, BLOCK_THREADS);
  if (packs == 1) b->args.width = 1;
  out->tiles = last ? (packs + b->args.width - 1) / b->args.width : b->args.k;
  return cuda_family(c->device, FAMILY_batch_norm, name, &out->f,
      "T=%s P=%s PACK=%d LAST=%d RELU=%d", cuda_type(b->dtype), cuda_type(b->params), pack, last,
      b->relu);
}

static int batch_launch(
    const struct call *c, const struct batch_launch *l, int64_t pieces, void **params)
{
  return cuda_launch(c->device, l->f, l->tiles * pieces, CUDA_BLOCK, 0, params);
}

static size_t parts_bytes(const struct channel_norm *b)
{
  return 2 * sizeof(double) * (size_t)(b->args.parts * b->args.k);
}

static size_t batch_scratch(const struct call *c)
{
  struct channel_norm b = make_channel_norm(c, 0);
  return parts_bytes(&b);
}

static int batch_forward(struct call *c)
{
  struct channel_norm b = make_channel_norm(c, 0);
  struct batch_launch l;
  const struct fused_op *sum = find_fused(c, POST_ADD);
  void *parts = c->tmp, *mask = c->nout > 3 ? c->out[3].p : NULL;
  void *more = sum ? c->in[sum->operand].p : NULL;
  void *arrays[] = { c->in[0].p, c->out[0].p, mask, more };
  b.relu = cuda_what(c) == WITH_RELU || find_fused(c, POST_ACT);
  b.args.ones = b.args.fixed && c->with_grad;
  if (b.args.batch) {
    TRY(batch_family(c, &b, "batch_parts", arrays, COUNT(arrays), &l));
    void *params[] = { &parts, &c->in[0].p, &b.args };
    TRY(batch_launch(c, &l, b.args.parts, params));
  }
  if (!c->out[0].p) b.args.chunks = 1;
  TRY(batch_family(c, &b, "batch_apply", arrays, COUNT(arrays), &l));
  void *params[] = { &c->out[0].p, &mask, &c->out[1].p, &c->out[2].p, &c->in[1].p, &c->in[0].p,
    &more, &parts, &c->in[3].p, &c->in[4].p, &c->in[2].p, &b.args };
  return batch_launch(c, &l, b.args.chunks, params);
}

static size_t batch_back_scratch(const struct call *c)
{
  struct channel_norm b = make_channel_norm(c, 1);
  return parts_bytes(&b);
}

/* The relu that a gradient of BatchNorm begins with; all NULL: none, or one that needs no
** output. */
struct batch_kept {
  void *y;                                            /* output of the relu */
  void *more;                                         /* added to the gradient first; NULL: none */
  void *kept;                                         /* result, which other nodes read, too */
};
/* Finds the relu in the call's epilogue, or in the operator itself. */
static struct batch_kept find_kept(const struct call *c)
{
  const struct fused_op *f = find_fused(c, PRE_KEPT_GRAD), *sum = find_fused(c, PRE_ADD);
  if (cuda_what(c) == WITH_RELU) return (struct batch_kept){ .y = c->in[8].p };
  if (!f) return (struct batch_kept){ 0 };
  return (struct batch_kept){ c->in[f->operand].p, sum ? c->in[sum->operand].p : NULL,
    c->out[c->nout - 1].p };
}

/* Computes the gradients; in: head gradient, data, gamma, mean, third output, moving_mean,
** moving_var, beta, and the output with relu. */
static int batch_backward(struct call *c)
{
  enum { BY_DATA = 1, BY_OUTPUT, KEPT };              /* RELU of kernels/batch_norm.cu */
  struct channel_norm b = make_channel_norm(c, 1);
  struct batch_launch l;
  struct batch_kept k = find_kept(c);
  void *parts = c->tmp, *head = k.kept ? k.kept : c->in[0].p;
  void **mean = &c->in[b.args.batch ? 3 : 5].p, **third = &c->in[b.args.batch ? 4 : 6].p;
  void *arrays[] = { c->in[0].p, c->in[1].p, c->out[0].p, k.y, k.more, k.kept };
  b.relu = k.kept ? KEPT : k.y ? BY_OUTPUT : find_fused(c, PRE_ACT_GRAD) ? BY_DATA : 0;
  TRY(batch_family(c, &b, "batch_back_parts", arrays, COUNT(arrays), &l));
  void *sums[] = { &parts, &k.kept, &c->in[0].p, &k.more, &c->in[1].p, &k.y, mean, third,
    &c->in[2].p, &c->in[7].p, &b.args };
  TRY(batch_launch(c, &l, b.args.parts, sums));
  if (!c->out[0].p) b.args.chunks = 1;
  if (k.kept) b.relu = 0;
  TRY(batch_family(c, &b, "batch_back_apply", arrays, COUNT(arrays), &l));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->out[2].p, &c->in[5].p, &c->in[6].p,
    &head, &c->in[1].p, &k.y, &parts, mean, third, &c->in[2].p, &c->in[7].p, &b.args };
  return batch_launch(c, &l, b.args.chunks, params);
}

/* -- IdentityAttachKLSparseReg ----------------------------------------------------------------- */

static struct split split_units(const ty_desc *d) { return split_at(d, d->ndim > 1); }

static size_t unit_bytes(const struct call *c)
{
  return align_up(desc_bytes(&c->in[2].d), ALIGN);
}

static struct reduce unit_reduction(const struct call *c)
{
  struct split s = split_units(&c->in[1].d);
  return cuda_reduce_all_but(c->in[1].d.dtype, s.outer, s.k, s.inner);
}

static size_t sparse_scratch(const struct call *c)
{
  struct reduce r = unit_reduction(c);
  return 2 * unit_bytes(c) + cuda_reduce_scratch(&r);
}

/* Computes the gradients; in: head gradient, data, moving average. */
static int sparse_backward(struct call *c)
{
  struct split s = split_units(&c->in[1].d);
  struct reduce r = unit_reduction(c);
  int64_t n = desc_count(&c->in[1].d);
  const int dtype = c->in[1].d.dtype, moving = c->in[2].d.dtype;
  const char *index = cuda_index(n);
  char *at = c->tmp;
  void *slopes = cuda_piece(&at, unit_bytes(c)), *mean = cuda_piece(&at, unit_bytes(c));
  struct cuda_reduce reduction = { R_SUM, F_MEAN, moving, c->in[1].p, .y = mean };
  double target = cuda_number(c, "sparseness_target", 0.1);
  double penalty = cuda_number(c, "penalty", 0.001), momentum = cuda_number(c, "momentum", 0.9);
  cu_function f;
  TRY(cuda_reduce(c->device, &r, &reduction, at));
  TRY(cuda_family(c->device, FAMILY_channels, "sparse_slopes", &f, "T=%s P=%s INDEX=%s",
      cuda_type(dtype), cuda_type(moving), index));
  void *units[] = { &slopes, &c->in[2].p, &mean, &s.k, &target, &penalty, &momentum };
  TRY(cuda_run(c, f, s.k, units));
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_channels, "sparse_shift", &f, "T=%s P=%s INDEX=%s",
      cuda_type(dtype), cuda_type(moving), index));
  void *params[] = { &c->out[0].p, &c->in[0].p, &slopes, &n, &s.k, &s.inner };
  return cuda_run(c, f, n, params);
}

/* -- the table --------------------------------------------------------------------------------- */

static const struct kernel rows[] = { { "rows", rows_forward, T_FLOATS }, { 0 } };
static const struct kernel rows_back[] = {
  { "rows", rows_backward, T_FLOATS, .scratch = rows_scratch }, { 0 }
};
static const struct kernel gains_back[] = {
  { "rows", gains_backward, T_FLOATS, .scratch = rows_scratch, .fuses = CAN(POST_ADD) }, { 0 }
};
#define LENGTHS(table, kernel_, arguments) \
  static const struct kernel table[] = { \
    { "rows", CUDA_ROW(FAMILY_norm_rows, kernel_, \
        "T=$i0 SHARED=0 DEVIATION=0 CENTERED=0 TEAM=%0 PACK=1 HELD=1", arguments, l2_sizes), \
      .types = T_FLOATS }, { 0 } \
  };
LENGTHS(lengths, "l2_rows", "o0 o1 i0 s1")
LENGTHS(lengths_back, "l2_rows_back", "o0 i0 i1 i2 s1")    /* in: head gradient, output, norm */
static const char *batch_refuse(const struct call *c)
{
  return in_blocks(c) && cuda_number(c, "axis", 1) != 1 ? "an axis of space" : NULL;
}
#define CHANNELS(does) \
  { "channels", batch_forward, T_FLOATS, batch_refuse, batch_scratch, .flags = K_ALIKE, \
    .blocks = IN_BLOCKS(1 | 1 << 5, 1 | 1 << 3), .fuses = (does) }
#define CHANNELS_BACK(does) \
  { "channels", batch_backward, T_FLOATS, batch_refuse, batch_back_scratch, .flags = K_ALIKE, \
    .blocks = IN_BLOCKS(3 | 1 << 8 | 1 << 9, 1 | 1 << 5), .fuses = (does) }
static const struct kernel batch[] = {
  CHANNELS(CAN(POST_ACT) | CAN(POST_ADD) | CAN_ACT_OF_SUM), { 0 }
};
static const struct kernel batch_back[] = {
  CHANNELS_BACK(CAN(PRE_ACT_GRAD) | CAN_HALF_GRAD | CAN(PRE_ADD) | CAN(PRE_KEPT_GRAD)), { 0 }
};
static const struct kernel batch_relu[] = { CHANNELS(0), { 0 } };
static const struct kernel batch_relu_back[] = { CHANNELS_BACK(0), { 0 } };
static const struct kernel sparse_back[] = {
  { "channels", sparse_backward, T_FLOATS, .scratch = sparse_scratch }, { 0 }
};

const struct op_kernels cuda_norms[] = {
  { "LayerNorm", rows, gains_back, LAYER_NORM },
  { "_contrib_RMSNorm", rows, gains_back, RMS_NORM },
  { "InstanceNorm", rows, rows_back, INSTANCE_NORM },
  { "GroupNorm", rows, rows_back, GROUP_NORM },
  { "L2Normalization", lengths, lengths_back },
  { "BatchNorm", batch, batch_back },
  { "BatchNorm_v1", batch, batch_back, WITH_VARIANCE },
  { "_contrib_SyncBatchNorm", batch, batch_back },
  { "_contrib_BatchNormWithReLU", batch_relu, batch_relu_back, WITH_RELU },
  { "IdentityAttachKLSparseReg", cuda_copies, sparse_back },
  { 0 }
};
