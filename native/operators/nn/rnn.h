/* rnn.h - common parts of the RNN files: sizes, one run, one pass through a layer. */
#pragma once
#include "kernel/gemm/gemm.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct rnn_param {
  int64_t state_size, num_layers, bidirectional, mode, state_outputs, projection_size;
  int64_t lstm_state_clip_nan, use_sequence_length, quantized;
  double  p, lstm_state_clip_min, lstm_state_clip_max;
};
enum { GRU, LSTM, RNN_RELU, RNN_TANH };               /* mode */

struct rnn {
  const struct vec_ops *r;
  int     dtype, mode;
  int     type;                                       /* type of the products (gemm.h) */
  int64_t time, batch, inputs, layers, directions;
  int64_t gates;                                      /* gates per unit */
  int64_t units;                                      /* units per layer and direction */
  int64_t outputs;                                    /* units, or the size of their projection */
  bool    projects;
  double  p;
};
struct rnn rnn_make_sizes(const struct rnn_param *p, const ty_desc *data);
/* Returns the elements of a layer's input per step and sample. */
int64_t rnn_input_size(const struct rnn *n, int64_t layer);
/* Returns the elements of all weights and biases. */
int64_t rnn_parameter_count(const struct rnn *n);
/* Returns the elements of the private output. */
int64_t rnn_reserve_size(const struct rnn *n);
/* Returns the elements of the private output for one step of a layer and direction. */
int64_t rnn_step_reserve(const struct rnn *n);
static inline int64_t rnn_gate_rows(const struct rnn *n) { return n->gates * n->units; }
/* Returns the elements of all outputs of a layer. */
static inline int64_t rnn_layer_size(const struct rnn *n)
{
  return n->time * n->batch * n->directions * n->outputs;
}
static inline size_t rnn_bytes(const struct rnn *n, int64_t count)
{
  return n->r->size * (size_t)count;
}

/* Offsets of the parts of one layer and direction in the vector of parameters: W_x, W_h,
** projection, b_x, b_h. */
struct rnn_offsets { int64_t wx, wh, wr, bx, bh; };

/* Allocates from the scratch of a call. base NULL: only counts bytes. */
struct rnn_scratch { char *base; size_t used; };
void *rnn_take(struct rnn_scratch *s, size_t bytes);

/* One run, forward or backward. */
struct rnn_run {
  struct rnn n;
  bool   drops;
  struct drop drop;
  const void *weights, *state, *cell, *reserve_in;
  void  *reserve;                                     /* forward; NULL in inference */
  void  *px;                                          /* packed W_x */
  void  *ph;                                          /* packed W_h */
  /* packed weights of all layers; NULL: not kept */
  void  *kept;
  void  *layer[2];                                    /* outputs of inner layers, or gradients */
  void  *dropped;                                     /* a layer's input after dropout */
  void  *bias;                                        /* forward: b_x + b_h */
  void  *pre;                                         /* input product of some steps */
  void  *hx;                                          /* gru: recurrent product */
  void  *hn;                                          /* gru: inner product of the candidate */
  void  *c;                                           /* lstm: cell */
  void  *hidden;                                      /* state before its projection */
  void  *dgx, *dgh;                                   /* backward: of the gates; gru has two */
  void  *dh;                                          /* backward: of the state */
  void  *dc;                                          /* backward: of the cell */
  void  *dr;                                          /* backward: of the projected state, or dh */
  void  *projected;                                   /* backward: dr of some steps */
  /* backward: states of lstm, recomputed for some steps */
  void  *states;
  double *column[2];                                  /* backward: sums for b_x, b_h */
};
struct rnn_run rnn_make_run(const struct call *c, const ty_desc *data);
/* Multiplies the input of `layer`, or its gradient, by its factors of dropout. y may be x. */
void *rnn_dropout(const struct rnn_run *w, void *y, const void *x, int64_t layer);
/* Returns the address of an inner layer's output. */
void *rnn_inner_output(const struct rnn_run *w, int64_t layer);

/* One layer in one direction. */
struct rnn_pass {
  int64_t layer, d, in;
  struct rnn_offsets at;
  const void *x;                                      /* (time, batch, in) */
  void *y;                                            /* this direction's part of the output */
};
struct rnn_pass rnn_make_pass(
    const struct rnn_run *w, int64_t layer, int64_t d, const void *x, void *y);

/* Returns the time of a step of direction d. */
static inline int64_t rnn_time_of(const struct rnn *n, int64_t d, int64_t step)
{
  return d ? n->time - 1 - step : step;
}
static inline const void *rnn_weight(const struct rnn_run *w, int64_t offset)
{
  return vec_at(w->n.r, w->weights, offset);
}
/* Returns the output of a pass at time t; its rows are directions * outputs elements apart. */
static inline void *rnn_output_at(const struct rnn_run *w, const struct rnn_pass *l, int64_t t)
{
  return vec_at(w->n.r, l->y, t * w->n.batch * w->n.directions * w->n.outputs);
}
/* Returns the part of the private output for time t: the gates, then the cell (lstm) or the inner
** product (gru). */
static inline void *rnn_reserve_at(
    const struct rnn_run *w, const void *reserve, const struct rnn_pass *l, int64_t t)
{
  const struct rnn *n = &w->n;
  return vec_at(
      n->r, reserve, ((l->layer * n->directions + l->d) * n->time + t) * rnn_step_reserve(n));
}

/* Kernels of the LSTM on 8-bit data, for operators/quantized/lstm8.c. */
extern const struct kernel lstm8_cpu[];

int    rnn_forward(struct call *c);
size_t rnn_forward_scratch(const struct call *c);
int    rnn_backward(struct call *c);
size_t rnn_backward_scratch(const struct call *c);
