/* call.c - ty_call: one operator on tensors. While recording is on, what it makes of variables and
** of recorded arrays gets a history (history.h).
*/
#include <pthread.h>
#include "lazy/history.h"
#include "lazy/recording.h"

static _Thread_local struct recording recording;

struct recording *thread_recording(void) { return &recording; }

int ty_recording(int set) { return set < 0 ? recording.on : (recording.on = set != 0); }

int ty_training(int set) { return set < 0 ? recording.training : (recording.training = set != 0); }

/* -- lines ------------------------------------------------------------------------------------- */

enum { LINES = 4096 };                                /* slots, a power of two */

/* Returns the one copy of a text; it lives as long as the process. NULL: there is no room. */
static const char *intern_line(const char *line)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static char *known[LINES];
  const char *found = NULL;
  pthread_mutex_lock(&lock);
  uint32_t at = name_hash(line) & (LINES - 1);
  for (int k = 0; k < LINES && !found; k++, at = (at + 1) & (LINES - 1)) {
    if (!known[at]) known[at] = mem_text(line);
    if (!known[at]) break;
    if (!strcmp(known[at], line)) found = known[at];
  }
  pthread_mutex_unlock(&lock);
  return found;
}

int ty_line(const char *line)
{
  recording.where = line ? intern_line(line) : NULL;
  return TY_OK;
}

/* -- the rules of writing while recording ------------------------------------------------------ */

static bool any_history(ty_tensor *const *t, int n)
{
  for (int i = 0; i < n; i++)
    if (t[i] && t[i]->history) return true;
  return false;
}

static bool is_part(const ty_tensor *t)
{
  return t->offset || desc_bytes(&t->d) != t->storage->bytes;
}

static int refuse_write(const struct call_key *q, const char *why)
{
  int code = fail(TY_ESTATE, "%s: while recording, %s", q->op->name, why);
  fail_node(q->op->name, NULL, recording.where);
  fail_argument("out", NULL, NULL);
  return code;
}

static int check_writes(const struct call_key *q)
{
  const bool recorded = any_history(q->in, q->nin);
  for (int i = 0; i < q->nout; i++) {
    const ty_tensor *to = q->out[i];
    if (!to) continue;
    if (to->history)
      return refuse_write(q, to->history->kind == HISTORY_VARIABLE
              ? "a variable cannot be written; pause recording for updates"
              : "a recorded array cannot be written; its old value would be lost");
    if (!recorded) continue;
    if (is_part(to))
      return refuse_write(q, "a part of an array cannot become the result of a recorded call");
    for (int k = 0; k < q->nin; k++)
      if (q->in[k]->storage == to->storage)
        return refuse_write(q, "an array cannot be changed in place by recorded ones");
  }
  return TY_OK;
}

/* -- calls ------------------------------------------------------------------------------------- */

/* A call that gets a history. */
struct noting { const struct call_key *q; struct history *made; };

static int note_call(void *context, const struct made_call *made)
{
  struct noting *n = context;
  return history_call(made->call, &made->run, n->q->in, n->q->nin, made->out, made->nout, &n->made);
}

static int call_recorded(const struct call_key *q, ty_tensor **out)
{
  struct noting n = { q, NULL };
  int code = imperative_call(q, recording.training, out, note_call, &n);
  struct history *h = n.made;
  if (!code) {
    h->where = recording.where;
    history_note_versions(h);
    for (int i = 0; i < MIN(h->nout, q->nout); i++) history_attach(out[i], h, i);
  }
  history_drop(h);
  return code;
}

int ty_call(const char *name, const ty_attr *attr, int nattr, ty_tensor *const *in, int nin,
    ty_tensor **out, int nout)
{
  const struct op *op = op_find(name);
  if (!op) return op_unknown(name ? name : "");
  NEED(out || !nout, TY_ETYPE, "%s: no room for outputs", op->name);
  struct call_key q = { op, attr, nattr, in, nin, out, nout };
  int code = recording.on ? check_writes(&q) : TY_OK;
  if (!code && recording.on && any_history(in, nin))
    code = call_recorded(&q, out);
  else if (!code)
    code = imperative_call(&q, recording.training, out, NULL, NULL);
  if (code) fail_node(op->name, NULL, NULL);
  return code;
}
