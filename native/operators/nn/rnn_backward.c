/* rnn_backward.c - RNN backward: groups of steps, about 1000 rows each, are run backwards for the
** gradients of the gates, from which large products then compute those of weights and inputs.
*/
#include "operators/nn/rnn.h"
#include "kernel/vec/cell.h"
#include "kernel/vec/norm.h"

/* -- scratch ----------------------------------------------------------------------------------- */

/* Returns the number of steps whose gradients are computed together: about 1000 rows. */
static int64_t steps_at_once(const struct rnn *n)
{
  const int64_t most = MAX(1, 1024 / MAX(n->batch, 1)), parts = MAX(1, (n->time + most - 1) / most);
  return (n->time + parts - 1) / parts;
}

/* Sets the pointers of a run to parts of scratch. */
static void take_scratch(struct rnn_run *w, struct rnn_scratch *k)
{
  const struct rnn *n = &w->n;
  int64_t gates = rnn_gate_rows(n), steps = steps_at_once(n) * n->batch * gates;
  w->ph = rnn_take(k, gemm_pack_bytes(n->type, n->outputs, gates));
  w->dgx = rnn_take(k, rnn_bytes(n, steps));
  w->dgh = n->mode == GRU ? rnn_take(k, rnn_bytes(n, steps)) : w->dgx;
  w->dh = rnn_take(k, rnn_bytes(n, n->batch * n->units));
  w->dc = rnn_take(k, rnn_bytes(n, n->batch * n->units));
  w->dr = n->projects ? rnn_take(k, rnn_bytes(n, n->batch * n->outputs)) : w->dh;
  w->projected = rnn_take(
      k, n->projects ? rnn_bytes(n, steps_at_once(n) * n->batch * n->outputs) : 0);
  w->layer[0] = rnn_take(k, n->layers > 2 ? rnn_bytes(n, rnn_layer_size(n)) : 0);
  w->layer[1] = rnn_take(k, n->layers > 1 ? rnn_bytes(n, rnn_layer_size(n)) : 0);
  w->dropped = rnn_take(k, w->n.p > 0 && n->layers > 1 ? rnn_bytes(n, rnn_layer_size(n)) : 0);
  w->states = rnn_take(
      k, n->mode == LSTM ? rnn_bytes(n, steps_at_once(n) * n->batch * n->units) : 0);
  for (int i = 0; i < 2; i++) w->column[i] = rnn_take(k, sizeof(double) * (size_t)gates);
}

/* -- gradients of the gates -------------------------------------------------------------------- */

struct cell_gradient {
  const struct rnn_run *w;
  const void *dy;                                     /* of this step's output; NULL: none */
  const void *gate;
  const void *more;                                   /* the cell, or the inner product */
  const void *before;                                 /* the cell before */
  const void *h, *h0;
  /* elements from a row of dy and h to the next */
  int64_t row;
  int64_t h0_row;                                     /* from a row of h0 to the next */
  void *dgx, *dgh;
};

static void step_cells_back(int64_t begin, int64_t end, void *context)
{
  const struct cell_gradient *s = context;
  const struct rnn_run *w = s->w;
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t gates = rnn_gate_rows(n), H = n->units;
  for (int64_t i = begin; i < end; i++) {
    void *dh = vec_at(r, w->dh, i * H), *dgx = vec_at(r, s->dgx, i * gates),
         *gate = vec_at(r, s->gate, i * gates), *more = vec_at(r, s->more, i * H);
    if (s->dy) r->add(dh, vec_at(r, s->dy, i * s->row), H);
    if (n->mode == LSTM)
      r->cell->lstm_back(
          dgx, vec_at(r, w->dc, i * H), gate, more, vec_at(r, s->before, i * H), dh, H);
    else if (n->mode == GRU)
      r->cell->gru_back(
          dgx, vec_at(r, s->dgh, i * gates), dh, gate, more, vec_at(r, s->h0, i * s->h0_row), H);
    else
      r->cell->rnn_back(dgx, vec_at(r, s->h, i * s->row), dh, n->mode == RNN_RELU, H);
  }
}

