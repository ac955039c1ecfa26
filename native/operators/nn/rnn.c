/* rnn.c - RNN: stacked recurrent layers over a whole sequence, in one or both directions.
**
** parameters is one vector: for each layer, for each direction W_x (G H, in) and W_h (G H, P)
** [and the projection (P, H)]; then in the same order the biases b_x (G H) and b_h (G H). G
** gates: rnn 1, lstm 4 (i f g o), gru 3 (r z n). Per layer and direction, forward multiplies the
** inputs of many steps at once, then goes step by step: recurrent product onto that, gates, new
** state. The weights are packed once per run. What backward needs (gates, cell states, inner
** layers' outputs) goes to a private output, which is absent in inference; the states of the
** last layer are its output, but for lstm, which makes them again from gates and cells. Backward
** goes some 1000 rows of steps backwards for the gradients of the gates, then takes their share
** of the other gradients as long products. Step s of direction 1 is time T - 1 - s. Dropout acts
** on the inputs of all layers but the first; its factors are computed again in backward.
*/
#include "kernel/gemm/gemm.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct rnn_param {
  int64_t state_size, num_layers, bidirectional, mode, state_outputs, projection_size, lstm_state_clip_nan, use_sequence_length;
  double  p, lstm_state_clip_min, lstm_state_clip_max;
};
enum { GRU, LSTM, RNN_RELU, RNN_TANH };
#define FIELD(f) offsetof(struct rnn_param, f)
static const struct param rnn_params[] = {
  { "state_size",          P_INT,   FIELD(state_size),          NULL,   "units H of a layer and direction", NULL, "[1,]" },
  { "num_layers",          P_INT,   FIELD(num_layers),          NULL,   "layers L", NULL, "[1,]" },
  { "bidirectional",       P_BOOL,  FIELD(bidirectional),       "0",    "each layer reads the sequence in both directions" },
  { "mode",                P_ENUM,  FIELD(mode),                NULL,   "kind of cell", "gru|lstm|rnn_relu|rnn_tanh" },
  { "p",                   P_FLOAT, FIELD(p),                   "0",
    "dropout on the output of each layer but the last", NULL, "[0,1]" },
  { "state_outputs",       P_BOOL,  FIELD(state_outputs),       "0",    "final states are outputs" },
  { "projection_size",     P_INT,   FIELD(projection_size),     "None",
    "lstm: size to which the state is projected; inference only", NULL, "[1,]", 1 },
  { "lstm_state_clip_min", P_FLOAT, FIELD(lstm_state_clip_min), "None", "must be None: clipping is not supported",
    NULL, NULL, 1 },
  { "lstm_state_clip_max", P_FLOAT, FIELD(lstm_state_clip_max), "None", "must be None: clipping is not supported",
    NULL, NULL, 1 },
  { "lstm_state_clip_nan", P_BOOL,  FIELD(lstm_state_clip_nan), "0",    "without effect" },
  { "use_sequence_length", P_BOOL,  FIELD(use_sequence_length), "0",
    "must be false: sequences of different lengths are not supported" },
  { 0 }
};

