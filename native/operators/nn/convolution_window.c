/* convolution_window.c - common parts of the kernels of Convolution: the window of a call, the
** gradient of the bias. */
#include "kernel/vec/norm.h"
#include "operators/nn/convolution.h"

bool conv_channels_last(const struct conv *p) { return p->layout >= LAYOUT_NHWC; }

/* Moves innermost axes of one element to the front: kernels run along the innermost axis, and
** (h, 1) has the same bytes as (1, h). */
static void drop_last_axes(struct window *w)
{
  int64_t *field[] = { w->in, w->out, w->kernel, w->stride, w->dilate, w->pad };
  for (int turn = 0; turn < 2; turn++) {
    if (w->in[2] != 1 || w->out[2] != 1 || w->kernel[2] != 1 || w->pad[2]) return;
    w->stride[2] = w->dilate[2] = 1;
    for (size_t f = 0; f < sizeof field / sizeof *field; f++) {
      int64_t last = field[f][2];
      field[f][2] = field[f][1];
      field[f][1] = field[f][0];
      field[f][0] = last;
    }
  }
}

struct window conv_window(
    const struct conv *p, const ty_desc *x, const ty_desc *weight, const ty_desc *y)
{
  struct window w = { .n = x->dim[0],
    .groups = p->num_group,
    .channels = weight->dim[1],
    .filters = weight->dim[0] / p->num_group,
    .dtype = weight->dtype };
  int skip = 3 - (int)p->kernel.n;
  for (int a = 0; a < 3; a++) {
    int i = a - skip;
    bool has = i >= 0;
    w.in[a] = has ? x->dim[i + 2] : 1;
    w.out[a] = has ? y->dim[i + 2] : 1;
    w.kernel[a] = has ? p->kernel.d[i] : 1;
    w.stride[a] = has ? p->stride.d[i] : 1;
    w.dilate[a] = has ? p->dilate.d[i] : 1;
    w.pad[a] = has ? p->pad.d[i] : 0;
  }
  if (!window_1x1(&w)) {
    drop_last_axes(&w);
    return w;
  }
  w.in[2] = w.out[2] = window_in(&w); /* 1 x 1: an image is one long row */
  w.in[0] = w.in[1] = w.out[0] = w.out[1] = 1;
  return w;
}

const char *conv_refuse_layout(const struct call *c)
{
  return conv_channels_last(c->param) ? "channels last" : gemm_refuse(c);
}

const char *conv_refuse_last(const struct call *c)
{
  return conv_channels_last(c->param) ? "channels last" : NULL;
}

struct window conv_make_window(const struct call *c)
{
  return conv_window(c->param, &c->in[0].d, &c->in[1].d, &c->out[0].d);
}
struct window conv_window_back(const struct call *c)
{
  return conv_window(c->param, &c->in[1].d, &c->in[2].d, &c->in[0].d);
}
const void *conv_bias_of(const struct call *c) { return c->nin > 2 ? c->in[2].p : NULL; }

struct convolve_end conv_make_end(const struct call *c)
{
  const struct scaling *s = fused_scaling(c);
  struct convolve_end end = { .bias = conv_bias_of(c), .act = fused_act(c) };
  if (s) {
    end.bias = s->shift;
    end.scale = s->scale;
    end.add = find_fused(c, POST_ACCUMULATE);
  }
  return end;
}

/* Computes the bias gradient of blocks begin .. end - 1, where the channels of dy are in blocks. */
static void bias_range(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const ty_desc *g = &c->in[0].d;
  const int b = c->in[0].block;
  int64_t blocks = g->dim[1] / b, piece = desc_count(g) / g->dim[0] / blocks;
  const float *dy = c->in[0].p;
  float *db = c->out[2].p;
  for (int64_t k = begin; k < end; k++) {
    double sum[16] = { 0 };
    for (int64_t i = 0; i < g->dim[0]; i++)
      vec_ops_of(TY_F32)->norm->block_sum(sum, dy + (i * blocks + k) * piece, b, piece);
    for (int j = 0; j < b; j++)
      db[k * b + j] = (float)(sum[j] + (c->add >> 2 & 1 ? (double)db[k * b + j] : 0));
  }
}

void conv_bias_gradient(struct call *c)
{
  const ty_desc *g = &c->in[0].d;
  const int b = c->in[0].block;
  if (c->nout < 3 || !c->out[2].p) return;
  if (b)
    parallel_for(g->dim[1] / b, elements_ns(desc_count(g) / g->dim[1] * b), bias_range, c);
  else
    convolve_bias(g->dtype, g->dim[0], g->dim[1], desc_count(g) / g->dim[0] / g->dim[1], c->in[0].p,
        c->out[2].p, c->add >> 2 & 1);
}
