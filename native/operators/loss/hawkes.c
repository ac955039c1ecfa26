/* hawkes.c - _contrib_hawkesll: log likelihoods of sequences of events of a Hawkes process with K
** kinds of events.
**
** The intensity of kind k is l = lda_k + alpha_k beta_k s e^(-beta_k d), where d is the time since
** its last event and s its memory, which becomes 1 + s e^(-beta_k d) at an event, and decays until
** the end of the observed time. An event adds log(l) to the log likelihood; each interval subtracts
** lda_k d + alpha_k s (1 - e^(-beta_k d)). lda, alpha and beta have gradients, beta's with `ds`,
** the derivative of the memory. Other gradients are 0.
*/
#include "kernel/element/hawkes.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

/* inputs */
enum { LDA, ALPHA, BETA, STATE, LAGS, MARKS, LENGTH, TIME, INPUTS };

static int hawkes_shape(struct infer *s)
{
  ty_desc *d = s->in;
  int64_t n = 0, kinds = 0, events = 0;
  for (int i = 0; i < INPUTS; i++) {
    bool flat = i == ALPHA || i == BETA || i == LENGTH || i == TIME;
    if (d[i].ndim && d[i].ndim != (flat ? 1 : 2))
      return infer_fail(
          s, TY_ESHAPE, &d[i], "expected %d dimensions, got %d", flat ? 1 : 2, d[i].ndim);
  }
  for (int i = 0; i < INPUTS; i++) {
    if (!d[i].ndim) continue;
    if (i != ALPHA && i != BETA) n = MAX(n, d[i].dim[0]);
    if (i <= BETA || i == STATE) kinds = MAX(kinds, d[i].dim[d[i].ndim - 1]);
    if (i == LAGS || i == MARKS) events = MAX(events, d[i].dim[1]);
  }
  for (int i = 0; i < INPUTS; i++) {
    if (i == ALPHA || i == BETA)
      TRY(shape_is(s, &d[i], 1, &kinds));
    else if (i == LENGTH || i == TIME)
      TRY(shape_is(s, &d[i], 1, &n));
    else
      TRY(shape_is(s, &d[i], 2, (int64_t[]){ n, i == LAGS || i == MARKS ? events : kinds }));
  }
  TRY(shape_is(s, &s->out[0], 1, &n));
  return shape_is(s, &s->out[1], 2, (int64_t[]){ n, kinds });
}

static int hawkes_type(struct infer *s)
{
  int dtype = TY_NODTYPE;
  for (int i = 0; i < INPUTS + 2 && dtype == TY_NODTYPE; i++)
    if (i != MARKS) dtype = i < INPUTS ? s->in[i].dtype : s->out[i - INPUTS].dtype;
  TRY(type_is(s, &s->in[MARKS], TY_I32));
  for (int i = 0; i < INPUTS + 2; i++)
    if (i != MARKS) TRY(type_is(s, i < INPUTS ? &s->in[i] : &s->out[i - INPUTS], dtype));
  return TY_OK;
}

/* -- one sequence ------------------------------------------------------------------------------ */

struct hawkes_run {
  const struct vec_ops *r;
  const struct call *c;
  const struct operand *in;
  struct hawkes_kind *kinds;
  int64_t n, k, t;
};

static double input_value(const struct hawkes_run *j, int input, int64_t i)
{
  return j->r->get(j->in[input].p, i);
}

static double pass_time(const struct hawkes_run *j, int64_t i, int64_t k, struct hawkes_kind *x,
    double now, bool event)
{
  return hawkes_pass(x, input_value(j, LDA, i * j->k + k), input_value(j, ALPHA, k),
      input_value(j, BETA, k), now, event);
}

/* Returns the log-likelihood of sequence i, and leaves its final states in j->kinds. */
static double run_sequence(const struct hawkes_run *j, int64_t i)
{
  struct hawkes_kind *kinds = j->kinds + i * j->k;
  const int64_t length = MIN(MAX(whole_at(&j->in[LENGTH], i), 0), j->t);
  double now = 0, ll = 0;
  for (int64_t k = 0; k < j->k; k++)
    kinds[k] = (struct hawkes_kind){ .s = input_value(j, STATE, i * j->k + k) };
  for (int64_t e = 0; e < length; e++) {
    int64_t k = ((const int32_t *)j->in[MARKS].p)[i * j->t + e];
    now += input_value(j, LAGS, i * j->t + e);
    ll += pass_time(j, i, k, &kinds[k], now, true);
  }
  for (int64_t k = 0; k < j->k; k++)
    ll += pass_time(j, i, k, &kinds[k], input_value(j, TIME, i), false);
  return ll;
}

