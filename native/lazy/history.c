/* history.c - see history.h. */
#include <pthread.h>
#include "lazy/history.h"

static uint64_t serials;                              /* atomic */
bool (*history_drop_pending)(struct history *h);

uint64_t history_new_walk(void)
{
  static uint64_t walks;
  return __atomic_add_fetch(&walks, 1, __ATOMIC_RELAXED);
}

/* Makes a node with its inputs and outputs in the same block. */
static struct history *new_history(enum history_kind kind, int nin, int nout)
{
  const size_t in = sizeof(struct history_input) * (size_t)nin;
  const size_t bytes = sizeof(struct history) + in + sizeof(struct history_output) * (size_t)nout;
  struct history *h = mem_block(bytes);
  if (!h) return NULL;
  h->bytes = bytes;
  h->in = (struct history_input *)(h + 1);
  h->out = (struct history_output *)(h->in + nin);
  h->refs = 1;
  h->kind = kind;
  h->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
  live_add(LIVE_HISTORY, 1);
  return h;
}

struct history *history_keep(struct history *h)
{
  if (h) __atomic_add_fetch(&h->refs, 1, __ATOMIC_RELAXED);
  return h;
}

/* Drops one reference. A node without any goes in front of *list, for release_list. */
static void release_history(struct history *h, struct history **list)
{
  if (!h || __atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL)) return;
  if (h->backlog && !history_drop_pending(h)) return;
  h->next = *list;
  *list = h;
}

/* Serial numbers of functions whose nodes were freed, for ty_function_gone. */
static struct { pthread_mutex_t lock; uint64_t *serial; int n, cap; } gone = {
  PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0
};

static void note_function_gone(uint64_t serial)
{
  pthread_mutex_lock(&gone.lock);
  if (GROW(gone.serial, gone.n, gone.cap)) gone.serial[gone.n++] = serial;
  pthread_mutex_unlock(&gone.lock);
}

uint64_t ty_function_gone(void)
{
  uint64_t serial = 0;
  pthread_mutex_lock(&gone.lock);
  if (gone.n) serial = gone.serial[--gone.n];
  if (!gone.n) {
    mem_free(gone.serial);
    gone.serial = NULL;
    gone.cap = 0;
  }
  pthread_mutex_unlock(&gone.lock);
  return serial;
}

/* Releases what a node holds of its call; nodes that nothing else holds go in front of *list. */
static void release_contents(struct history *h, struct history **list)
{
  for (int i = 0; i < h->nin; i++) {
    if (h->in[i].array) storage_unwatch(h->in[i].array->storage);
    release_history(h->in[i].from, list);
    ty_tensor_free(h->in[i].array);
  }
  for (int i = 0; i < h->nout && !h->view; i++) {
    struct storage *s = h->out[i].storage;
    storage_unwatch(s);
    if (s->owner == h) s->owner = NULL;
    storage_free(s);
  }
  mem_free(h->desc);
  if (h->call) cached_call_release(h->call);
  if (h->desc) note_function_gone(h->serial);
  h->desc = NULL;
  h->call = NULL;
  h->nin = h->nout = 0;
}

/* Frees a list of nodes, and those that they alone held, in a loop: recursion would overflow the
** stack for a long graph. */
static void release_list(struct history *list)
{
  while (list) {
    struct history *h = list;
    list = h->next;
    ty_tensor_free(h->grad);
    release_contents(h, &list);
    mem_block_free(h, h->bytes);
    live_add(LIVE_HISTORY, -1);
  }
}

void history_drop(struct history *h)
{
  struct history *list = NULL;
  release_history(h, &list);
  release_list(list);
}

void history_free(struct history *h, const char *where)
{
  struct history *list = NULL;
  h->freed = true;
  h->freed_at = where;
  release_contents(h, &list);
  release_list(list);
}

int history_variable(ty_tensor *grad, int req, struct history **out)
{
  struct history *h = new_history(HISTORY_VARIABLE, 0, 0);
  NEED(h, TY_EMEMORY, "out of memory: a variable");
  if (grad) ty_tensor_keep(grad);
  h->grad = grad;
  h->req = req;
  *out = h;
  return TY_OK;
}

/* Sets the inputs of a node. It holds the node that made an input, or else the array itself. */
static void hold_inputs(struct history *h, ty_tensor *const *in, int nin)
{
  h->nin = nin;
  for (int i = 0; i < nin; i++) {
    struct history_input *to = &h->in[i];
    to->from = history_keep(in[i]->history);
    to->out = in[i]->history_out;
    if (history_is_recorded(in[i]) && !to->from->freed) continue;
    ty_tensor_keep(in[i]);
    to->array = in[i];
    storage_watch(in[i]->storage);
  }
}

