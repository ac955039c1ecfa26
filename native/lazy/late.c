/* late.c - see late.h. A late value is a copy whose source is given only after calls that read it
** were recorded: statistics of a batch that is spread over devices, whose calls come one after
** another. The copy and the calls that depend on it stay in the backlog until the source is given.
** Then they are moved after the source's call, since calls are numbered, and run, in the order of
** the backlog.
*/
#include "lazy/flush.h"
#include "lazy/late.h"
#include "lazy/recording.h"

/* Adds the call of a late value to this thread's backlog, which runs first where it has another
** mode. The caller holds the lock. */
static int add_late(const ty_desc *d, struct late_group group, ty_tensor **out)
{
  const struct run run = { .is_train = thread_recording()->training };
  struct backlog *backlog = backlog_own();
  ty_tensor like = { .d = *d }, *in = &like, *none = NULL; /* only the descriptor is read */
  const struct call_key q = { op_find("_copy"), NULL, 0, &in, 1, &none, 1, NULL };
  struct cached_call *call;
  struct history *h;
  NEED(backlog, TY_EMEMORY, "out of memory: recording");
  if (backlog_other_mode(backlog, run.is_train)) {
    TRY(backlog_run());
    if (backlog->late) return backlog_fail_waiting("a change of mode");
  }
  TRY(cached_call_find(&q, &call));
  int code = history_late(call, &run, &h);
  cached_call_release(call);                          /* the node has it */
  if (code) return code;
  h->where = thread_recording()->where;
  h->group = group;
  code = history_output_tensor(h, 0, out);
  if (!code) {
    history_attach(*out, h, 0);
    backlog_set_mode(backlog, run.is_train);
    backlog_add(backlog, h);
  }
  history_drop(h);
  return code;
}

int ty_late(const ty_desc *d, uint64_t group, int size, ty_tensor **out)
{
  NEED(d && out, TY_ETYPE, "late: the description or the result's place is missing");
  NEED(desc_known(d) && d->dtype != TY_NODTYPE, TY_ESHAPE, "late: its shape or type is missing");
  NEED(thread_recording()->on, TY_ESTATE, "late: recording is off; turn it on (ty_recording)");
  NEED(group && size > 0, TY_EVALUE,
      "late: group %llu of %d values; expected a group number and a size of at least 1",
      (unsigned long long)group, size);
  backlog_lock();
  int code = add_late(d, (struct late_group){ group, size }, out);
  backlog_unlock();
  return code;
}

/* Puts a call, and all that depend on it, at the end of its backlog. */
static void move_to_end(struct backlog *backlog, struct history *moved)
{
  struct history *after;
  backlog_add(backlog, moved);
  moved->waits = true;
  for (struct history *h = backlog->first; h != moved; h = after) {
    after = h->after;
    h->waits = backlog_reads_waiting(h);
    if (!h->waits) continue;
    history_keep(h);
    backlog_remove(h);
    history_renumber(h);
    backlog_add(backlog, h);
    history_drop(h);
  }
}

static int give_value(ty_tensor *late, ty_tensor *value)
{
  struct history *h = late->history;
  NEED(h && h->late && h->backlog == backlog_own(), TY_ESTATE,
      "give: this value was given, or the calls that wait for it were dropped");
  char want[160], got[160];
  NEED(late->d.dtype == value->d.dtype && desc_same_shape(&late->d, &value->d), TY_ESHAPE,
      "give: expected %s %s, got %s %s", dtype_name(late->d.dtype),
      text_shape(&late->d, want, sizeof want), dtype_name(value->d.dtype),
      text_shape(&value->d, got, sizeof got));
  struct backlog *backlog = h->backlog;
  history_keep(h);
  backlog_remove(h);
  history_give(h, value);
  move_to_end(backlog, h);
  history_drop(h);
  return backlog->late || backlog_enabled() ? TY_OK : backlog_run();
}

int ty_late_give(ty_tensor *late, ty_tensor *value)
{
  NEED(late && value, TY_ETYPE, "give: an array is missing");
  backlog_lock();
  int code = give_value(late, value);
  backlog_unlock();
  return code;
}

void late_abandon(struct backlog *backlog)
{
  struct history *list = NULL, *after;
  if (!backlog_mark_waiting(backlog)) return;
  for (struct history *h = backlog->first; h; h = after) {
    after = h->after;
    if (!h->waits) continue;
    history_keep(h);
    backlog_remove(h);
    h->next = list;
    list = h;
  }
  for (struct history *h = list; h; h = after) { /* the latest comes first: it reads earlier ones */
    after = h->next;
    history_free(h, NULL);
    history_drop(h);
  }
}

void ty_late_drop(void)
{
  backlog_lock();
  struct backlog *backlog = backlog_own();
  if (backlog) late_abandon(backlog);
  backlog_unlock();
}

/* -- groups ------------------------------------------------------------------------------------ */

/* A walk from heads that counts the late values of each group. */
struct group_walk {
  uint64_t walk;
  struct history **list;                              /* nodes that were visited, borrowed */
  int n, cap;
  struct group_count { struct late_group group; int found; } *count;
  int ncount, count_cap;
};

static int count_value(struct group_walk *w, const struct late_group *g)
{
  int i = w->ncount - 1;
  while (i >= 0 && w->count[i].group.id != g->id) i--;
  if (i < 0) {
    NEED(GROW(w->count, w->ncount, w->count_cap), TY_EMEMORY, "out of memory: recording");
    i = w->ncount++;
    w->count[i] = (struct group_count){ *g, 0 };
  }
  w->count[i].found++;
  return TY_OK;
}

static int visit_value(struct group_walk *w, struct history *h)
{
  if (!h || h->kind == HISTORY_VARIABLE || h->seen == w->walk) return TY_OK;
  h->seen = w->walk;
  NEED(GROW(w->list, w->n, w->cap), TY_EMEMORY, "out of memory: recording");
  w->list[w->n++] = h;
  return h->group.id ? count_value(w, &h->group) : TY_OK;
}

int ty_late_missing(ty_tensor *const *head, int nhead, uint64_t *group)
{
  NEED(head && group, TY_ETYPE, "late_missing: the heads or the result's place is missing");
  struct group_walk w = { .walk = history_new_walk() };
  int code = TY_OK;
  *group = 0;
  backlog_lock();
  for (int i = 0; i < nhead && !code; i++) code = visit_value(&w, head[i]->history);
  for (int i = 0; i < w.n && !code; i++)
    for (int k = 0; k < w.list[i]->nin && !code; k++) code = visit_value(&w, w.list[i]->in[k].from);
  for (int i = 0; i < w.ncount && !code; i++)
    if (w.count[i].found < w.count[i].group.size) *group = w.count[i].group.id;
  backlog_unlock();
  mem_free(w.list);
  mem_free(w.count);
  return code;
}
