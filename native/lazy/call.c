/* call.c - ty_call: one operator on tensors. While recording is on, what it makes of variables and
** of recorded arrays gets a history (history.h).
*/
#include "lazy/flush.h"
#include "lazy/recording.h"

int ty_op_may_fail(const char *name)
{
  const struct op *op = op_find(name);
  return op && op->flags & (OP_MAY_FAIL | OP_MAY_RAISE);
}

void ty_line_late(const char *line)
{
  struct recording *now = thread_recording();
  struct backlog *backlog = backlog_own();
  now->line.missed = 0;
  now->where = line ? intern_line(line) : NULL;
  backlog_lock();
  if (backlog && backlog->last) backlog->last->where = now->where;
  backlog_unlock();
}

int ty_watched(const ty_tensor *t)
{
  return t && __atomic_load_n(&t->storage->watchers, __ATOMIC_RELAXED) > 0;
}

/* -- the rules of writing while recording ------------------------------------------------------ */

static bool any_has_history(ty_tensor *const *t, int n)
{
  for (int i = 0; i < n; i++)
    if (t[i] && t[i]->history) return true;
  return false;
}

static int refuse_write(const char *name, const char *why)
{
  int code = fail(TY_ESTATE, "%s: while recording, %s", name, why);
  fail_node(name, NULL, thread_recording()->where);
  fail_argument("out", NULL, NULL);
  return code;
}

/* Fails where an array may not be written while recording is on. recorded: the new values depend on
** a variable. */
static int check_write(const char *name, const ty_tensor *to, bool recorded)
{
  if (to->history)
    return refuse_write(name, to->history->kind == HISTORY_VARIABLE
      ? "a variable is not written in place: it has its new value, but what was recorded "
        "does not know it; pause recording for updates"
      : "a recorded array cannot be written, since backward may need its old value; write to a "
        "copy of it");
  if (recorded && (to->offset || desc_bytes(&to->d) != to->storage->bytes))
    return refuse_write(name, "a part of an array cannot become the result of a recorded call; "
        "write to a whole array");
  return TY_OK;
}

/* Fails where a given output of a call may not be written while recording is on. */
static int check_writes(const struct call_key *q)
{
  const bool recorded = any_has_history(q->in, q->nin);
  for (int i = 0; i < q->nout; i++) {
    const ty_tensor *to = q->out[i];
    if (!to) continue;
    TRY(check_write(q->op->name, to, recorded));
    for (int k = 0; recorded && k < q->nin; k++)
      if (q->in[k]->storage == to->storage)
        return refuse_write(q->op->name, "an array cannot be changed in place by recorded ones; "
            "let the call make a new array");
  }
  return TY_OK;
}

/* -- calls ------------------------------------------------------------------------------------- */

/* A call that gets a history: what note_call is given, and what it makes. */
struct noted_call { const struct call_key *q; struct history *made; };

/* Serves as `note` of imperative_call: makes the call's history. */
static int note_call(void *context, const struct made_call *made)
{
  struct noted_call *n = context;
  return history_call(made->call, &made->run, n->q->in, n->q->nin, made->out, made->nout, &n->made);
}

/* Submits a call by itself, and records it. */
static int call_now(const struct call_key *q, ty_tensor **out)
{
  const struct recording *now = thread_recording();
  struct noted_call n = { q, NULL };
  int code = imperative_call(q, now->training, out, note_call, &n);
  struct history *h = n.made;
  if (!code) {
    h->where = now->where;
    history_note_versions(h);
    for (int i = 0; i < MIN(h->nout, q->nout); i++) history_attach(out[i], h, i);
  }
  history_drop(h);
  return code;
}

/* Returns whether a call reads the result of a pending one. With TYCHO_LAZY=0 only late values, and
** what depends on them, are pending. */
static bool reads_pending(const struct call_key *q)
{
  for (int i = 0; i < q->nin; i++)
    if (q->in[i] && q->in[i]->history && q->in[i]->history->backlog) return true;
  return false;
}

/* Returns whether a call may wait: its results are new arrays, it calls no function of the front
** end, the values of its inputs cannot make it fail or decide the shapes of its results, and the
** addresses of its inputs are not known outside. */
static bool may_wait(const struct call_key *q)
{
  const struct op *op = q->op;
  if (!(backlog_enabled() || reads_pending(q)) || op->measure) return false;
  if (op->flags & (OP_CALLBACK | OP_DYNAMIC_ROWS | OP_MAY_FAIL)) return false;
  for (int i = 0; op->flags & OP_MAY_RAISE && i < q->nattr; i++)
    if (!strcmp(q->attr[i].key, "mode") && !strcmp(q->attr[i].value, "raise")) return false;
  for (int i = 0; i < q->nout; i++)
    if (q->out[i]) return false;
  for (int i = 0; i < q->nin; i++)
    if (!q->in[i] || __atomic_load_n(&q->in[i]->storage->exposed, __ATOMIC_RELAXED)) return false;
  return true;
}

