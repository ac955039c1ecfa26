/* lstm8.c - _contrib_quantized_rnn on a GPU (operators/quantized/lstm8.c): converts data and
** weights to float32 (kernels/levels.cu), then runs RNN's forward. */
#include "cuda/levels.h"
#include "cuda/recurrent.h"

struct device_lstm8 {
  struct call call;                                   /* call of RNN, on float32 */
  struct operand in[4];
  struct operand out[4];
  struct run run;
  struct recurrent layers;
  /* bytes of the first parts of scratch, in order; RNN's scratch follows them */
  size_t data;
  size_t weights;
};

static void open_lstm(const struct call *c, struct device_lstm8 *l)
{
  l->call = *c;
  l->call.in = l->in;
  l->call.out = l->out;
  l->call.nin = COUNT(l->in);
  l->call.nout = c->nout + 1;
  l->call.run = &l->run;
  l->run = (struct run){ 0 };                         /* inference */
  memcpy(l->in, c->in, sizeof l->in);
  memcpy(l->out, c->out, sizeof *c->out * (size_t)c->nout);
  l->in[0].d.dtype = TY_F32;
  l->out[c->nout] = (struct operand){ 0 };            /* the private output */
  l->layers = recurrent_make(&l->call, &l->in[0].d);
  l->data = align_up(desc_bytes(&l->in[0].d), ALIGN);
  l->weights = align_up(desc_bytes(&l->in[1].d), ALIGN);
}

static size_t lstm_scratch(const struct call *c)
{
  struct device_lstm8 l;
  open_lstm(c, &l);
  return l.data + l.weights + recurrent_forward_scratch(&l.call);
}

static const char *refuse_lstm(const struct call *c)
{
  struct device_lstm8 l;
  open_lstm(c, &l);
  return recurrent_refuse(&l.call);
}

static int read_data(const struct call *c, void *to)
{
  int64_t n = desc_count(&c->in[0].d);
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  const int64_t op = cuda_origin(c);
  const char *want = "a scale (min_data) above 0";
  return cuda_start_levels(c, "read_shifted", TY_U8, TY_U8, 0, n,
      (void *[]){ &to, &c->in[0].p, &c->in[4].p, &c->in[5].p, &n, &fault, (void *)&op, &want });
}

/* Same as in kernels/levels.cu. */
struct weight_rows { int64_t rows, inputs, inner, outputs, passes, directions; };

static int round_weights(const struct call *c, const struct recurrent *r, void *to)
{
  struct weight_rows s = { r->rows, r->inputs, output_row(r), r->outputs, r->layers * r->directions,
    r->directions };
  TRY(device_copy(c->device, to, c->device, c->in[1].p, desc_bytes(&c->in[1].d)));
  return cuda_start_levels(c, "round_weights", TY_F32, TY_I8, 0, s.rows * CUDA_BLOCK,
      (void *[]){ &to, &c->in[1].p, &s });
}

static int run_lstm(struct call *c)
{
  struct device_lstm8 l;
  open_lstm(c, &l);
  char *at = c->tmp;
  l.in[0].p = at;
  l.in[1].p = at + l.data;
  l.call.tmp = at + l.data + l.weights;
  TRY(read_data(c, l.in[0].p));
  TRY(round_weights(c, &l.layers, l.in[1].p));
  return recurrent_forward(&l.call);
}

const struct kernel cuda_lstm8[] = {
  { "levels", run_lstm, T(TY_U8) | T(TY_F32), refuse_lstm, lstm_scratch, recurrent_plans_size,
    recurrent_plans_done },
  { 0 }
};
