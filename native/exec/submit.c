/* submit.c - submits segments as tasks to the queues of their devices.
**
** What a task needs (mode, random state, versions of bound tensors) is copied into a context from a
** ring (ring.c).
*/
#include "exec/inner.h"

/* -- on the thread of the queue ---------------------------------------------------------------- */

/* Stores the times of the timed steps, which must have ended on their device. */
static void submit_note_times(struct ctx *c)
{
  for (int i = 0; i < c->ntimed; i++) {
    struct timed_step *s = &c->timed[i];
    struct step *st = &c->p->step[s->step];
    bool known = timing_read(&s->time);
    st->ns = known ? s->time.to - s->time.from : 0;
    if (known && s->profiled) exec_profile_step(c->p, st, s->time.from, s->time.to);
  }
  c->ntimed = 0;
}

/* steps that are timed before their times are read: each holds two events of a GPU until then */
enum { MAX_TIMED_STEPS = 512 };

/* Executes the steps of a task one by one, times each and checks its outputs where that is asked
** for. */
static int submit_run_watched(struct ctx *c)
{
  for (int t = c->first; t < c->last; t++) {
    struct step *st = &c->p->step[t];
    bool skipped = false;
    if (c->ntimed == MAX_TIMED_STEPS) {
      TRY(device_finish(c->segment->device));
      submit_note_times(c);
    }
    if (c->ntimed == c->timed_cap)
      NEED(GROW(c->timed, c->ntimed, c->timed_cap), TY_EMEMORY, "out of memory: profile");
    struct timed_step *s = &c->timed[c->ntimed++];
    timing_begin(st->device, &s->time);
    int code = program_run_step(c->p, st);
    if (!code) code = step_skipped(st, &skipped);
    timing_end(&s->time);
    s->step = t;
    s->profiled = profile_is_on(TY_PROFILE_SYMBOLIC) && !skipped && !code;
    if (code) return program_fail_step(c->p, st, code);
    if (c->e->check && !skipped) TRY(exec_check_step(c->p, st));
    if (interrupt_pending()) return fail(TY_EINTERRUPTED, "interrupted");
  }
  return TY_OK;
}

/* Executes the steps of a task on its queue's thread (struct task). */
static int submit_run_steps(void *context)
{
  struct ctx *c = context;
  struct program *p = c->p;
  int slot = c->segment->slot;
  if (c->address && p->serial != c->serial) exec_place_arrays(c->e, p, c->address, c->serial);
  p->run[slot] = c->run;
  for (int i = 0; i < c->segment->nseen; i++)
    c->e->bind.version[slot][c->segment->seen[i]] = c->version[i];
  if (c->run.rng_on_device)
    TRY(device_copy(c->segment->device, (void *)c->run.rng_on_device, TY_CPU, &p->run[slot].rng,
        sizeof(struct rng_state)));
  if (c->e->check || c->e->profile || profile_is_on(TY_PROFILE_SYMBOLIC))
    return submit_run_watched(c);
  for (int t = c->first; t < c->last;) {
    int from = t;
    TRY(exec_replay(p, c->segment, c->run.is_train, c->generation, c->last, &t));
    if (t == from) {
      struct step *st = &p->step[t++];
      int code = program_run_step(p, st);
      if (!code && device_sync()) code = device_finish(st->device);
      if (code) return program_fail_step(p, st, code);
    }
    if (interrupt_pending()) return fail(TY_EINTERRUPTED, "interrupted");
  }
  return TY_OK;
}

/* Ends a task, after it has run or was skipped (struct task). */
static void submit_release_task(void *context)
{
  struct ctx *c = context;
  submit_note_times(c);
  ty_exec_free(c->e);
}

/* -- submission -------------------------------------------------------------------------------- */

int exec_choose_variant(ty_exec *e, int which, struct program **p)
{
  TRY(exec_variant(e, which, p));
  if (pool_generation(e->pool) != e->generation) TRY(exec_resolve(e));
  if (!(*p)->ready) TRY(exec_list_segments(e, *p));
  return exec_make_ring(e, *p);
}

