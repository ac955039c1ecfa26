/* conv.c - Convolution through oneDNN: forward and the data's gradient, where it is faster than our own panels.
**
** oneDNN wants channels in blocks of 16; arrays here are plain. So data is copied to blocks (scratch), the weight once
** per version (state), and the result back. That pays for windows of several taps over channels and filters in
** multiples of 16, and for depthwise windows, when the product is not small (measured with AVX-512 against
** convolve.h). The weight's gradient is ours always: its sums do not depend on the number of threads.
** Primitives are made at the first run, on the queue's thread, so that they have its team; what oneDNN cannot do
** falls back to our kernel, for which scratch and state suffice too.
*/
#include "../op/conv.h"
#include "library.h"

enum { FORWARD, DATA };
enum { NEW, READY, UNABLE };

struct part {
  int made, threads;
  dnnl_stream_t stream;
  dnnl_primitive_t conv, enter, leave, pack;          /* enter, leave, pack: NULL where the format is plain */
  dnnl_memory_t source, result, weight, bias;         /* as the caller has them */
  dnnl_memory_t inner_source, inner_result, inner_weight, pad;                /* as the primitive wants them */
  void *packed, *work;                                /* blocked weight, scratchpad */
  uint64_t version; const void *of;
};
struct state { struct gemm_kept own; struct part part; };

size_t onednn_conv_state(const struct call *c) { return sizeof(struct state); }

/* -- who wants it -------------------------------------------------------------------------------------------------- */

static const char *refuse(const struct call *c, const struct window *w)
{
  if (conv_channels_last(c->param)) return "channels last";
  if (!onednn_engine()) return "TYCHO_DISABLE names dnnl";
  if (cpu_level() == CPU_BASELINE) return "the processor is held back";
  double work = (double)w->n * (double)w->groups * (double)w->filters * (double)window_out(w) * (double)window_depth(w);
  if (w->channels == 1 && w->filters == 1 && w->groups % 16 == 0) return work > 1e6 ? NULL : "small";
  if (w->channels % 16 || w->filters % 16) return "channels or filters are not in sixteens";
  if (window_taps(w) == 1) return "one tap";
  return work > 4e6 ? NULL : "small";
}

static struct window forward_window(const struct call *c)
{
  return conv_window(c->param, &c->in[0].d, &c->in[1].d, &c->out[0].d);
}
static struct window backward_window(const struct call *c)
{
  return conv_window(c->param, &c->in[1].d, &c->in[2].d, &c->in[0].d);
}

const char *onednn_conv_refuse(const struct call *c)
{
  struct window w = forward_window(c);
  return refuse(c, &w);
}

const char *onednn_conv_back_refuse(const struct call *c)
{
  struct window w = backward_window(c);
  if (!c->out[0].p) return "the data's gradient is not wanted";
  return c->add & 1 ? "the data's gradient is added" : refuse(c, &w);
}

/* -- scratch: the blocked source, the blocked result --------------------------------------------------------------- */

static size_t blocked_bytes(const ty_desc *d)
{
  int64_t channels = (d->dim[1] + 15) / 16 * 16;
  return align_up((size_t)(desc_count(d) / d->dim[1] * channels) * sizeof(float), ALIGN);
}

size_t onednn_conv_scratch(const struct call *c)
{
  struct window w = forward_window(c);
  return MAX(blocked_bytes(&c->in[0].d) + blocked_bytes(&c->out[0].d),
             depth_wanted(&w) ? 0 : convolve_forward_scratch(&w));
}

size_t onednn_conv_back_scratch(const struct call *c)
{
  struct window w = backward_window(c);
  size_t own = depth_wanted(&w) ? 0 : convolve_data_scratch(&w),
         weight = depth_wanted(&w) || !c->out[1].p ? 0 : convolve_weight_scratch(&w);
  return MAX(blocked_bytes(&c->in[0].d) + blocked_bytes(&c->out[0].d), MAX(own, weight));
}

/* -- descriptors --------------------------------------------------------------------------------------------------- */

struct descs { dnnl_memory_desc_t x, y, w, b; dnnl_dims_t stride, dilate, pad; };