static int rnn_check(void *param)
{
  const struct rnn_param *p = param;
  NEED(!p->use_sequence_length, TY_EUNSUPPORTED,
      "RNN: use_sequence_length is not supported; mask the output with SequenceMask");
  NEED(isnan(p->lstm_state_clip_min) && isnan(p->lstm_state_clip_max), TY_EUNSUPPORTED,
      "RNN: clipping of the lstm state is not supported");
  NEED(p->projection_size == NONE || p->mode == LSTM, TY_EVALUE,
      "RNN: projection_size: only lstm has a projection");
  return TY_OK;
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

static const char *rnn_grad(const void *param)
{
  const struct rnn_param *p = param;
  if (p->mode == LSTM) return p->state_outputs ? "i0 i1 i2 i3 o3 g0 g1 g2" : "i0 i1 i2 i3 o1 g0";
  return p->state_outputs ? "i0 i1 i2 o0 o2 g0 g1" : "i0 i1 i2 o0 o1 g0";
}

/* -- sizes ------------------------------------------------------------------------------------- */

struct rnn {
  const struct vec_ops *r;
  int     dtype, mode;
  int64_t T, N, I, H, P, L, D, G;                     /* P: size of an output of one direction */
  bool    projects;
  double  p;
};

static struct rnn rnn_of(const struct rnn_param *p, const ty_desc *data)
{
  static const int gates[] = { 3, 4, 1, 1 };
  struct rnn n = { .dtype = data->dtype,
    .mode = (int)p->mode,
    .T = data->dim[0],
    .N = data->dim[1],
    .I = data->dim[2],
    .H = p->state_size,
    .P = p->state_size,
    .L = p->num_layers,
    .D = 1 + p->bidirectional,
    .G = gates[p->mode],
    .p = p->p };
  n.r = vec_ops_of(data->dtype);
  if (p->projection_size != NONE) n.P = p->projection_size, n.projects = true;
  return n;
}

static int64_t input_size(const struct rnn *n, int64_t layer) { return layer ? n->D * n->P : n->I; }
static int64_t gates_size(const struct rnn *n) { return n->G * n->H; }
static int64_t weights_of(const struct rnn *n, int64_t layer)
{
  return gates_size(n) * (input_size(n, layer) + n->P) + (n->projects ? n->P * n->H : 0);
}

static int64_t all_weights(const struct rnn *n)
{
  return n->D * (weights_of(n, 0) + (n->L - 1) * weights_of(n, 1));
}

static int64_t parameter_count(const struct rnn *n)
{
  return all_weights(n) + n->L * n->D * 2 * gates_size(n);
}

/* Places in the parameter vector of one layer and direction. */
struct place { int64_t wx, wh, wr, bx, bh; };

static struct place place_of(const struct rnn *n, int64_t layer, int64_t d)
{
  int64_t gates = gates_size(n),
          start = layer ? n->D * (weights_of(n, 0) + (layer - 1) * weights_of(n, 1)) : 0;
  struct place p = { .wx = start + d * weights_of(n, layer) };
  p.wh = p.wx + gates * input_size(n, layer);
  p.wr = p.wh + gates * n->P;
  p.bx = all_weights(n) + (layer * n->D + d) * 2 * gates;
  p.bh = p.bx + gates;
  return p;
}

/* The private output: per layer and direction gates and, but for rnn, one more row per step
** (lstm: cell, gru: inner product of the candidate); then the outputs of all layers but the
** last. */
static int64_t step_kept(const struct rnn *n)
{
  return n->N * (gates_size(n) + (n->mode == LSTM || n->mode == GRU ? n->H : 0));
}
static int64_t layer_out(const struct rnn *n) { return n->T * n->N * n->D * n->P; }
static int64_t reserve_size(const struct rnn *n)
{
  return n->projects ? 1 : n->L * n->D * n->T * step_kept(n) + (n->L - 1) * layer_out(n);
}

/* Whether the sizes above stay below 2^53; products in double, which only grow. */
static bool countable(const struct rnn *n)
{
  double gates = (double)(n->G + 1) * (double)n->H, p = (double)n->P,
         each = (double)n->L * (double)n->D;
  double weights = (gates + p) * ((double)n->I + (double)(n->D + 1) * p + 2);
  double step = (double)n->T * (double)n->N * (gates + p);
  return each * (weights + step) < 0x1p53;
}

static int rnn_shape(struct infer *s)
{
  const struct rnn_param *p = s->param;
  ty_desc d = s->in[0];
  if (!d.ndim) return TY_OK;
  if (d.ndim != 3)
    return infer_fail(
        s, TY_ESHAPE, &s->in[0], "expected (time, batch, input), got %d dimensions", d.ndim);
  struct rnn n = rnn_of(p, &d);
  if (!countable(&n))
    return infer_fail(
        s, TY_ESHAPE, NULL, "state_size, num_layers and data make arrays too large to count");
  int64_t length = d.dim[2] ? parameter_count(&n) : 0,
          reserve = desc_known(&d) ? reserve_size(&n) : 0;
  int64_t state[3] = { n.L * n.D, n.N, n.P }, cell[3] = { n.L * n.D, n.N, n.H },
          out[3] = { n.T, n.N, n.D * n.P };
  TRY(shape_is(s, &s->in[1], 1, &length));
  TRY(shape_is(s, &s->in[2], 3, state));
  if (s->nin > 3) TRY(shape_is(s, &s->in[3], 3, cell));
  TRY(shape_is(s, &s->out[0], 3, out));
  if (p->state_outputs) TRY(shape_is(s, &s->out[1], 3, state));
  if (p->state_outputs && p->mode == LSTM) TRY(shape_is(s, &s->out[2], 3, cell));
  return shape_is(s, &s->out[s->nout - 1], 1, &reserve);
}

/* -- scratch ----------------------------------------------------------------------------------- */

struct carve { char *base; size_t used; };            /* base NULL: only counts */
static void *carve(struct carve *c, size_t bytes)
{
  void *p = c->base ? c->base + c->used : NULL;
  c->used += align_up(bytes, ALIGN);
  return p;
}

static size_t bytes_of(const struct rnn *n, int64_t count) { return n->r->size * (size_t)count; }

static size_t packed_input(const struct rnn *n, int64_t gates) /* the largest W_x */
{
  return gemm_pack_bytes(n->dtype, gates, MAX(n->I, n->L > 1 ? n->D * n->P : 0));
}

/* Are weights so large that W_h takes the room of W_x, after the inputs' product of all steps? */
static bool packs_in_turn(const struct rnn *n)
{
  return packed_input(n, gates_size(n)) > bytes_of(n, n->T * n->N * gates_size(n));
}

/* Large weights and few rows: W_h is read as it lies, W_x packed for some gates at a time. */
static bool unpacked(const struct rnn *n) { return packs_in_turn(n) && n->N <= GEMM_FEW; }

static int64_t gates_at_once(const struct rnn *n)
{
  return unpacked(n) ? MIN(gates_size(n), 512) : gates_size(n);
}

static int64_t steps_at_once(
    const struct rnn *n) /* of the inputs' product: some 256 rows, which stay in the cache */
{
  return packs_in_turn(n) ? n->T : MIN(n->T, MAX(1, 256 / MAX(n->N, 1)));
}

static int64_t steps_back(
    const struct rnn *n) /* whose gradients backward takes together: some 1000 rows */
{
  const int64_t most = MAX(1, 1024 / MAX(n->N, 1)), parts = MAX(1, (n->T + most - 1) / most);
  return (n->T + parts - 1) / parts;
}

struct work {                                         /* one run, forward or backward */
  struct rnn n;
  bool   drops;
  struct drop drop;
  const void *weights, *state, *cell, *reserve_in;
  void  *reserve;                                     /* forward; NULL in inference */
  void  *px, *ph;                                     /* packed W_x, W_h */
  void  *bias, *pre, *hx, *hn, *c, *hidden;           /* forward */
  void  *layer[2], *dropped;
                                           /* outputs of inner layers, input after dropout;
                                           ** backward: their gradients */
  void  *dgx, *dgh, *dh, *dc;
                                          /* backward: gradients of the gates (gru: two kinds),
                                          ** of the state and cell */
  /* backward: states of lstm, made again for some steps */
  void  *again;
  double *column[2];                                  /* backward: sums for b_x, b_h */
};

static void carve_forward(struct work *w, struct carve *k)
{
  const struct rnn *n = &w->n;
  int64_t gates = gates_size(n), batch = n->N * n->H;
  size_t px = packed_input(n, gates_at_once(n)),
         ph = unpacked(n) ? 0 : gemm_pack_bytes(n->dtype, gates, n->P);
  w->px = carve(k, packs_in_turn(n) ? MAX(px, ph) : px);
  w->ph = packs_in_turn(n) ? w->px : carve(k, ph);
  w->bias = carve(k, bytes_of(n, gates));
  w->pre = carve(k, bytes_of(n, steps_at_once(n) * n->N * gates));
  w->hx = carve(k, n->mode == GRU ? bytes_of(n, n->N * gates) : 0);
  w->hn = carve(k, n->mode == GRU ? bytes_of(n, batch) : 0);
  w->c = carve(k, n->mode == LSTM ? bytes_of(n, batch) : 0);
  w->hidden = carve(k, n->projects ? bytes_of(n, batch) : 0);
  w->layer[0] = carve(k, bytes_of(n, layer_out(n)));
  w->layer[1] = carve(k, n->L > 1 ? bytes_of(n, layer_out(n)) : 0);
  w->dropped = carve(k, w->n.p > 0 && n->L > 1 ? bytes_of(n, layer_out(n)) : 0);
}

static void carve_backward(struct work *w, struct carve *k)
{
  const struct rnn *n = &w->n;
  int64_t gates = gates_size(n), steps = steps_back(n) * n->N * gates;
  w->ph = carve(k, gemm_pack_bytes(n->dtype, n->H, gates));
  w->dgx = carve(k, bytes_of(n, steps));
  w->dgh = n->mode == GRU ? carve(k, bytes_of(n, steps)) : w->dgx;
  w->dh = carve(k, bytes_of(n, n->N * n->H));
  w->dc = carve(k, bytes_of(n, n->N * n->H));
  w->layer[0] = carve(k, n->L > 2 ? bytes_of(n, layer_out(n)) : 0);
  w->layer[1] = carve(k, n->L > 1 ? bytes_of(n, layer_out(n)) : 0);
  w->dropped = carve(k, w->n.p > 0 && n->L > 1 ? bytes_of(n, layer_out(n)) : 0);
  w->again = carve(k, n->mode == LSTM ? bytes_of(n, steps_back(n) * n->N * n->H) : 0);
  for (int i = 0; i < 2; i++) w->column[i] = carve(k, sizeof(double) * (size_t)gates);
}

/* -- dropout between layers -------------------------------------------------------------------- */

struct dropping { const struct work *w; void *y; const void *x; int64_t first; };

static void drop_body(int64_t begin, int64_t end, void *context)
{
  const struct dropping *o = context;
  const struct vec_ops *r = o->w->n.r;
  r->dropout(
      at(r, o->y, begin), at(r, o->x, begin), NULL, &o->w->drop, o->first + begin, end - begin);
}

/* The input of `layer` (or its gradient) times the factors of that place; y may be x. */
static void *dropped(const struct work *w, void *y, const void *x, int64_t layer)
{
  struct dropping o = { w, y, x, layer * layer_out(&w->n) };
  parallel(layer_out(&w->n), 4096, drop_body, &o);
  return y;
}

/* -- forward ----------------------------------------------------------------------------------- */

struct line {                                         /* one layer in one direction */
  int64_t layer, d, in;
  struct place at;
  const void *x;                                      /* (T N, in) */
  void *y;                                            /* (T, N, D P), this direction's part of it */
};

static int64_t time_of(const struct rnn *n, int64_t d, int64_t step)
{
  return d ? n->T - 1 - step : step;
}
static const void *weight(const struct work *w, int64_t place)
{
  return at(w->n.r, w->weights, place);
}
static void *output_at(const struct work *w, const struct line *l, int64_t t)
{
  return at(w->n.r, l->y, t * w->n.N * w->n.D * w->n.P);
}

/* Start of what is kept of step t: gates, then at + N G H the further row. */
static void *kept(const struct work *w, const void *reserve, const struct line *l, int64_t t)
{
  const struct rnn *n = &w->n;
  return at(n->r, reserve, ((l->layer * n->D + l->d) * n->T + t) * step_kept(n));
}

struct step {
  const struct work *w;
  const struct line *l;
  const void *pre, *h0, *c0;                          /* h0: rows h0_row apart */
  int64_t h0_row, h_row;
  void *h, *c, *gate, *hn;
};

static void cell_body(int64_t begin, int64_t end, void *context)
{
  const struct step *s = context;
  const struct work *w = s->w;
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t gates = gates_size(n), H = n->H;
  for (int64_t i = begin; i < end; i++) {
    void *h = at(r, s->h, i * s->h_row), *pre = at(r, s->pre, i * gates),
         *gate = at(r, s->gate, i * gates), *h0 = at(r, s->h0, i * s->h0_row);
    if (n->mode == LSTM)
      r->lstm(h, at(r, s->c, i * H), gate, pre, w->bias, at(r, s->c0, i * H), H);
    else if (n->mode == GRU)
      r->gru(h, gate, at(r, s->hn, i * H), pre, at(r, w->hx, i * gates), weight(w, s->l->at.bx),
          weight(w, s->l->at.bh), h0, H);
    else
      r->rnn(h, pre, w->bias, n->mode == RNN_RELU, H);
  }
}

static int forward_step(
    const struct work *w, const struct line *l, int64_t index, void *pre, void *cell)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t t = time_of(n, l->d, index), before = time_of(n, l->d, index - 1), row = n->D * n->P,
          state = l->layer * n->D + l->d, gates = gates_size(n);
  struct step s = { .w = w,
    .l = l,
    .pre = pre,
    .h = output_at(w, l, t),
    .h_row = row,
    .gate = pre,
    .c = cell,
    .hn = w->hn };
  s.h0 = index ? output_at(w, l, before) : at(r, w->state, state * n->N * n->P);
  s.h0_row = index ? row : n->P;
  s.c0 = index ? cell : at(r, w->cell, state * n->N * n->H);
  if (w->reserve) {
    s.gate = kept(w, w->reserve, l, t);
    s.c = s.hn = at(r, s.gate, n->N * gates);
    if (index) s.c0 = at(r, kept(w, w->reserve, l, before), n->N * gates);
  }
  if (n->projects) s.h = w->hidden, s.h_row = n->H;
  struct gemm_epilogue onto = { .add = n->mode != GRU };
  void *to = n->mode == GRU ? w->hx : pre;
  TRY(unpacked(n) ? gemm(n->dtype, false, true, n->N, gates, n->P, 1, s.h0, s.h0_row,
                        weight(w, l->at.wh), n->P, onto.add, to, gates)
                  : gemm_packed(n->dtype, false, n->N, gates, n->P, s.h0, s.h0_row, w->ph, to,
                        gates, &onto));
  parallel(n->N, grain_of(4 * n->H), cell_body, &s);
  if (!n->projects) return TY_OK;
  return gemm(n->dtype, false, true, n->N, n->P, n->H, 1, w->hidden, n->H, weight(w, l->at.wr),
      n->H, 0, output_at(w, l, t), row);
}

