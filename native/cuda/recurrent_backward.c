/* recurrent_backward.c - RNN on a GPU, backward: steps go backwards for the gradients of the gates,
** which then give all others in products over all steps. */
#include "cuda/recurrent.h"
#include "kernel/strided_copy.h"

/* Places of plans. Where one has two, the second is for inner layers, or for rows further apart. */
enum { STATE, WEIGHT_H_FIRST, WEIGHT_H, INPUT = WEIGHT_H + 2 };
/* of those with sums */
enum { WEIGHT_X, WEIGHT_H_ALL = WEIGHT_X + 2 };
struct backward_scratch { void *dgx, *dgh, *dh, *dc, *states, *dx[2], *dropped, *reduction; };
/* given, and asked for */
struct recurrent_gradients { const void *dy, *dhy, *dcy; void *dx, *dp, *dhx, *dcx; };

/* -- products ---------------------------------------------------------------------------------- */

static struct recurrent_product state_product(const struct recurrent *r)
{
  return (struct recurrent_product){ r->batch, r->units, r->rows, r->rows, r->units, r->units };
}

static struct recurrent_product input_weight_product(const struct recurrent *r, int64_t in)
{
  return (struct recurrent_product){ r->rows, in, r->time * r->batch, r->rows, in, in,
    .ta = true };
}

/* Returns the product over some steps, whose states have rows `row` apart. */
static struct recurrent_product state_weight_product(
    const struct recurrent *r, int64_t steps, int64_t row)
{
  return (struct recurrent_product){ r->rows, r->units, steps * r->batch, r->rows, row, r->units,
    .ta = true };
}

static struct recurrent_product data_product(const struct recurrent *r, int64_t in)
{
  return (struct recurrent_product){ r->time * r->batch, in, r->rows, r->rows, in, in };
}

static size_t work_bytes(const struct recurrent *r)
{
  int64_t row = output_row(r), rest = MAX(r->time - 1, 1);
  struct recurrent_product p[] = { state_product(r), state_weight_product(r, 1, r->units),
    state_weight_product(r, rest, r->units), state_weight_product(r, rest, row),
    data_product(r, r->inputs), data_product(r, row) };
  struct recurrent_product with_sums[] = { input_weight_product(r, r->inputs),
    input_weight_product(r, row), state_weight_product(r, r->time, r->units) };
  const size_t plain = recurrent_work(r, p, COUNT(p));
  return MAX(plain, recurrent_work_sums(r, with_sums, COUNT(with_sums)));
}

/* -- scratch ----------------------------------------------------------------------------------- */

static struct reduce bias_reduction(const struct recurrent *r)
{
  return cuda_reduce_all_but(r->dtype, r->time * r->batch, r->rows, 1);
}

static size_t take_scratch(struct recurrent *r, struct backward_scratch *s, char *base)
{
  struct recurrent_scratch at = { base, 0 };
  struct reduce reduction = bias_reduction(r);
  size_t gates = (size_t)(r->time * r->batch * r->rows) * r->size, layer = layer_bytes(r);
  size_t states = (size_t)(r->batch * r->units) * r->size;
  s->dgx = recurrent_take(&at, gates);
  s->dgh = r->mode == GRU ? recurrent_take(&at, gates) : s->dgx;
  s->dh = recurrent_take(&at, states);
  s->dc = recurrent_take(&at, states);
  const bool remakes = r->mode == LSTM || recurrence_make_plan(r, true).samples;
  s->states = recurrent_take(&at, remakes ? (size_t)r->time * states : 0);
  for (int i = 0; i < 2; i++) s->dx[i] = recurrent_take(&at, r->layers > 1 ? layer : 0);
  s->dropped = recurrent_take(&at, cuda_number(r->c, "p", 0) > 0 ? layer : 0);
  s->reduction = recurrent_take(&at, cuda_reduce_scratch(&reduction));
  r->work = recurrent_take(&at, base ? 0 : work_bytes(r));
  return at.used;
}

/* -- steps ------------------------------------------------------------------------------------- */