/* A dense array of any format, or row-major. */
static bool describe(dnnl_memory_desc_t *d, int n, const int64_t *size, bool any)
{
  dnnl_dims_t dim = { 0 }, step = { 0 };
  memcpy(dim, size, sizeof *size * (size_t)n);
  if (any) return !dnnl_memory_desc_init_by_tag(d, n, dim, dnnl_f32, dnnl_format_tag_any);
  step[n - 1] = 1;
  for (int i = n - 2; i >= 0; i--) step[i] = step[i + 1] * dim[i + 1];
  return !dnnl_memory_desc_init_by_strides(d, n, dim, dnnl_f32, step);
}

static bool describe_all(struct descs *s, const struct conv *p, const ty_desc *x, const ty_desc *w, const ty_desc *y,
                         bool any)
{
  dnnl_dims_t dw;
  const int grouped = p->num_group > 1, n = x->ndim;
  if (grouped) dw[0] = p->num_group;
  for (int i = 0; i < n; i++) dw[i + grouped] = i ? w->dim[i] : w->dim[0] / p->num_group;
  for (int i = 0; i < n - 2; i++)
    s->stride[i] = p->stride.d[i], s->dilate[i] = p->dilate.d[i] - 1, s->pad[i] = p->pad.d[i];
  return describe(&s->x, n, x->dim, any) && describe(&s->w, n + grouped, dw, any) && describe(&s->y, n, y->dim, any) &&
         describe(&s->b, 1, &p->num_filter, false);
}

static bool append_act(dnnl_primitive_attr_t attr, int act)
{
  static const dnnl_alg_kind_t kind[] = { 0, dnnl_eltwise_relu, dnnl_eltwise_logistic, dnnl_eltwise_tanh,
                                          dnnl_eltwise_soft_relu };
  dnnl_post_ops_t ops;
  if (!act) return true;
  if (dnnl_post_ops_create(&ops)) return false;
  bool ok = !dnnl_post_ops_append_eltwise(ops, 1, kind[act], 0, 0) && !dnnl_primitive_attr_set_post_ops(attr, ops);
  dnnl_post_ops_destroy(ops);
  return ok;
}

static dnnl_primitive_desc_t desc_of(const struct descs *s, int which, bool bias, dnnl_primitive_attr_t attr)
{
  dnnl_convolution_desc_t d;
  dnnl_primitive_desc_t hint, out = NULL;
  const dnnl_dim_t *pad = s->pad;
  if (dnnl_dilated_convolution_forward_desc_init(&d, which == FORWARD ? dnnl_forward_inference : dnnl_forward_training,
                                                 dnnl_convolution_direct, &s->x, &s->w, bias ? &s->b : NULL, &s->y,
                                                 s->stride, s->dilate, pad, pad))
    return NULL;
  if (dnnl_primitive_desc_create(&hint, &d, which == FORWARD ? attr : NULL, onednn_engine(), NULL)) return NULL;
  if (which == FORWARD) return hint;
  if (dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &s->x, &s->w, &s->y, s->stride,
                                                       s->dilate, pad, pad) ||
      dnnl_primitive_desc_create(&out, &d, attr, onednn_engine(), hint))
    out = NULL;
  dnnl_primitive_desc_destroy(hint);
  return out;
}

/* -- making -------------------------------------------------------------------------------------------------------- */

static void release(struct part *p)
{
  dnnl_primitive_t primitive[] = { p->conv, p->enter, p->leave, p->pack };
  dnnl_memory_t memory[] = { p->source,       p->result,       p->weight,       p->bias,
                             p->inner_source, p->inner_result, p->inner_weight, p->pad };
  for (int i = 0; i < COUNT(primitive); i++) if (primitive[i]) dnnl_primitive_destroy(primitive[i]);
  for (int i = 0; i < COUNT(memory); i++) if (memory[i]) dnnl_memory_destroy(memory[i]);
  if (p->stream) dnnl_stream_destroy(p->stream);
  mem_free(p->packed);
  mem_free(p->work);
  *p = (struct part){ 0 };
}

