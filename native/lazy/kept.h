/* kept.h - a cache of programs, found by the structure of their traces. All functions are called
** under the lock of backlog.h. */
#pragma once
#include "exec/exec.h"
#include "lazy/trace.h"

/* What a program does with a call (kept.steps). */
enum {
  CALL_RUNS     = 1,                                  /* it computes the call's outputs */
  GRADIENT_RUNS = 2,                                  /* it computes the call's gradient */
};
/* A program with its key, and counts of its runs by which the cache chooses what to keep. */
struct kept {
  uint64_t hash;                                      /* of key */
  uint64_t *key;                                      /* trace.key */
  int nkey;
  struct cached_call **call;                          /* one reference each */
  int ncall;
  int ndone;                                          /* trace.ndone */
  const char **where;                                 /* per call: its line in the last run */
  struct kept *next;                                  /* the program that ran after it; NULL */
  ty_exec *e;
  /* per leaf: index of its bound array; -1: the program does not read it */
  int *leaf;
  /* per leaf: index of the bound array of its gradient; -1: there is none */
  int *leaf_grad;
  int nleaf;
  /* per output of the calls that have run, where it has a value: index of its bound array; -1: the
  ** program does not read it */
  int *known;
  ty_tensor *known_array;                             /* its tensor: see end_array */
  int nknown;
  /* An end is an output of a call that runs which is written to an array. Per end: index of its
  ** bound array; -1: it has none */
  int *end;
  /* per end: the tensor that is bound there during a run; between runs it has no storage */
  ty_tensor *end_array;
  int nend;
  int64_t end_bytes;                                  /* of these arrays; 0 unless all on one CPU */
  /* per output of the calls that run, in their order: number of its end; -1: it is none */
  int *end_of;
  int noutput;
  uint8_t *steps;                                     /* per call: CALL_RUNS, GRADIENT_RUNS */
  ty_tensor **ones;                                   /* per head: its gradient if it is ones */
  uint64_t used;                                      /* serial number of its last run */
  /* per output of the calls that run: an array had it when the program was built */
  uint8_t *alive;
  /* per output of the calls that run: an array had it in the last run */
  uint8_t *latest;
  int repeated;                                       /* runs in a row with the same `latest` */
};

/* Notes which outputs are alive, that is, have an array, in a run of a program. Returns whether the
** same outputs, fewer than the program keeps, were alive in the last runs: a smaller program is
** then worth the time to build it. */
bool kept_is_large(struct kept *k, const uint8_t *alive);

/* Returns the program of a structure that keeps at least the outputs that are `alive`; of several,
** the one that keeps the fewest; NULL: there is none. */
struct kept *kept_find(const struct trace *t, uint64_t hash, const uint8_t *alive, int noutput);
/* Adds a program to the cache, which owns it from then on. A full cache frees the program that ran
** least recently. */
void kept_add(struct kept *k, uint64_t hash);
/* Frees a program that is not, or no longer, in the cache. */
void kept_free(struct kept *k);
/* Returns in *out the pool that all programs share, since they run one after another. The cache
** owns it. */
int  kept_pool(ty_pool **out);
/* Sets alive[i] of each output i that some program of this structure keeps. */
void kept_mark(const struct trace *t, uint64_t hash, uint8_t *alive, int noutput);

struct kept_stats {
  int64_t hits;                                       /* runs of a program that was kept */
  int64_t misses;                                     /* runs whose program had to be built */
  int64_t flushes;                                    /* backlogs that were submitted */
  int64_t ops;                                        /* calls in them */
};
extern struct kept_stats kept_stats;
