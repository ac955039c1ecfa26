/* rnn_forward.c - RNN forward.
**
** For each layer and direction the inputs of many steps are multiplied together; then each step
** adds its recurrent product and computes gates and new state. Step s of direction 1 is time T - 1
** - s. Weights are packed once per run, unless few rows use them; in inference packed copies of
** small ones are kept for the next run. Backward takes states from the layer's output, projected
** ones included; those of an lstm without projection it recomputes from gates and cells.
*/
#include "operators/nn/rnn.h"
#include "kernel/vec/cell.h"

/* -- scratch ----------------------------------------------------------------------------------- */

/* Returns the bytes of the largest W_x, packed. */
static size_t packed_input(const struct rnn *n, int64_t gates)
{
  return gemm_pack_bytes(
      n->type, gates, MAX(n->inputs, n->layers > 1 ? n->directions * n->outputs : 0));
}

enum { FEW_ROWS = 8 };                                /* most rows that read weights in place */

/* Returns whether there are so few rows that weights are read in place: packing would cost more
** than it saves. */
static bool has_few_rows(const struct rnn *n) { return n->time * n->batch <= FEW_ROWS; }

/* Returns whether weights are so large that W_h is packed into the memory of W_x, after the input
** products of all steps. */
static bool packs_in_turn(const struct rnn *n)
{
  return packed_input(n, rnn_gate_rows(n)) > rnn_bytes(n, n->time * n->batch * rnn_gate_rows(n));
}

/* Returns whether W_h is read in place: for few rows in all, or for few rows per step and large
** weights, where W_x is packed for some gates at a time. */
static bool reads_unpacked(const struct rnn *n)
{
  return has_few_rows(n) || (packs_in_turn(n) && n->batch <= GEMM_FEW);
}

static size_t packed_bytes(const struct rnn *n, int64_t columns)
{
  return align_up(gemm_pack_bytes(n->type, rnn_gate_rows(n), columns), ALIGN);
}

/* Returns the bytes of the weights of a layer and direction, packed: W_x, then W_h, unless that is
** read in place. */
static size_t packed_layer(const struct rnn *n, int64_t layer)
{
  return packed_bytes(n, rnn_input_size(n, layer)) +
      (reads_unpacked(n) ? 0 : packed_bytes(n, n->outputs));
}

static size_t packed_layers(const struct rnn *n)
{
  size_t bytes = 0;
  for (int64_t l = 0; l < n->layers; l++) bytes += (size_t)n->directions * packed_layer(n, l);
  return bytes;
}

/* Returns the gates whose W_x is packed at a time. */
static int64_t gates_at_once(const struct rnn *n)
{
  return reads_unpacked(n) ? MIN(rnn_gate_rows(n), 512) : rnn_gate_rows(n);
}

/* Returns the steps of one input product: about 256 rows, which stay in the cache, or all steps if
** W_h is packed in turn. */
static int64_t steps_at_once(const struct rnn *n)
{
  return packs_in_turn(n) ? n->time : MIN(n->time, MAX(1, 256 / MAX(n->batch, 1)));
}

/* Sets the pointers of a run to parts of scratch. */
static void take_scratch(struct rnn_run *w, struct rnn_scratch *k)
{
  const struct rnn *n = &w->n;
  int64_t gates = rnn_gate_rows(n), batch = n->batch * n->units;
  size_t px = has_few_rows(n) ? 0 : packed_input(n, gates_at_once(n)),
         ph = reads_unpacked(n) ? 0 : gemm_pack_bytes(n->type, gates, n->outputs);
  w->px = rnn_take(k, packs_in_turn(n) ? MAX(px, ph) : px);
  w->ph = packs_in_turn(n) ? w->px : rnn_take(k, ph);
  w->bias = rnn_take(k, rnn_bytes(n, gates));
  w->pre = rnn_take(k, rnn_bytes(n, steps_at_once(n) * n->batch * gates));
  w->hx = rnn_take(k, n->mode == GRU ? rnn_bytes(n, n->batch * gates) : 0);
  w->hn = rnn_take(k, n->mode == GRU ? rnn_bytes(n, batch) : 0);
  w->c = rnn_take(k, n->mode == LSTM ? rnn_bytes(n, batch) : 0);
  w->hidden = rnn_take(k, n->projects ? rnn_bytes(n, batch) : 0);
  w->layer[0] = rnn_take(k, rnn_bytes(n, rnn_layer_size(n)));
  w->layer[1] = rnn_take(k, n->layers > 1 ? rnn_bytes(n, rnn_layer_size(n)) : 0);
  w->dropped = rnn_take(k, w->n.p > 0 && n->layers > 1 ? rnn_bytes(n, rnn_layer_size(n)) : 0);
}

/* -- one layer in one direction ---------------------------------------------------------------- */

struct cell_step {
  const struct rnn_run *w;
  const struct rnn_pass *l;
  const void *pre, *h0, *c0; /* h0: rows h0_row apart */
  int64_t h0_row, h_row;
  void *h, *c, *gate, *hn;
};

