/* convolution_winograd.c - Convolution by Winograd's tiles (kernel/conv/winograd.h): forward and
** both gradients, of channels in blocks. */
#include "kernel/conv/winograd.h"
#include "operators/nn/convolution.h"
#include "operators/nn/convolution_winograd.h"

static struct convolve_end end_of(const struct call *c)
{
  struct convolve_end end = { .bias = conv_bias_of(c), .act = c->act };
  if (c->affine)
    end.bias = c->affine->shift, end.scale = c->affine->scale, end.add = c->affine->add;
  return end;
}

static bool keeps(const struct call *c, const struct window *w)
{
  return !c->trains && winograd_keeps(w);
}

const char *winograd_conv_refuse(const struct call *c)
{
  struct window w = conv_window_of(c);
  const char *no = conv_refuse_layout(c);
  if (no) return no;
  return c->in[0].block && c->out[0].block ? winograd_refuse(&w, false, keeps(c, &w))
                                           : "channels are not in blocks";
}

const char *winograd_conv_back_refuse(const struct call *c)
{
  struct window w = conv_window_back(c);
  const char *no = conv_refuse_layout(c);
  if (no) return no;
  bool blocks = c->in[0].block && (c->out[0].block || !c->out[0].p) &&
      (c->in[1].block || !c->out[1].p);
  return blocks ? winograd_refuse(&w, true, false) : "channels are not in blocks";
}

size_t winograd_conv_state(const struct call *c)
{
  struct window w = conv_window_of(c);
  return keeps(c, &w) ? gemm_kept_bytes(c) : 0;
}

size_t winograd_conv_scratch(const struct call *c)
{
  struct window w = conv_window_of(c);
  return winograd_forward_scratch(&w, winograd_conv_state(c));
}

size_t winograd_conv_back_scratch(const struct call *c)
{
  struct window w = conv_window_back(c);
  size_t a = c->out[0].p ? winograd_data_scratch(&w) : 0,
         b = c->out[1].p ? winograd_weight_scratch(&w) : 0;
  return MAX(a, b);
}

int winograd_conv(struct call *c)
{
  struct window w = conv_window_of(c);
  struct convolve_end end = end_of(c);
  return winograd_forward(&w, c->in[0].p, &c->in[1], &end, c->out[0].p, c->state, c->tmp);
}

int winograd_conv_back(struct call *c)
{
  struct window w = conv_window_back(c);
  if (c->out[0].p) winograd_data(&w, c->in[0].p, c->in[2].p, c->out[0].p, c->add & 1, c->tmp);
  if (c->out[1].p)
    winograd_weight(&w, c->in[1].p, c->in[0].p, c->out[1].p, c->add >> 1 & 1, c->tmp);
  conv_bias_gradient(c);
  return TY_OK;
}
