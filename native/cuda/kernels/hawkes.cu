// hawkes.cu - log likelihoods of sequences of events of a Hawkes process, and their gradients, by
// kernel/element/hawkes.h. Method: one thread per sequence, in double; for gradients of alpha and
// beta, one team per kind of event, over the sequences. Bound: the events of the longest sequence,
// one after the other.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/hawkes.h"
#define T float
#define TEAM 32
#include "team.cuh"
#include "fault.cuh"
#endif

struct hawkes_args { i64 sequences, kinds, events; };

// Computes log likelihoods of the operator's inputs. ll and memory may be NULL.
extern "C" __global__ void sequences(T *ll, T *memory, struct hawkes_kind *kinds, const T *lda,
    const T *alpha, const T *beta, const T *state, const T *lags, const i32 *marks,
    const T *length, const T *time, const struct hawkes_args __grid_constant__ s)
{
  EACH(i, s.sequences)
  {
    struct hawkes_kind *own = kinds + i * s.kinds;
    i64 events = get<i64>(length[i]);
    double now = 0, sum = 0;
    for (i64 k = 0; k < s.kinds; k++) own[k] = { (double)state[i * s.kinds + k], 0, 0, 0, 0, 0 };
    for (i64 e = 0; e < events && e < s.events; e++) {
      i64 k = marks[i * s.events + e];
      if (k < 0 || k >= s.kinds) break; // check_marks has reported it
      now += (double)lags[i * s.events + e];
      sum += hawkes_pass(&own[k], lda[i * s.kinds + k], alpha[k], beta[k], now, true);
    }
    for (i64 k = 0; k < s.kinds; k++) {
      sum += hawkes_pass(&own[k], lda[i * s.kinds + k], alpha[k], beta[k], time[i], false);
      if (memory) set(memory[i * s.kinds + k], own[k].s);
    }
    if (ll) set(ll[i], sum);
  }
}

// Reports a mark within its sequence's length that is not a kind of event.
extern "C" __global__ void check_marks(device_fault *fault, i64 op, const i32 *marks,
    const T *length, const struct hawkes_args __grid_constant__ s)
{
  EACH(i, s.sequences * s.events)
  {
    i64 k = marks[i];
    if (i % s.events >= get<i64>(length[i / s.events]) || (k >= 0 && k < s.kinds)) continue;
    report_index(fault, op, k, i, 0, s.kinds, -1);
  }
}

extern "C" __global__ void gradients(T *dlda, T *dalpha, T *dbeta, const T *g,
    const struct hawkes_kind *kinds, const struct hawkes_args __grid_constant__ s)
{
  EACH_ROW(k, s.kinds)
  {
    double alpha = 0, beta = 0;
    EACH_OF_TEAM(i, 0, s.sequences)
    {
      const struct hawkes_kind &x = kinds[i * s.kinds + k];
      alpha += (double)g[i] * x.alpha;
      beta += (double)g[i] * x.beta;
      if (dlda) set(dlda[i * s.kinds + k], (double)g[i] * x.lda);
    }
    alpha = team_sum(alpha);
    beta = team_sum(beta);
    if (LEADS && dalpha) set(dalpha[k], alpha);
    if (LEADS && dbeta) set(dbeta[k], beta);
  }
}
