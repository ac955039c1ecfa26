/* call.c - imperative_call: one operator on tensors, queued on their device at once.
**
** It finds the cached call, allocates the outputs that are not given and submits one task that
** holds everything it needs. A given output may be an input too: where the operator may not work in
** place, the result goes to a temporary tensor first.
*/
#include <pthread.h>
#include "device/profile.h"
#include "device/timing.h"
#include "imperative/imperative.h"

/* A call under way; freed by its task. */
struct imperative {
  struct cached_call *r;
  struct rng_state rng;
  bool is_train;
  const char *where;                                  /* line of the script; NULL: not known */
  struct storage *tmp;
  bool timed;
  struct timing time;
  ty_tensor **in;
  ty_tensor **out;                                    /* what the kernel writes */
  ty_tensor **target;                                 /* where output i is copied to; NULL: not */
  int nin, nout;
  void *list[];                                       /* in, out, target */
};

/* Adds a call that has ended on its device to the profile, if its times can be read. */
static void note_time(struct imperative *m)
{
  const struct call *c = &m->r->v.call;
  int64_t bytes = 0;
  if (!timing_read(&m->time)) return;
  for (int i = 0; i < m->nin; i++) bytes += (int64_t)m->in[i]->bytes;
  for (int i = 0; i < m->nout; i++) bytes += (int64_t)m->out[i]->bytes;
  struct profile_label l = { "imperative", c->op->name, "", m->r->v.kernel->name, 0 };
  profile_span(&l, m->r->device, bytes, m->time.from, m->time.to);
}

/* Returns the size of a call's block, in bytes, with its list of arrays. */
static size_t imperative_bytes(int nin, int nout)
{
  return sizeof(struct imperative) + sizeof(void *) * (size_t)(nin + 2 * nout);
}

/* Serves as `done` of the task: frees the call. */
static void imperative_drop(void *context)
{
  struct imperative *m = context;
  if (m->timed) note_time(m);
  for (int i = 0; i < m->nin; i++) ty_tensor_free(m->in[i]);
  for (int i = 0; i < m->nout; i++) ty_tensor_free(m->out[i]);
  for (int i = 0; i < m->nout; i++) ty_tensor_free(m->target[i]);
  if (m->tmp) storage_free(m->tmp);
  cached_call_release(m->r);
  mem_block_free(m, imperative_bytes(m->nin, m->nout));
}

/* -- running ----------------------------------------------------------------------------------- */

/* Slots of the hash table of origins, a power of two. */
enum { ORIGINS = 4096 };

