/* convolution_winograd.c - Convolution by Winograd's tiles (kernel/conv/winograd.h): forward and
** both gradients.
**
** Winograd needs channels in blocks. Arrays in blocks are used in place; plain arrays are copied to
** blocks and back, some images at a time, to limit memory and use caches. How many depends on
** shapes alone.
*/
#include "kernel/blocked.h"
#include "kernel/conv/winograd.h"
#include "operators/nn/convolution.h"
#include "operators/nn/convolution_winograd.h"

/* -- pieces of the batch ----------------------------------------------------------------------- */

enum { PIECE_BYTES = 24 << 20 };                      /* most bytes of copied images at a time */

static int64_t image_bytes(const struct operand *a)
{
  return (int64_t)desc_bytes(&a->d) / a->d.dim[0];
}
static int64_t copied_bytes(const struct operand *a) { return a->block ? 0 : image_bytes(a); }

/* Returns the window of a piece of the batch. copied_image: bytes to copy per image. */
static struct window cut_piece(const struct window *w, int64_t copied_image)
{
  struct window p = *w;
  if (copied_image) p.n = MAX(1, MIN(w->n, PIECE_BYTES / copied_image));
  while (w->n % p.n) p.n--;
  return p;
}

/* Return the bytes to copy per image: in forward, for data or its gradient in backward, and in
** backward in all. */
static int64_t forward_bytes(const struct call *c)
{
  return copied_bytes(&c->in[0]) + copied_bytes(&c->out[0]);
}
static int64_t data_bytes(const struct call *c)
{
  return MAX(c->out[0].p ? copied_bytes(&c->out[0]) : 0, c->out[1].p ? copied_bytes(&c->in[1]) : 0);
}
static int64_t back_bytes(const struct call *c) { return copied_bytes(&c->in[0]) + data_bytes(c); }

static struct window forward_piece(const struct call *c)
{
  struct window w = conv_make_window(c);
  return cut_piece(&w, forward_bytes(c));
}

static struct window back_piece(const struct call *c)
{
  struct window w = conv_window_back(c);
  return cut_piece(&w, back_bytes(c));
}

static size_t staged_bytes(const struct window *p, int64_t image)
{
  return align_up((size_t)(p->n * image), ALIGN);
}

static float *image_at(const struct operand *a, int64_t i)
{
  return (float *)((char *)a->p + i * image_bytes(a));
}

/* Returns the images of a piece from i on in blocks: in place, or copied to scratch. */
static float *enter_blocks(
    const struct operand *a, const struct window *p, int64_t i, void *scratch)
{
  if (a->block) return image_at(a, i);
  block_enter(&a->d, p->n, image_at(a, i), scratch);
  return scratch;
}

/* Returns memory for results in blocks: in place from image i on, or scratch. */
static float *result_blocks(const struct operand *a, int64_t i, void *scratch)
{
  return a->block ? image_at(a, i) : scratch;
}

/* Copies results in scratch, if they are there, to the plain array from image i on. */
static void leave_blocks(
    const struct operand *a, const struct window *p, int64_t i, const float *scratch)
{
  if (!a->block && !stop_wanted()) block_leave(&a->d, p->n, scratch, image_at(a, i));
}

/* -- which calls are taken --------------------------------------------------------------------- */

/* least multiply-adds for which plain arrays are copied; smaller products are fast without
** Winograd, and have smaller errors */
enum { COPY_PRODUCTS = 1 << 26 };

static const char *refuse_window(const struct call *c, const struct window *w, int64_t copied)
{
  const char *no = conv_refuse_layout(c);
  return no ? no : copied && window_products(w) < COPY_PRODUCTS ? "small" : NULL;
}

static bool keeps_weight(const struct call *c, const struct window *p)
{
  return !c->trains && winograd_keeps(p);
}

const char *winograd_conv_refuse(const struct call *c)
{
  struct window w = conv_make_window(c), p = cut_piece(&w, forward_bytes(c));
  const char *no = refuse_window(c, &w, forward_bytes(c));
  if (!no && fused_scaling(c) && !c->out[0].block) return "channels are not in blocks";
  return no ? no : winograd_refuse(&p, false, keeps_weight(c, &p));
}

const char *winograd_conv_back_refuse(const struct call *c)
{
  struct window w = conv_window_back(c), p = cut_piece(&w, back_bytes(c));
  const char *no = refuse_window(c, &w, back_bytes(c));
  return no ? no : winograd_refuse(&p, true, false);
}

/* -- forward ----------------------------------------------------------------------------------- */

size_t winograd_conv_state(const struct call *c)
{
  struct window p = forward_piece(c);
  return keeps_weight(c, &p) ? gemm_kept_bytes(c) : 0;
}

size_t winograd_conv_scratch(const struct call *c)
{
  struct window p = forward_piece(c);
  return staged_bytes(&p, copied_bytes(&c->in[0])) + staged_bytes(&p, copied_bytes(&c->out[0])) +
      winograd_forward_scratch(&p, winograd_conv_state(c));
}

int winograd_conv(struct call *c)
{
  struct window p = forward_piece(c);
  struct convolve_end end = conv_make_end(c);
  char *in = c->tmp, *out = in + staged_bytes(&p, copied_bytes(&c->in[0])),
       *tmp = out + staged_bytes(&p, copied_bytes(&c->out[0]));
  for (int64_t i = 0; i < c->in[0].d.dim[0] && !stop_wanted(); i += p.n) {
    const float *x = enter_blocks(&c->in[0], &p, i, in);
    float *y = result_blocks(&c->out[0], i, out);
    TRY(winograd_forward(&p, x, &c->in[1], &end, y, c->state, tmp));
    leave_blocks(&c->out[0], &p, i, y);
  }
  return TY_OK;
}

/* -- gradients --------------------------------------------------------------------------------- */

size_t winograd_conv_back_scratch(const struct call *c)
{
  struct window p = back_piece(c);
  size_t a = c->out[0].p ? winograd_data_scratch(&p) : 0,
         b = c->out[1].p ? winograd_weight_scratch(&p) : 0;
  return staged_bytes(&p, copied_bytes(&c->in[0])) + staged_bytes(&p, data_bytes(c)) + MAX(a, b);
}

int winograd_conv_back(struct call *c)
{
  struct window p = back_piece(c);
  char *in = c->tmp, *data = in + staged_bytes(&p, copied_bytes(&c->in[0])),
       *tmp = data + staged_bytes(&p, data_bytes(c));
  for (int64_t i = 0; i < c->in[0].d.dim[0] && !stop_wanted(); i += p.n) {
    const bool add = c->add & 1;
    const float *dy = enter_blocks(&c->in[0], &p, i, in);
    if (c->out[0].p) {
      float *dx = add ? enter_blocks(&c->out[0], &p, i, data) : result_blocks(&c->out[0], i, data);
      winograd_data(&p, dy, c->in[2].p, dx, add, tmp);
      leave_blocks(&c->out[0], &p, i, dx);
    }
    if (c->out[1].p) {
      const float *x = enter_blocks(&c->in[1], &p, i, data);
      winograd_weight(&p, x, dy, c->out[1].p, i || c->add >> 1 & 1, tmp);
    }
  }
  conv_bias_gradient(c);
  return TY_OK;
}
