/* history.h - where arrays come from: the calls that made them while recording was on, as nodes
** that hold what backward needs.
**
** A tensor that came out of a recorded call has a history: a node, and which output of it. A node
** holds the nodes of its inputs, so a graph lives as long as an array that came out of it.
** Variables hold no graph. Nodes belong to the thread that made them, but the last reference may be
** dropped by a device's thread.
**
** A call may be pending: it is not submitted yet, and the storages of its outputs are promised
** (device.h). Once it was part of a program it is done, and those of its outputs that no
** array had and no gradient needed never got bytes.
*/
#pragma once
#include "imperative/imperative.h"

enum history_kind {
  HISTORY_CALL,                                       /* an operator */
  HISTORY_FUNCTION,                                   /* a function of the front end */
  HISTORY_VARIABLE,                                   /* an array with a gradient */
};

/* What a call read: output `out` of another node, or an array of its own. */
struct history_input {
  struct history *from;                               /* NULL: a plain array */
  int out;
  ty_tensor *array;                                   /* NULL: it is that of `from` */
  uint64_t version;                                   /* of its storage when it was read */
};

/* What a call gave; its descriptor is the cached call's or history.desc. */
struct history_output {
  struct storage *storage;                            /* borrowed from the input by views */
  int64_t offset;
  uint64_t version;
};

struct history {
  int32_t refs;                                       /* atomic */
  enum history_kind kind;
  uint64_t serial;                                    /* larger than those of its inputs' nodes */
  const char *where;                                  /* line of the script, interned; NULL */
  struct history *next;                               /* while a chain is dropped */
  uint64_t seen;                                      /* the last walk that visited it */
  int index;                                          /* its index in that walk */
  size_t bytes;                                       /* of this block */
  /* HISTORY_VARIABLE; the gradient is NULL where req is TY_NULL */
  ty_tensor *grad;
  int req;
  bool fresh;                                         /* backward has written the gradient */
  /* HISTORY_CALL and HISTORY_FUNCTION; a function has no cached call */
  struct cached_call *call;
  struct run run;
  int nin, nout;
  struct history_input *in;
  struct history_output *out;
  ty_desc *desc;                                      /* of a function's outputs */
  bool view;                                          /* its output is in its input's storage */
  bool changes;                                       /* it writes to an input */
  bool broken;                                        /* see backlog_mark_broken */
  bool late;                                          /* its input was not given yet (late.c) */
  bool waits;                                         /* see backlog_mark_waiting */
  /* of late calls: id 0: none; of: number of late values that the group has */
  struct late_group { uint64_t id; int of; } group;
  /* A backward has freed what the call held: there is no gradient any more. */
  bool freed;
  const char *freed_at;                               /* the line of that backward; NULL */
  /* Of a pending call: its thread's list, and its neighbours there; else NULL. */
  struct backlog *backlog;
  struct history *before, *after;
};

/* Returns a number for history.seen and storage.seen that no walk has had. */
uint64_t history_new_walk(void);

/* How a tensor without a history came about (ty_tensor.made). */
enum {
  MADE_BY_HOST,
  MADE_NOT_RECORDING,
  MADE_WHILE_PAUSED,
  MADE_OF_PLAIN_ARRAYS,                               /* recording was on */
  MADE_DETACHED,
};

/* Makes the node of a variable, with one reference; keeps the gradient. */
int  history_variable(ty_tensor *grad, int req, struct history **out);
/* Makes the node of a call, with one reference. in: what it was called with; out: all outputs. */
int  history_call(struct cached_call *call, const struct run *run, ty_tensor *const *in, int nin,
    ty_tensor *const *out, int nout, struct history **made);
/* Makes the node of a call whose outputs are promised. */
int  history_promise(struct cached_call *call, const struct run *run, ty_tensor *const *in, int nin,
    struct history **made);
/* Makes the node of a call whose output is promised, and whose one input history_give sets. */
int  history_late(struct cached_call *call, const struct run *run, struct history **made);
/* Sets the input of a late call. Its serial number becomes the highest. */
void history_give(struct history *h, ty_tensor *value);
/* Gives a node the highest serial number: it is moved after those that there are. */
void history_renumber(struct history *h);
/* Makes the node of a function of the front end, likewise. */
int  history_function(ty_tensor *const *in, int nin, ty_tensor *const *out, int nout,
    struct history **made);
/* Notes the versions of what a call has read and given, once it is submitted. */
void history_note_versions(struct history *h);
struct history *history_keep(struct history *h);
void history_drop(struct history *h);
/* Called when the last reference to a pending call is dropped (flush.c). Returns true if it may be
** freed, since no array has an output of it. Else runs the call and drops it again. */
extern bool (*history_drop_pending)(struct history *h);
/* Drops the inputs and outputs of a node, which backward has used. where: the line of that
** backward, for errors. */
void history_free(struct history *h, const char *where);
/* Replaces the history of a tensor; h NULL: by none. */
void history_attach(ty_tensor *t, struct history *h, int out);
const ty_desc *history_desc(const struct history *h, int out);
/* Returns the operator's name, or "Function". */
const char *history_name(const struct history *h);
/* Returns a tensor, one reference, on an output of a call, or on what an input reads. They have no
** history, but for an input that is an array of its own. */
int  history_output_tensor(const struct history *h, int out, ty_tensor **tensor);
int  history_input_tensor(const struct history *h, int in, ty_tensor **tensor);
/* Returns whether an output has bytes, or will have: those of a pending call have none. */
static inline bool history_has_value(const struct history *h, int out)
{
  return __atomic_load_n(&h->out[out].storage->source, __ATOMIC_ACQUIRE) != &storage_promise;
}
/* Returns whether t has values that a variable takes part in. */
static inline bool history_is_recorded(const ty_tensor *t)
{
  return t->history && t->history->kind != HISTORY_VARIABLE;
}
