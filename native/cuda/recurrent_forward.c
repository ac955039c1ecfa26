/* recurrent_forward.c - RNN on a GPU, forward. The private output receives what backward reads; in
** inference, gates overwrite the products from which they are computed. */
#include "cuda/recurrent.h"
#include "kernel/strided_copy.h"

/* Indices of plans. INPUT_REST is for the last chunk of a wave. */
enum { INPUT_FIRST, INPUT_INNER, INPUT_REST, STEP_FIRST, STEP_OTHER, PROJECTION };
/* Scratch that the layers on a stream use one after another. hidden: the states of a step before
** projection. */
struct forward_scratch { void *pre, *hx, *hn, *c, *hidden, *dropped, *carry, *work; };

static struct recurrent_product input_product(const struct recurrent *r, int64_t steps, int64_t in)
{
  return (struct recurrent_product){ steps * r->batch, r->rows, in, in, in, r->rows, .tb = true };
}

/* Returns the recurrent product of a step. h0_row: distance of the rows of the previous states. */
static struct recurrent_product step_product(const struct recurrent *r, int64_t h0_row)
{
  return (struct recurrent_product){ r->batch, r->rows, r->outputs, h0_row, r->outputs, r->rows,
    .tb = true };
}

static struct recurrent_product projection_product(const struct recurrent *r)
{
  return (struct recurrent_product){ r->batch, r->outputs, r->units, r->units, r->units,
    output_row(r), .tb = true };
}

static size_t work_bytes(const struct recurrent *r, const struct recurrent_wave *w)
{
  const int64_t row = output_row(r), rest = r->time - (w->chunks - 1) * w->steps;
  struct recurrent_product p[] = { input_product(r, r->time, r->inputs),
    w->chunks ? input_product(r, w->steps, row) : input_product(r, r->time, row),
    w->chunks ? input_product(r, rest, row) : input_product(r, r->time, row),
    step_product(r, r->outputs), step_product(r, row), projection_product(r) };
  return recurrent_work(r, p, r->projects ? COUNT(p) : COUNT(p) - 1);
}

/* Divides the scratch of a stream. */
static void take_stream(const struct recurrent *r, const struct recurrent_wave *w,
    struct forward_scratch *s, struct recurrent_scratch *at, size_t work)
{
  size_t gates = (size_t)(r->batch * r->rows) * r->size;
  size_t states = (size_t)(r->batch * r->units) * r->size, layer = layer_bytes(r);
  s->pre = recurrent_take(at, (size_t)r->time * gates);
  s->hx = recurrent_take(at, r->mode == GRU ? gates : 0);
  s->hn = recurrent_take(at, r->mode == GRU ? states : 0);
  s->c = recurrent_take(at, r->mode == LSTM ? states : 0);
  s->hidden = recurrent_take(at, r->projects ? states : 0);
  s->dropped = recurrent_take(at, cuda_number(r->c, "p", 0) > 0 ? layer : 0);
  s->carry = recurrent_take(at, recurrent_carry_bytes(r, w));
  s->work = recurrent_take(at, work);
}

static size_t take_scratch(struct recurrent *r, const struct recurrent_wave *w,
    struct forward_scratch s[2], char *base)
{
  struct recurrent_scratch at = { base, 0 };
  const size_t work = recurrent_stream_work(r, w, base, work_bytes);
  for (int i = 0; i < 2; i++) r->inner[i] = recurrent_take(&at, layer_bytes(r));
  for (int i = 0; i < (w->chunks ? 2 : 1); i++) take_stream(r, w, &s[i], &at, work);
  return at.used;
}

static int run_cells(const struct recurrent *r, const struct recurrent_pass *l,
    const struct forward_scratch *f, int64_t index, void *pre)
{
  int64_t t = time_of_step(r, l->d, index), before = time_of_step(r, l->d, index - 1);
  struct cell_sizes s = make_cell_sizes(r, !index);
  const void *bx = recurrent_element(r, r->weights, l->bx),
             *bh = recurrent_element(r, r->weights, l->bh);
  const void *h0 = index ? output_of(r, l->y, before) : state_of(r, l, r->state), *c0 = f->c;
  void *h = output_of(r, l->y, t), *gate = pre, *c = f->c, *hx = f->hx, *hn = f->hn;
  if (r->reserve) {
    gate = recurrent_kept(r, l, t);
    c = hn = recurrent_element(r, gate, r->batch * r->rows);
    if (index) c0 = recurrent_element(r, recurrent_kept(r, l, before), r->batch * r->rows);
  }
  if (!index && r->mode == LSTM) c0 = cell_state_of(r, l, r->cell);
  if (r->projects) h = f->hidden, s.h_row = r->units;
  void *simple[] = { &h, &pre, &bx, &bh, &s };
  void *lstm[] = { &h, &c, &gate, &pre, &bx, &bh, &c0, &s };
  void *gru[] = { &h, &gate, &hn, &pre, &hx, &bx, &bh, &h0, &s };
  if (r->mode == LSTM) return recurrent_cells(r, "lstm_cell", s.n, 7, &s, lstm);
  return r->mode == GRU ? recurrent_cells(r, "gru_cell", s.n, 8, &s, gru)
                        : recurrent_cells(r, "simple_cell", s.n, 4, &s, simple);
}

