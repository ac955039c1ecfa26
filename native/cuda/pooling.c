/* pooling.c - Pooling, Pooling_v1 and _contrib_quantized_pooling (kernels/pool.cu). */
#include "cuda/levels.h"

/* values of pool_type, as in kernels/pool.cu */
enum { POOL_AVG, POOL_LP, POOL_MAX, POOL_SUM };

enum { PLAIN, V1 };
static bool is_global(const struct call *c) { return cuda_flag(c, "global_pool"); }

static bool channels_last(const struct call *c)
{
  return cuda_word(c, "layout", "NWC") || cuda_word(c, "layout", "NHWC") ||
      cuda_word(c, "layout", "NDHWC");
}

/* Writes an entry per axis of (depth, height, width), of which data has the last ones. */
static void window_text(const struct call *c, const char *name, int axes, int64_t otherwise,
    char *text, size_t size)
{
  const struct dims *d = op_dims(c->op, c->param, name);
  int64_t v[3] = { 1, 1, 1 };
  if (!strcmp(name, "pad")) v[0] = v[1] = 0;
  for (int i = 3 - axes; i < 3; i++)
    v[i] = is_global(c) || d->n <= 0 ? otherwise : d->d[i - 3 + axes];
  snprintf(text, size, "{%lld,%lld,%lld}", (long long)v[0], (long long)v[1], (long long)v[2]);
}

/* Finds a kernel. act: ACT_* of the activation that is fused before it. */
static int pool_family(const struct call *c, const ty_desc *data, const char *name, int act,
    int pack, int team, cu_function *f)
{
  char kernel[96], stride[96], pad[96];
  int axes = data->ndim - 2;
  window_text(c, "kernel", axes, 0, kernel, sizeof kernel);
  window_text(c, "stride", axes, 1, stride, sizeof stride);
  window_text(c, "pad", axes, 0, pad, sizeof pad);
  return cuda_family(c->device, FAMILY_pool, name, f, "T=%s KIND=%d POWER=%d ZEROS=%d PADDED=%d "
      "ACT=%d AXES=%d KERNEL=%s STRIDE=%s PAD=%s INDEX=%s PACK=%d TEAM=%d",
      cuda_type(data->dtype),
      (int)cuda_number(c, "pool_type", POOL_MAX), (int)MAX(cuda_number(c, "p_value", 1), 1),
      cuda_what(c) == V1, cuda_number(c, "count_include_pad", 1) != 0, act, axes,
      kernel, stride, pad, cuda_index(desc_count(data)), pack, team);
}

struct pool_sizes { int64_t n, in[3], out[3], inner; };
static struct pool_sizes make_sizes(
    const struct call *c, const ty_desc *data, const ty_desc *result, int64_t n)
{
  int axes = data->ndim - 2, first = channels_last(c) ? 1 : 2;
  struct pool_sizes s = { n, { 1, 1, 1 }, { 1, 1, 1 },
    channels_last(c) ? data->dim[data->ndim - 1] : in_blocks(c) ? data->dim[1] : 1 };
  for (int i = 0; i < axes; i++) {
    s.in[3 - axes + i] = data->dim[first + i];
    s.out[3 - axes + i] = result->dim[first + i];
  }
  return s;
}

/* Returns the elements of a load if channels are last. */
static int channel_pack(
    const ty_desc *data, const struct pool_sizes *s, void *const *arrays, int count)
{
  return s->inner > 1 ? cuda_pack(data->dtype, s->inner, arrays, count) : 1;
}

/* Returns whether a window is a whole plane of contiguous elements. */
static bool pools_planes(const struct call *c, const struct pool_sizes *s)
{
  return is_global(c) && s->inner == 1 && s->out[0] * s->out[1] * s->out[2] == 1;
}

static int pool_planes(
    const struct call *c, const ty_desc *data, const struct pool_sizes *s, void *y, void *x)
{
  int64_t planes = s->n, k = s->in[0] * s->in[1] * s->in[2];
  const int pack = cuda_pack(data->dtype, k, &x, 1), team = cuda_team(planes, k, 1);
  cu_function f;
  TRY(pool_family(c, data, "pool_planes", ACT_NONE, pack, team, &f));
  void *params[] = { &y, &x, &planes, &k };
  return cuda_run(c, f, planes * team, params);
}

