/* rnn.c - RNN: stacked recurrent layers over a whole sequence, in one or both directions.
**
** Per step: rnn h' = act(W_x x + b_x + W_h h + b_h); lstm (Hochreiter, Schmidhuber 1997, with the
** forget gate of Gers et al. 2000), gates i f g o; gru (Cho et al. 2014) in the variant whose
** reset gate acts on the recurrent product, gates r z n.
** parameters is one vector: for each layer, for each direction W_x (gates units, in) and W_h
** (gates units, outputs) [and the projection (outputs, units)]; then in the same order the biases
** b_x and b_h (gates units). What backward needs (gates, cells, inner layers' outputs) goes to a
** private output, which is absent in inference. Dropout acts on the inputs of all layers but the
** first; its factors are computed again in backward.
*/
#include "operators/nn/rnn.h"

#define FIELD(f) offsetof(struct rnn_param, f)
/* _contrib_quantized_rnn adds `quantized` to these */
#define RNN_PARAMS \
  { "state_size", P_INT, FIELD(state_size), NULL, "units H of a layer and direction", NULL, \
    "[1,]" }, \
  { "num_layers", P_INT, FIELD(num_layers), NULL, "layers L", NULL, "[1,]" }, \
  { "bidirectional", P_BOOL, FIELD(bidirectional), "0", \
    "each layer reads the sequence in both directions" }, \
  { "mode", P_ENUM, FIELD(mode), NULL, "kind of cell", "gru|lstm|rnn_relu|rnn_tanh" }, \
  { "p", P_FLOAT, FIELD(p), "0", "dropout on the output of each layer but the last", NULL, \
    "[0,1]" }, \
  { "state_outputs", P_BOOL, FIELD(state_outputs), "0", "final states are outputs" }, \
  { "projection_size", P_INT, FIELD(projection_size), "None", \
    "lstm: size to which the state is projected", NULL, "[1,]", 1 }, \
  { "lstm_state_clip_min", P_FLOAT, FIELD(lstm_state_clip_min), "None", \
    "must be None: clipping is not supported", NULL, NULL, 1 }, \
  { "lstm_state_clip_max", P_FLOAT, FIELD(lstm_state_clip_max), "None", \
    "must be None: clipping is not supported", NULL, NULL, 1 }, \
  { "lstm_state_clip_nan", P_BOOL, FIELD(lstm_state_clip_nan), "0", "without effect" }, \
  { "use_sequence_length", P_BOOL, FIELD(use_sequence_length), "0", \
    "must be false: sequences of different lengths are not supported" }

static const struct param rnn_params[] = { RNN_PARAMS, { 0 } };
static const struct param lstm8_params[] = { RNN_PARAMS,
  { "quantized", P_BOOL, FIELD(quantized), "1", "without effect" }, { 0 } };

static int rnn_check(void *param)
{
  const struct rnn_param *p = param;
  NEED(!p->use_sequence_length, TY_EUNSUPPORTED,
      "use_sequence_length is not supported; mask the output with SequenceMask");
  NEED(isnan(p->lstm_state_clip_min) && isnan(p->lstm_state_clip_max), TY_EUNSUPPORTED,
      "clipping of the lstm state is not supported");
  NEED(p->projection_size == NONE || p->mode == LSTM, TY_EVALUE,
      "projection_size: only lstm has a projection");
  return TY_OK;
}

static int lstm8_check(void *param)
{
  const struct rnn_param *p = param;
  NEED(p->mode == LSTM, TY_EUNSUPPORTED, "mode: only lstm runs on 8-bit integers");
  NEED(p->projection_size == NONE, TY_EUNSUPPORTED,
      "projection_size: no projection runs on 8-bit integers");
  return rnn_check(param);
}

static const char *rnn_in(const void *p)
{
  return ((const struct rnn_param *)p)->mode == LSTM ? "data parameters state state_cell"
                                                     : "data parameters state";
}

static const char *rnn_out(const void *param)
{
  const struct rnn_param *p = param;
  if (!p->state_outputs) return "output {reserve}";
  return p->mode == LSTM ? "output state_output statecell_output {reserve}"
                         : "output state_output {reserve}";
}

/* Returns the outputs; the last name is spelled as the reference does. */
static const char *lstm8_out(const void *param)
{
  return ((const struct rnn_param *)param)->state_outputs ? "output state_output statecell_ouput"
                                                          : "output";
}

static const char *rnn_grad(const void *param)
{
  const struct rnn_param *p = param;
  if (p->projection_size != NONE)
    return p->state_outputs ? "i0 i1 i2 i3 o0 o3 g0 g1 g2" : "i0 i1 i2 i3 o0 o1 g0";
  if (p->mode == LSTM) return p->state_outputs ? "i0 i1 i2 i3 o3 g0 g1 g2" : "i0 i1 i2 i3 o1 g0";
  return p->state_outputs ? "i0 i1 i2 o0 o2 g0 g1" : "i0 i1 i2 o0 o1 g0";
}