/* Makes the first nout outputs of a node as tensors with it as their history; none if it fails. */
static int make_outputs(struct history *h, ty_tensor **out, int nout)
{
  const int n = MIN(h->nout, nout);
  for (int i = 0; i < n; i++) {
    int code = history_output_tensor(h, i, &out[i]);
    if (!code) {
      history_attach(out[i], h, i);
      continue;
    }
    while (i-- > 0) {
      ty_tensor_free(out[i]);
      out[i] = NULL;
    }
    return code;
  }
  return TY_OK;
}

/* Adds a call to the backlog. The backlog runs first where its mode differs, where it is full, or
** where a pending call changes an array that this call reads. */
static int add_pending(const struct call_key *q, struct cached_call *c, ty_tensor **out)
{
  struct backlog *backlog = backlog_own();
  struct run run = { .is_train = thread_recording()->training };
  struct history *h;
  NEED(backlog, TY_EMEMORY, "out of memory: recording");
  const bool other_mode = backlog_other_mode(backlog, run.is_train);
  bool full = other_mode || (backlog->n && backlog_full(backlog));
  for (int i = 0; i < q->nin; i++) {
    const ty_tensor *x = q->in[i];
    const bool mutated = c->ports.in[i].mutated;
    NEED(!mutated || !x->readonly, TY_ESTATE, "%s: %s is read-only and would be changed",
        q->op->name, c->ports.in[i].name);
    full |= !mutated && !history_is_recorded(x) && x->storage->source == &storage_promise;
  }
  if (full) TRY(backlog_run());
  if (other_mode && backlog->late) return backlog_fail_waiting("a change of mode");
  for (int i = 0; full && backlog->late && i < q->nin; i++) { /* what a waiting call will change */
    const ty_tensor *x = q->in[i];
    if (x->storage->source == &storage_promise && !history_is_recorded(x))
      return backlog_fail_waiting("reading an array");
  }
  backlog_set_mode(backlog, run.is_train);
  TRY(history_promise(c, &run, q->in, q->nin, &h));
  h->where = backlog_line(backlog, c);
  for (int i = 0; i < q->nin; i++) h->changes |= c->ports.in[i].mutated;
  int code = make_outputs(h, out, q->nout);
  if (!code) {
    if (op_draws(q->op, c->v.call.param, run.is_train)) h->run.rng = device_next_rng(c->device);
    backlog_add(backlog, h);
  }
  history_drop(h);
  return code;
}

/* Records a call that waits in this thread's backlog. */
static int call_later(const struct call_key *q, ty_tensor **out)
{
  struct cached_call *c;
  TRY(cached_call_find(q, &c));
  backlog_lock();
  int code = add_pending(q, c, out);
  backlog_unlock();
  cached_call_release(c);
  return code;
}

/* Notes, in results without a history, why they have none. */
static void note_plain(ty_tensor *const *out, int n)
{
  const struct recording *now = thread_recording();
  const int made = now->on ? MADE_OF_PLAIN_ARRAYS
      : now->paused        ? MADE_WHILE_PAUSED
                           : MADE_NOT_RECORDING;
  for (int i = 0; i < n; i++)
    if (!out[i]->history) out[i]->made = made;
}

static bool is_variable(const ty_tensor *t)
{
  return t && t->history && t->history->kind == HISTORY_VARIABLE;
}

int ty_call(const char *name, const ty_attr *attr, int nattr, ty_tensor *const *in, int nin,
    ty_tensor **out, int nout)
{
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name ? name : "");
  NEED(out || !nout, TY_ETYPE, "%s: no room for outputs", op->name);
  const struct recording *now = thread_recording();
  const bool may_fail = op->flags & (OP_MAY_FAIL | OP_MAY_RAISE);
  struct call_key q = { op, attr, nattr, in, nin, out, nout, may_fail ? now->where : NULL };
  int code = TY_OK;
  if (now->on && nout == 1 && is_variable(out[0])) /* written, then refused below, as in MXNet */
    code = imperative_call(&q, now->training, out, NULL, NULL);
  if (!code && now->on) code = check_writes(&q);
  if (!code && now->on && any_has_history(in, nin))
    code = may_wait(&q) ? call_later(&q, out) : call_now(&q, out);
  else if (!code && !(code = imperative_call(&q, now->training, out, NULL, NULL)))
    note_plain(out, nout);
  if (code) fail_node(op->name, NULL, NULL);
  return code;
}

/* -- views and copies -------------------------------------------------------------------------- */

