/* onednn.c - see onednn.h. The scratch of a primitive depends on the size of the team that runs it;
** the bytes here suffice for every size. */
#include <pthread.h>
#include "kernel/conv/onednn.h"

/* -- descriptors ------------------------------------------------------------------------------- */

/* Layouts of an array. A number above 0 is the size of its blocks of channels. */
enum {
  UNBLOCKED = 0,
  ANY = -1,                                           /* the layout that the primitive prefers */
};

/* Returns the description of a dense array in a layout. rounded: bfloat16, else float32. */
static onednn_desc onednn_make_desc(int n, const int64_t *size, int form, bool rounded)
{
  static const dnnl_format_tag_t of_4[] = { dnnl_nCw4c, dnnl_nChw4c, dnnl_nCdhw4c },
                                 of_8[] = { dnnl_nCw8c, dnnl_nChw8c, dnnl_nCdhw8c },
                                 of_16[] = { dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c };
  dnnl_dims_t dim = { 0 }, step = { 0 };
  memcpy(dim, size, sizeof *size * (size_t)n);
  if (form != UNBLOCKED)
    return onednn_tagged(n, dim, rounded ? dnnl_bf16 : dnnl_f32,
        form == ANY      ? dnnl_format_tag_any
            : form == 16 ? of_16[n - 3]
            : form == 8  ? of_8[n - 3]
                         : of_4[n - 3]);
  step[n - 1] = 1;
  for (int i = n - 2; i >= 0; i--) step[i] = step[i + 1] * dim[i + 1];
  return onednn_strided(n, dim, step);
}

/* Describes the arrays. free: those with plain layouts in the layout that the primitive prefers. */
static bool onednn_describe_all(struct onednn_conv *o, const struct onednn_shape *s, bool free)
{
  int form[OPERANDS];
  static const int result[] = { [FORWARD] = Y, [DATA] = X, [WEIGHT] = W };
  bool rounded[OPERANDS];
  for (int i = 0; i < OPERANDS; i++) {
    rounded[i] = free && s->rounded && i != result[s->which];
    form[i] = free && !s->block[i] ? ANY : s->block[i];
  }
  const struct window *v = &s->window;
  const int grouped = v->groups > 1, n = s->x->ndim, first = 5 - n; /* first of 3 spatial axes */
  const int64_t filters = v->groups * v->filters;
  dnnl_dims_t dx = { s->images, v->groups * v->channels }, dy = { s->images, filters }, dw;
  if (grouped) dw[0] = v->groups;
  dw[grouped] = v->filters;
  dw[grouped + 1] = v->channels;
  for (int i = 2; i < n; i++) {       /* sizes of the window, whose axes may be permuted */
    dx[i] = v->in[first + i - 2];
    dy[i] = v->out[first + i - 2];
    dw[grouped + i] = v->kernel[first + i - 2];
  }
  for (int i = 0; i < n - 2; i++) {
    o->stride[i] = v->stride[first + i];
    o->dilate[i] = v->dilate[first + i] - 1;
    o->pad[i] = v->pad[first + i];
  }
  return (o->d[X] = onednn_make_desc(n, dx, form[X], rounded[X])) &&
      (o->d[W] = onednn_make_desc(n + grouped, dw, form[W], rounded[W])) &&
      (o->d[Y] = onednn_make_desc(n, dy, form[Y], rounded[Y])) &&
      (!s->bias || (o->bias = onednn_make_desc(1, &filters, UNBLOCKED, false)));
}

static void onednn_free_descs(struct onednn_conv *o)
{
  for (int i = 0; i < OPERANDS; i++) onednn_desc_free(o->d[i]);
  onednn_desc_free(o->bias);
}

static bool onednn_append_ops(dnnl_primitive_attr_t attr, bool sum, int act)
{
  static const dnnl_alg_kind_t kind[] = { 0, dnnl_eltwise_relu, dnnl_eltwise_logistic,
    dnnl_eltwise_tanh, dnnl_eltwise_soft_relu };
  dnnl_post_ops_t ops;
  if (!act && !sum) return true;
  if (dnnl_post_ops_create(&ops)) return false;
  bool ok = (!sum || onednn_append_sum(ops)) && (!act || onednn_append_act(ops, kind[act])) &&
      !dnnl_primitive_attr_set_post_ops(attr, ops);
  dnnl_post_ops_destroy(ops);
  return ok;
}