int exec_submit(ty_exec *e, struct program *p, const struct segment *g, int first, int last,
    const struct ticket *after, int nafter, struct ticket *out)
{
  struct ctx *c = exec_next_context(e);
  c->e = e;
  c->p = p;
  c->segment = g;
  c->generation = e->generation;
  c->first = first;
  c->last = last;
  c->run = e->run.context;
  c->run.rng_on_device = e->submit.rng[g->slot] ? e->submit.rng[g->slot]->data : NULL;
  for (int i = 0; i < g->nseen; i++) c->version[i] = e->bind.bound[g->seen[i]]->storage->version;
  c->serial = e->bind.serial;
  if (c->address) memcpy(c->address, e->bind.address, sizeof(void *) * (size_t)e->bind.nbound);
  ty_exec_keep(e);
  struct task t = { submit_run_steps, submit_release_task, c, g->read, g->write, g->nread,
    g->nwrite, after, nafter, 0 };
  t.in_order = true;                                    /* executors may share a pool */
  t.lasting = !e->bind.movable;                         /* exec_rebind changes lists in place */
  struct ticket ticket = { 0 };
  int code = device_submit(g->device, &t, &ticket);
  c->ticket = ticket;
  *out = ticket;
  pool_ran(e->pool, ticket);
  return code;
}

void exec_begin_front_end_segment(const ty_exec *e, const struct program *p, int segment)
{
  if (!exec_begins_run(p, segment)) return;
  const struct access link = access_all(e->submit.failure_link[p->segment[segment].slot]);
  storage_wait_quiet(link.storage, 1);
  storage_mark(&link, NULL);
}

int exec_check_failure_link(const ty_exec *e, int slot)
{
  const struct access link = access_all(e->submit.failure_link[slot]);
  struct failure *f = storage_failure(&link);
  int code = f ? failure_report(f) : TY_OK;
  failure_drop(f);
  return code;
}

int exec_abandon(struct program *p, int from, int to, int code)
{
  struct failure *f = failure_take(code);
  for (int i = from; i < to; i++)
    for (int k = 0; k < p->segment[i].nwrite; k++) {
      const struct access *a = &p->segment[i].write[k];
      storage_wait_quiet(a->storage, 1);
      storage_mark(a, f);
    }
  code = failure_report(f);
  failure_drop(f);
  return code;
}

void exec_note_front_end_event(ty_exec *e, const struct program *p, int t)
{
  const struct node *n = &p->s.g->node[p->step[t].node];
  e->run.node = p->step[t].node;
  const int flags = n->backward | e->run.context.is_train << 1;
  e->event = (ty_event){ n->name, op_label(n), n->name, NULL, flags, false, n->nin, n->kind->nout };
}

/* Submits segments *at .. to - 1. After a failure *at is the segment that failed; after TY_EV_HOST,
** the one that the front end has to run. */
static int submit_range(ty_exec *e, struct program *p, int *at, int to)
{
  struct ticket before[MAX_DEVICES * 2], after[MAX_DEVICES * 3];
  int nbefore = pool_last(e->pool, before, COUNT(before));
  const int from = *at;
  for (; *at < to; ++*at) {
    const int i = *at;
    const struct segment *g = &p->segment[i];
    int n = 0;
    if (step_is_front_end(p, &p->step[g->first])) {
      exec_begin_front_end_segment(e, p, i);
      for (int k = from; k < i; k++) ticket_wait(e->submit.ticket[k]);
      for (int k = 0; k < p->ndevice; k++) TRY(exec_check_failure_link(e, k));
      e->submit.ticket[i] = (struct ticket){ 0 };
      bool skipped;
      TRY(step_skipped(&p->step[g->first], &skipped));
      if (skipped) continue;
      e->run.segment = i;
      exec_note_front_end_event(e, p, g->first);
      return TY_EV_HOST;
    }
    for (int k = 0; k < nbefore; k++)
      if (before[k].device != g->device) after[n++] = before[k];
    for (int k = 0; k < p->ndevice; k++)
      if (g->wait[k] >= from) after[n++] = e->submit.ticket[g->wait[k]];
    TRY(exec_submit(e, p, g, g->first, g->last, after, n, &e->submit.ticket[i]));
  }
  return TY_OK;
}

int exec_submit_all(ty_exec *e, struct program *p, int from, int to)
{
  int at = from, code = submit_range(e, p, &at, to);
  return code > 0 ? exec_abandon(p, at, to, code) : code;
}
