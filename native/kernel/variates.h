/* variates.h - random numbers of a distribution; each is a pure function of (seed, counter, node,
** element).
**
** The first four random words of an element are its Philox block (base/philox.h). Laws that need
** more use blocks of elements 2^40 further on, so that no two elements share a word. Standard
** variates (base/laws.h) are computed by vector loops, compiled per instruction set, with equal
** bits (kernel/isa/variates.c). */
#pragma once
#include "kernel/kernel.h"
#include "base/laws.h"

/* Computes the variates z of elements element .. element + n - 1. */
typedef void (*variate_fn)(double *z, const struct rng_key *k, uint64_t element, int64_t n);

struct variates {
  variate_fn unit24;      /* uniform, of 24 bits, as a float has */
  variate_fn unit53;      /* uniform, of 53 bits, as a double has */
  variate_fn normal, exponential;
  /* Compute y = offset + scale z, at most limit. */
  void  (*store_f32)(void *y, const double *z, double offset, double scale, double limit,
      int64_t n);
  void  (*store_f64)(void *y, const double *z, double offset, double scale, double limit,
      int64_t n);
};
#define TABLES(isa) extern const struct variates variates_##isa;
EACH_ISA(TABLES)
#undef TABLES

static inline const struct variates *variates_here(void)
{
#define TABLE(isa) &variates_##isa,
  static const struct variates *const all[] = { EACH_ISA(TABLE) };
#undef TABLE
  return all[cpu_isa()];
}
static inline struct rng_key make_rng_key(const struct call *c)
{
  return (struct rng_key){ c->run->rng.seed, c->run->rng.counter, c->node };
}
