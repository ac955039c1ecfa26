/* recurrent.h - what the forward and the backward part of RNN on a GPU share: sizes, layouts,
** products and steps. Parameters and the private output have the layout of the CPU's
** (operators/nn/rnn.c). */
#pragma once
#include "cuda/reduce.h"
#include "cuda/product.h"

enum { GRU, LSTM, RNN_RELU, RNN_TANH };               /* values of `mode` */
/* places of plans in a call's state */
enum { MOST_PLANS = 16, MOST_PLANS_WITH_SUMS = 3 };
struct recurrent_plans {
  struct product_plan *of[MOST_PLANS];
  struct product_with_sums with_sums[MOST_PLANS_WITH_SUMS];
  size_t work;                                        /* bytes for a stream of a wave; 0: not yet */
};

/* A call. */
struct recurrent {
  const struct call *c;
  int dtype;
  int mode;                                           /* GRU, LSTM ... */
  size_t size;                                        /* bytes of an element */
  int64_t time, batch, inputs, units, layers, directions;
  int64_t rows;                                       /* gates times units */
  int64_t outputs;                                    /* units, or the size of their projection */
  bool projects, drops;
  const void *weights, *state, *cell, *reserve;
  void *inner[2];                                     /* outputs of inner layers in inference */
  void *work;                                         /* of products, on a stream */
};
struct recurrent recurrent_make(const struct call *c, const ty_desc *data);

/* One layer in one direction. */
struct recurrent_pass {
  int64_t layer;
  int64_t d;                                          /* direction: 0, 1 */
  int64_t in;                                         /* columns of x */
  /* places in the weights: of inputs, of the state, of the projection, both biases */
  int64_t wx, wh, wr, bx, bh;
  const void *x;
  void *y;                                            /* this direction's part of the output */
  int64_t begin, end;                                 /* steps that are to be made */
  void *carry;                                        /* kernels/recurrence.cu; NULL: all steps */
};
/* Makes one for all steps. */
struct recurrent_pass recurrent_make_pass(
    const struct recurrent *r, int64_t layer, int64_t d, const void *x, void *y);

/* Returns whether backward reads more than the output: gates, and a number for each unit. */
static inline bool recurrent_keeps(const struct recurrent *r)
{
  return r->mode == LSTM || r->mode == GRU;
}
static inline void *recurrent_element(const struct recurrent *r, const void *p, int64_t i)
{
  return (char *)p + (size_t)i * r->size;
}
static inline int64_t time_of_step(const struct recurrent *r, int64_t d, int64_t step)
{
  return d ? r->time - 1 - step : step;
}
static inline int64_t output_row(const struct recurrent *r) { return r->directions * r->outputs; }
static inline int64_t layer_size(const struct recurrent *r)
{
  return r->time * r->batch * output_row(r);
}
static inline size_t layer_bytes(const struct recurrent *r)
{
  return (size_t)layer_size(r) * r->size;
}
/* Returns the elements of the private output for a step. */
int64_t recurrent_step(const struct recurrent *r);
/* Returns what is kept of time t: gates, then cell or inner product. */
void *recurrent_kept(const struct recurrent *r, const struct recurrent_pass *l, int64_t t);
/* Returns the output of an inner layer. */
void *recurrent_inner(const struct recurrent *r, int64_t layer);
/* Returns element (t, 0, 0) of an output that begins at y. */
static inline void *output_of(const struct recurrent *r, const void *y, int64_t t)
{
  return recurrent_element(r, y, t * r->batch * output_row(r));
}
/* Returns element (pass, 0, 0) of an array (layers directions, batch, outputs). */
static inline void *state_of(
    const struct recurrent *r, const struct recurrent_pass *l, const void *all)
{
  return recurrent_element(r, all, (l->layer * r->directions + l->d) * r->batch * r->outputs);
}
/* Returns element (pass, 0, 0) of an array (layers directions, batch, units). */
static inline void *cell_state_of(
    const struct recurrent *r, const struct recurrent_pass *l, const void *all)
{
  return recurrent_element(r, all, (l->layer * r->directions + l->d) * r->batch * r->units);
}