static int run_cells(const struct recurrent *r, const struct recurrent_pass *l,
    const struct backward_scratch *b, const void *dy, int64_t index)
{
  int64_t t = time_of_step(r, l->d, index), before = time_of_step(r, l->d, index - 1);
  struct cell_sizes s = make_cell_sizes(r, !index);
  void *dgx = recurrent_element(r, b->dgx, t * r->batch * r->rows), *dh = b->dh, *dc = b->dc;
  void *dgh = recurrent_element(r, b->dgh, t * r->batch * r->rows);
  const void *head = dy ? recurrent_element(r, output_of(r, dy, t), l->d * r->units) : NULL;
  const void *gate = recurrent_kept(r, l, t),
             *more = recurrent_element(r, gate, r->batch * r->rows);
  const void *c0 = NULL, *h = l->y ? output_of(r, l->y, t) : NULL, *h0 = NULL;
  if (r->mode == LSTM)
    c0 = index ? recurrent_element(r, recurrent_kept(r, l, before), r->batch * r->rows)
               : state_of(r, l, r->cell);
  else
    h0 = index ? output_of(r, l->y, before) : state_of(r, l, r->state);
  void *simple[] = { &dgx, &h, &dh, &head, &s };
  void *lstm[] = { &dgx, &dc, &dh, &head, &gate, &more, &c0, &s };
  void *gru[] = { &dgx, &dgh, &dh, &head, &gate, &more, &h0, &s };
  if (r->mode == LSTM) return recurrent_cells(r, "lstm_cell_back", s.n, 7, &s, lstm);
  return r->mode == GRU ? recurrent_cells(r, "gru_cell_back", s.n, 7, &s, gru)
                        : recurrent_cells(r, "simple_cell_back", s.n, 4, &s, simple);
}

static int copy_or_clear(
    const struct recurrent *r, const struct recurrent_pass *l, void *d, const void *g)
{
  size_t bytes = (size_t)(r->batch * r->units) * r->size;
  return g ? move_bytes(r->c->device, d, state_of(r, l, g), bytes)
           : move_zero(r->c->device, d, bytes);
}

static int all_steps(const struct recurrent *r, const struct recurrent_pass *l,
    const struct backward_scratch *b, const struct recurrent_gradients *g)
{
  struct recurrent_product p = state_product(r);
  const void *wh = recurrent_element(r, r->weights, l->wh);
  const size_t bytes = (size_t)(r->batch * r->units) * r->size;
  const int device = r->c->device;
  TRY(copy_or_clear(r, l, b->dh, g->dhy));
  TRY(copy_or_clear(r, l, b->dc, g->dcy));
  for (int64_t i = r->time - 1; i >= 0; i--) {
    int64_t t = time_of_step(r, l->d, i);
    TRY(run_cells(r, l, b, g->dy, i));
    TRY(recurrent_multiply(r, STATE, &p, recurrent_element(r, b->dgh, t * r->batch * r->rows), wh,
        b->dh, r->mode == GRU));
  }
  if (g->dhx) TRY(move_bytes(device, state_of(r, l, g->dhx), b->dh, bytes));
  return g->dcx ? move_bytes(device, state_of(r, l, g->dcx), b->dc, bytes) : TY_OK;
}

/* Runs all steps by one kernel, which takes the gradients of the last states and makes those of the
** first ones, and the states before each step. */
static int all_steps_at_once(const struct recurrent *r, const struct recurrent_pass *l,
    const struct backward_scratch *b, const struct recurrent_gradients *g)
{
  const void *w = recurrent_element(r, r->weights, l->wh), *kept = recurrent_kept(r, l, 0),
             *h = l->y, *h0 = state_of(r, l, r->state),
             *c0 = r->cell ? state_of(r, l, r->cell) : NULL,
             *dy = g->dy ? recurrent_element(r, g->dy, l->d * r->units) : NULL,
             *dhy = g->dhy ? state_of(r, l, g->dhy) : NULL,
             *dcy = g->dcy ? state_of(r, l, g->dcy) : NULL;
  void *dhx = g->dhx ? state_of(r, l, g->dhx) : NULL, *dgx = b->dgx, *dgh = b->dgh,
       *dcx = g->dcx ? state_of(r, l, g->dcx) : NULL, *before = g->dp ? b->states : NULL;
  void *params[14] = { &dgx, &dgh, &before, &dhx, &dcx, &dy, &dhy, &dcy, &kept, &h, &w, &h0, &c0 };
  return recurrence_run(r, true, l->d, w, params, 13);
}

/* -- gradients of the weights ------------------------------------------------------------------ */

/* Computes the states at all times of lstm's last layer, whose output is not there. */
static int remake_states(const struct recurrent *r, const struct recurrent_pass *l, void *states)
{
  struct cell_sizes s = make_cell_sizes(r, false);
  const void *gate = recurrent_kept(r, l, 0), *c = recurrent_element(r, gate, r->batch * r->rows);
  int64_t step = recurrent_step(r), n = r->time * s.n;
  void *params[] = { &states, &gate, &c, &step, &n, &s };
  return recurrent_cells(r, "lstm_states", n, 3, &s, params);
}

