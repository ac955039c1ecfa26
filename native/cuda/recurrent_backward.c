/* recurrent_backward.c - RNN on a GPU, backward: steps are run backwards for the gradients of the
** gates; then products over all steps give the other gradients. */
#include "cuda/recurrent.h"
#include "kernel/strided_copy.h"

/* Indices of plans. If one has two, the second is for inner layers, or for rows that are further
** apart. INPUT_REST is for the last chunk of a wave. */
enum { STATE, WEIGHT_H_FIRST, WEIGHT_H, INPUT = WEIGHT_H + 2, INPUT_REST = INPUT + 2 };
/* Indices of plans with sums. */
enum { WEIGHT_X, WEIGHT_H_ALL = WEIGHT_X + 2 };
/* Scratch that the layers on a stream use one after another. */
struct backward_scratch {
  void *dgx, *dgh, *dh, *dc, *states, *dropped, *reduction, *carry, *work;
};
/* Gradients that are given (const), and gradients to compute. */
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

/* Returns the product for the recurrent weight over some steps. row: distance of the rows of their
** states. */
static struct recurrent_product state_weight_product(
    const struct recurrent *r, int64_t steps, int64_t row)
{
  return (struct recurrent_product){ r->rows, r->units, steps * r->batch, r->rows, row, r->units,
    .ta = true };
}

static struct recurrent_product data_product(const struct recurrent *r, int64_t steps, int64_t in)
{
  return (struct recurrent_product){ steps * r->batch, in, r->rows, r->rows, in, in };
}

