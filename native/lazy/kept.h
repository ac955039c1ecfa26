/* kept.h - programs of traces, kept by their structure. All under the lock of backlog.h. */
#pragma once
#include "exec/exec.h"
#include "lazy/trace.h"

enum { CALL_RUNS = 1, GRADIENT_RUNS = 2 };
struct kept {
  uint64_t hash;
  uint64_t *key;
  int nkey;
  struct cached_call **call;                          /* one reference each */
  int ncall;
  /* calls that have run before, which are the first ones */
  int ndone;
  const char **where;                                 /* per call: its line in the last run */
  struct kept *next;                                  /* what its thread ran after it; NULL */
  ty_exec *e;
  /* per leaf: index of its bound array; -1: the program does not read it */
  int *leaf;
  int *leaf_grad;                                     /* the same of its gradient */
  int nleaf;
  /* per value that is there already: index of its bound array, -1 */
  int *known;
  int nknown;
  /* per value that is written to an array: index of its bound array, -1 */
  int *end;
  int nend;
  int64_t end_bytes;                                  /* of these arrays; 0: not on one CPU */
  /* per output of the calls that run, in their order: its index among the ends, -1: it is none */
  int *end_of;
  int noutput;
  uint8_t *steps;                                     /* per call: CALL_RUNS, GRADIENT_RUNS */
  ty_tensor **ones;                                   /* per head: what its gradient is, or NULL */
  uint64_t used;                                      /* serial number of its last run */
  uint8_t *alive;                                     /* per output: it is kept by the program */
  uint8_t *latest;                                    /* per output: it was alive in the last run */
  int repeated;                                       /* runs in a row with the same `latest` */
};

/* Notes which outputs are alive in a run of a program. Returns whether fewer are than it keeps, as
** in the runs before: one that keeps less is worth its plan then. */
bool kept_is_large(struct kept *k, const uint8_t *alive);

/* Returns the program of a structure that keeps at least the outputs that are `alive`; NULL: there
** is none. */
struct kept *kept_find(const struct trace *t, uint64_t hash, const uint8_t *alive, int noutput);
/* Takes over a program; may free the least recently used one. */
void kept_add(struct kept *k, uint64_t hash);
void kept_free(struct kept *k);
/* Returns the pool that all programs share; they run one after another. */
int  kept_pool(ty_pool **out);
/* Marks the outputs that programs of this structure keep. */
void kept_mark(const struct trace *t, uint64_t hash, uint8_t *alive, int noutput);

struct kept_stats { int64_t hits, misses, flushes, ops; };
extern struct kept_stats kept_stats;