/* -- kernels ----------------------------------------------------------------------------------- */

static int start_run(struct call *c, const struct operand *in, struct hawkes_run *j)
{
  *j = (struct hawkes_run){ vec_ops_of(in[LDA].d.dtype), c, in, c->tmp, in[LDA].d.dim[0],
    in[LDA].d.dim[1], in[LAGS].d.dim[1] };
  for (int64_t i = 0; i < j->n * j->t; i++) {
    int32_t mark = ((const int32_t *)in[MARKS].p)[i];
    if (i % j->t < whole_at(&in[LENGTH], i / j->t))
      NEED(mark >= 0 && mark < j->k, TY_ERUN,
          "mark %d of event %lld of sequence %lld; expected 0 to %lld", mark,
          (long long)(i % j->t), (long long)(i / j->t), (long long)j->k - 1);
  }
  return TY_OK;
}

static size_t hawkes_scratch(const struct call *c)
{
  return (size_t)desc_count(&c->in[LDA].d) * sizeof(struct hawkes_kind);
}
static size_t hawkes_back_scratch(const struct call *c)
{
  return (size_t)desc_count(&c->in[1 + LDA].d) * sizeof(struct hawkes_kind);
}

static void forward_range(int64_t begin, int64_t end, void *context)
{
  const struct hawkes_run *j = context;
  for (int64_t i = begin; i < end; i++) {
    double ll = run_sequence(j, i);
    if (j->c->out[0].p) j->r->set(j->c->out[0].p, i, ll);
    for (int64_t k = 0; j->c->out[1].p && k < j->k; k++)
      j->r->set(j->c->out[1].p, i * j->k + k, j->kinds[i * j->k + k].s);
  }
}

static int hawkes_forward(struct call *c)
{
  struct hawkes_run j;
  TRY(start_run(c, c->in, &j));
  parallel_for(j.n, elements_ns(8 * (j.t + j.k)), forward_range, &j);
  return TY_OK;
}

static void backward_range(int64_t begin, int64_t end, void *context)
{
  for (int64_t i = begin; i < end; i++) run_sequence(context, i);
}

/* Computes the gradients; those of alpha and beta are summed over all sequences. in: head gradient
** of the likelihoods, then the inputs. */
static int hawkes_backward(struct call *c)
{
  struct hawkes_run j;
  TRY(start_run(c, c->in + 1, &j));
  for (int i = 0; i < INPUTS; i++)
    if (c->out[i].p) memset(c->out[i].p, 0, desc_bytes(&c->out[i].d));
  parallel_for(j.n, elements_ns(8 * (j.t + j.k)), backward_range, &j);
  for (int64_t k = 0; k < j.k; k++) {
    double alpha = 0, beta = 0;
    for (int64_t i = 0; i < j.n; i++) {
      const struct hawkes_kind *x = &j.kinds[i * j.k + k];
      double g = j.r->get(c->in[0].p, i);
      alpha += g * x->alpha;
      beta += g * x->beta;
      if (c->out[LDA].p) j.r->set(c->out[LDA].p, i * j.k + k, g * x->lda);
    }
    if (c->out[ALPHA].p) j.r->set(c->out[ALPHA].p, k, alpha);
    if (c->out[BETA].p) j.r->set(c->out[BETA].p, k, beta);
  }
  return TY_OK;
}

enum { T_MARKS = T_FLOAT | 1 << TY_I32 };
static const struct kernel cpu[]  = { { "events", hawkes_forward,  T_MARKS, .scratch = hawkes_scratch }, { 0 } };
static const struct kernel back[] = { { "events", hawkes_backward, T_MARKS, .scratch = hawkes_back_scratch }, { 0 } };

const struct op op_hawkes[] = { {
  .name = "_contrib_hawkesll",
  .flags = OP_MAY_FAIL,
  .doc = "Log likelihoods (N,) of N sequences of events of a Hawkes process with K kinds, and their memories at the end (N, K): base "
         "intensities lda (N, K), alpha and beta (K,), memories state (N, K), times between events lags (N, T), kinds marks (N, T) "
         "int32, from 0, valid_length (N,), max_time (N,). Gradients of lda, alpha, beta through the likelihood.",
  .in = "lda alpha beta state lags marks valid_length max_time", .out = "output out_state", .shape = hawkes_shape, .type = hawkes_type,
  .grad = "g0 i0 i1 i2 i3 i4 i5 i6 i7", .cpu = cpu, .back_cpu = back,
}, { 0 } };
