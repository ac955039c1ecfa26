/* inner.h - what the files of an executor share. */
#pragma once
#include "device/profile.h"
#include "device/timing.h"
#include "exec/exec.h"

/* -- ring.c ------------------------------------------------------------------------------------ */

/* what the task of a segment needs */
struct ctx {
  ty_exec *e;
  struct program *p;
  const struct segment *segment;
  int first, last;
  uint64_t generation;                                /* of the pool */
  struct run run;
  uint64_t *version;
  void **address;                                     /* bindings.address; NULL: not movable */
  uint64_t serial;                                    /* of the addresses */
  struct ticket ticket;
  struct timed_step *timed;                           /* of a timed run; reused by the next one */
  int ntimed, timed_cap;
};
struct timed_step {
  struct timing time;
  int step;
  bool profiled;                                      /* the profiler gets its time */
};
/* Waits until no task of the executor runs. */
void exec_wait_runs(const ty_exec *e);
/* Makes the ring large enough for a program: four runs, and walks. Two runs of a movable executor,
** whose contexts hold the addresses of its arrays. */
int  exec_make_ring(ty_exec *e, const struct program *p);
/* Returns the next context of the ring. Waits where all are in use. */
struct ctx *exec_next_context(ty_exec *e);
void exec_free_ring(ty_exec *e);

/* -- replay.c ---------------------------------------------------------------------------------- */

/* Scores of exec_bindings.moves. Two changes of an address in a row make an array a moving one. One
** does not: it may be that another network with the same program runs from now on. */
enum {
  MOVED = 2,                                          /* a run with a new address adds this */
  NOT_MOVED = 1,                                      /* a run with the same address takes this */
  MOVING = 3,                                         /* the least score of a moving array */
  MOST_MOVES = 8                                      /* the largest score */
};
static inline bool exec_array_moves(const ty_exec *e, int bound)
{
  return e->bind.moves[bound] >= MOVING;
}
/* Lists the sequences of a segment's steps that its device can record. */
int  exec_list_records(ty_exec *e, struct program *p, struct segment *g);
/* Frees what was recorded of a program and lists its sequences again. */
int  exec_list_records_again(ty_exec *e, struct program *p);
/* Replays the sequence that begins at step *t and ends within `last`, if there is one and it is
** recorded, and moves *t after it. mode: 0 inference, 1 training; generation: the pool's. */
int  exec_replay(struct program *p, const struct segment *g, int mode, uint64_t generation,
    int last, int *t);
/* Frees what was recorded of a program; NULL: nothing. */
void exec_forget_records(struct program *p);

/* -- check.c, profile.c ------------------------------------------------------------------------ */

/* Fails with TY_ERUN where an output of a step is not finite. */
int  exec_check_step(struct program *p, const struct step *st);
/* Reports a step to the profiler. from, to: nanoseconds. */
void exec_profile_step(const struct program *p, const struct step *s, int64_t from, int64_t to);

/* -- state.c ----------------------------------------------------------------------------------- */

/* what begins or ends a phase */
enum exec_event {
  ON_FORWARD,
  ON_NODE,                                            /* a partial forward */
  ON_BACKWARD,
  ON_REPEATED,                                        /* forward is complete again, for backward */
  ON_WHOLE,
  ON_END,
  RUN_EVENTS
};

/* Returns whether a phase can follow the present one. */
bool exec_allows(const ty_exec *e, enum exec_event event);
/* Goes to the next phase, in which the executor is not waiting. */
void exec_enter(ty_exec *e, enum exec_event event);
/* Ends the phase, unless code is an event (TY_EV_*, below 0), for which the executor waits. Returns
** code. */
int  exec_settle(ty_exec *e, int code);
/* Returns the program of the last forward. */
struct program *exec_current_program(const ty_exec *e);
/* Returns the end of the segments that belong to the phase. */
int  exec_end_segment(const ty_exec *e);
/* Fails with TY_ESTATE where the executor was bound without memory. */
int  exec_need_memory(const ty_exec *e, const char *what);
/* Finds in which modes a run of the forward part draws random numbers. */
void exec_note_draws(ty_exec *e);
/* Sets the mode of what the run does next; takes the run's draw with the first mode that needs
** one. */
void exec_set_mode(ty_exec *e, bool is_train);

/* -- bindings.c -------------------------------------------------------------------------------- */

/* Lists the variables of a graph as arguments and auxiliary states, in list order. */
int  exec_variables(const ty_graph *g, int *arg, int *narg, int *aux, int *naux);
/* Adds an array to the bound ones; *index: its index there. t may be NULL. */
int  exec_add_bound(ty_exec *e, ty_tensor *t, int *index);
/* Binds all given arrays to the variables of a graph, and indexes these by name. */
int  exec_match_arrays(ty_exec *e, const struct exec_source *s, const ty_graph *g);
/* Checks that bound arrays are on the devices that the graph was placed on. */
int  exec_check_devices(ty_exec *e);
/* Returns the i-th variable: arguments, then auxiliary states. */
static inline struct bound *exec_variable_at(ty_exec *e, int i)
{
  return i < e->bind.narg ? &e->bind.arg[i] : &e->bind.aux[i - e->bind.narg];
}