/* A copy between a plain array and what the primitive wants; none where these are the same. */
static bool bridge(const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *inner, bool back, dnnl_memory_t *outside,
                   dnnl_memory_t *inside, dnnl_primitive_t *copier)
{
  *outside = onednn_place(plain);
  if (!*outside) return false;
  if (dnnl_memory_desc_equal(plain, inner)) return true;
  *inside = onednn_place(inner);
  *copier = back ? onednn_copier(inner, plain) : onednn_copier(plain, inner);
  return *inside && *copier;
}

static bool fast(dnnl_primitive_desc_t d)
{
  const char *name = "";
  dnnl_primitive_desc_query(d, dnnl_query_impl_info_str, 0, &name);
  return !strstr(name, "ref") && !strstr(name, "gemm:");
}

static bool make_from(struct part *p, dnnl_primitive_desc_t d, const struct descs *plain, int which, bool bias,
                      size_t source_room, size_t result_room)
{
  const bool forward = which == FORWARD;
  const dnnl_memory_desc_t *x = dnnl_primitive_desc_query_md(d, forward ? dnnl_query_src_md : dnnl_query_diff_src_md,
                                                             0);
  const dnnl_memory_desc_t *y = dnnl_primitive_desc_query_md(d, forward ? dnnl_query_dst_md : dnnl_query_diff_dst_md,
                                                             0);
  const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(d, dnnl_query_weights_md, 0);
  const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0);
  size_t bytes = dnnl_memory_desc_get_size(pad);
  if (!fast(d) || dnnl_memory_desc_get_size(forward ? x : y) > source_room ||
      dnnl_memory_desc_get_size(forward ? y : x) > result_room)
    return false;
  if (dnnl_primitive_create(&p->conv, d)) return false;
  if (!bridge(forward ? &plain->x : &plain->y, forward ? x : y, false, &p->source, &p->inner_source, &p->enter))
    return false;
  if (!bridge(forward ? &plain->y : &plain->x, forward ? y : x, true, &p->result, &p->inner_result, &p->leave))
    return false;
  if (!bridge(&plain->w, w, false, &p->weight, &p->inner_weight, &p->pack)) return false;
  p->pad = onednn_place(pad);
  p->bias = bias ? onednn_place(&plain->b) : NULL;
  p->work = bytes ? mem_new(bytes) : NULL;
  p->packed = p->pack ? mem_new(dnnl_memory_desc_get_size(w)) : NULL;
  p->stream = onednn_stream();
  return p->pad && p->stream && (p->bias || !bias) && (p->work || !bytes) && (p->packed || !p->pack) &&
         !dnnl_memory_set_data_handle(p->pad, p->work);
}

static void make(struct part *p, const struct call *c, int which)
{
  const bool forward = which == FORWARD, bias = forward && c->nin > 2;
  const ty_desc *x = forward ? &c->in[0].d : &c->in[1].d, *w = forward ? &c->in[1].d : &c->in[2].d,
                *y = forward ? &c->out[0].d : &c->in[0].d;
  struct descs plain, any;
  dnnl_primitive_attr_t attr;
  release(p);
  p->threads = parallel_threads();
  p->made = UNABLE;
  if (dnnl_primitive_attr_create(&attr)) return;
  dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  dnnl_primitive_desc_t d = NULL;
  if (append_act(attr, forward ? c->act : ACT_NONE) && describe_all(&plain, c->param, x, w, y, false) &&
      describe_all(&any, c->param, x, w, y, true))
    d = desc_of(&any, which, bias, attr);
  dnnl_primitive_attr_destroy(attr);
  if (!d) return;
  bool ok = make_from(p, d, &plain, which, bias, blocked_bytes(forward ? x : y), blocked_bytes(forward ? y : x));
  dnnl_primitive_desc_destroy(d);
  int threads = p->threads;
  if (!ok) release(p);
  p->threads = threads;
  p->made = ok ? READY : UNABLE;
}

/* -- running ------------------------------------------------------------------------------------------------------- */

static bool pack_weight(struct part *p, const struct arr *w)
{
  if (!p->pack) return !dnnl_memory_set_data_handle(p->weight, w->p);
  if (w->version && p->of == w->p && p->version == *w->version) return true;
  p->of = w->p;
  p->version = w->version ? *w->version : 0;
  return onednn_copy(p->pack, p->stream, p->weight, w->p, p->inner_weight, p->packed);
}