static dnnl_primitive_desc_t onednn_create_desc(
    const struct onednn_conv *o, const struct onednn_shape *s, dnnl_primitive_attr_t attr)
{
  if (s->which == FORWARD) return onednn_forward(o, dnnl_forward_inference, attr);
  struct onednn_shape forward = *s;
  struct onednn_conv way = { 0 }; /* a separate one: its types differ from the gradients' */
  forward.which = FORWARD;
  forward.bias = false;
  dnnl_primitive_desc_t hint = onednn_describe_all(&way, &forward, true)
      ? onednn_forward(&way, dnnl_forward_training, NULL)
      : NULL;
  onednn_free_descs(&way);
  if (!hint) return NULL;
  dnnl_primitive_desc_t d =
      s->which == DATA ? onednn_back_data(o, hint, attr) : onednn_back_weight(o, hint, attr);
  dnnl_primitive_desc_destroy(hint);
  return d;
}

static bool onednn_is_fast(dnnl_primitive_desc_t d)
{
  const char *name = "";
  dnnl_primitive_desc_query(d, dnnl_query_impl_info_str, 0, &name);
  return !strstr(name, "ref") && !strstr(name, "gemm:");
}

/* Returns the description of a primitive; NULL if oneDNN has none, or only a slow one. */
static dnnl_primitive_desc_t onednn_make_fast_desc(const struct onednn_shape *s)
{
  struct onednn_conv any = { 0 };
  dnnl_primitive_attr_t attr;
  dnnl_primitive_desc_t d = NULL;
  if (dnnl_primitive_attr_create(&attr)) return NULL;
  dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  if (onednn_append_ops(attr, s->sum, s->which == FORWARD ? s->act : ACT_NONE) &&
      onednn_describe_all(&any, s, true))
    d = onednn_create_desc(&any, s, attr);
  onednn_free_descs(&any);
  dnnl_primitive_attr_destroy(attr);
  if (!d || onednn_is_fast(d)) return d;
  dnnl_primitive_desc_destroy(d);
  return NULL;
}

static onednn_desc onednn_query_operand(dnnl_primitive_desc_t d, int which, int o)
{
  static const dnnl_query_t query[3][OPERANDS] = {
    [FORWARD] = { dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md },
    [DATA] = { dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md },
    [WEIGHT] = { dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md },
  };
  return dnnl_primitive_desc_query_md(d, query[which][o], 0);
}

/* -- bytes: oneDNN is asked once for each shape ------------------------------------------------ */

struct known {
  int64_t x[TY_MAXDIM], w[TY_MAXDIM], y[TY_MAXDIM];
  struct window window;
  int64_t images;
  int which, act, threads, block[OPERANDS];
  bool bias, sum, rounded;
  bool able;
  struct onednn_bytes bytes;
};
enum { KNOWN = 256 };
static struct known known[KNOWN];
static int64_t asked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void onednn_fill_key(struct known *k, const struct onednn_shape *s)
{
  memset(k, 0, sizeof *k);
  for (int i = 0; i < s->x->ndim; i++)
    k->x[i] = s->x->dim[i], k->w[i] = s->w->dim[i], k->y[i] = s->y->dim[i];
  k->window = s->window;
  k->images = s->images;
  k->which = s->which;
  k->act = s->act;
  memcpy(k->block, s->block, sizeof k->block);
  k->bias = s->bias;
  k->sum = s->sum;
  k->rounded = s->rounded;
  k->threads = parallel_most();
}

static size_t onednn_count_inner_bytes(
    dnnl_primitive_desc_t d, const struct onednn_shape *s, const struct onednn_conv *plain, int o)
{
  onednn_desc inner = onednn_query_operand(d, s->which, o);
  return dnnl_memory_desc_equal(plain->d[o], inner)
      ? 0
      : align_up(dnnl_memory_desc_get_size(inner), ALIGN);
}

static void onednn_count_primitive_bytes(dnnl_primitive_desc_t d, const struct onednn_shape *s,
    const struct onednn_conv *plain, struct onednn_bytes *r)
{
  r->x = onednn_count_inner_bytes(d, s, plain, X);
  r->y = onednn_count_inner_bytes(d, s, plain, Y);
  r->w = s->which == WEIGHT ? onednn_count_inner_bytes(d, s, plain, W) : 0;
  r->packed = s->which == WEIGHT ? 0 : onednn_count_inner_bytes(d, s, plain, W);
  r->pad = align_up(
      dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0)),
      ALIGN);
}

void onednn_bytes_widen(struct onednn_bytes *r, const struct onednn_bytes *o)
{
  *r = (struct onednn_bytes){ MAX(r->x, o->x), MAX(r->y, o->y), MAX(r->w, o->w),
    MAX(r->packed, o->packed), MAX(r->pad, o->pad) };
}