/* Records a view or a copy that no call made, as if the operator `op` had made `to` of `from`. */
static int note_step(const char *op, const ty_attr *attr, int nattr, ty_tensor *from, ty_tensor *to)
{
  struct recording *now = thread_recording();
  struct cached_call *call;
  struct history *h;
  ty_tensor here = *from, *in = &here, *out = to;
  here.d.device = to->d.device; /* a copy to another device is recorded as a call on that device */
  const struct call_key q = { op_find(op), attr, nattr, &in, 1, &out, 1, NULL };
  TRY(cached_call_find(&q, &call));
  const struct run none = { .is_train = now->training };
  int code = history_call(call, &none, &from, 1, &to, 1, &h);
  cached_call_release(call);                          /* the node has it */
  if (code) return code;
  h->where = now->where;
  history_note_versions(h);
  history_attach(to, h, 0);
  backlog_lock();
  if (h->view && from->history && from->history->backlog) {
    backlog_line(from->history->backlog, call); /* keeps its guess in step; the line is h->where */
    now->line.missed = 0;
    backlog_add(from->history->backlog, h);
  }
  backlog_unlock();
  history_drop(h);
  return TY_OK;
}

/* Makes a view of `count` entries of the first axis, and records it as slice_axis. */
static int view_rows(ty_tensor *from, int64_t first, int64_t count, ty_tensor **out)
{
  char begin[24], end[24];
  ty_desc d = from->d;
  const ty_attr attr[] = { { "axis", "0" }, { "begin", begin }, { "end", end } };
  const int64_t row = desc_count(&d) / d.dim[0] * (int64_t)dtype_size(d.dtype);
  snprintf(begin, sizeof begin, "%lld", (long long)first);
  snprintf(end, sizeof end, "%lld", (long long)(first + count));
  d.dim[0] = count;
  TRY(ty_tensor_view(from, &d, first * row, out));
  return note_step("slice_axis", attr, COUNT(attr), from, *out);
}

/* Makes a view of all elements in another shape, and records it as Reshape. */
static int view_reshaped(ty_tensor *from, const ty_desc *d, ty_tensor **out)
{
  char shape[256];
  const ty_attr attr = { "shape", shape };
  TRY(ty_tensor_view(from, d, 0, out));
  text_shape(d, shape, sizeof shape);
  return note_step("Reshape", &attr, 1, from, *out);
}

/* Makes a recorded view in at most three steps: as a vector where the part cuts rows, the part, its
** shape. offset: bytes from the start of x. */
static int view_recorded(ty_tensor *x, const ty_desc *d, int64_t offset, ty_tensor **out)
{
  const int64_t size = (int64_t)dtype_size(x->d.dtype), n = desc_count(d);
  int64_t row = desc_count(&x->d) / x->d.dim[0];
  ty_tensor *at = x, *next;
  int code = TY_OK;
  ty_tensor_keep(at);
  if (n != desc_count(&x->d)) {
    if (offset % (row * size) || n % row) {
      const ty_desc flat = { .dtype = d->dtype, .ndim = 1, .dim = { desc_count(&x->d) } };
      row = 1;
      code = view_reshaped(at, &flat, &next);
      ty_tensor_free(at);
      if (code) return code;
      at = next;
    }
    code = view_rows(at, offset / (row * size), n / row, &next);
    ty_tensor_free(at);
    if (code) return code;
    at = next;
  }
  if (at == x || !desc_same_shape(&at->d, d)) {
    code = view_reshaped(at, d, &next);
    ty_tensor_free(at);
    if (code) return code;
    at = next;
  }
  *out = at;
  return TY_OK;
}

int ty_view(ty_tensor *x, const ty_desc *d, int64_t offset, ty_tensor **out)
{
  if (!x || !d || !out || !thread_recording()->on || !x->history)
    return ty_tensor_view(x, d, offset, out);
  ty_tensor *plain;
  TRY(ty_tensor_view(x, d, offset, &plain)); /* checks the arguments */
  if (d->dtype != x->d.dtype) {
    *out = plain;
    return TY_OK;
  }
  ty_tensor_free(plain);
  return view_recorded(x, d, offset, out);
}

int ty_copy(ty_tensor *to, ty_tensor *from)
{
  const struct recording *now = thread_recording();
  NEED(to && from, TY_ETYPE, "copy: an array is missing");
  const bool recorded = now->on && from->history;
  if (now->on && !is_variable(to)) TRY(check_write("copy", to, recorded));
  TRY(ty_tensor_copy(to, from));
  if (now->on && is_variable(to)) return check_write("copy", to, recorded);
  if (!recorded) return note_plain(&to, 1), TY_OK;
  const ty_attr dtype = { "dtype", dtype_name(to->d.dtype) };
  return to->d.dtype == from->d.dtype ? note_step("_copy", NULL, 0, from, to)
                                      : note_step("Cast", &dtype, 1, from, to);
}