static void copy_rows(
    const struct vec_ops *r, void *y, const void *x, int64_t row, int64_t n, int64_t width)
{
  for (int64_t i = 0; i < n; i++)
    memcpy(at(r, y, i * width), at(r, x, i * row), r->size * (size_t)width);
}

static void final_states(const struct work *w, const struct line *l, void *hy, void *cy)
{
  const struct rnn *n = &w->n;
  int64_t t = time_of(n, l->d, n->T - 1), state = l->layer * n->D + l->d;
  const void *c = w->reserve ? at(n->r, kept(w, w->reserve, l, t), n->N * gates_size(n)) : w->c;
  if (hy)
    copy_rows(n->r, at(n->r, hy, state * n->N * n->P), output_at(w, l, t), n->D * n->P, n->N, n->P);
  if (cy) memcpy(at(n->r, cy, state * n->N * n->H), c, bytes_of(n, n->N * n->H));
}

/* pre = W_x times `rows` rows of the layer's input. */
static int input_product(const struct work *w, const struct line *l, int64_t rows, const void *x)
{
  const struct rnn *n = &w->n;
  int64_t gates = gates_size(n), many = gates_at_once(n);
  struct gemm_epilogue none = { 0 };
  for (int64_t g = 0; g < gates; g += many) {
    int64_t k = MIN(many, gates - g);
    if (unpacked(n))
      gemm_pack(n->dtype, true, k, l->in, weight(w, l->at.wx + g * l->in), l->in, w->px);
    TRY(gemm_packed(
        n->dtype, false, rows, k, l->in, x, l->in, w->px, at(n->r, w->pre, g), gates, &none));
  }
  return TY_OK;
}