/* Returns the one origin of an operator's calls on a line, which lives as long as the process: a
** device may find a fault long after the call. NULL where the table is full or memory is out. */
static const struct origin *intern_origin(const struct op *op, const char *where)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static const struct origin *known[ORIGINS];
  const struct origin *found = NULL;
  uint32_t at = name_hash(where) ^ name_hash(op->name);
  pthread_mutex_lock(&lock);
  for (int k = 0; k < ORIGINS && !found; k++, at++) {
    const struct origin **slot = &known[at & (ORIGINS - 1)];
    if (!*slot) {
      struct origin *made = NEWS(struct origin, 1);
      if (!made) break;
      *made = (struct origin){ op->name, NULL, where };
      *slot = made;
    }
    if ((*slot)->op == op->name && (*slot)->where == where) found = *slot;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

/* Serves as `run` of the task: sets the pointers of the cached call and runs its kernel. */
static int imperative_run(void *context)
{
  struct imperative *m = context;
  struct cached_call *r = m->r;
  struct call *c = &r->v.call;
  for (int i = 0; i < m->nin; i++) c->in[i].p = tensor_at(m->in[i]);
  for (int i = 0; i < m->nout; i++) c->out[i].p = tensor_at(m->out[i]);
  c->tmp = m->tmp ? m->tmp->data : NULL;
  if (!m->where) c->origin = NULL;
  else if (!c->origin || c->origin->where != m->where) c->origin = intern_origin(c->op, m->where);
  r->run = (struct run){ .is_train = m->is_train, .rng = m->rng };
  m->timed = profile_is_on(TY_PROFILE_IMPERATIVE);
  if (m->timed) timing_begin(r->device, &m->time);
  int code = invoke_run(&r->v);
  if (m->timed) timing_end(&m->time);
  if (code) fail_node(c->op->name, NULL, m->where);
  for (int i = 0; !code && i < m->nout; i++)
    if (m->target[i])
      code = device_copy(r->device, tensor_at(m->target[i]), r->device, tensor_at(m->out[i]),
          desc_bytes(&m->out[i]->d));
  return code;
}

/* -- memory ------------------------------------------------------------------------------------ */

static bool bytes_overlap(const ty_tensor *a, const ty_tensor *b)
{
  if (a->storage != b->storage) return false;
  return a->offset < b->offset + (int64_t)b->bytes && b->offset < a->offset + (int64_t)a->bytes;
}

/* Returns whether the kernel may write output i to the bytes of input k: both are the same
** elements, and the operator is a formula of one element or declares it. */
static bool may_share(const struct imperative *m, int i, int k, const ty_tensor *given)
{
  const ty_tensor *in = m->in[k];
  if (given->offset != in->offset || !desc_same_shape(&given->d, &in->d) ||
      given->d.dtype != in->d.dtype)
    return false;
  return m->r->v.call.op->formula || in_place_allowed(m->r->in_place, i, k);
}

/* Sets what the kernel writes for output i: the given array, or a new one that is copied to it. */
static int set_output(struct imperative *m, int i, ty_tensor *given)
{
  bool direct = given != NULL;
  for (int k = 0; given && k < m->nin; k++)
    if (bytes_overlap(given, m->in[k]) && !may_share(m, i, k, given)) direct = false;
  if (direct) {
    ty_tensor_keep(given);
    m->out[i] = given;
    return TY_OK;
  }
  TRY(ty_tensor_new(&m->r->v.call.out[i].d, &m->out[i]));
  if (given) {
    ty_tensor_keep(given);
    m->target[i] = given;
  }
  return TY_OK;
}

/* Takes references to the given arrays of a call, and makes its other outputs and scratch memory.
** After a failure imperative_drop releases them. */
static int imperative_take(struct imperative *m, const struct call_key *q)
{
  const struct cached_call *r = m->r;
  for (int i = 0; i < m->nin; i++) {
    bool refused = r->ports.in[i].mutated && q->in[i]->readonly;
    NEED(!refused, TY_ESTATE, "%s: %s is read-only and would be changed", q->op->name,
        r->ports.in[i].name);
    ty_tensor_keep(m->in[i] = q->in[i]);
  }
  for (int i = 0; i < m->nout; i++) {
    ty_tensor *given = i < q->nout ? q->out[i] : NULL;
    if (given) NEED(!given->readonly, TY_ESTATE, "%s: out is read-only", q->op->name);
    TRY(set_output(m, i, given));
  }
  if (r->v.scratch) TRY(storage_new(r->device, r->v.scratch, &m->tmp));
  /* drawn last: a call that fails leaves the random state as it is */
  if (op_draws(q->op, r->v.call.param, m->is_train)) m->rng = device_next_rng(r->device);
  return TY_OK;
}

/* Makes a call without arrays; takes over the reference to r. Returns NULL where memory is out. */
static struct imperative *imperative_new(struct cached_call *r)
{
  int nin = r->v.call.nin, nout = r->v.call.nout;
  struct imperative *m = mem_block(imperative_bytes(nin, nout));
  if (!m) return NULL;
  m->r = r;
  m->nin = nin, m->nout = nout;
  m->in = (ty_tensor **)m->list, m->out = m->in + nin, m->target = m->out + nout;
  return m;
}

/* -- submission -------------------------------------------------------------------------------- */

/* Writes the access of an array that the call writes to *out, in place where it is an input as
** well. It returns no struct, since copying one that was just written field by field stalls the
** processor (12 ns a call). */
static void list_write(const struct imperative *m, const ty_tensor *t, struct access *out)
{
  bool in_place = false;
  for (int k = 0; k < m->nin && !in_place; k++) in_place = bytes_overlap(t, m->in[k]);
  *out = tensor_access(t);
  out->in_place = in_place;
}

/* Accesses of a task that are listed on the stack, at most. */
enum { FEW_ACCESSES = 32 };

/* Submits the task, which owns m from here on; if that fails, m is freed. */
static int imperative_submit(struct imperative *m)
{
  struct access few[FEW_ACCESSES], *list = few;
  int nin = m->nin, n = 2 * nin + 2 * m->nout;
  if (n > FEW_ACCESSES && !(list = NEWS(struct access, n))) return imperative_drop(m), TY_EMEMORY;
  const struct cached_call *r = m->r;
  struct access *read = list, *write = list + nin;
  int nw = 0;
  for (int i = 0; i < m->nin; i++) {
    read[i] = tensor_access(m->in[i]);
    if (r->ports.in[i].mutated) list_write(m, m->in[i], &write[nw++]);
  }
  for (int i = 0; i < m->nout; i++) list_write(m, m->out[i], &write[nw++]);
  for (int i = 0; i < m->nout; i++)
    if (m->target[i]) list_write(m, m->target[i], &write[nw++]);
  struct task t = { imperative_run, imperative_drop, m, read, write, m->nin, nw, NULL, 0,
    m->tmp ? m->tmp->bytes : 0, r->small };
  int code = device_submit(r->device, &t, NULL);
  if (list != few) mem_free(list);
  return code;
}

int imperative_call(const struct call_key *q, bool is_train, ty_tensor **out,
    int (*note)(void *context, const struct made_call *made), void *context)
{
  struct cached_call *r;
  TRY(cached_call_find(q, &r));
  struct imperative *m = imperative_new(r);
  if (!m) return cached_call_release(r), TY_EMEMORY;
  m->is_train = is_train;
  m->where = q->where;
  int code = imperative_take(m, q);
  if (code) return imperative_drop(m), code;
  ty_tensor *few[16], **made = m->nout > COUNT(few) ? NEWS(ty_tensor *, m->nout) : few;
  if (!made) return imperative_drop(m), TY_EMEMORY;
  for (int i = 0; i < m->nout; i++) made[i] = m->target[i] ? m->target[i] : m->out[i];
  const int returned = MIN(m->nout, q->nout);
  for (int i = 0; i < returned; i++)
    if (!out[i]) ty_tensor_keep(made[i]);
  const struct made_call seen = { r, { .is_train = is_train, .rng = m->rng }, made, m->nout };
  code = note ? note(context, &seen) : TY_OK;
  if (code)
    imperative_drop(m);
  else
    code = imperative_submit(m);
  for (int i = 0; i < returned; i++) {
    if (out[i]) continue;
    if (code)
      ty_tensor_free(made[i]);
    else
      out[i] = made[i];
  }
  if (made != few) mem_free(made);
  return code;
}
