/* exec.h - a program with its arrays bound.
**
** Files, each uses only those above it:
**   ring.c      contexts of submitted tasks
**   replay.c    sequences of steps that a device records and replays
**   check.c     the search for numbers that are not finite
**   profile.c   spans for the profiler
**   state.c     what an executor is doing
**   bindings.c  arrays of variables
**   graph.c     the user's graph and its rewrites
**   routes.c    where gradients are written
**   variant.c   programs, the pool, outputs
**   query.c     questions of front ends; print.c: the graph and the program as text
**   access.c    what segments access
**   object.c    making, reference counts, freeing
**   budget.c    how much backward computes again; bind.c: bind, simple_bind, reshape
**   submit.c    segments as tasks
**   walk.c      monitored runs, node by node
**   run.c       forward, backward
*/
#pragma once
#include <pthread.h>
#include "pass/program.h"
#include "pass/rewrite.h"
#include "device/pool.h"

/* an argument or auxiliary state, in list order */
struct bound {
  const char *name;
  int node;                                           /* its variable */
  ty_tensor *value, *grad;
  int req;
  int value_bound, grad_bound;                        /* places in exec.bound, -1 */
};
struct ctx;                                           /* inner.h */
enum { FUSED, UNFUSED, VARIANTS };

struct ty_exec {
  int32_t refs;
  /* user: what get_optimized_symbol and reshape start from; g: with gradients and copies */
  ty_graph *user, *g;
  ty_entry *user_head;
  ty_desc *desc;                                      /* per value */
  int *device;                                        /* per node of g */
  int forward;                                        /* nodes of the forward part of g */
  ty_entry *head;
  int nhead;
  /* per argument: entry of its gradient in g, node -1 */
  ty_entry *grad_entry;
  /* per head: the variable of its gradient in g, node -1: not needed */
  ty_entry *head_grad_entry;
  /* per head: place in bound of its head gradient, -1: not needed */
  int *head_grad;
  uint8_t *is_head;                                   /* per value of g */
  struct run *own_run;                                /* see struct source */
  int nown;
  struct bound *arg, *aux;
  int narg, naux;
  struct names arg_names, aux_names;
  ty_tensor **bound;                                  /* bound tensors; each one reference */
  int nbound, bound_cap;
  /* version: per device slot, of each bound tensor, as the running segment saw it */
  void **bound_at;
  uint64_t *version[MAX_DEVICES];
  /* per device slot: carries failures from segment to segment */
  struct storage *token[MAX_DEVICES];
  /* per device slot: the random state of a run in its memory; NULL: nobody reads it there */
  struct storage *draws[MAX_DEVICES];
  int *bound_of, *known_of;                           /* see struct source */
  /* bound tensors may be exchanged between runs (exec_set_array) */
  bool movable;
  /* entries of g that are written into bound tensors, in order: ends that were asked for */
  ty_entry *end;
  int *end_bound, nend;
  /* per value that was given as known: its array's place in bound */
  int *known_bound, nknown;
  /* per bound tensor, or NULL: see struct source */
  int *bucket;
  int nbucket;
  /* per variant: where gradients go, and which sums products do themselves */
  struct route {
    int *grad_of, *grad_req, *into;
    uint8_t *summed;
    uint8_t *shared;                                  /* of a bound array: others lie on it */
    struct grad_copy *copy;
    int ncopy;
  } route[VARIANTS];
  ty_tensor **output;
  /* of outputs in the pool; NULL: bound or absent */
  struct storage **output_storage;
  int default_device, flags;
  ty_place *place;
  int nplace;
  ty_pool *pool;
  uint64_t generation;                                /* of the pool when pointers were resolved */
  struct program *variant[VARIANTS];
  /* variant of the last forward, -1: none yet */
  int ran;
  int forward_train;                                  /* mode of the last forward */
  bool spent;                                         /* a backward has run since */
  struct run last;                                    /* its is_train and draw */
  /* per mode (inference, training): does a node of the forward part draw random numbers? */
  bool random[2];
  bool drawn;                                         /* the last run has taken its draw */
  struct ctx *ring;                                   /* contexts of submitted segments */
  int nring, at_ring;
  struct ticket *seg_ticket;
  int monitor;                                        /* TY_MON_* */
  int level;                                          /* of recomputation */
  bool check, mirror, profile, with_grad;
  bool replaced;                                      /* see struct typed_graph */
  /* a monitored run between events */
  struct { int phase, node, item, train; bool active; } walk;
  /* a run that waits for the front end */
  struct { struct program *p; int at, to; bool rerun; int train; } host;
  ty_event event;
  ty_tensor *event_tensor;
  char event_name[600];
  ty_stats stats;
  struct text printed;
  struct arena arena;
  const char **names[3];
};

struct exec_source {                                  /* what exec_make starts from */
  ty_graph *g;
  const ty_entry *head;
  int nhead;
  const ty_bind *arg;
  int narg;
  const ty_bind *aux;
  int naux;
  /* dry runs: descriptors where there are no arrays; else NULL */
  const ty_desc *arg_desc, *aux_desc;
  const ty_place *place;
  int nplace, device, flags;
  int64_t budget;
  int level;                                          /* of recomputation (budget.c) */
  ty_pool *pool;
  /* reshape: outputs keep its places where they fit */
  struct ty_exec *before;
  /* per head: a gradient comes for it; NULL: for all */
  const bool *head_has_grad;
  /* Values that are there already: entries of g, and their arrays. What makes them does not run. */
  const ty_entry *known;
  ty_tensor *const *known_array;
  int nknown;
  /* Values that are written into arrays, which may be others in each run (exec_set_array). */
  const ty_entry *end;
  ty_tensor *const *end_array;
  int nend;
  /* random states of nodes that have their own */
  int nown;
  bool movable;                                       /* see struct ty_exec */
};

/* -- executors of recorded calls (lazy) -------------------------------------------------------- */

int  exec_make(const struct exec_source *s, ty_exec **out);
/* Copies the given head gradients to their arrays. NULL: of a head that needs none, or keeps that
** of the last run. */
int  exec_give_heads(ty_exec *e, ty_tensor *const *head_grad, int n);
/* Runs forward and backward of an executor whose heads have their gradients, without a draw from
** the device's random state. own: random states of the nodes that have their own. */
int  exec_run_whole(ty_exec *e, const struct run *own, bool is_train);
/* Finds the indices of a variable's array and of its gradient among the bound arrays; -1: none. */
void exec_find_bound(const ty_exec *e, const char *name, int *value, int *grad);
/* Exchanges a bound array of a movable executor for one of the same shape, type and device that
** overlaps the others as the old one did; NULL: none for now. Returns whether it is another one.
** Before the next run all arrays must be set and exec_rebind called. */
bool exec_set_array(ty_exec *e, int at, ty_tensor *t);
/* Waits for the runs so far, then takes the addresses of the arrays that are bound now. */
int  exec_rebind(ty_exec *e);
/* Marks the bound arrays that the program reads. read: per bound array. */
void exec_mark_read(const ty_exec *e, uint8_t *read);