static int forward_line(const struct work *w, const struct line *l)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t gates = gates_size(n), many = steps_at_once(n);
  if (!unpacked(n)) gemm_pack(n->dtype, true, gates, l->in, weight(w, l->at.wx), l->in, w->px);
  if (!packs_in_turn(n)) gemm_pack(n->dtype, true, gates, n->P, weight(w, l->at.wh), n->P, w->ph);
  r->affine2(w->bias, weight(w, l->at.bx), weight(w, l->at.bh), 1, 1, 0, gates);
  for (int64_t from = 0; from < n->T; from += many) {
    int64_t k = MIN(many, n->T - from),
            first = l->d ? n->T - from - k : from; /* times first .. first + k - 1 */
    TRY(input_product(w, l, k * n->N, at(r, l->x, first * n->N * l->in)));
    if (packs_in_turn(n) && !unpacked(n))
      gemm_pack(n->dtype, true, gates, n->P, weight(w, l->at.wh), n->P, w->ph);
    for (int64_t s = from; s < from + k; s++)
      TRY(forward_step(w, l, s, at(r, w->pre, (time_of(n, l->d, s) - first) * n->N * gates), w->c));
  }
  return TY_OK;
}

static struct work work_of(const struct call *c, const ty_desc *data)
{
  struct work w = { .n = rnn_of(c->param, data) };
  w.drops = w.n.p > 0 && c->run && c->run->is_train;
  if (w.drops) w.drop = (struct drop){ c->run->rng, c->node, 1 - w.n.p };
  return w;
}