static size_t work_bytes(const struct recurrent *r, const struct recurrent_wave *w)
{
  int64_t row = output_row(r), rest = MAX(r->time - 1, 1);
  const int64_t chunk = w->chunks ? w->steps : r->time,
                last = w->chunks ? r->time - (w->chunks - 1) * w->steps : r->time;
  struct recurrent_product p[] = { state_product(r), state_weight_product(r, 1, r->units),
    state_weight_product(r, rest, r->units), state_weight_product(r, rest, row),
    data_product(r, r->time, r->inputs), data_product(r, chunk, row), data_product(r, last, row) };
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

/* Divides the scratch of a stream. */
static void take_stream(const struct recurrent *r, const struct recurrent_wave *w,
    struct backward_scratch *s, struct recurrent_scratch *at, size_t work)
{
  struct reduce reduction = bias_reduction(r);
  size_t gates = (size_t)(r->time * r->batch * r->rows) * r->size, layer = layer_bytes(r);
  size_t states = (size_t)(r->batch * r->units) * r->size;
  s->dgx = recurrent_take(at, gates);
  s->dgh = r->mode == GRU ? recurrent_take(at, gates) : s->dgx;
  s->dh = recurrent_take(at, states);
  s->dc = recurrent_take(at, states);
  const bool remakes = r->mode == LSTM || recurrence_make_plan(r, true).samples;
  s->states = recurrent_take(at, remakes ? (size_t)r->time * states : 0);
  s->dropped = recurrent_take(at, cuda_number(r->c, "p", 0) > 0 ? layer : 0);
  s->reduction = recurrent_take(at, cuda_reduce_scratch(&reduction));
  s->carry = recurrent_take(at, recurrent_carry_bytes(r, w));
  s->work = recurrent_take(at, work);
}

/* Divides the scratch of a call. dx: gradients of the inputs of inner layers. */
static size_t take_scratch(const struct recurrent *r, const struct recurrent_wave *w,
    struct backward_scratch s[2], void *dx[2], char *base)
{
  struct recurrent_scratch at = { base, 0 };
  const size_t work = recurrent_stream_work(r, w, base, work_bytes);
  for (int i = 0; i < 2; i++) dx[i] = recurrent_take(&at, r->layers > 1 ? layer_bytes(r) : 0);
  for (int i = 0; i < (w->chunks ? 2 : 1); i++) take_stream(r, w, &s[i], &at, work);
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

/* Runs the steps of a pass by one kernel, from the gradients of the last states to those of the
** first ones; it also writes the states before each step. */
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
  void *params[15] = { &dgx, &dgh, &before, &dhx, &dcx, &dy, &dhy, &dcy, &kept, &h, &w, &h0, &c0 };
  return recurrence_run(r, l, true, params, 13);
}

/* -- gradients of the weights ------------------------------------------------------------------ */

/* Recomputes the states at all times of lstm's last layer, whose output is not an input. */
static int remake_states(const struct recurrent *r, const struct recurrent_pass *l, void *states)
{
  struct cell_sizes s = make_cell_sizes(r, false);
  const void *gate = recurrent_kept(r, l, 0), *c = recurrent_element(r, gate, r->batch * r->rows);
  int64_t step = recurrent_step(r), n = r->time * s.n;
  void *params[] = { &states, &gate, &c, &step, &n, &s };
  return recurrent_cells(r, "lstm_states", n, 3, &s, params);
}

/* Computes the gradient of the recurrent weight: the states before each step times its gate
** gradients. The state before the first step is an input. */
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
  /* direction 0: steps from time 1 on, states from time 0 on; direction 1: the reverse */
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

/* Computes the gradients of a pass's inputs from those of its gates, by plan number `plan`. */
static int multiply_data(const struct recurrent *r, const struct recurrent_pass *l,
    const struct backward_scratch *b, void *dx, int plan)
{
  const struct recurrent_product p = data_product(r, l->end - l->begin, l->in);
  const int64_t row = l->begin * r->batch;
  return recurrent_multiply(r, plan, &p, recurrent_element(r, b->dgx, row * r->rows),
      recurrent_element(r, r->weights, l->wx), recurrent_element(r, dx, row * l->in), l->d > 0);
}

static int backward_pass(const struct recurrent *r, const struct recurrent_pass *l,
    const struct backward_scratch *b, const struct recurrent_gradients *g)
{
  const bool at_once = recurrence_make_plan(r, true).samples;
  TRY(at_once ? all_steps_at_once(r, l, b, g) : all_steps(r, l, b, g));
  if (g->dp) TRY(weight_gradients(r, l, b, g->dp));
  return g->dx ? multiply_data(r, l, b, g->dx, INPUT + (l->layer > 0)) : TY_OK;
}

/* The arrays of a call besides struct recurrent_gradients. dx: gradients of the outputs of inner
** layers, used alternately. */
struct backward_arrays { const void *x, *y; void *dx[2], *dx_first; };

static struct recurrent_pass make_pass(const struct recurrent *r, const struct backward_arrays *a,
    int64_t layer, int64_t d)
{
  void *y = layer < r->layers - 1 ? recurrent_inner(r, layer) : (void *)(uintptr_t)a->y;
  return recurrent_make_pass(r, layer, d, layer ? recurrent_inner(r, layer - 1) : a->x, y);
}

static int run_in_turn(struct recurrent *r, const struct backward_scratch *b,
    const struct backward_arrays *a, struct recurrent_gradients *g)
{
  r->work = b->work;
  for (int64_t i = r->layers - 1; i >= 0; i--) {
    g->dx = i ? a->dx[i & 1] : a->dx_first;
    for (int64_t d = 0; d < r->directions; d++) {
      struct recurrent_pass l = make_pass(r, a, i, d);
      const bool drops = i && r->drops && g->dp;
      if (drops && !d) TRY(recurrent_dropout(r, &l, b->dropped, l.x));
      if (drops) l.x = b->dropped;
      TRY(backward_pass(r, &l, b, g));
      if (i && r->drops && d == r->directions - 1) TRY(recurrent_dropout(r, &l, g->dx, g->dx));
    }
    g->dy = g->dx;
  }
  return TY_OK;
}

/* Runs a chunk of a layer after the same chunk of the layer above. */
static int run_chunk(const struct recurrent *r, const struct recurrent_wave *w,
    struct recurrent_pass *l, const struct backward_scratch *b,
    const struct recurrent_gradients *g, int chunk)
{
  const int device = r->c->device;
  const int64_t above = r->layers - 1 - l->layer;
  const bool second = above & 1;
  recurrent_set_chunk(r, w, l, chunk);
  if (above) TRY(cuda_await(device, recurrent_mark(!second, chunk)));
  TRY(all_steps_at_once(r, l, b, g));
  if (!l->layer) return TY_OK;
  const int plan = l->end - l->begin == w->steps ? INPUT + 1 : INPUT_REST;
  TRY(multiply_data(r, l, b, g->dx, plan));
  if (r->drops) TRY(recurrent_dropout(r, l, g->dx, g->dx));
  return cuda_mark(device, recurrent_mark(second, chunk));
}

static int run_wave(struct recurrent *r, const struct recurrent_wave *w,
    const struct backward_scratch b[2], const struct backward_arrays *a,
    struct recurrent_gradients *g)
{
  for (int64_t i = r->layers - 1; i >= 0; i--) {
    const bool second = (r->layers - 1 - i) & 1;
    const struct backward_scratch *own = &b[second];
    struct recurrent_pass l = make_pass(r, a, i, 0);
    cuda_choose_stream(second);
    r->work = own->work;
    l.carry = own->carry;
    g->dx = i ? a->dx[i & 1] : a->dx_first;
    for (int k = w->chunks - 1; k >= 0; k--) TRY(run_chunk(r, w, &l, own, g, k));
    g->dy = g->dx;
    l.begin = 0;
    l.end = r->time;
    if (g->dp && i && r->drops) {
      TRY(recurrent_dropout(r, &l, own->dropped, l.x));
      l.x = own->dropped;
    }
    if (g->dp) TRY(weight_gradients(r, &l, own, g->dp));
    if (!i && g->dx) TRY(multiply_data(r, &l, own, g->dx, INPUT));
  }
  return TY_OK;
}

/* Computes the gradients; in: data, parameters, state [, cell] [, output: not lstm], the private
** output, head gradients of output [, state [, cell]]. */
int recurrent_backward(struct call *c)
{
  struct recurrent r = recurrent_make(c, &c->in[0].d);
  const struct recurrent_wave w = recurrent_make_wave(&r, true);
  struct backward_scratch b[2];
  const struct operand *head = &c->in[5];
  bool lstm = r.mode == LSTM, states = cuda_flag(c, "state_outputs");
  struct backward_arrays a = { c->in[0].p, lstm ? NULL : c->in[3].p, { NULL, NULL }, c->out[0].p };
  take_scratch(&r, &w, b, a.dx, c->tmp);
  r.weights = c->in[1].p;
  r.state = c->in[2].p;
  r.cell = lstm ? c->in[3].p : NULL;
  r.reserve = c->in[4].p;
  struct recurrent_gradients g = { head[0].p, states ? head[1].p : NULL,
    states && lstm ? head[2].p : NULL, NULL, c->out[1].p, c->out[2].p,
    lstm ? c->out[3].p : NULL };
  if (!w.chunks) return run_in_turn(&r, b, &a, &g);
  TRY(cuda_fork(c->device));
  return cuda_join(c->device, run_wave(&r, &w, b, &a, &g));
}

size_t recurrent_backward_scratch(const struct call *c)
{
  struct recurrent r = recurrent_make(c, &c->in[0].d);
  const struct recurrent_wave w = recurrent_make_wave(&r, true);
  struct backward_scratch b[2];
  void *dx[2];
  return take_scratch(&r, &w, b, dx, NULL);
}