/* Makes a node that holds references to its inputs and outputs. A view borrows the storage of its
** first input, which that input's node or array holds. */
static struct history *new_step(enum history_kind kind, ty_tensor *const *in, int nin,
    ty_tensor *const *out, int nout)
{
  struct history *h = new_history(kind, nin, nout);
  if (!h) return NULL;
  hold_inputs(h, in, nin);
  h->nout = nout;
  h->view = nout == 1 && nin && in[0]->storage == out[0]->storage;
  for (int i = 0; i < nout; i++) {
    h->out[i] = (struct history_output){ out[i]->storage, out[i]->offset, 0 };
    if (h->view) continue;
    storage_keep(out[i]->storage);
    storage_watch(out[i]->storage);
  }
  return h;
}

int history_call(struct cached_call *call, const struct run *run, ty_tensor *const *in, int nin,
    ty_tensor *const *out, int nout, struct history **made)
{
  struct history *h = new_step(HISTORY_CALL, in, nin, out, nout);
  NEED(h, TY_EMEMORY, "out of memory: recording");
  h->call = cached_call_keep(call);
  h->run = *run;
  *made = h;
  return TY_OK;
}

/* Makes the node of a call with promised outputs and room for nin inputs, of which the first n are
** given. */
static int promise_outputs(struct cached_call *call, const struct run *run, ty_tensor *const *in,
    int nin, int n, struct history **made)
{
  const struct call *c = &call->v.call;
  struct history *h = new_history(HISTORY_CALL, nin, c->nout);
  NEED(h, TY_EMEMORY, "out of memory: recording");
  hold_inputs(h, in, n);
  h->call = cached_call_keep(call);
  h->run = *run;
  for (; h->nout < c->nout; h->nout++) {
    struct history_output *o = &h->out[h->nout];
    int code = storage_promised(call->device, desc_bytes(&c->out[h->nout].d), &o->storage);
    if (code) return history_drop(h), code;
    o->storage->owner = h;
    storage_watch(o->storage);
  }
  *made = h;
  return TY_OK;
}

int history_promise(struct cached_call *call, const struct run *run, ty_tensor *const *in, int nin,
    struct history **made)
{
  return promise_outputs(call, run, in, nin, nin, made);
}

int history_late(struct cached_call *call, const struct run *run, struct history **made)
{
  TRY(promise_outputs(call, run, NULL, 1, 0, made));
  (*made)->late = true;
  return TY_OK;
}

void history_give(struct history *h, ty_tensor *value)
{
  h->late = false;
  hold_inputs(h, &value, 1);
  history_renumber(h);
}

void history_renumber(struct history *h)
{
  h->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
}

int history_function(ty_tensor *const *in, int nin, ty_tensor *const *out, int nout,
    struct history **made)
{
  struct history *h = new_step(HISTORY_FUNCTION, in, nin, out, nout);
  if (h) h->desc = NEWS(ty_desc, nout + 1);
  if (!h || !h->desc) return history_drop(h), fail(TY_EMEMORY, "out of memory: recording");
  for (int i = 0; i < nout; i++) h->desc[i] = out[i]->d;
  history_note_versions(h);
  *made = h;
  return TY_OK;
}

const ty_desc *history_desc(const struct history *h, int out)
{
  return h->desc ? &h->desc[out] : &h->call->v.call.out[out].d;
}

const char *history_name(const struct history *h)
{
  return h->call ? h->call->v.call.op->name : "Function";
}

void history_note_versions(struct history *h)
{
  for (int i = 0; i < h->nin; i++) {
    const struct history_input *in = &h->in[i];
    const struct storage *s = in->array ? in->array->storage : in->from->out[in->out].storage;
    h->in[i].version = storage_version(s);
  }
  for (int i = 0; i < h->nout; i++) h->out[i].version = storage_version(h->out[i].storage);
}

/* Drops the reference of a tensor to its history. */
static void drop_attached(struct history *h)
{
  if (h && h->kind != HISTORY_VARIABLE) live_add(LIVE_RECORDED, -1);
  history_drop(h);
}

void history_attach(ty_tensor *t, struct history *h, int out)
{
  struct history *old = t->history;
  t->history = history_keep(h);
  t->history_out = out;
  if (h && h->kind != HISTORY_VARIABLE) live_add(LIVE_RECORDED, 1);
  drop_attached(old);
}

int history_output_tensor(const struct history *h, int out, ty_tensor **tensor)
{
  const struct history_output *o = &h->out[out];
  return tensor_on(history_desc(h, out), o->storage, o->offset, tensor);
}

void history_init_output(const struct history *h, int out, ty_tensor *tensor)
{
  tensor_init(tensor, history_desc(h, out), h->out[out].storage, h->out[out].offset);
}

int history_input_tensor(const struct history *h, int in, ty_tensor **tensor)
{
  const struct history_input *i = &h->in[in];
  if (!i->array) return history_output_tensor(i->from, i->out, tensor);
  ty_tensor_keep(i->array);
  *tensor = i->array;
  return TY_OK;
}

/* Makes tensors drop their history when they are freed. */
__attribute__((constructor)) static void register_history(void)
{
  tensor_drop_history = drop_attached;
}
