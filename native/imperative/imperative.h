/* imperative.h - one call at once, with a callback for code that records it. */
#pragma once
#include "imperative/call_cache.h"

/* A call that is about to be submitted; all of it is borrowed. */
struct made_call {
  struct cached_call *call;
  struct run run;                                     /* its mode and random state */
  ty_tensor *const *out;                              /* all outputs, private ones as well */
  int nout;
};
/* Queues one call of an operator on its device. q->out[i] is written where it is given; where it is
** NULL, out[i] becomes a new tensor, one reference; q->out may be out. note (may be NULL) is called
** before the call is submitted; if it fails, nothing is. */
int imperative_call(const struct call_key *q, bool is_train, ty_tensor **out,
    int (*note)(void *context, const struct made_call *made), void *context);
