/* kept.h - programs of traces, kept by their structure. All under the lock of backlog.h. */
#pragma once
#include "exec/exec.h"
#include "lazy/trace.h"

enum { CALL_RUNS = 1, GRADIENT_RUNS = 2 };
/* A program, and what of its runs decides which programs are kept. */
struct kept {
  uint64_t hash;
  uint64_t *key;
  int nkey;
  struct cached_call **call;                          /* one reference each */
  int ncall;
  int ndone;                                          /* the first ones, which have run before */
  const char **where;                                 /* per call: its line in the last run */
  struct kept *next;                                  /* program that its thread ran after it */
  ty_exec *e;
  /* per leaf: index of its bound array; -1: the program does not read it */
  int *leaf;
  /* per leaf: index of the bound array of its gradient; -1: there is none */
  int *leaf_grad;
  int nleaf;
  /* per output of the calls that have run, where it has a value: index of its bound array; -1: the
  ** program does not read it */
  int *known;
  int nknown;
  /* ends: outputs of the calls that run which are written to arrays. Per end: index of its bound
  ** array; -1: it has none */
  int *end;
  int nend;
  int64_t end_bytes;                                  /* of these arrays; 0: not on a single CPU */
  /* per output of the calls that run, in their order: number of its end; -1: it is none */
  int *end_of;
  int noutput;
  uint8_t *steps;                                     /* per call: CALL_RUNS, GRADIENT_RUNS */
  ty_tensor **ones;                                   /* per head: ones as its gradient; NULL */
  uint64_t used;                                      /* serial number of its last run */
  /* per output of the calls that run: an array had it when the program was built */
  uint8_t *alive;
  /* the same in the last run */
  uint8_t *latest;
  int repeated;                                       /* runs in a row with the same `latest` */
};

/* Notes which outputs are alive, that is, have an array, in a run of a program. Returns whether
** they are fewer than it keeps, for several runs in a row: then a program that keeps just these is
** worth the time to build it. */
bool kept_is_large(struct kept *k, const uint8_t *alive);

/* Returns the program of a structure that keeps at least the outputs that are `alive`; NULL: there
** is none. */
struct kept *kept_find(const struct trace *t, uint64_t hash, const uint8_t *alive, int noutput);
/* Keeps a program, which kept_free frees; may free the least recently used one. */
void kept_add(struct kept *k, uint64_t hash);
void kept_free(struct kept *k);
/* Returns the pool that all programs share; they run one after another. */
int  kept_pool(ty_pool **out);
/* Marks the outputs that programs of this structure keep. */
void kept_mark(const struct trace *t, uint64_t hash, uint8_t *alive, int noutput);

struct kept_stats {
  int64_t hits;                                       /* runs of a program that was kept */
  int64_t misses;                                     /* runs whose program had to be built */
  int64_t flushes;                                    /* backlogs that were submitted */
  int64_t ops;                                        /* calls in them */
};
extern struct kept_stats kept_stats;