/* Sets dh to the gradient of the state before its projection. That of the projected state, dr plus
** dy, is kept in w->projected for the gradient of the projection. */
static int unproject_gradient(
    const struct rnn_run *w, const struct rnn_pass *l, const void *dy, int64_t t, int64_t t0)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  const int64_t P = n->outputs, row = n->directions * P;
  void *dr = vec_at(r, w->projected, (t - t0) * n->batch * P);
  memcpy(dr, w->dr, rnn_bytes(n, n->batch * P));
  for (int64_t i = 0; dy && i < n->batch; i++)
    r->add(vec_at(r, dr, i * P), vec_at(r, dy, (t * n->batch + i) * row + l->d * P), P);
  return gemm_one(n->type, false, false, n->batch, n->units, P, 1, dr, P,
      rnn_weight(w, l->at.wr), n->units, false, w->dh, n->units);
}

/* Computes the gradients of step `index`. t0: the first time in dgx, dgh and projected. */
static int backward_step(
    const struct rnn_run *w, const struct rnn_pass *l, const void *dy, int64_t index, int64_t t0)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t t = rnn_time_of(n, l->d, index), before = rnn_time_of(n, l->d, index - 1),
          row = n->directions * n->outputs, state = l->layer * n->directions + l->d,
          gates = rnn_gate_rows(n);
  if (n->projects) TRY(unproject_gradient(w, l, dy, t, t0));
  struct cell_gradient s = { .w = w,
    .dy = n->projects ? NULL : vec_at(r, dy, t * n->batch * row + l->d * n->units),
    .gate = rnn_reserve_at(w, w->reserve_in, l, t),
    .row = row,
    .h = rnn_output_at(w, l, t) };
  s.more = vec_at(r, s.gate, n->batch * gates);
  s.before = index ? vec_at(r, rnn_reserve_at(w, w->reserve_in, l, before), n->batch * gates)
                   : vec_at(r, w->cell, state * n->batch * n->units);
  s.h0 = index ? rnn_output_at(w, l, before) : vec_at(r, w->state, state * n->batch * n->units);
  s.h0_row = index ? row : n->units;
  s.dgx = vec_at(r, w->dgx, (t - t0) * n->batch * gates);
  s.dgh = vec_at(r, w->dgh, (t - t0) * n->batch * gates);
  parallel_for(n->batch, elements_ns(4 * n->units), step_cells_back, &s);
  struct gemm_epilogue onto = { .add = n->mode == GRU };
  return gemm_packed(
      n->type, false, n->batch, n->outputs, gates, s.dgh, gates, w->ph, w->dr, n->outputs, &onto);
}

/* -- gradients of the weights ------------------------------------------------------------------ */

/* Times first .. first + count - 1. last: they have the last step, with which backward begins. */
struct step_range { int64_t first, count; bool last; };

struct state_remake { const struct rnn_run *w; const struct rnn_pass *l; int64_t t; };

/* Recomputes rows begin .. end - 1 of an lstm's states from time t on, from gates and cells. */
static void remake_states(int64_t begin, int64_t end, void *context)
{
  const struct state_remake *a = context;
  const struct rnn *n = &a->w->n;
  const int64_t gates = rnn_gate_rows(n), H = n->units;
  for (int64_t i = begin; i < end; i++) {
    void *gate = rnn_reserve_at(a->w, a->w->reserve_in, a->l, a->t + i / n->batch);
    int64_t sample = i % n->batch;
    n->r->cell->lstm_out(vec_at(n->r, a->w->states, i * H), vec_at(n->r, gate, sample * gates),
        vec_at(n->r, gate, n->batch * gates + sample * H), H);
  }
}

