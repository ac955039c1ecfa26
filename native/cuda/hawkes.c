/* hawkes.c - _contrib_hawkesll (kernels/hawkes.cu). */
#include "cuda/row.h"
#include "kernel/element/hawkes.h"

/* Indices of the inputs. */
enum { LDA, ALPHA, BETA, STATE, LAGS, MARKS, LENGTH, TIME, INPUTS };
struct hawkes_args { int64_t sequences, kinds, events; };

static struct hawkes_args make_args(const struct operand *in)
{
  return (struct hawkes_args){ in[LDA].d.dim[0], in[LDA].d.dim[1], in[LAGS].d.dim[1] };
}

/* The head gradient, input 0 of backward, has the type of the data. */
#define WORDS "T=$i0 TEAM=32"

/* Checks the marks, and writes the state of each sequence and kind, a struct hawkes_kind, to the
** scratch. ll, memory: NULL if unused. */
static int scan_sequences(const struct call *c, struct operand *in, void *ll, void *memory)
{
  struct hawkes_args s = make_args(in);
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  const int64_t op = cuda_origin(c);
  void *kinds = c->tmp;
  TRY(cuda_start(c, FAMILY_hawkes, "check_marks", WORDS, s.sequences * s.events,
      (void *[]){ &fault, (void *)&op, &in[MARKS].p, &in[LENGTH].p, &s }));
  return cuda_start(c, FAMILY_hawkes, "sequences", WORDS, s.sequences,
      (void *[]){ &ll, &memory, &kinds, &in[LDA].p, &in[ALPHA].p, &in[BETA].p, &in[STATE].p,
        &in[LAGS].p, &in[MARKS].p, &in[LENGTH].p, &in[TIME].p, &s });
}

static int hawkes_forward(struct call *c)
{
  return scan_sequences(c, c->in, c->out[0].p, c->out[1].p);
}

/* Computes the gradients; in: head gradient of the likelihoods, then the inputs. */
static int hawkes_backward(struct call *c)
{
  struct hawkes_args s = make_args(c->in + 1);
  void *kinds = c->tmp;
  for (int i = STATE; i < INPUTS; i++) TRY(cuda_zero(c, &c->out[i]));
  TRY(scan_sequences(c, c->in + 1, NULL, NULL));
  return cuda_start(c, FAMILY_hawkes, "gradients", WORDS, s.kinds * 32,
      (void *[]){ &c->out[LDA].p, &c->out[ALPHA].p, &c->out[BETA].p, &c->in[0].p, &kinds, &s });
}

static size_t state_bytes(const struct operand *in)
{
  return (size_t)desc_count(&in[LDA].d) * sizeof(struct hawkes_kind);
}
static size_t forward_scratch(const struct call *c) { return state_bytes(c->in); }
static size_t back_scratch(const struct call *c) { return state_bytes(c->in + 1); }

enum { T_MARKS = T_FLOAT | T(TY_I32) };
static const struct kernel events[] = {
  { "events", hawkes_forward, T_MARKS, .scratch = forward_scratch }, { 0 }
};
static const struct kernel events_back[] = {
  { "events", hawkes_backward, T_MARKS, .scratch = back_scratch }, { 0 }
};

const struct op_kernels cuda_hawkes[] = { { "_contrib_hawkesll", events, events_back }, { 0 } };