static int pool_planes_back(
    const struct call *c, const ty_desc *data, const struct pool_sizes *s, void *dx, void *dy)
{
  int64_t k = s->in[0] * s->in[1] * s->in[2], planes = s->n / MAX(k, 1);
  const int pack = cuda_pack(data->dtype, k, &dx, 1);
  cu_function f;
  TRY(pool_family(c, data, "pool_planes_back", ACT_NONE, pack, 1, &f));
  void *params[] = { &dx, &dy, &planes, &k };
  return cuda_run(c, f, s->n / pack, params);
}

static int pool_windows(const struct call *c, void *argmax)
{
  const ty_desc *data = &c->in[0].d, *result = &c->out[0].d;
  const struct fused_op *before = find_fused(c, PRE_ACT);
  struct pool_sizes s = make_sizes(c, data, result, desc_count(result));
  cu_function f;
  if (!c->out[0].p && !argmax) return TY_OK;
  if (!argmax && !before && pools_planes(c, &s))
    return pool_planes(c, data, &s, c->out[0].p, c->in[0].p);
  void *arrays[] = { c->out[0].p, argmax, c->in[0].p };
  const int pack = channel_pack(data, &s, arrays, 3);
  TRY(pool_family(c, data, "pool", before ? before->act : ACT_NONE, pack, 1, &f));
  void *params[] = { &c->out[0].p, &argmax, &c->in[0].p, &s };
  return cuda_run(c, f, s.n / pack, params);
}

static int pool_forward(struct call *c)
{
  return pool_windows(c, c->nout > 1 ? c->out[1].p : NULL);
}

static int forward_levels(struct call *c)
{
  TRY(cuda_keep_range(c, 1));
  return pool_windows(c, NULL);
}

/* Computes the gradients; in: head gradient; then the argmax of maxima (then the output, where the
** activation's gradient is a part), or data and output. */
static int pool_backward(struct call *c)
{
  const ty_desc *data = &c->out[0].d;
  struct pool_sizes s = make_sizes(c, data, &c->in[0].d, desc_count(data));
  const struct fused_op *before = find_fused(c, POST_ACT_GRAD);
  const bool has_argmax = before || c->nin == 2;
  void *none = NULL, **second = c->nin > 1 ? &c->in[1].p : &none;
  void **argmax = has_argmax ? second : &none, **x = has_argmax ? &none : second;
  void **y = c->nin > 2 ? &c->in[2].p : &none;
  cu_function f;
  const int kind = (int)cuda_number(c, "pool_type", POOL_MAX);
  if (!c->out[0].p) return TY_OK;
  if (!before && pools_planes(c, &s) && (kind == POOL_AVG || kind == POOL_SUM))
    return pool_planes_back(c, data, &s, c->out[0].p, c->in[0].p);
  void *arrays[] = { c->out[0].p, c->in[0].p, *argmax, *y };
  const int pack = channel_pack(data, &s, arrays, COUNT(arrays));
  TRY(pool_family(c, data, "pool_back", before ? before->act : ACT_NONE, pack, 1, &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, argmax, x, y, &s };
  return cuda_run(c, f, s.n / pack, params);
}

enum { TYPES = T_FLOATS | T(TY_U8) };
static const char *refuse_pool(const struct call *c)
{
  if (in_blocks(c) && channels_last(c)) return "channels last";
  return dtype_float(c->out[0].d.dtype) ? NULL : "data is not of a float dtype";
}
static const struct kernel windows[] = {
  { "windows", pool_forward, TYPES, refuse_pool, .flags = K_ALIKE, .blocks = IN_BLOCKS(1, 3),
    .fuses = CAN(PRE_ACT) },
  { 0 }
};
static const struct kernel windows_back[] = {
  { "windows", pool_backward, TYPES, refuse_pool, .flags = K_ALIKE, .blocks = IN_BLOCKS(7, 1),
    .fuses = CAN(PRE_ACT) | CAN(POST_ACT_GRAD) },
  { 0 }
};

static const struct kernel levels[] = {
  { "windows", forward_levels, T_FLOAT | T_INT, cuda_refuse_numbers }, { 0 }
};

const struct op_kernels cuda_pooling[] = {
  { "Pooling", windows, windows_back },
  { "Pooling_v1", windows, windows_back, V1 },
  { "_contrib_quantized_pooling", levels, NULL },
  { 0 }
};