static void *inner_output(const struct work *w, int64_t layer)
{
  const struct rnn *n = &w->n;
  const void *reserve = w->reserve ? w->reserve : w->reserve_in;
  if (!reserve) return w->layer[layer & 1];
  return at(n->r, reserve, n->L * n->D * n->T * step_kept(n) + layer * layer_out(n));
}

static struct line line_of(const struct work *w, int64_t layer, int64_t d, const void *x, void *y)
{
  return (struct line){ layer, d, input_size(&w->n, layer), place_of(&w->n, layer, d), x,
    at(w->n.r, y, d * w->n.P) };
}

static int rnn_forward(struct call *c)
{
  const struct rnn_param *p = c->param;
  struct work w = work_of(c, &c->in[0].d);
  struct carve k = { c->tmp, 0 };
  carve_forward(&w, &k);
  w.weights = c->in[1].p;
  w.state = c->in[2].p;
  w.cell = c->nin > 3 ? c->in[3].p : NULL;
  w.reserve = w.n.projects ? NULL : c->out[c->nout - 1].p;
  void *hy = p->state_outputs ? c->out[1].p : NULL,
       *cy = p->state_outputs && w.cell ? c->out[2].p : NULL;
  const void *x = c->in[0].p;
  for (int64_t l = 0; l < w.n.L; l++) {
    void *y = l < w.n.L - 1 ? inner_output(&w, l) : c->out[0].p ? c->out[0].p : w.layer[l & 1];
    if (l && w.drops) x = dropped(&w, w.dropped, x, l);
    for (int64_t d = 0; d < w.n.D; d++) {
      struct line line = line_of(&w, l, d, x, y);
      TRY(forward_line(&w, &line));
      final_states(&w, &line, hy, cy);
    }
    x = y;
  }
  return TY_OK;
}