/* Adds to dW_h the products of the gate gradients of a range and the states before its steps;
** before the first step that is the initial state. The range with the last step overwrites dW_h. */
static int recurrent_gradient(
    const struct rnn_run *w, const struct rnn_pass *l, const struct step_range *s, void *dw)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  const int64_t gates = rnn_gate_rows(n), begin = rnn_time_of(n, l->d, 0),
                end = s->first + s->count;
  const bool starts = begin >= s->first && begin < end;
  const int64_t t = s->first + (starts && !l->d),
                count = s->count - starts; /* times of the other steps */
  const int64_t before = l->d ? t + 1 : t - 1;
  bool add = !s->last;
  if (starts) {
    const void *h0 = vec_at(r, w->state, (l->layer * n->directions + l->d) * n->batch * n->outputs);
    TRY(gemm_one(n->type, true, false, gates, n->outputs, n->batch, 1,
        vec_at(r, w->dgh, (begin - s->first) * n->batch * gates), gates, h0, n->outputs, add, dw,
        n->outputs));
    add = true;
  }
  if (!count) return TY_OK;
  if (!l->y)
    parallel_for(count * n->batch, elements_ns(4 * n->units), remake_states,
        &(struct state_remake){ w, l, before });
  return gemm_one(n->type, true, false, gates, n->outputs, count * n->batch, 1,
      vec_at(r, w->dgh, (t - s->first) * n->batch * gates), gates,
      l->y ? rnn_output_at(w, l, before) : w->states,
      l->y ? n->directions * n->outputs : n->units, add, dw, n->outputs);
}

/* Adds to dW_r the products of the gradients of the projected states of a range and its states. The
** range with the last step overwrites dW_r. */
static int projection_gradient(
    const struct rnn_run *w, const struct rnn_pass *l, const struct step_range *s, void *dw)
{
  const struct rnn *n = &w->n;
  parallel_for(s->count * n->batch, elements_ns(4 * n->units), remake_states,
      &(struct state_remake){ w, l, s->first });
  return gemm_one(n->type, true, false, n->outputs, n->units, s->count * n->batch, 1,
      w->projected, n->outputs, w->states, n->units, !s->last, dw, n->units);
}

/* Adds the gate gradients dg of a range to the sums in `column`, which the range with the last step
** sets to 0 before. */
static void bias_sums(
    const struct rnn_run *w, const struct step_range *s, const void *dg, double *column)
{
  const struct rnn *n = &w->n;
  const int64_t gates = rnn_gate_rows(n);
  if (s->last) memset(column, 0, sizeof(double) * (size_t)gates);
  for (int64_t i = 0; i < s->count * n->batch; i++)
    n->r->norm->col_sum(column, vec_at(n->r, dg, i * gates), gates);
}

static int weight_gradients(
    const struct rnn_run *w, const struct rnn_pass *l, const struct step_range *s, void *dp)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  int64_t gates = rnn_gate_rows(n);
  TRY(gemm_one(n->type, true, false, gates, l->in, s->count * n->batch, 1, w->dgx, gates,
      vec_at(r, l->x, s->first * n->batch * l->in), l->in, !s->last, vec_at(r, dp, l->at.wx),
      l->in));
  TRY(recurrent_gradient(w, l, s, vec_at(r, dp, l->at.wh)));
  if (n->projects) TRY(projection_gradient(w, l, s, vec_at(r, dp, l->at.wr)));
  bias_sums(w, s, w->dgx, w->column[0]);
  if (n->mode == GRU) bias_sums(w, s, w->dgh, w->column[1]);
  return TY_OK;
}

static void store_bias(const struct rnn_run *w, const struct rnn_pass *l, void *dp)
{
  const struct vec_ops *r = w->n.r;
  const int64_t gates = rnn_gate_rows(&w->n);
  r->store(vec_at(r, dp, l->at.bx), w->column[0], gates);
  r->store(vec_at(r, dp, l->at.bh), w->column[w->n.mode == GRU], gates);
}

/* Copies a state's gradient, or sets it to 0. width: units of the state. */
static void copy_or_clear(
    const struct rnn_run *w, void *d, const void *g, int64_t state, int64_t width)
{
  size_t bytes = rnn_bytes(&w->n, w->n.batch * width);
  if (g)
    memcpy(d, vec_at(w->n.r, g, state * w->n.batch * width), bytes);
  else
    memset(d, 0, bytes);
}

/* -- one layer in one direction ---------------------------------------------------------------- */

/* The given gradients dy, dhy and dcy, and those to compute, NULL if there are none. */
struct rnn_gradients { const void *dy, *dhy, *dcy; void *dx, *dp, *dhx, *dcx; };