static int forward_step(const struct recurrent *r, const struct recurrent_pass *l,
    const struct forward_scratch *f, int64_t index)
{
  int64_t t = time_of_step(r, l->d, index), before = time_of_step(r, l->d, index - 1);
  void *pre = recurrent_element(r, f->pre, t * r->batch * r->rows),
       *to = r->mode == GRU ? f->hx : pre;
  const void *h0 = index ? output_of(r, l->y, before) : state_of(r, l, r->state);
  struct recurrent_product p = step_product(r, index ? output_row(r) : r->outputs);
  TRY(recurrent_multiply(r, index ? STEP_OTHER : STEP_FIRST, &p, h0,
      recurrent_element(r, r->weights, l->wh), to, r->mode != GRU));
  TRY(run_cells(r, l, f, index, pre));
  if (!r->projects) return TY_OK;
  p = projection_product(r);
  return recurrent_multiply(r, PROJECTION, &p, f->hidden, recurrent_element(r, r->weights, l->wr),
      output_of(r, l->y, t), false);
}

static int final_states(const struct recurrent *r, const struct recurrent_pass *l,
    const struct forward_scratch *f, void *hy, void *cy)
{
  int64_t t = time_of_step(r, l->d, r->time - 1), n = r->batch * r->units;
  const void *c = r->reserve ? recurrent_element(r, recurrent_kept(r, l, t), r->batch * r->rows)
                             : f->c;
  struct move m = { 0 };
  move_axis(&m, r->batch, r->outputs, output_row(r));
  move_axis(&m, r->outputs, 1, 1);
  if (hy)
    TRY(move_run(r->c->device, &m, state_of(r, l, hy), output_of(r, l->y, t), r->size));
  return cy ? move_bytes(r->c->device, cell_state_of(r, l, cy), c, (size_t)n * r->size) : TY_OK;
}

static int all_steps(const struct recurrent *r, const struct recurrent_pass *l,
    const struct forward_scratch *f, void *hy, void *cy)
{
  const void *bx = recurrent_element(r, r->weights, l->bx),
             *bh = recurrent_element(r, r->weights, l->bh),
             *w = recurrent_element(r, r->weights, l->wh), *h0 = state_of(r, l, r->state),
             *c0 = r->cell ? cell_state_of(r, l, r->cell) : NULL;
  /* with half types everything is kept, since it is converted if backward launches each step */
  const bool keeps = r->reserve && (recurrent_keeps(r) || r->size < sizeof(float));
  void *y = l->y, *kept = keeps ? recurrent_kept(r, l, 0) : NULL, *pre = f->pre;
  if (hy) hy = state_of(r, l, hy);
  if (cy) cy = cell_state_of(r, l, cy);
  void *params[12] = { &y, &hy, &cy, &kept, &pre, &w, &bx, &bh, &h0, &c0 };
  return recurrence_run(r, l, false, params, 10);
}

/* Multiplies the inputs of a pass's steps by plan number `plan`. */
static int multiply_inputs(const struct recurrent *r, const struct recurrent_pass *l,
    const struct forward_scratch *f, int plan)
{
  const struct recurrent_product p = input_product(r, l->end - l->begin, l->in);
  const int64_t row = l->begin * r->batch;
  return recurrent_multiply(r, plan, &p, recurrent_element(r, l->x, row * l->in),
      recurrent_element(r, r->weights, l->wx), recurrent_element(r, f->pre, row * r->rows), false);
}

static int forward_pass(const struct recurrent *r, const struct recurrent_pass *l,
    const struct forward_scratch *f, void *hy, void *cy)
{
  TRY(multiply_inputs(r, l, f, l->layer ? INPUT_INNER : INPUT_FIRST));
  if (recurrence_make_plan(r, false).samples) return all_steps(r, l, f, hy, cy);
  for (int64_t i = 0; i < r->time; i++) TRY(forward_step(r, l, f, i));
  return final_states(r, l, f, hy, cy);
}