static size_t forward_scratch(const struct call *c)
{
  struct work w = work_of(c, &c->in[0].d);
  struct carve k = { 0 };
  carve_forward(&w, &k);
  return k.used;
}

/* -- backward ---------------------------------------------------------------------------------- */

struct back_step {
  const struct work *w;
  const void *dy, *gate, *more, *before, *h, *h0;
                           /* dy: of this step's output, NULL: none; more: cell or inner product;
                           ** before: cell before */
  int64_t row, h0_row;                                /* row: of dy and h */
  void *dgx, *dgh;
};

static void cell_back_body(int64_t begin, int64_t end, void *context)
{
  const struct back_step *s = context;
  const struct work *w = s->w;
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t gates = gates_size(n), H = n->H;
  for (int64_t i = begin; i < end; i++) {
    void *dh = at(r, w->dh, i * H), *dgx = at(r, s->dgx, i * gates),
         *gate = at(r, s->gate, i * gates), *more = at(r, s->more, i * H);
    if (s->dy) r->add(dh, at(r, s->dy, i * s->row), H);
    if (n->mode == LSTM)
      r->lstm_back(dgx, at(r, w->dc, i * H), gate, more, at(r, s->before, i * H), dh, H);
    else if (n->mode == GRU)
      r->gru_back(dgx, at(r, s->dgh, i * gates), dh, gate, more, at(r, s->h0, i * s->h0_row), H);
    else
      r->rnn_back(dgx, at(r, s->h, i * s->row), dh, n->mode == RNN_RELU, H);
  }
}

/* The gate gradients begin with those of time t0. */
static int backward_step(
    const struct work *w, const struct line *l, const void *dy, int64_t index, int64_t t0)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t t = time_of(n, l->d, index), before = time_of(n, l->d, index - 1), row = n->D * n->H,
          state = l->layer * n->D + l->d, gates = gates_size(n);
  struct back_step s = { .w = w,
    .dy = at(r, dy, t * n->N * row + l->d * n->H),
    .gate = kept(w, w->reserve_in, l, t),
    .row = row,
    .h = output_at(w, l, t) };
  s.more = at(r, s.gate, n->N * gates);
  s.before = index ? at(r, kept(w, w->reserve_in, l, before), n->N * gates)
                   : at(r, w->cell, state * n->N * n->H);
  s.h0 = index ? output_at(w, l, before) : at(r, w->state, state * n->N * n->H);
  s.h0_row = index ? row : n->H;
  s.dgx = at(r, w->dgx, (t - t0) * n->N * gates);
  s.dgh = at(r, w->dgh, (t - t0) * n->N * gates);
  parallel(n->N, grain_of(4 * n->H), cell_back_body, &s);
  struct gemm_epilogue onto = { .add = n->mode == GRU };
  return gemm_packed(n->dtype, false, n->N, n->H, gates, s.dgh, gates, w->ph, w->dh, n->H, &onto);
}