static void step_cells(int64_t begin, int64_t end, void *context)
{
  const struct cell_step *s = context;
  const struct rnn_run *w = s->w;
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t gates = rnn_gate_rows(n), H = n->units;
  for (int64_t i = begin; i < end; i++) {
    void *h = vec_at(r, s->h, i * s->h_row), *pre = vec_at(r, s->pre, i * gates),
         *gate = vec_at(r, s->gate, i * gates), *h0 = vec_at(r, s->h0, i * s->h0_row);
    if (n->mode == LSTM)
      r->cell->lstm(h, vec_at(r, s->c, i * H), gate, pre, w->bias, vec_at(r, s->c0, i * H), H);
    else if (n->mode == GRU)
      r->cell->gru(h, gate, vec_at(r, s->hn, i * H), pre, vec_at(r, w->hx, i * gates),
          rnn_weight(w, s->l->at.bx), rnn_weight(w, s->l->at.bh), h0, H);
    else
      r->cell->rnn(h, pre, w->bias, n->mode == RNN_RELU, H);
  }
}

/* Adds the recurrent product of step `index` to pre, the input product of its rows, and computes
** gates, cell and state. */
static int forward_step(
    const struct rnn_run *w, const struct rnn_pass *l, int64_t index, void *pre, void *cell)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t t = rnn_time_of(n, l->d, index), before = rnn_time_of(n, l->d, index - 1),
          row = n->directions * n->outputs, state = l->layer * n->directions + l->d,
          gates = rnn_gate_rows(n);
  struct cell_step s = { .w = w,
    .l = l,
    .pre = pre,
    .h = rnn_output_at(w, l, t),
    .h_row = row,
    .gate = pre,
    .c = cell,
    .hn = w->hn };
  s.h0 = index ? rnn_output_at(w, l, before) : vec_at(r, w->state, state * n->batch * n->outputs);
  s.h0_row = index ? row : n->outputs;
  s.c0 = index ? cell : vec_at(r, w->cell, state * n->batch * n->units);
  if (w->reserve) {
    s.gate = rnn_reserve_at(w, w->reserve, l, t);
    s.c = s.hn = vec_at(r, s.gate, n->batch * gates);
    if (index) s.c0 = vec_at(r, rnn_reserve_at(w, w->reserve, l, before), n->batch * gates);
  }
  if (n->projects) s.h = w->hidden, s.h_row = n->units;
  struct gemm_epilogue onto = { .add = n->mode != GRU };
  void *to = n->mode == GRU ? w->hx : pre;
  TRY(reads_unpacked(n) ? gemm_one(n->type, false, true, n->batch, gates, n->outputs, 1, s.h0,
                              s.h0_row, rnn_weight(w, l->at.wh), n->outputs, onto.add, to, gates)
                        : gemm_packed(n->type, false, n->batch, gates, n->outputs, s.h0, s.h0_row,
                              w->ph, to, gates, &onto));
  parallel_for(n->batch, elements_ns(4 * n->units), step_cells, &s);
  if (!n->projects) return TY_OK;
  return gemm_one(n->type, false, true, n->batch, n->outputs, n->units, 1, w->hidden, n->units,
      rnn_weight(w, l->at.wr), n->units, 0, rnn_output_at(w, l, t), row);
}

static void copy_rows(
    const struct vec_ops *r, void *y, const void *x, int64_t row, int64_t n, int64_t width)
{
  for (int64_t i = 0; i < n; i++)
    memcpy(vec_at(r, y, i * width), vec_at(r, x, i * row), r->size * (size_t)width);
}

/* Copies the last state and cell of a pass to hy and cy, where these are not NULL. */
static void final_states(const struct rnn_run *w, const struct rnn_pass *l, void *hy, void *cy)
{
  const struct rnn *n = &w->n;
  int64_t t = rnn_time_of(n, l->d, n->time - 1), state = l->layer * n->directions + l->d;
  const void *c = w->reserve
      ? vec_at(n->r, rnn_reserve_at(w, w->reserve, l, t), n->batch * rnn_gate_rows(n))
      : w->c;
  if (hy)
    copy_rows(n->r, vec_at(n->r, hy, state * n->batch * n->outputs), rnn_output_at(w, l, t),
        n->directions * n->outputs, n->batch, n->outputs);
  if (cy)
    memcpy(vec_at(n->r, cy, state * n->batch * n->units), c, rnn_bytes(n, n->batch * n->units));
}

/* Computes pre = W_x times `rows` rows of the layer's input. */
static int input_product(
    const struct rnn_run *w, const struct rnn_pass *l, int64_t rows, const void *x)
{
  const struct rnn *n = &w->n;
  int64_t gates = rnn_gate_rows(n), many = w->kept ? gates : gates_at_once(n);
  struct gemm_epilogue none = { 0 };
  if (has_few_rows(n))
    return gemm_one(n->type, false, true, rows, gates, l->in, 1, x, l->in, rnn_weight(w, l->at.wx),
        l->in, 0, w->pre, gates);
  for (int64_t g = 0; g < gates; g += many) {
    int64_t k = MIN(many, gates - g);
    if (reads_unpacked(n) && !w->kept)
      gemm_pack(n->type, true, k, l->in, rnn_weight(w, l->at.wx + g * l->in), l->in, w->px);
    TRY(gemm_packed(
        n->type, false, rows, k, l->in, x, l->in, w->px, vec_at(n->r, w->pre, g), gates, &none));
  }
  return TY_OK;
}