/* source -> result; the blocked source lies at tmp, the blocked result behind it */
static bool run_part(struct part *p, int which, const struct arr *source, const struct arr *w, void *bias,
                     const struct arr *result, char *tmp)
{
  char *blocked = tmp + blocked_bytes(&source->d);
  const bool forward = which == FORWARD;
  if (!pack_weight(p, w)) return false;
  if (p->enter ? !onednn_copy(p->enter, p->stream, p->source, source->p, p->inner_source, tmp)
               : dnnl_memory_set_data_handle(p->source, source->p))
    return false;
  if (dnnl_memory_set_data_handle(p->leave ? p->inner_result : p->result, p->leave ? blocked : result->p)) return false;
  if (p->bias && dnnl_memory_set_data_handle(p->bias, bias)) return false;
  dnnl_exec_arg_t arg[] = { { forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, p->enter ? p->inner_source : p->source },
                            { forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, p->leave ? p->inner_result : p->result },
                            { DNNL_ARG_WEIGHTS, p->pack ? p->inner_weight : p->weight },
                            { DNNL_ARG_SCRATCHPAD, p->pad },
                            { DNNL_ARG_BIAS, p->bias } };
  if (dnnl_primitive_execute(p->conv, p->stream, p->bias ? 5 : 4, arg)) return false;
  return !p->leave || onednn_copy(p->leave, p->stream, p->inner_result, blocked, p->result, result->p);
}

static struct part *ready(struct call *c, int which)
{
  struct state *s = c->state;
  if (!s) return NULL;
  parallel_library();
  if (s->part.made == NEW || s->part.threads != parallel_threads()) make(&s->part, c, which);
  return s->part.made == READY ? &s->part : NULL;
}

int onednn_conv(struct call *c)
{
  struct window w = forward_window(c);
  struct part *p = ready(c, FORWARD);
  void *bias = c->nin > 2 ? c->in[2].p : NULL;
  if (p && run_part(p, FORWARD, &c->in[0], &c->in[1], bias, &c->out[0], c->tmp)) return TY_OK;
  if (depth_wanted(&w)) { depth_forward(&w, c->in[0].p, c->in[1].p, bias, c->act, c->out[0].p); return TY_OK; }
  return convolve_forward(&w, c->in[0].p, &c->in[1], bias, c->act, c->out[0].p, &((struct state *)c->state)->own,
                          c->tmp);
}

static int data_gradient(struct call *c, const struct window *w)
{
  struct part *p = ready(c, DATA);
  if (p && run_part(p, DATA, &c->in[0], &c->in[2], NULL, &c->out[0], c->tmp)) return TY_OK;
  if (depth_wanted(w)) { depth_data(w, c->in[0].p, c->in[2].p, c->out[0].p, false); return TY_OK; }
  return convolve_data(w, c->in[0].p, &c->in[2], c->out[0].p, false, NULL, ACT_NONE, &((struct state *)c->state)->own,
                       c->tmp);
}

int onednn_conv_back(struct call *c)
{
  struct window w = backward_window(c);
  const ty_desc *g = &c->in[0].d;
  if (c->out[0].p) TRY(data_gradient(c, &w));
  if (c->out[1].p && depth_wanted(&w)) depth_weight(&w, c->in[1].p, c->in[0].p, c->out[1].p, c->add >> 1 & 1);
  else if (c->out[1].p) TRY(convolve_weight(&w, c->in[1].p, c->in[0].p, c->out[1].p, c->add >> 1 & 1, c->tmp));
  if (c->nout > 2 && c->out[2].p)
    convolve_bias(g->dtype, g->dim[0], g->dim[1], desc_count(g) / g->dim[0] / g->dim[1], c->in[0].p, c->out[2].p,
                  c->add >> 2 & 1);
  return TY_OK;
}

void onednn_conv_done(void *state)
{
  struct state *s = state;
  release(&s->part);
  gemm_kept_done(&s->own);
}