/* -- inference --------------------------------------------------------------------------------- */

/* Returns whether the sizes of parameters and reserve are below 2^53. They are computed in double,
** which cannot overflow here. */
static bool is_countable(const struct rnn *n)
{
  double gates = (double)(n->gates + 1) * (double)n->units, p = (double)n->outputs,
         each = (double)n->layers * (double)n->directions;
  double weights = (gates + p) * ((double)n->inputs + (double)(n->directions + 1) * p + 2);
  double step = (double)n->time * (double)n->batch * (gates + p);
  return each * (weights + step) < 0x1p53;
}

/* Infers all shapes but the private output's. */
static int layers_shape(struct infer *s)
{
  const struct rnn_param *p = s->param;
  ty_desc d = s->in[0];
  if (!d.ndim) return TY_OK;
  if (d.ndim != 3)
    return infer_fail(
        s, TY_ESHAPE, &s->in[0], "expected (time, batch, input), got %d dimensions", d.ndim);
  struct rnn n = rnn_make_sizes(p, &d);
  if (!is_countable(&n))
    return infer_fail(
        s, TY_ESHAPE, NULL, "state_size, num_layers and data make arrays too large to count");
  int64_t length = d.dim[2] ? rnn_parameter_count(&n) : 0;
  int64_t passes = n.layers * n.directions;
  int64_t state[3] = { passes, n.batch, n.outputs }, cell[3] = { passes, n.batch, n.units },
          out[3] = { n.time, n.batch, n.directions * n.outputs };
  TRY(shape_is(s, &s->in[1], 1, &length));
  TRY(shape_is(s, &s->in[2], 3, state));
  if (s->nin > 3) TRY(shape_is(s, &s->in[3], 3, cell));
  TRY(shape_is(s, &s->out[0], 3, out));
  if (p->state_outputs) TRY(shape_is(s, &s->out[1], 3, state));
  return p->state_outputs && p->mode == LSTM ? shape_is(s, &s->out[2], 3, cell) : TY_OK;
}

static int rnn_shape(struct infer *s)
{
  const ty_desc *d = &s->in[0];
  TRY(layers_shape(s));
  if (!d->ndim) return TY_OK;
  struct rnn n = rnn_make_sizes(s->param, d);
  int64_t reserve = desc_known(d) ? rnn_reserve_size(&n) : 0;
  return shape_is(s, &s->out[s->nout - 1], 1, &reserve);
}

static int lstm8_shape(struct infer *s)
{
  int64_t one = 1;
  TRY(shape_is(s, &s->in[4], 1, &one));
  TRY(shape_is(s, &s->in[5], 1, &one));
  return layers_shape(s);
}

static int lstm8_type(struct infer *s)
{
  TRY(type_is(s, &s->in[0], TY_U8));
  for (int i = 1; i < s->nin; i++) TRY(type_is(s, &s->in[i], TY_F32));
  for (int i = 0; i < s->nout; i++) TRY(type_is(s, &s->out[i], TY_F32));
  return TY_OK;
}

/* -- the table --------------------------------------------------------------------------------- */

static bool rnn_draws(const void *param, bool is_train)
{
  return ((const struct rnn_param *)param)->p > 0 && is_train;
}

static const struct kernel rnn_cpu[] = { { "steps", rnn_forward, T_FLOAT, NULL, rnn_forward_scratch,
  gemm_kept_bytes, gemm_kept_done, .flags = K_PRECISION }, { 0 } };
static const struct kernel rnn_back_cpu[] = { { "steps", rnn_backward, T_FLOAT, NULL, rnn_backward_scratch,
  .flags = K_PRECISION }, { 0 } };

const struct op op_rnn[] = {
  { .name = "RNN", .alias = "_npx_rnn", .in = "data parameters state state_cell", .in_of = rnn_in, .out_of = rnn_out,
    .doc = "Recurrent layers over data (time, batch, input): output (time, batch, directions * state_size) and, with "
           "state_outputs, the final states (layers * directions, batch, state_size). Weights and biases of all "
           "layers are one vector.",
    .param = rnn_params, .param_size = sizeof(struct rnn_param), .check = rnn_check, .shape = rnn_shape, .grad_of = rnn_grad,
    .flags = OP_RANDOM, .draws = rnn_draws, .cpu = rnn_cpu, .back_cpu = rnn_back_cpu },
  { .name = "_contrib_quantized_rnn", .in = "data parameters state state_cell min_data max_data", .out_of = lstm8_out,
    .doc = "An lstm over uint8 data, which represent (data - shift) / scale; min_data is the scale, max_data the shift. A weight "
           "counts as the nearest of 127 levels of its unit; states, biases and outputs are float32.",
    .param = lstm8_params, .param_size = sizeof(struct rnn_param), .check = lstm8_check, .shape = lstm8_shape,
    .type = lstm8_type, .cpu = lstm8_cpu },
  { 0 }
};