static int forward_pass(const struct rnn_run *w, const struct rnn_pass *l)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t gates = rnn_gate_rows(n), many = steps_at_once(n);
  const bool packs = !w->kept && !reads_unpacked(n);
  if (packs) gemm_pack(n->type, true, gates, l->in, rnn_weight(w, l->at.wx), l->in, w->px);
  if (packs && !packs_in_turn(n))
    gemm_pack(n->type, true, gates, n->outputs, rnn_weight(w, l->at.wh), n->outputs, w->ph);
  r->affine2(w->bias, rnn_weight(w, l->at.bx), rnn_weight(w, l->at.bh), 1, 1, 0, gates);
  for (int64_t from = 0; from < n->time && !stop_wanted(); from += many) {
    int64_t k = MIN(many, n->time - from),
            first = l->d ? n->time - from - k : from; /* times first .. first + k - 1 */
    TRY(input_product(w, l, k * n->batch, vec_at(r, l->x, first * n->batch * l->in)));
    if (packs && packs_in_turn(n))
      gemm_pack(n->type, true, gates, n->outputs, rnn_weight(w, l->at.wh), n->outputs, w->ph);
    for (int64_t s = from; s < from + k; s++)
      TRY(forward_step(
          w, l, s, vec_at(r, w->pre, (rnn_time_of(n, l->d, s) - first) * n->batch * gates), w->c));
  }
  return TY_OK;
}

/* -- all layers -------------------------------------------------------------------------------- */

/* Makes the instruction keep the packed weights of all layers; packs them if they have changed
** since its last run. */
static int keep_weights(struct rnn_run *w, struct call *c)
{
  const struct rnn *n = &w->n;
  const size_t bytes = packed_layers(n);
  bool fresh;
  char *at = gemm_kept_buffer(c->state, &c->in[1], bytes, &fresh);
  NEED(at, TY_EMEMORY, "out of memory: packed weights of %zu bytes", bytes);
  w->kept = at;
  for (int64_t i = 0; i < n->layers * n->directions && !fresh; i++) {
    /* only the input size and the offsets of this pass are used */
    struct rnn_pass l = rnn_make_pass(w, i / n->directions, i % n->directions, at, at);
    gemm_pack(n->type, true, rnn_gate_rows(n), l.in, rnn_weight(w, l.at.wx), l.in, at);
    if (!reads_unpacked(n))
      gemm_pack(n->type, true, rnn_gate_rows(n), n->outputs, rnn_weight(w, l.at.wh), n->outputs,
          at + packed_bytes(n, l.in));
    at += packed_layer(n, l.layer);
  }
  return TY_OK;
}

/* Sets px and ph to the kept weights of a layer and direction. */
static void find_kept(struct rnn_run *w, int64_t layer, int64_t d)
{
  char *at = w->kept;
  for (int64_t l = 0; l < layer; l++) at += (size_t)w->n.directions * packed_layer(&w->n, l);
  w->px = at + (size_t)d * packed_layer(&w->n, layer);
  w->ph = (char *)w->px + packed_bytes(&w->n, rnn_input_size(&w->n, layer));
}

int rnn_forward(struct call *c)
{
  const struct rnn_param *p = c->param;
  struct rnn_run w = rnn_make_run(c, &c->in[0].d);
  struct rnn_scratch k = { c->tmp, 0 };
  take_scratch(&w, &k);
  w.weights = c->in[1].p;
  if (!c->trains && !has_few_rows(&w.n) && gemm_keeps(c, &c->in[1])) TRY(keep_weights(&w, c));
  w.state = c->in[2].p;
  w.cell = c->nin > 3 ? c->in[3].p : NULL;
  w.reserve = c->out[c->nout - 1].p;
  void *hy = p->state_outputs ? c->out[1].p : NULL,
       *cy = p->state_outputs && w.cell ? c->out[2].p : NULL;
  const void *x = c->in[0].p;
  for (int64_t l = 0; l < w.n.layers; l++) {
    void *y = l < w.n.layers - 1 ? rnn_inner_output(&w, l)
        : c->out[0].p            ? c->out[0].p
                                 : w.layer[l & 1];
    if (l && w.drops) x = rnn_dropout(&w, w.dropped, x, l);
    for (int64_t d = 0; d < w.n.directions; d++) {
      struct rnn_pass pass = rnn_make_pass(&w, l, d, x, y);
      if (w.kept) find_kept(&w, l, d);
      TRY(forward_pass(&w, &pass));
      final_states(&w, &pass, hy, cy);
    }
    x = y;
  }
  return TY_OK;
}

size_t rnn_forward_scratch(const struct call *c)
{
  struct rnn_run w = rnn_make_run(c, &c->in[0].d);
  struct rnn_scratch k = { 0 };
  take_scratch(&w, &k);
  return k.used;
}
