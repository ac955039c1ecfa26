/* trace.h - recorded calls as one program: what they compute, and gradients of it.
**
** A trace lists calls in their order: first those that are done and take part in a gradient, then
** those that are pending. What it computes depends on its structure alone: which cached calls read
** which others, which arrays share a storage, what is a variable. The cache of programs finds them
** by that structure (kept.h); each run has its own arrays and random states.
*/
#pragma once
#include "lazy/backlog.h"

/* An array that a trace begins with: one without a history, a variable, or the output of a function
** or of a call that is not in the trace. */
struct leaf {
  struct history *from;                               /* a variable or function; NULL: neither */
  int out;                                            /* of a function */
  ty_tensor *value;                                   /* one reference */
  ty_tensor *grad;                                    /* NULL: no gradient is asked for */
  int req;
  int same_storage;                                   /* an earlier leaf, -1 */
  bool reached;                                       /* heads depend on it */
};

struct trace {
  uint64_t walk;                                      /* its mark in nodes and storages */
  struct history **call;                              /* each one reference */
  int n, cap;
  int ndone;                                          /* how many are done; they come first */
  uint8_t *reached;                                   /* per call: heads depend on it */
  struct history **function;                          /* where the walk from the heads ends */
  int nfunction, function_cap;
  struct leaf *leaf;
  int nleaf, leaf_cap;
  ty_tensor *const *head;                             /* nhead 0: no gradient is computed */
  int nhead;
  bool train;
  bool retain;                                        /* another backward may follow */
  int nvariable;                                      /* leaves with a gradient */
  uint64_t *key;                                      /* its structure */
  int nkey, key_cap;
  int *number;                                        /* per call: the leaf of its number, -1 */
  uint64_t *input;                                    /* per input of each call: see input_code */
  int ninput, input_cap;
  struct run *own;                                    /* per call that draws; NULL: none does */
};

/* Where an input comes from: output `out` of call `at` of the trace, or leaf `at`. */
struct trace_input { int at, out; bool is_leaf; };
static inline uint64_t input_code(struct trace_input x)
{
  return (uint64_t)x.at << 32 | (uint64_t)x.out << 1 | x.is_leaf;
}
static inline struct trace_input decode_input(uint64_t code)
{
  return (struct trace_input){ (int)(code >> 32), (int)(code >> 1 & INT32_MAX), code & 1 };
}

/* All functions are called under the lock of backlog.h, in this order. */

/* Lists the calls that heads depend on, and all of this thread's backlog. */
int  trace_collect(struct trace *t, ty_tensor *const *head, int nhead);
/* Returns the first product of another precision (PRECISION_*) among the calls that are done and
** whose values were not kept; NULL: there is none. */
struct history *trace_other_product(const struct trace *t, int precision);
/* Lists the leaves, finds where each input comes from, and begins the key. Computes values again
** that the pending calls read and that were not kept. */
int  trace_describe(struct trace *t);
/* Returns the leaf of a variable or of a function's output, whose gradient may then be asked for;
** NULL: the heads do not depend on it. */
struct leaf *trace_leaf(struct trace *t, const ty_tensor *x);
/* Submits the pending calls, with the gradients of leaves where there are heads. given: per head
** its gradient, NULL for ones; given NULL: ones for all heads. A failure before the run is
** submitted leaves the calls pending; a later one marks the results as broken, and reads of them
** fail. */
int  trace_run(struct trace *t, ty_tensor *const *given);
/* Frees what a trace holds, but not the trace itself. */
void trace_done(struct trace *t);

/* Whether a run is being submitted; changed under the lock of backlog.h. */
extern bool trace_submitting;
/* Submits the calls of a backlog, but for those that wait (late.c). */
int  trace_run_backlog(struct backlog *backlog);
/* Computes a value again that no program has kept, with the values that it depends on. s: its
** storage, which is a promise. */
int  trace_run_again(struct storage *s);
