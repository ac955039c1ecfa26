/* inner.h - what the files that run an executor share. */
#pragma once
#include "device/profile.h"
#include "device/timing.h"
#include "exec/exec.h"

/* what a walk from node to node covers; ONE: a partial forward */
enum { FORWARD, BACKWARD, ONE };

/* run.c: the variant that a run takes, made if need be; and a run's first steps */
int exec_choose_variant(ty_exec *e, int which, struct program **p);
int exec_start(ty_exec *e, const char *what, int which, int is_train, struct program **p);
int exec_begin_backward(ty_exec *e, struct program *p);
/* segment.c: steps first .. last - 1 of a segment as a task behind the tickets in `after` */
int exec_submit(ty_exec *e, struct program *p, const struct segment *g, int first, int last,
    const struct ticket *after, int nafter, struct ticket *out);
/* Submits segments from .. to - 1; TY_EV_HOST before one of the front end's. What those write that
** an error leaves out is broken by it. */
int exec_submit_all(ty_exec *e, struct program *p, int from, int to);
/* Marks what segments from .. to - 1, which were not submitted, would have written as broken by
** this thread's failure. Waits for what still reads or writes it. Returns code. */
int exec_abandon(struct program *p, int from, int to, int code);
/* Forgets failures of earlier runs where a run begins on a device with a segment of the front
** end's; elsewhere the task of the first segment does. */
void exec_begin_host_segment(const ty_exec *e, const struct program *p, int segment);
/* Raises what failed in the segments of a device so far. */
int exec_check_token(const ty_exec *e, int slot);
/* makes p->alone, once */
int exec_list_alone(ty_exec *e, struct program *p);
void exec_note_host_event(ty_exec *e, const struct program *p, int t);
/* adds operator and node of a step to the failure; returns code */
int exec_fail_step(struct program *p, const struct step *st, int code);
/* check.c: TY_ERUN where an output of the step is not finite */
int exec_check_step(struct program *p, const struct step *st);
/* replay.c: the runs of a segment's steps that its device can record. The one that begins at step
** *t, if it ends within `last`: where it is recorded the device starts it, and *t moves behind */
int  exec_list_records(ty_exec *e, struct program *p, struct segment *g);
int  exec_replay(struct program *p, const struct segment *g, int mode, uint64_t generation,
    int last, int *t);
void exec_forget_records(struct program *p);
/* walk.c: node by node, to the next event or the end */
int exec_walk(ty_exec *e);
/* bind.c: element-wise nodes become pointwise programs */
bool exec_fuses(const ty_exec *e);
/* routes.c: per variant, where gradients go; and the graph with what the passes ask about it */
int exec_route_gradients(ty_exec *e);
struct source exec_source_of(const ty_exec *e, int which, int flags);
/* bind.c: lists t among the bound tensors, once; *index: where */
int exec_add_bound(ty_exec *e, ty_tensor *t, int *index);
