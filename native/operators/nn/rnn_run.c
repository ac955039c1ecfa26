/* rnn_run.c - sizes and offsets of RNN's parameters, reserve and scratch; see rnn.c. */
#include "operators/nn/rnn.h"

/* -- sizes ------------------------------------------------------------------------------------- */

struct rnn rnn_make_sizes(const struct rnn_param *p, const ty_desc *data)
{
  static const int gates[] = { 3, 4, 1, 1 };
  struct rnn n = { .dtype = data->dtype,
    .type = data->dtype,
    .mode = (int)p->mode,
    .time = data->dim[0],
    .batch = data->dim[1],
    .inputs = data->dim[2],
    .units = p->state_size,
    .outputs = p->state_size,
    .layers = p->num_layers,
    .directions = 1 + p->bidirectional,
    .gates = gates[p->mode],
    .p = p->p };
  n.r = vec_ops_of(data->dtype);
  if (p->projection_size != NONE) n.outputs = p->projection_size, n.projects = true;
  return n;
}

int64_t rnn_input_size(const struct rnn *n, int64_t layer)
{
  return layer ? n->directions * n->outputs : n->inputs;
}

static int64_t count_weights(const struct rnn *n, int64_t layer)
{
  int64_t projection = n->projects ? n->outputs * n->units : 0;
  return rnn_gate_rows(n) * (rnn_input_size(n, layer) + n->outputs) + projection;
}

static int64_t all_weights(const struct rnn *n)
{
  return n->directions * (count_weights(n, 0) + (n->layers - 1) * count_weights(n, 1));
}

int64_t rnn_parameter_count(const struct rnn *n)
{
  return all_weights(n) + n->layers * n->directions * 2 * rnn_gate_rows(n);
}

/* Returns where the weights and biases of a layer and direction begin in the parameters, in
** elements. */
static struct rnn_offsets make_offsets(const struct rnn *n, int64_t layer, int64_t d)
{
  int64_t gates = rnn_gate_rows(n), start = 0;
  if (layer) start = n->directions * (count_weights(n, 0) + (layer - 1) * count_weights(n, 1));
  struct rnn_offsets p = { .wx = start + d * count_weights(n, layer) };
  p.wh = p.wx + gates * rnn_input_size(n, layer);
  p.wr = p.wh + gates * n->outputs;
  p.bx = all_weights(n) + (layer * n->directions + d) * 2 * gates;
  p.bh = p.bx + gates;
  return p;
}

/* Counts a step of the private output, which has for each layer, direction and step the gates and,
** except for rnn, one more number per unit (lstm: cell, gru: inner product of the candidate); then
** the outputs of all layers but the last. */
int64_t rnn_step_reserve(const struct rnn *n)
{
  return n->batch * (rnn_gate_rows(n) + (n->mode == LSTM || n->mode == GRU ? n->units : 0));
}

int64_t rnn_reserve_size(const struct rnn *n)
{
  int64_t steps = n->layers * n->directions * n->time;
  return steps * rnn_step_reserve(n) + (n->layers - 1) * rnn_layer_size(n);
}

/* -- a run and a pass -------------------------------------------------------------------------- */

void *rnn_take(struct rnn_scratch *s, size_t bytes)
{
  void *p = s->base ? s->base + s->used : NULL;
  s->used += align_up(bytes, ALIGN);
  return p;
}

struct layer_dropout { const struct rnn_run *w; void *y; const void *x; int64_t first; };

static void dropout_range(int64_t begin, int64_t end, void *context)
{
  const struct layer_dropout *o = context;
  const struct vec_ops *r = o->w->n.r;
  r->dropout(vec_at(r, o->y, begin), vec_at(r, o->x, begin), NULL, &o->w->drop, o->first + begin,
      end - begin);
}

void *rnn_dropout(const struct rnn_run *w, void *y, const void *x, int64_t layer)
{
  struct layer_dropout o = { w, y, x, layer * rnn_layer_size(&w->n) };
  parallel_for(rnn_layer_size(&w->n), NS_CALL, dropout_range, &o);
  return y;
}

struct rnn_run rnn_make_run(const struct call *c, const ty_desc *data)
{
  struct rnn_run w = { .n = rnn_make_sizes(c->param, data) };
  w.n.type = gemm_type_for(c, data->dtype);
  w.drops = w.n.p > 0 && c->run && c->run->is_train;
  if (w.drops) w.drop = (struct drop){ c->run->rng, c->node, 1 - w.n.p };
  return w;
}

void *rnn_inner_output(const struct rnn_run *w, int64_t layer)
{
  const struct rnn *n = &w->n;
  const void *reserve = w->reserve ? w->reserve : w->reserve_in;
  if (!reserve) return w->layer[layer & 1];
  int64_t steps = n->layers * n->directions * n->time;
  return vec_at(n->r, reserve, steps * rnn_step_reserve(n) + layer * rnn_layer_size(n));
}

struct rnn_pass rnn_make_pass(
    const struct rnn_run *w, int64_t layer, int64_t d, const void *x, void *y)
{
  return (struct rnn_pass){ layer, d, rnn_input_size(&w->n, layer), make_offsets(&w->n, layer, d),
    x, vec_at(w->n.r, y, d * w->n.outputs) };
}