/* Multiplies the states before each step by its gate gradients; those of the first are given. */
static int state_weights(const struct recurrent *r, const struct recurrent_pass *l,
    const struct backward_scratch *b, void *dw)
{
  int64_t begin = time_of_step(r, l->d, 0), rest = r->time - 1;
  int64_t gates = r->batch * r->rows, row = l->y ? output_row(r) : r->units;
  struct recurrent_product first = state_weight_product(r, 1, r->units);
  struct recurrent_product other = state_weight_product(r, rest, row);
  TRY(recurrent_multiply(r, WEIGHT_H_FIRST, &first, recurrent_element(r, b->dgh, begin * gates),
      state_of(r, l, r->state), dw, false));
  if (!rest) return TY_OK;
  if (!l->y) TRY(remake_states(r, l, b->states));
  const void *all = l->y ? l->y : b->states;
  /* forward: steps at times from 1 on, and states from 0 on; else the other way round */
  const void *dg = recurrent_element(r, b->dgh, l->d ? 0 : gates);
  const void *before = recurrent_element(r, all, l->d ? r->batch * row : 0);
  return recurrent_multiply(r, WEIGHT_H + (l->y != NULL), &other, dg, before, dw, true);
}

static int bias_sums(const struct recurrent *r, const struct backward_scratch *b, const void *dg,
    void *db)
{
  struct reduce reduction = bias_reduction(r);
  struct cuda_reduce f = { R_SUM, F_NONE, r->dtype, dg, .y = db };
  return cuda_reduce(r->c->device, &reduction, &f, b->reduction);
}

static int weight_gradients(const struct recurrent *r, const struct recurrent_pass *l,
    const struct backward_scratch *b, void *dp)
{
  struct recurrent_product p = input_weight_product(r, l->in);
  void *dw = recurrent_element(r, dp, l->wh), *db = recurrent_element(r, dp, l->bh);
  TRY(recurrent_multiply_sums(r, WEIGHT_X + (l->layer > 0), &p, b->dgx, l->x,
      recurrent_element(r, dp, l->wx), recurrent_element(r, dp, l->bx)));
  if (recurrence_make_plan(r, true).samples) {
    p = state_weight_product(r, r->time, r->units);
    return recurrent_multiply_sums(r, WEIGHT_H_ALL, &p, b->dgh, b->states, dw, db);
  }
  TRY(state_weights(r, l, b, dw));
  return bias_sums(r, b, b->dgh, db);
}

/* -- layers ------------------------------------------------------------------------------------ */

static int backward_pass(const struct recurrent *r, const struct recurrent_pass *l,
    const struct backward_scratch *b, const struct recurrent_gradients *g)
{
  struct recurrent_product p = data_product(r, l->in);
  const bool at_once = recurrence_make_plan(r, true).samples;
  TRY(at_once ? all_steps_at_once(r, l, b, g) : all_steps(r, l, b, g));
  if (g->dp) TRY(weight_gradients(r, l, b, g->dp));
  if (!g->dx) return TY_OK;
  return recurrent_multiply(r, INPUT + (l->layer > 0), &p, b->dgx,
      recurrent_element(r, r->weights, l->wx), g->dx, l->d > 0);
}

/* Computes the gradients; in: data, parameters, state [, cell] [, output: not lstm], the private
** output, head gradients of output [, state [, cell]]. */
int recurrent_backward(struct call *c)
{
  struct recurrent r = recurrent_make(c, &c->in[0].d);
  struct backward_scratch b;
  const struct operand *head = &c->in[5];
  bool lstm = r.mode == LSTM, states = cuda_flag(c, "state_outputs");
  take_scratch(&r, &b, c->tmp);
  r.weights = c->in[1].p;
  r.state = c->in[2].p;
  r.cell = lstm ? c->in[3].p : NULL;
  r.reserve = c->in[4].p;
  struct recurrent_gradients g = { head[0].p, states ? head[1].p : NULL,
    states && lstm ? head[2].p : NULL, NULL, c->out[1].p, c->out[2].p,
    lstm ? c->out[3].p : NULL };
  for (int64_t i = r.layers - 1; i >= 0; i--) {
    void *y = i < r.layers - 1 ? recurrent_inner(&r, i) : lstm ? NULL : c->in[3].p;
    const void *x = i ? recurrent_inner(&r, i - 1) : c->in[0].p;
    if (i && r.drops && g.dp) TRY(recurrent_dropout(&r, b.dropped, x, i));
    if (i && r.drops && g.dp) x = b.dropped;
    g.dx = i ? b.dx[i & 1] : c->out[0].p;
    for (int64_t d = 0; d < r.directions; d++) {
      struct recurrent_pass l = recurrent_make_pass(&r, i, d, x, y);
      TRY(backward_pass(&r, &l, &b, &g));
    }
    if (i && r.drops) TRY(recurrent_dropout(&r, g.dx, g.dx, i));
    g.dy = g.dx;
  }
  return TY_OK;
}

size_t recurrent_backward_scratch(const struct call *c)
{
  struct recurrent r = recurrent_make(c, &c->in[0].d);
  struct backward_scratch b;
  return take_scratch(&r, &b, NULL);
}
