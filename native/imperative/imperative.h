/* imperative.h - one call at once, with a callback for code that records it. */
#pragma once
#include "imperative/call_cache.h"

/* What a call is about to do: arrays are borrowed. out: all outputs, private ones as well. */
struct made_call {
  struct cached_call *call;
  struct run run;
  ty_tensor *const *out;
  int nout;
};
/* Runs an operator. q->out[i] is written where it is given; where it is NULL, out[i] becomes a new
** tensor, one reference; q->out may be out. note (may be NULL) is called before anything is done,
** and may refuse. */
int imperative_call(const struct call_key *q, bool is_train, ty_tensor **out,
    int (*note)(void *context, const struct made_call *made), void *context);