/* kernels of _contrib_quantized_rnn (lstm8.c) */
extern const struct kernel cuda_lstm8[];
/* Returns why a device cannot run RNN; NULL: it can. */
const char *recurrent_refuse(const struct call *c);
/* Returns the bytes of a call's state, which recurrent_plans_done frees. */
size_t recurrent_plans_size(const struct call *c);
void   recurrent_plans_done(void *state);

/* C (m x n) = op(A) op(B). */
struct recurrent_product {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;                              /* elements from one row to the next */
  bool ta, tb;                                        /* op transposes */
};
/* Runs a product by plan number `plan` of the call. add: to what C holds. */
int recurrent_multiply(const struct recurrent *r, int plan, const struct recurrent_product *p,
    const void *a, const void *b, void *c, bool add);
/* Runs a product, and sums the columns of A, which is transposed. */
int recurrent_multiply_sums(const struct recurrent *r, int plan, const struct recurrent_product *p,
    const void *a, const void *b, void *c, void *sums);
size_t recurrent_work(const struct recurrent *r, const struct recurrent_product *p, int n);
size_t recurrent_work_sums(const struct recurrent *r, const struct recurrent_product *p, int n);

/* Divides the scratch of a call. base NULL: only counts bytes. */
struct recurrent_scratch { char *base; size_t used; };
void *recurrent_take(struct recurrent_scratch *s, size_t bytes);

/* How kernels/recurrence.cu computes all steps of a pass, forward or backward. */
struct recurrence_plan {
  int samples;                                        /* of a block; 0: it does not */
  int threads;                                        /* of a block */
  int64_t held;                                       /* rows of the weight in shared memory */
};
struct recurrence_plan recurrence_make_plan(const struct recurrent *r, bool backward);
/* Launches a plan's kernel for the steps of a pass with the first n of `params`, and sets the next
** two itself. */
int recurrence_run(const struct recurrent *r, const struct recurrent_pass *l, bool backward,
    void **params, int n);

/* How layers run beside each other: as a wavefront, on two streams in turn. A layer makes a chunk
** of steps, and the next one follows it by a chunk. */
struct recurrent_wave {
  int chunks;                                         /* 0: they run one after another */
  int64_t steps;                                      /* of each chunk but the last */
};
struct recurrent_wave recurrent_make_wave(const struct recurrent *r, bool backward);
/* Restricts a pass to the steps of chunk `i`. */
void recurrent_set_chunk(
    const struct recurrent *r, const struct recurrent_wave *w, struct recurrent_pass *l, int i);
/* Returns the mark (cuda_mark) of a chunk of a layer that runs on the second stream, or not. */
int recurrent_mark(bool second, int chunk);
/* Returns the bytes of a stream's workspace of products, which `count` computes. A call that runs
** (`runs`) needs them for a wave only, as its workspace is the last part of the scratch otherwise,
** and keeps them in its state, as cublasLt takes long to say them. */
size_t recurrent_stream_work(const struct recurrent *r, const struct recurrent_wave *w, bool runs,
    size_t (*count)(const struct recurrent *, const struct recurrent_wave *));
/* Returns the bytes of a pass's `carry`, 0 where there is no wave. */
size_t recurrent_carry_bytes(const struct recurrent *r, const struct recurrent_wave *w);

/* of kernels/cells.cu */
struct cell_sizes { int64_t n, units, h_row, h0_row, dy_row; };
struct cell_sizes make_cell_sizes(const struct recurrent *r, bool first);
/* Runs one for n units, of which a load of 16 bytes takes several where the first `arrays`
** parameters and the rows of `s` allow it. */
int recurrent_cells(const struct recurrent *r, const char *kernel, int64_t n, int arrays,
    const struct cell_sizes *s, void **params);
/* Multiplies an inner layer's output, or its gradient, at the times of a pass's steps by the
** factors of dropout; y may be x. The pass has one direction or all steps. */
int recurrent_dropout(
    const struct recurrent *r, const struct recurrent_pass *l, void *y, const void *x);

int    recurrent_forward(struct call *c);
size_t recurrent_forward_scratch(const struct call *c);
int    recurrent_backward(struct call *c);
size_t recurrent_backward_scratch(const struct call *c);
