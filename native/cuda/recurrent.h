/* recurrent.h - shared by forward and backward of RNN on a GPU: sizes, layouts, products, steps.
** Parameters and the private output have the layout of the CPU's RNN (operators/nn/rnn.c). */
#pragma once
#include "cuda/reduce.h"
#include "cuda/product.h"

enum { GRU, LSTM, RNN_RELU, RNN_TANH };               /* values of `mode` */
/* Numbers of plans in a call's state. */
enum { MOST_PLANS = 16, MOST_PLANS_WITH_SUMS = 3 };
struct recurrent_plans {
  struct product_plan *of[MOST_PLANS];
  struct product_with_sums with_sums[MOST_PLANS_WITH_SUMS];
  /* bytes of a stream's workspace in a wave; 0: unknown */
  size_t work;
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
  void *work;                                         /* workspace of products on the stream */
};
struct recurrent recurrent_make(const struct call *c, const ty_desc *data);

/* One layer in one direction. */
struct recurrent_pass {
  int64_t layer;
  int64_t d;                                          /* direction: 0, 1 */
  int64_t in;                                         /* columns of x */
  /* offsets in the parameters: weights of inputs, state, projection, both biases */
  int64_t wx, wh, wr, bx, bh;
  const void *x;
  void *y;                                            /* this direction's part of the output */
  int64_t begin, end;                                 /* steps begin .. end - 1 are computed */
  /* for kernels/recurrence.cu; NULL: it has all steps */
  void *carry;
};
/* Returns the pass over all steps of a layer in direction d. */
struct recurrent_pass recurrent_make_pass(
    const struct recurrent *r, int64_t layer, int64_t d, const void *x, void *y);

/* Returns whether backward reads gates, and a further number per unit, besides the output. */
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
/* Returns the elements of the private output per step. */
int64_t recurrent_step(const struct recurrent *r);
/* Returns the part of the private output for time t: gates, then the cell or the inner product. */
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

/* Kernels of _contrib_quantized_rnn (lstm8.c). */
extern const struct kernel cuda_lstm8[];
/* Returns why a call cannot run here; NULL: it can. */
const char *recurrent_refuse(const struct call *c);
/* Returns the bytes of a call's state; recurrent_plans_done frees what it owns. */
size_t recurrent_plans_size(const struct call *c);
void   recurrent_plans_done(void *state);

/* C (m x n) = op(A) op(B). */
struct recurrent_product {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;                              /* elements from one row to the next */
  bool ta, tb;                                        /* op transposes */
};
/* Runs a product with plan number `plan` of the call. add: adds to C. */
int recurrent_multiply(const struct recurrent *r, int plan, const struct recurrent_product *p,
    const void *a, const void *b, void *c, bool add);
/* Runs a product, and writes the sums of the columns of A, which is transposed, to `sums`. */
int recurrent_multiply_sums(const struct recurrent *r, int plan, const struct recurrent_product *p,
    const void *a, const void *b, void *c, void *sums);
size_t recurrent_work(const struct recurrent *r, const struct recurrent_product *p, int n);
size_t recurrent_work_sums(const struct recurrent *r, const struct recurrent_product *p, int n);

/* Allocates from the scratch of a call. base NULL: only counts bytes. */
struct recurrent_scratch { char *base; size_t used; };
void *recurrent_take(struct recurrent_scratch *s, size_t bytes);

/* A launch of kernels/recurrence.cu for all steps of a pass, forward or backward. */
struct recurrence_plan {
  int samples;                                        /* samples of a block; 0: it cannot be used */
  int threads;                                        /* threads of a block */
  int64_t held;                                       /* rows of the weight in shared memory */
};
struct recurrence_plan recurrence_make_plan(const struct recurrent *r, bool backward);
/* Launches the kernel for the steps of a pass. params: its parameters, of which the caller sets the
** first n; there must be space for two more. */
int recurrence_run(const struct recurrent *r, const struct recurrent_pass *l, bool backward,
    void **params, int n);

/* Concurrent layers: a wavefront on two streams, which layers use alternately. A layer computes a
** chunk of steps while the next layer computes the chunk before. */
struct recurrent_wave {
  int chunks;                                         /* 0: layers run one after another */
  int64_t steps;                                      /* steps of each chunk but the last */
};
struct recurrent_wave recurrent_make_wave(const struct recurrent *r, bool backward);
/* Restricts a pass to the steps of chunk `i`. */
void recurrent_set_chunk(
    const struct recurrent *r, const struct recurrent_wave *w, struct recurrent_pass *l, int i);
/* Returns the mark (cuda_mark) of a chunk of a layer. second: the layer runs on the second
** stream. */
int recurrent_mark(bool second, int chunk);
/* Returns the bytes of a stream's workspace of products, which `count` computes. runs: the call is
** running. Then the bytes are needed only for a wave, since otherwise the workspace is the last
** part of scratch; and they are kept in the state, since cublasLt takes long to compute them. */
size_t recurrent_stream_work(const struct recurrent *r, const struct recurrent_wave *w, bool runs,
    size_t (*count)(const struct recurrent *, const struct recurrent_wave *));
/* Returns the bytes of a pass's `carry`; 0 without a wave. */
size_t recurrent_carry_bytes(const struct recurrent *r, const struct recurrent_wave *w);

/* Same as in kernels/cells.cu. */
struct cell_sizes { int64_t n, units, h_row, h0_row, dy_row; };
struct cell_sizes make_cell_sizes(const struct recurrent *r, bool first);
/* Launches a kernel of kernels/cells.cu for n units, with loads of 16 bytes if the alignment of the
** first `arrays` parameters and of the rows of `s` allows it. */
int recurrent_cells(const struct recurrent *r, const char *kernel, int64_t n, int arrays,
    const struct cell_sizes *s, void **params);
/* Multiplies an inner layer's output, or its gradient, by the factors of dropout, for the steps of
** a pass, which has one direction or all steps. y may be x. */
int recurrent_dropout(
    const struct recurrent *r, const struct recurrent_pass *l, void *y, const void *x);

int    recurrent_forward(struct call *c);
size_t recurrent_forward_scratch(const struct call *c);
int    recurrent_backward(struct call *c);
size_t recurrent_backward_scratch(const struct call *c);