/* Arrays of a call. */
struct forward_arrays { const void *x; void *y, *hy, *cy; };

/* Returns the array of a layer's output. */
static void *layer_output(const struct recurrent *r, const struct forward_arrays *a, int64_t layer)
{
  if (layer < r->layers - 1) return recurrent_inner(r, layer);
  return a->y ? a->y : r->inner[layer & 1];
}

static int run_in_turn(struct recurrent *r, struct forward_scratch *f,
    const struct forward_arrays *a)
{
  const void *x = a->x;
  r->work = f->work;
  for (int64_t i = 0; i < r->layers; i++) {
    void *y = layer_output(r, a, i);
    for (int64_t d = 0; d < r->directions; d++) {
      struct recurrent_pass l = recurrent_make_pass(r, i, d, x, y);
      if (i && !d && r->drops) TRY(recurrent_dropout(r, &l, f->dropped, x));
      if (i && r->drops) l.x = f->dropped;
      TRY(forward_pass(r, &l, f, a->hy, a->cy));
    }
    x = y;
  }
  return TY_OK;
}

/* Runs a chunk of a layer after the same chunk of the layer before. */
static int run_chunk(const struct recurrent *r, const struct recurrent_wave *w,
    struct recurrent_pass *l, const struct forward_scratch *f, const struct forward_arrays *a,
    int chunk)
{
  const int device = r->c->device;
  const bool second = l->layer & 1;
  recurrent_set_chunk(r, w, l, chunk);
  if (l->layer) {
    TRY(cuda_await(device, recurrent_mark(!second, chunk)));
    if (r->drops) TRY(recurrent_dropout(r, l, f->dropped, l->x));
    struct recurrent_pass inputs = *l;
    if (r->drops) inputs.x = f->dropped;
    TRY(multiply_inputs(r, &inputs, f, l->end - l->begin == w->steps ? INPUT_INNER : INPUT_REST));
  }
  TRY(all_steps(r, l, f, a->hy, a->cy));
  return cuda_mark(device, recurrent_mark(second, chunk));
}

static int run_wave(struct recurrent *r, const struct recurrent_wave *w,
    const struct forward_scratch f[2], const struct forward_arrays *a)
{
  const void *x = a->x;
  for (int64_t i = 0; i < r->layers; i++) {
    struct recurrent_pass l = recurrent_make_pass(r, i, 0, x, layer_output(r, a, i));
    cuda_choose_stream(i & 1);
    r->work = f[i & 1].work;
    l.carry = f[i & 1].carry;
    if (!i) TRY(multiply_inputs(r, &l, f, INPUT_FIRST));
    for (int k = 0; k < w->chunks; k++) TRY(run_chunk(r, w, &l, &f[i & 1], a, k));
    x = l.y;
  }
  return TY_OK;
}

/* Computes the layers; in: data, parameters, state [, cell]; out: output [, state [, cell]], the
** private one. */
int recurrent_forward(struct call *c)
{
  struct recurrent r = recurrent_make(c, &c->in[0].d);
  const struct recurrent_wave w = recurrent_make_wave(&r, false);
  struct forward_scratch f[2];
  bool states = cuda_flag(c, "state_outputs");
  take_scratch(&r, &w, f, c->tmp);
  r.weights = c->in[1].p;
  r.state = c->in[2].p;
  r.cell = c->nin > 3 ? c->in[3].p : NULL;
  r.reserve = c->out[c->nout - 1].p;
  const struct forward_arrays a = { c->in[0].p, c->out[0].p, states ? c->out[1].p : NULL,
    states && r.cell ? c->out[2].p : NULL };
  /* plain cells keep nothing, but an output that is converted must be defined */
  if (r.reserve && c->stored && !recurrent_keeps(&r))
    TRY(move_zero(c->device, c->out[c->nout - 1].p, desc_bytes(&c->out[c->nout - 1].d)));
  if (!w.chunks) return run_in_turn(&r, f, &a);
  TRY(cuda_fork(c->device));
  return cuda_join(c->device, run_wave(&r, &w, f, &a));
}

size_t recurrent_forward_scratch(const struct call *c)
{
  struct recurrent r = recurrent_make(c, &c->in[0].d);
  const struct recurrent_wave w = recurrent_make_wave(&r, false);
  struct forward_scratch f[2];
  return take_scratch(&r, &w, f, NULL);
}
