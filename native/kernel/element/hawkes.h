/* hawkes.h - one stretch of time of one kind of events of a Hawkes process, shared by C and
** CUDA. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* State of one kind of events. */
struct hawkes_kind {
  double s;                                           /* memory */
  double ds;                                          /* its derivative by beta */
  double last;                                        /* time of the last event */
  double lda, alpha, beta;                            /* gradients */
};

/* The time from the last event to `now` goes by, with an event at its end or none; what it adds to
** the likelihood. */
TY_DEVICE_FN double hawkes_pass(
    struct hawkes_kind *x, double lda, double alpha, double beta, double now, bool event)
{
  const double d = now - x->last, e = exp(-beta * d);
  const double gone = x->s * d * e; /* what s e loses by beta */
  double ll = -(lda * d + alpha * x->s * (1 - e));
  x->lda -= d;
  x->alpha -= x->s * (1 - e);
  x->beta -= alpha * (x->ds * (1 - e) + gone);
  if (event) {
    double l = lda + alpha * beta * x->s * e;
    ll += log(l);
    x->lda += 1 / l;
    x->alpha += beta * x->s * e / l;
    x->beta += alpha * (x->s * e + beta * (x->ds * e - gone)) / l;
  }
  x->ds = x->ds * e - gone;
  x->s = x->s * e + event;
  x->last = now;
  return ll;
}
