/* hawkes.h - the log likelihood of a Hawkes process between two events of one kind, and its
** gradients, shared by C and CUDA. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* The state of one kind of event. */
struct hawkes_kind {
  double s;                                           /* sum of the decayed events so far */
  double ds;                                          /* its derivative by beta */
  double last;                                        /* time of the last event */
  double lda, alpha, beta;                            /* gradients of the log likelihood so far */
};

/* Advances x from its last event to time `now`; event: whether there is an event at that time.
** Returns the term to add to the log likelihood. */
TY_DEVICE_FN double hawkes_pass(
    struct hawkes_kind *x, double lda, double alpha, double beta, double now, bool event)
{
  const double d = now - x->last, e = exp(-beta * d);
  const double gone = x->s * d * e; /* minus the derivative of s e by beta, s fixed */
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
