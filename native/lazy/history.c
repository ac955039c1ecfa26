/* history.c - see history.h. */
#include "lazy/history.h"

static uint64_t serials;                              /* atomic */

uint64_t history_new_walk(void)
{
  static uint64_t walks;
  return __atomic_add_fetch(&walks, 1, __ATOMIC_RELAXED);
}

static struct history *new_history(enum history_kind kind)
{
  struct history *h = NEW(struct history);
  if (!h) return NULL;
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

/* Drops one reference. What has none left goes in front of *list. */
static void release(struct history *h, struct history **list)
{
  if (!h || __atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL)) return;
  h->next = *list;
  *list = h;
}

static struct storage *input_storage(const struct history_input *in)
{
  return in->array ? in->array->storage : NULL;
}

static void release_contents(struct history *h, struct history **list)
{
  for (int i = 0; i < h->nin; i++) {
    if (h->in[i].array) storage_unwatch(input_storage(&h->in[i]));
    release(h->in[i].from, list);
    ty_tensor_free(h->in[i].array);
  }
  for (int i = 0; i < h->nout; i++) {
    storage_unwatch(h->out[i].storage);
    storage_free(h->out[i].storage);
  }
  mem_free(h->in);
  mem_free(h->out);
  mem_free(h->desc);
  if (h->call) cached_call_release(h->call);
  if (h->desc) history_function_gone(h->serial);
  h->in = NULL;
  h->out = NULL;
  h->desc = NULL;
  h->call = NULL;
  h->nin = h->nout = 0;
}

/* A long chain is a list, not a recursion. */
static void release_list(struct history *list)
{
  while (list) {
    struct history *h = list;
    list = h->next;
    ty_tensor_free(h->grad);
    release_contents(h, &list);
    mem_free(h);
    live_add(LIVE_HISTORY, -1);
  }
}

void history_drop(struct history *h)
{
  struct history *list = NULL;
  release(h, &list);
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
  struct history *h = new_history(HISTORY_VARIABLE);
  NEED(h, TY_EMEMORY, "out of memory: a variable");
  if (grad) ty_tensor_keep(grad);
  h->grad = grad;
  h->req = req;
  *out = h;
  return TY_OK;
}

/* Makes a node of either kind that runs. */
static struct history *new_step(enum history_kind kind, ty_tensor *const *in, int nin,
    ty_tensor *const *out, int nout)
{
  struct history *h = new_history(kind);
  if (!h) return NULL;
  h->in = NEWS(struct history_input, nin + 1);
  h->out = NEWS(struct history_output, nout + 1);
  if (!h->in || !h->out) return history_drop(h), NULL;
  h->nin = nin;
  h->nout = nout;
  for (int i = 0; i < nin; i++) {
    struct history_input *to = &h->in[i];
    to->from = history_keep(in[i]->history);
    to->out = in[i]->history_out;
    to->version = storage_version(in[i]->storage);
    if (history_is_recorded(in[i])) continue;
    ty_tensor_keep(in[i]);
    to->array = in[i];
    storage_watch(in[i]->storage);
  }
  for (int i = 0; i < nout; i++) {
    h->out[i] = (struct history_output){ storage_keep(out[i]->storage), out[i]->offset, 0 };
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
  for (int i = 0; i < h->nout; i++) h->out[i].version = storage_version(h->out[i].storage);
}

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

int history_input_tensor(const struct history *h, int in, ty_tensor **tensor)
{
  const struct history_input *i = &h->in[in];
  if (!i->array) return history_output_tensor(i->from, i->out, tensor);
  ty_tensor_keep(i->array);
  *tensor = i->array;
  return TY_OK;
}

/* Tensors drop what they hold of here when they are freed. */
__attribute__((constructor)) static void register_history(void)
{
  tensor_drop_history = drop_attached;
}