/* Some steps, in the order of time: times first .. first + count - 1. */
/* last: of a line that is gone through backwards from its end */
struct span { int64_t first, count; bool last; };

/* lstm: the states of times t .. from their gates and cells */
struct again { const struct work *w; const struct line *l; int64_t t; };

static void again_body(int64_t begin, int64_t end, void *context)
{
  const struct again *a = context;
  const struct rnn *n = &a->w->n;
  const int64_t gates = gates_size(n), H = n->H;
  for (int64_t i = begin; i < end; i++) {
    void *gate = kept(a->w, a->w->reserve_in, a->l, a->t + i / n->N);
    int64_t sample = i % n->N;
    n->r->lstm_out(at(n->r, a->w->again, i * H), at(n->r, gate, sample * gates),
        at(n->r, gate, n->N * gates + sample * H), H);
  }
}

/* dW_h: the states before each step of the span times its gate gradients; the first step's is
** the initial state. */
static int recurrent_gradient(
    const struct work *w, const struct line *l, const struct span *s, void *dw)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  const int64_t gates = gates_size(n), begin = time_of(n, l->d, 0), end = s->first + s->count;
  const bool starts = begin >= s->first && begin < end;
  const int64_t t = s->first + (starts && !l->d),
                count = s->count - starts; /* times of the other steps */
  const int64_t before = l->d ? t + 1 : t - 1;
  bool add = !s->last;
  if (starts) {
    const void *h0 = at(r, w->state, (l->layer * n->D + l->d) * n->N * n->H);
    TRY(gemm(n->dtype, true, false, gates, n->H, n->N, 1,
        at(r, w->dgh, (begin - s->first) * n->N * gates), gates, h0, n->H, add, dw, n->H));
    add = true;
  }
  if (!count) return TY_OK;
  if (!l->y)
    parallel(count * n->N, grain_of(4 * n->H), again_body, &(struct again){ w, l, before });
  return gemm(n->dtype, true, false, gates, n->H, count * n->N, 1,
      at(r, w->dgh, (t - s->first) * n->N * gates), gates,
      l->y ? output_at(w, l, before) : w->again, l->y ? n->D * n->H : n->H, add, dw, n->H);
}

static void bias_sums(const struct work *w, const struct span *s, const void *dg, double *column)
{
  const struct rnn *n = &w->n;
  const int64_t gates = gates_size(n);
  if (s->last) memset(column, 0, sizeof(double) * (size_t)gates);
  for (int64_t i = 0; i < s->count * n->N; i++)
    n->r->col_sum(column, at(n->r, dg, i * gates), gates);
}

static int weight_gradients(
    const struct work *w, const struct line *l, const struct span *s, void *dp)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t gates = gates_size(n);
  TRY(gemm(n->dtype, true, false, gates, l->in, s->count * n->N, 1, w->dgx, gates,
      at(r, l->x, s->first * n->N * l->in), l->in, !s->last, at(r, dp, l->at.wx), l->in));
  TRY(recurrent_gradient(w, l, s, at(r, dp, l->at.wh)));
  bias_sums(w, s, w->dgx, w->column[0]);
  if (n->mode == GRU) bias_sums(w, s, w->dgh, w->column[1]);
  return TY_OK;
}

static void store_bias(const struct work *w, const struct line *l, void *dp)
{
  const struct vec_ops *r = w->n.r;
  const int64_t gates = gates_size(&w->n);
  r->store(at(r, dp, l->at.bx), w->column[0], gates);
  r->store(at(r, dp, l->at.bh), w->column[w->n.mode == GRU], gates);
}

static void start_from(const struct work *w, void *d, const void *g, int64_t state)
{
  size_t bytes = bytes_of(&w->n, w->n.N * w->n.H);
  if (g)
    memcpy(d, at(w->n.r, g, state * w->n.N * w->n.H), bytes);
  else
    memset(d, 0, bytes);
}

/* gradients: come in, wanted */
struct heads { const void *dy, *dhy, *dcy; void *dx, *dp, *dhx, *dcx; };

/* Steps from .. from + count - 1, backwards, then what their gate gradients give. */
static int backward_span(
    const struct work *w, const struct line *l, const struct heads *g, int64_t from, int64_t count)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  const int64_t gates = gates_size(n);
  const struct span s = { l->d ? n->T - from - count : from, count, from + count == n->T };
  for (int64_t i = from + count - 1; i >= from; i--) TRY(backward_step(w, l, g->dy, i, s.first));
  if (g->dp) TRY(weight_gradients(w, l, &s, g->dp));
  if (!g->dx) return TY_OK;
  return gemm(n->dtype, false, false, count * n->N, l->in, gates, 1, w->dgx, gates,
      weight(w, l->at.wx), l->in, l->d, at(r, g->dx, s.first * n->N * l->in), l->in);
}

