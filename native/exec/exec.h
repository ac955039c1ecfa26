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

/* -- the parts of an executor ------------------------------------------------------------------ */

/* The graph and its descriptors. */
struct exec_graph {
  /* as it was given: what get_optimized_symbol and reshape start from */
  ty_graph *user;
  ty_entry *user_head;                                /* heads, then ends, then known values */
  ty_graph *g;                                        /* after the rewrites */
  ty_desc *desc;                                      /* per value of g */
  int *device;                                        /* per node of g */
  int forward;                                        /* nodes of the forward part of g */
  ty_entry *head;
  int nhead;
  /* per argument: its gradient in g, node -1: none */
  ty_entry *grad_entry;
  /* per head: the variable of its gradient in g, node -1: not needed */
  ty_entry *head_grad_entry;
  uint8_t *is_head;                                   /* per value of g */
  bool with_grad;
  bool replaced;                                      /* struct typed_graph */
  /* per mode (inference, training): a node of the forward part draws random numbers */
  bool random[2];
};

/* an argument or auxiliary state, in list order */
struct bound {
  const char *name;
  int node;                                           /* its variable */
  ty_tensor *value, *grad;
  int req;                                            /* TY_NULL, TY_WRITE, TY_ADD */
  int value_bound, grad_bound;                        /* indices of the arrays, -1: none */
};

/* where a variant writes gradients, and which sums products compute themselves (struct source) */
struct route {
  int *grad_of, *grad_req, *into;
  uint8_t *summed;
  uint8_t *shared;                                    /* per array: shares bytes with another */
  struct grad_copy *copy;
  int ncopy;
  uint8_t *copied;                                    /* per value: is in copy */
};

/* The programs of an executor: the one that runs, and one without fusion for monitors, the search
** for bad numbers and partial forwards. */
enum { FUSED, UNFUSED, VARIANTS };

/* The bound arrays, what they are bound to, and the routes of gradients. */
struct exec_bindings {
  struct bound *arg, *aux;
  int narg, naux;
  struct names arg_names, aux_names;
  ty_tensor **bound;                                  /* all arrays; each one reference */
  int nbound, cap;
  /* per array: its address for the runs that are submitted next */
  void **address;
  uint64_t serial;                                    /* of these addresses */
  uint8_t *moves;                                     /* per array: a score (inner.h, MOVED) */
  /* per device slot: the version of each array that the running segment sees */
  uint64_t *version[MAX_DEVICES];
  /* arrays may be exchanged between runs (exec_set_array) */
  bool movable;
  int *of_node;                                       /* source.bound */
  int *known_of;                                      /* source.known */
  /* per head: index of the array of its head gradient, -1: not needed */
  int *head_grad;
  /* values that are written into arrays, in the order of exec_source.end, and indices of these */
  ty_entry *end;
  int *end_bound, nend;
  /* indices of the arrays of known values, in the order of exec_source.known */
  int *known_bound, nknown;
  int *bucket, nbucket;                               /* source.bucket */
  struct route route[VARIANTS];
};

/* What an executor is doing. The transitions are the table of state.c. */
enum exec_phase {
  RUN_REFUSED = -1,                                   /* as a transition: there is none */
  RUN_NONE,                                           /* no forward yet */
  RUN_FORWARD,
  RUN_DONE,                                           /* forward is complete, backward may use it */
  RUN_NODE,                                           /* one node of a forward */
  RUN_BACKWARD,
  RUN_USED,                                           /* backward has overwritten its results */
  RUN_NODE_USED,                                      /* one node of a forward, after a backward */
  RUN_REPEAT,                                         /* forward again, for a second backward */
  RUN_WHOLE,                                          /* forward and backward in one */
  RUN_PHASES
};

/* The state of the run. */
struct exec_run {
  enum exec_phase phase;
  int variant;                                        /* of the last forward, -1: none yet */
  bool waiting;                                       /* for ty_exec_resume, after an event */
  bool walking;                                       /* node by node (walk.c), not by segments */
  int node;                                           /* of the walk, or of the event */
  int item;                                           /* of the walk: the node's next value */
  int segment;                                        /* waits for the front end; not in walks */
  bool forward_train, backward_train;                 /* modes of the last calls */
  struct run context;                                 /* mode and draw of what is submitted next */
  bool drawn;                                         /* the run has taken its draw */
};

