/* history.h - where arrays come from: the calls that made them while recording was on, as nodes
** that hold what backward needs.
**
** A tensor that a recorded call has made has a history: a node, and the number of the node's output
** that it is. A node holds the nodes of its inputs, so a graph lives as long as one of its results.
** Variables hold no graph. Nodes belong to the thread that made them, but the last reference may be
** dropped by a device's thread.
**
** A call may be pending: it is not submitted yet, and the storages of its outputs are promised
** (device.h). A call is done once it has been part of a program. Outputs that no array had then and
** that no gradient needed have no bytes.
*/
#pragma once
#include "imperative/imperative.h"

enum history_kind {
  HISTORY_CALL,                                       /* an operator */
  HISTORY_FUNCTION,                                   /* a function of the front end */
  HISTORY_VARIABLE,                                   /* an array with a gradient */
};

/* An input of a call: output `out` of another node, or an array that the node holds. */
struct history_input {
  struct history *from;                               /* NULL: the array has no history */
  int out;
  ty_tensor *array;                                   /* NULL: it is that of `from` */
  uint64_t version;                                   /* of its storage when it was read */
};

/* An output of a call; history_desc returns its descriptor. */
struct history_output {
  struct storage *storage;                            /* of a view: borrowed from its input */
  int64_t offset;
  uint64_t version;
};

struct history {
  int32_t refs;                                       /* atomic */
  enum history_kind kind;
  uint64_t serial;                                    /* larger than those of its inputs' nodes */
  const char *where;                                  /* line of the script; NULL: not known */
  struct history *next;                               /* in a list of nodes to free */
  uint64_t seen;                                      /* number of the last walk that visited it */
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
  bool view;                                          /* its output shares its input's storage */
  bool changes;                                       /* it writes to an input */
  bool broken;                                        /* see backlog_mark_broken */
  bool late;                                          /* its input was not given yet (late.c) */
  bool waits;                                         /* see backlog_mark_waiting */
  /* The late values that are given together. */
  struct late_group {
    uint64_t id;                                      /* 0: no group */
    int size;                                         /* number of its late values */
  } group;
  /* A backward has freed what the call held: there is no gradient any more. */
  bool freed;
  const char *freed_at;                               /* its line; NULL: not known */
  /* Of a pending call: its thread's list, and its neighbours there; else NULL. */
  struct backlog *backlog;
  struct history *before, *after;
};

/* Returns a number for history.seen and storage.seen that no walk has had. */
uint64_t history_new_walk(void);

/* Why a tensor has no history (ty_tensor.made). */
enum {
  MADE_BY_HOST,                                       /* no call made it */
  MADE_NOT_RECORDING,                                 /* recording was off */
  MADE_WHILE_PAUSED,                                  /* recording was paused */
  MADE_OF_PLAIN_ARRAYS,                               /* recording was on, no input had a history */
  MADE_DETACHED,                                      /* ty_detach dropped its history */
};

/* Makes the node of a variable, with one reference. grad: its gradient, of which the node keeps a
** reference; may be NULL. req: TY_NULL, TY_WRITE or TY_ADD. */
int  history_variable(ty_tensor *grad, int req, struct history **out);
/* Makes the node of a call that is submitted, with one reference; keeps its arrays. in: its inputs;
** out: all outputs, private ones as well. */
int  history_call(struct cached_call *call, const struct run *run, ty_tensor *const *in, int nin,
    ty_tensor *const *out, int nout, struct history **made);
/* Makes the node of a pending call, with one reference: its outputs are promised storages. */
int  history_promise(struct cached_call *call, const struct run *run, ty_tensor *const *in, int nin,
    struct history **made);
/* Makes the node of a pending call with one input, which history_give sets later. */
int  history_late(struct cached_call *call, const struct run *run, struct history **made);
/* Sets the input of a late call. Its serial number becomes the highest. */
void history_give(struct history *h, ty_tensor *value);
/* Gives a node the highest serial number, since it is moved after all other nodes. */
void history_renumber(struct history *h);
/* Makes the node of a function of the front end, with one reference; keeps its arrays. */
int  history_function(ty_tensor *const *in, int nin, ty_tensor *const *out, int nout,
    struct history **made);
/* Notes the versions of a call's inputs and outputs, once it is submitted. */
void history_note_versions(struct history *h);
/* Adds a reference and returns h, which may be NULL. */
struct history *history_keep(struct history *h);
/* Drops a reference; the last one frees the node, and the nodes that it alone held. Any thread may
** call it, without the lock of the backlogs or with it. */
void history_drop(struct history *h);
/* Serves history_drop where the last reference to a pending call is dropped (flush.c). Returns true
** if no array has an output of it: the caller frees it. Otherwise runs the call and drops it. */
extern bool (*history_drop_pending)(struct history *h);
/* Drops the inputs and outputs of a node, which backward has used. where: the line of that
** backward, for errors. */
void history_free(struct history *h, const char *where);
/* Makes t output `out` of h, which it keeps, and drops the history that t had. h NULL: t has none
** from then on. */
void history_attach(ty_tensor *t, struct history *h, int out);
/* Returns the descriptor of an output, which lives as long as the node is not freed. */
const ty_desc *history_desc(const struct history *h, int out);
/* Returns the operator's name, or "Function". */
const char *history_name(const struct history *h);
/* Makes a tensor on the storage of an output, one reference, without a history. */
int  history_output_tensor(const struct history *h, int out, ty_tensor **tensor);
/* Makes the tensor of history_output_tensor in the caller's memory (tensor_init). */
void history_init_output(const struct history *h, int out, ty_tensor *tensor);
/* Makes a reference to the array of an input: the array that the node holds, with its history, or a
** new tensor without one on the output of another node. */
int  history_input_tensor(const struct history *h, int in, ty_tensor **tensor);
/* Returns whether an output has bytes, or gets them in a run that is submitted. Outputs of pending
** calls have none, nor have those that a program did not keep. */
static inline bool history_has_value(const struct history *h, int out)
{
  return __atomic_load_n(&h->out[out].storage->source, __ATOMIC_ACQUIRE) != &storage_promise;
}
/* Returns whether t was made by a recorded call or function: a variable was not. */
static inline bool history_is_recorded(const ty_tensor *t)
{
  return t->history && t->history->kind != HISTORY_VARIABLE;
}