/* -- graph.c ----------------------------------------------------------------------------------- */

/* Returns whether element-wise nodes become pointwise programs. */
bool exec_fuses(const ty_exec *e);
/* Extracts what the heads, ends and known values reach into a graph of the executor's own. */
int  exec_take_graph(ty_exec *e, const struct exec_source *s, struct typed_graph *x);
/* Rewrites the extracted graph and moves it into the executor. */
int  exec_rewrite_graph(ty_exec *e, const struct exec_source *s, struct typed_graph *x);

/* -- routes.c ---------------------------------------------------------------------------------- */

/* Decides for each variant where gradients are written. */
int  exec_route_gradients(ty_exec *e);
/* Returns the graph of a variant with what the passes ask about it. flags: TY_*. */
struct source exec_make_source(const ty_exec *e, int which, int flags);
void exec_free_routes(ty_exec *e);

/* -- variant.c --------------------------------------------------------------------------------- */

/* Compiles a variant. Outputs keep the offsets that they have in the other variant, or in `before`,
** the executor that this one is a reshape of (NULL: none). */
int  exec_compile(ty_exec *e, int which, const ty_exec *before, struct program **out);
/* Returns a variant, compiled at its first use. */
int  exec_variant(ty_exec *e, int which, struct program **out);
/* Makes outputs, failure links and lists of versions; then resolves pointers. */
int  exec_make_arrays(ty_exec *e, const ty_exec *before);
/* Waits for the runs so far, then writes pointers into the programs: after binding, and when the
** pool has moved. */
int  exec_resolve(ty_exec *e);
/* Writes pointers into a program. address: per bound array. serial: of the addresses. */
void exec_place_arrays(ty_exec *e, struct program *p, void *const *address, uint64_t serial);

/* -- access.c ---------------------------------------------------------------------------------- */

/* Lists what each segment of a program accesses. */
int  exec_list_segments(ty_exec *e, struct program *p);
/* Lists what each step alone accesses, in p->step_segment, at the first call: with the lists of its
** segment, a walk would take time in proportion to the square of the number of steps. */
int  exec_list_single(ty_exec *e, struct program *p);
/* Returns whether a segment is the first of a device, where failures of earlier runs no longer
** count. Where a device has no work in forward, it is one of backward. */
bool exec_begins_run(const struct program *p, int segment);

/* -- budget.c ---------------------------------------------------------------------------------- */

/* Makes an executor that computes as much again in backward as its budget of bytes needs. */
int  exec_make_within_budget(const struct exec_source *s, ty_exec **out);

/* -- submit.c ---------------------------------------------------------------------------------- */

/* Returns the variant that a run takes, ready to be submitted. */
int  exec_choose_variant(ty_exec *e, int which, struct program **p);
/* Submits steps first .. last - 1 of a segment as a task that waits for the tickets `after`. */
int  exec_submit(ty_exec *e, struct program *p, const struct segment *g, int first, int last,
    const struct ticket *after, int nafter, struct ticket *out);
/* Submits segments from .. to - 1; returns TY_EV_HOST before one that the front end has to run.
** After a failure, what the segments that were not submitted would have written is marked as
** failed. */
int  exec_submit_all(ty_exec *e, struct program *p, int from, int to);
/* Marks what segments from .. to - 1, which were not submitted, would have written as failed, by
** this thread's failure. Waits for tasks that still read or write it. Returns code. */
int  exec_abandon(struct program *p, int from, int to, int code);
/* Drops failures of earlier runs where a run begins on a device with a segment of the front end;
** elsewhere the task of the first segment does. */
void exec_begin_front_end_segment(const ty_exec *e, const struct program *p, int segment);
/* Returns what failed in the segments of a device so far. */
int  exec_check_failure_link(const ty_exec *e, int slot);
/* Makes step t, which the front end has to run, the event. */
void exec_note_front_end_event(ty_exec *e, const struct program *p, int t);

/* -- walk.c ------------------------------------------------------------------------------------ */

/* Runs nodes one by one, from e->run.node to the next event or the end. */
int  exec_walk(ty_exec *e);
/* Runs the step of a node. Returns TY_EV_HOST where the front end has to run it. */
int  exec_run_node(ty_exec *e, struct program *p, int node);
/* Ends a walk after a failure: what the rest of it would have written is marked as failed. Returns
** the code. */
int  exec_abandon_walk(ty_exec *e, int code);