struct ctx;                                           /* inner.h */

/* What tasks need. */
struct exec_submission {
  struct ctx *ring;
  int nring, next;                                    /* the context that is used next */
  struct ticket *ticket;                              /* per segment, of its last task */
  /* Per device slot: storage without bytes that carries a failure from segment to segment. */
  struct storage *failure_link[MAX_DEVICES];
  /* per device slot: the random state of a run in its memory; NULL: it is not read there */
  struct storage *rng[MAX_DEVICES];
};

struct ty_exec {
  int32_t refs;
  struct exec_graph graph;
  struct exec_bindings bind;
  struct exec_run run;
  struct exec_submission submit;
  struct program *variant[VARIANTS];
  struct run *own_run;                                /* see struct source */
  int nown;
  ty_tensor **output;
  struct storage **output_storage;                    /* in the pool; NULL: bound or absent */
  int default_device, flags;
  ty_place *place;
  int nplace;
  ty_pool *pool;
  uint64_t generation;                                /* of the pool when pointers were resolved */
  int recompute_level;                                /* budget.c */
  int monitor;                                        /* TY_MON_* */
  bool check, profile;
  ty_event event;
  ty_tensor *event_tensor;
  char event_name[600];
  ty_stats stats;
  struct text printed;
  const char **names[3];
  struct arena arena;
};

/* -- making one -------------------------------------------------------------------------------- */

/* what exec_make starts from */
struct exec_source {
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
  int64_t budget;                                     /* bytes of the plan; 0: any */
  int recompute_level;                                /* budget.c */
  ty_pool *pool;
  /* reshape: outputs keep its offsets where they fit */
  struct ty_exec *before;
  /* per head: it gets a gradient; NULL: all do */
  const bool *head_has_grad;
  /* values that are known: entries of g, and their arrays; what computes them does not run */
  const ty_entry *known;
  ty_tensor *const *known_array;
  int nknown;
  /* values that are written into arrays, which may be exchanged (exec_set_array) */
  const ty_entry *end;
  ty_tensor *const *end_array;
  int nend;
  int nown;                                           /* random states of single nodes */
  bool movable;                                       /* see struct exec_bindings */
};

/* -- executors of recorded calls (lazy) -------------------------------------------------------- */

int  exec_make(const struct exec_source *s, ty_exec **out);
/* Copies the given head gradients to their arrays. A NULL among them: its head needs no gradient,
** or keeps the one of the last run. */
int  exec_give_heads(ty_exec *e, ty_tensor *const *head_grad, int n);
/* Runs forward and backward of an executor whose heads have their gradients, without a draw from
** the device's random state. own: random states of the nodes that have their own. */
int  exec_run_whole(ty_exec *e, const struct run *own, bool is_train);
/* Makes what exec_run_whole needs; after it, only the submission itself may lack memory. */
int  exec_prepare_whole(ty_exec *e);
/* Returns the ticket of the latest task; one that is past: there was none. */
struct ticket exec_last_ticket(const ty_exec *e);
/* Finds the indices of a variable's array and of its gradient among the bound arrays; -1: none. */
void exec_find_bound(const ty_exec *e, const char *name, int *value, int *grad);
/* Exchanges bound array `at` of a movable executor for t, which has the shape, type and device of
** the old one and overlaps the other arrays as that one did. t NULL: nothing is bound until the
** array is set again. Before the next run all arrays must be set and exec_rebind called. */
void exec_set_array(ty_exec *e, int at, ty_tensor *t);
/* Makes the runs that follow use the addresses of the arrays that are bound now. Where an address
** has changed it waits for the submitted runs, unless the program runs on one CPU and the exchanged
** arrays are small. */
int  exec_rebind(ty_exec *e);
/* Marks the bound arrays that the program reads. read: per bound array. */
void exec_mark_read(const ty_exec *e, uint8_t *read);