/* Finds the bytes for one thread and for the largest team; teams of other sizes need no more. */
static void onednn_query_bytes(struct known *k, const struct onednn_shape *s)
{
  const int teams[] = { 1, k->threads };
  struct onednn_conv plain = { 0 };
  k->able = onednn_describe_all(&plain, s, false);
  for (int i = 0; i < COUNT(teams) && k->able; i++) {
    struct onednn_bytes r;
    parallel_library_set(teams[i]);
    dnnl_primitive_desc_t d = onednn_make_fast_desc(s);
    k->able = d != NULL;
    if (!d) break;
    onednn_count_primitive_bytes(d, s, &plain, &r);
    dnnl_primitive_desc_destroy(d);
    onednn_bytes_widen(&k->bytes, &r);
  }
  parallel_library();
  onednn_free_descs(&plain);
}

bool part_bytes(const struct onednn_shape *s, struct onednn_bytes *out)
{
  struct known k;
  onednn_fill_key(&k, s);
  pthread_mutex_lock(&lock);
  int64_t i = 0, n = MIN(asked, KNOWN);
  while (i < n && memcmp(&known[i], &k, offsetof(struct known, able))) i++;
  if (i == n) {
    i = asked++ % KNOWN;
    onednn_query_bytes(&k, s);
    known[i] = k;
  }
  k = known[i];
  pthread_mutex_unlock(&lock);
  *out = k.bytes;
  return k.able;
}

/* -- making ------------------------------------------------------------------------------------ */

void part_release(struct onednn_primitive *p)
{
  for (int o = 0; o < OPERANDS; o++) {
    if (p->copy[o]) dnnl_primitive_destroy(p->copy[o]);
    if (p->outside[o]) dnnl_memory_destroy(p->outside[o]);
    if (p->inside[o]) dnnl_memory_destroy(p->inside[o]);
  }
  if (p->conv) dnnl_primitive_destroy(p->conv);
  if (p->bias) dnnl_memory_destroy(p->bias);
  if (p->pad) dnnl_memory_destroy(p->pad);
  if (p->stream) dnnl_stream_destroy(p->stream);
  mem_free(p->packed);
  mem_free(p->own_pad);
  *p = (struct onednn_primitive){ 0 };
}

/* Makes the memory objects of an operand, and the copy between the array and the primitive's layout
** if these differ. leaves: the copy goes from the primitive to the array. */
static bool onednn_make_bridge(
    struct onednn_primitive *p, int o, onednn_desc plain, onednn_desc inner, bool leaves)
{
  p->outside[o] = onednn_memory(plain);
  if (!p->outside[o]) return false;
  if (dnnl_memory_desc_equal(plain, inner)) return true;
  p->inside[o] = onednn_memory(inner);
  p->copy[o] = leaves ? onednn_copier(inner, plain) : onednn_copier(plain, inner);
  return p->inside[o] && p->copy[o];
}

static bool onednn_make_primitive(struct onednn_primitive *p, dnnl_primitive_desc_t d,
    const struct onednn_shape *s, const struct onednn_conv *plain, const struct onednn_bytes *r)
{
  static const int result[] = { [FORWARD] = Y, [DATA] = X, [WEIGHT] = W };
  struct onednn_bytes now;
  onednn_count_primitive_bytes(d, s, plain, &now);
  if (now.x > r->x || now.y > r->y || now.w > r->w || dnnl_primitive_create(&p->conv, d))
    return false;
  for (int o = 0; o < OPERANDS; o++)
    if (!onednn_make_bridge(
            p, o, plain->d[o], onednn_query_operand(d, s->which, o), o == result[s->which]))
      return false;
  p->pad = onednn_memory(dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0));
  p->bias = s->bias ? onednn_memory(plain->bias) : NULL;
  p->parts = s->parts;
  p->plain_part = desc_bytes(s->w) / (size_t)s->parts;
  p->packed_part = p->copy[W] ? now.packed : p->plain_part;
  const size_t packed = p->copy[W] || s->scaled ? p->packed_part * (size_t)s->parts : 0;
  const bool own = packed && (s->keeps || p->packed_part > r->packed);
  p->packed = own ? mem_lines(packed) : NULL;
  p->own_pad = now.pad > r->pad ? mem_lines(now.pad) : NULL;
  p->stream = onednn_stream();
  if (now.pad > r->pad && !p->own_pad) return false;
  return p->pad && p->stream && (p->bias || !s->bias) && (p->packed || !own);
}

void part_make(
    struct onednn_primitive *p, const struct onednn_shape *s, const struct onednn_bytes *r)
{
  struct onednn_conv plain = { 0 };
  part_release(p);
  dnnl_primitive_desc_t d = onednn_make_fast_desc(s);
  bool ok = d && onednn_describe_all(&plain, s, false) && onednn_make_primitive(p, d, s, &plain, r);
  onednn_free_descs(&plain);
  if (d) dnnl_primitive_desc_destroy(d);
  if (!ok) part_release(p);
  p->threads = parallel_threads();
  p->made = ok ? READY : UNABLE;
}