static int backward_line(const struct work *w, const struct line *l, const struct heads *g)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  const int64_t state = l->layer * n->D + l->d, many = steps_back(n);
  gemm_pack(n->dtype, false, n->H, gates_size(n), weight(w, l->at.wh), n->H, w->ph);
  start_from(w, w->dh, g->dhy, state);
  start_from(w, w->dc, g->dcy, state);
  for (int64_t end = n->T, count; end > 0; end -= count) {
    count = MIN(many, end);
    TRY(backward_span(w, l, g, end - count, count));
  }
  if (g->dp) store_bias(w, l, g->dp);
  if (g->dhx) memcpy(at(r, g->dhx, state * n->N * n->H), w->dh, bytes_of(n, n->N * n->H));
  if (g->dcx) memcpy(at(r, g->dcx, state * n->N * n->H), w->dc, bytes_of(n, n->N * n->H));
  return TY_OK;
}

static int backward_layer(
    const struct work *w, int64_t layer, const void *x, void *y, const struct heads *g)
{
  for (int64_t d = 0; d < w->n.D; d++) {
    struct line line = line_of(w, layer, d, x, y);
    TRY(backward_line(w, &line, g));
  }
  if (layer && w->drops) dropped(w, g->dx, g->dx, layer);
  return TY_OK;
}

/* in: data, parameters, state [, state_cell] [, output: not lstm], reserve, head gradients of
** output [, state [, cell]]. */
static int rnn_backward(struct call *c)
{
  const struct rnn_param *p = c->param;
  bool lstm = p->mode == LSTM;
  const struct operand *reserve = &c->in[4], *head = reserve + 1;
  struct work w = work_of(c, &c->in[0].d);
  struct carve k = { c->tmp, 0 };
  carve_backward(&w, &k);
  w.weights = c->in[1].p;
  w.state = c->in[2].p;
  w.cell = lstm ? c->in[3].p : NULL;
  w.reserve_in = reserve->p;
  struct heads g = { head[0].p, p->state_outputs ? head[1].p : NULL,
    p->state_outputs && lstm ? head[2].p : NULL, NULL, c->out[1].p, c->out[2].p,
    lstm ? c->out[3].p : NULL };
  for (int64_t l = w.n.L - 1; l >= 0; l--) {
    void *y = l < w.n.L - 1 ? inner_output(&w, l) : lstm ? NULL : c->in[3].p;
    const void *x = l ? inner_output(&w, l - 1) : c->in[0].p;
    if (l && w.drops && g.dp) x = dropped(&w, w.dropped, x, l);
    g.dx = l ? w.layer[l & 1] : c->out[0].p;
    TRY(backward_layer(&w, l, x, y, &g));
    g.dy = g.dx;
  }
  return TY_OK;
}

static size_t backward_scratch(const struct call *c)
{
  struct work w = work_of(c, &c->in[0].d);
  struct carve k = { 0 };
  carve_backward(&w, &k);
  return k.used;
}

static const char *backward_refuse(const struct call *c)
{
  return ((const struct rnn_param *)c->param)->projection_size == NONE
      ? NULL
      : "a projected lstm has no gradient: inference only";
}

static const struct kernel rnn_cpu[] = { { "steps", rnn_forward, T_FLOAT, NULL, forward_scratch }, { 0 } };
static const struct kernel rnn_back_cpu[] = { { "steps", rnn_backward, T_FLOAT, backward_refuse, backward_scratch }, { 0 } };

const struct op op_rnn[] = {
  { .name = "RNN", .alias = "_npx_rnn", .in = "data parameters state state_cell", .in_of = rnn_in, .out_of = rnn_out,
    .doc = "Recurrent layers over data (time, batch, input): output (time, batch, directions * state_size) and, with "
           "state_outputs, the final states "
           "(layers * directions, batch, state_size). Weights and biases of all layers are one vector.",
    .param = rnn_params, .param_size = sizeof(struct rnn_param), .check = rnn_check, .shape = rnn_shape, .grad_of = rnn_grad,
    .flags = OP_RANDOM, .cpu = rnn_cpu, .back_cpu = rnn_back_cpu },
  { 0 }
};