/* Runs steps from .. from + count - 1 backwards, then computes the gradients that follow from those
** of their gates. */
static int backward_steps(const struct rnn_run *w, const struct rnn_pass *l,
    const struct rnn_gradients *g, int64_t from, int64_t count)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  const int64_t gates = rnn_gate_rows(n);
  const struct step_range s = { l->d ? n->time - from - count : from, count,
    from + count == n->time };
  for (int64_t i = from + count - 1; i >= from; i--) TRY(backward_step(w, l, g->dy, i, s.first));
  if (g->dp) TRY(weight_gradients(w, l, &s, g->dp));
  if (!g->dx) return TY_OK;
  return gemm_one(n->type, false, false, count * n->batch, l->in, gates, 1, w->dgx, gates,
      rnn_weight(w, l->at.wx), l->in, l->d, vec_at(r, g->dx, s.first * n->batch * l->in), l->in);
}

static int backward_pass(
    const struct rnn_run *w, const struct rnn_pass *l, const struct rnn_gradients *g)
{
  const struct rnn *n = &w->n;
  const struct vec_ops *r = n->r;
  const int64_t state = l->layer * n->directions + l->d, many = steps_at_once(n);
  gemm_pack(
      n->type, false, n->outputs, rnn_gate_rows(n), rnn_weight(w, l->at.wh), n->outputs, w->ph);
  copy_or_clear(w, w->dr, g->dhy, state, n->outputs);
  copy_or_clear(w, w->dc, g->dcy, state, n->units);
  for (int64_t end = n->time, count; end > 0 && !stop_wanted(); end -= count) {
    count = MIN(many, end);
    TRY(backward_steps(w, l, g, end - count, count));
  }
  if (g->dp) store_bias(w, l, g->dp);
  if (g->dhx)
    memcpy(vec_at(r, g->dhx, state * n->batch * n->outputs), w->dr,
        rnn_bytes(n, n->batch * n->outputs));
  if (g->dcx)
    memcpy(
        vec_at(r, g->dcx, state * n->batch * n->units), w->dc, rnn_bytes(n, n->batch * n->units));
  return TY_OK;
}

/* -- all layers -------------------------------------------------------------------------------- */

static int backward_layer(
    const struct rnn_run *w, int64_t layer, const void *x, void *y, const struct rnn_gradients *g)
{
  for (int64_t d = 0; d < w->n.directions; d++) {
    struct rnn_pass pass = rnn_make_pass(w, layer, d, x, y);
    TRY(backward_pass(w, &pass, g));
  }
  if (layer && w->drops) rnn_dropout(w, g->dx, g->dx, layer);
  return TY_OK;
}

/* Computes the gradients. in: data, parameters, state [, state_cell] [, output, except for an lstm
** without projection], reserve, head gradients of output [, state [, cell]]. */
int rnn_backward(struct call *c)
{
  const struct rnn_param *p = c->param;
  bool lstm = p->mode == LSTM;
  struct rnn_run w = rnn_make_run(c, &c->in[0].d);
  const struct operand *reserve = &c->in[4 + w.n.projects], *head = reserve + 1;
  void *output = lstm && !w.n.projects ? NULL : reserve[-1].p;
  struct rnn_scratch k = { c->tmp, 0 };
  take_scratch(&w, &k);
  w.weights = c->in[1].p;
  w.state = c->in[2].p;
  w.cell = lstm ? c->in[3].p : NULL;
  w.reserve_in = reserve->p;
  struct rnn_gradients g = { head[0].p, p->state_outputs ? head[1].p : NULL,
    p->state_outputs && lstm ? head[2].p : NULL, NULL, c->out[1].p, c->out[2].p,
    lstm ? c->out[3].p : NULL };
  for (int64_t l = w.n.layers - 1; l >= 0; l--) {
    void *y = l < w.n.layers - 1 ? rnn_inner_output(&w, l) : output;
    const void *x = l ? rnn_inner_output(&w, l - 1) : c->in[0].p;
    if (l && w.drops && g.dp) x = rnn_dropout(&w, w.dropped, x, l);
    g.dx = l ? w.layer[l & 1] : c->out[0].p;
    TRY(backward_layer(&w, l, x, y, &g));
    g.dy = g.dx;
  }
  return TY_OK;
}

size_t rnn_backward_scratch(const struct call *c)
{
  struct rnn_run w = rnn_make_run(c, &c->in[0].d);
  struct rnn_scratch k = { 0 };
  take_scratch(&w, &k);
  return k.used;
}
