/* lstm8.c - _contrib_quantized_rnn: the lstm of RNN over data of 8 bits.
**
** Data are uint8 levels q of numbers (q - shift) / scale. A row of weights (one gate of one unit)
** is rounded to multiples of 1/127 of its largest magnitude, which all layers and directions share.
** Both become float32 again, and the layers are those of RNN: sums, states, cells and biases are
** float32.
*/
#include "operators/nn/rnn.h"
#include "operators/quantized/quantize.h"

struct lstm8 {
  struct call call;                                   /* of RNN, on float32 */
  struct operand in[4];
  struct operand out[4];
  struct run run;
  struct rnn_run layers;
  /* bytes of the parts of scratch, in their order; RNN's scratch follows them */
  size_t data;
  size_t weights;
  size_t most;                                        /* largest magnitude per row of weights */
};

static void open_lstm(const struct call *c, struct lstm8 *l)
{
  l->call = *c;
  l->call.in = l->in;
  l->call.out = l->out;
  l->call.nin = COUNT(l->in);
  l->call.nout = c->nout + 1;
  l->call.run = &l->run;
  l->run = (struct run){ 0 };                         /* an inference */
  memcpy(l->in, c->in, sizeof l->in);
  memcpy(l->out, c->out, sizeof *c->out * (size_t)c->nout);
  l->in[0].d.dtype = TY_F32;
  l->in[0].version = l->in[1].version = NULL;
  l->out[c->nout] = (struct operand){ 0 };            /* the private output */
  l->layers = rnn_make_run(&l->call, &l->in[0].d);
  l->data = align_up(desc_bytes(&l->in[0].d), ALIGN);
  l->weights = align_up(desc_bytes(&l->in[1].d), ALIGN);
  l->most = align_up(rnn_bytes(&l->layers.n, rnn_gate_rows(&l->layers.n)), ALIGN);
}

static size_t lstm8_scratch(const struct call *c)
{
  struct lstm8 l;
  open_lstm(c, &l);
  return l.data + l.weights + l.most + rnn_forward_scratch(&l.call);
}

/* Visits the rows of a matrix. to NULL: raises most[row] to the largest magnitude of the row. Else
** writes the weights to `to`, rounded to multiples of most[row] / 127. */
static void visit_rows(float *most, float *to, const float *w, int64_t rows, int64_t n)
{
  for (int64_t i = 0; i < rows * n; i++) {
    if (to)
      to[i] = rounded_weight(w[i], most[i / n]);
    else
      most[i / n] = fmaxf(most[i / n], fabsf(w[i]));
  }
}

/* Visits all matrices of weights: of the data (wx) and of the states (wh). */
static void visit_weights(const struct lstm8 *l, float *most, float *to, const float *w)
{
  const struct rnn *n = &l->layers.n;
  int64_t rows = rnn_gate_rows(n);
  for (int64_t i = 0; i < n->layers * n->directions; i++) {
    struct rnn_pass p = rnn_make_pass(&l->layers, i / n->directions, i % n->directions, NULL, NULL);
    visit_rows(most, to ? to + p.at.wx : NULL, w + p.at.wx, rows, p.in);
    visit_rows(most, to ? to + p.at.wh : NULL, w + p.at.wh, rows, n->outputs);
  }
}

static int lstm8_run(struct call *c)
{
  struct lstm8 l;
  open_lstm(c, &l);
  char *at = c->tmp;
  float *x = (float *)at, *w = (float *)(at + l.data), *most = (float *)(at + l.data + l.weights);
  const float scale = *(const float *)c->in[4].p, shift = *(const float *)c->in[5].p;
  NEED(scale > 0, TY_ERUN, "bad parameters at 0; expected a scale (min_data) above 0");
  for (int64_t i = 0; i < desc_count(&c->in[0].d); i++)
    x[i] = shifted_number(((const uint8_t *)c->in[0].p)[i], scale, shift);
  memcpy(w, c->in[1].p, desc_bytes(&c->in[1].d));
  memset(most, 0, l.most);
  visit_weights(&l, most, NULL, c->in[1].p);
  visit_weights(&l, most, w, c->in[1].p);
  l.in[0].p = x;
  l.in[1].p = w;
  l.call.tmp = at + l.data + l.weights + l.most;
  return rnn_forward(&l.call);
}

const struct kernel lstm8_cpu[] = {
  { "levels", lstm8_run, T(TY_U8) | T(TY_F32), NULL, lstm8_scratch }, { 0 }
};
