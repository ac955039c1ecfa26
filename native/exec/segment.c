/* segment.c - submits segments as tasks to the queues of their devices.
**
** What a task needs (mode, random state, versions of bound tensors) is copied into a context from a
** ring that is made once, so that a run allocates nothing.
*/
#include "exec/inner.h"

struct ctx {
  ty_exec *e;
  struct program *p;
  const struct segment *segment;
  int first, last;
  uint64_t generation;                                /* of the pool */
  struct run run;
  uint64_t *version;
  struct ticket ticket;
  struct timed_step *timed;                           /* of a watched run; kept for the next one */
  int ntimed, timed_cap;
};
struct timed_step {
  struct timing time;
  int step;
  bool profiled;                                      /* the profiler gets its time */
};

/* -- one segment ------------------------------------------------------------------------------- */

int exec_fail_step(struct program *p, const struct step *st, int code)
{
  if (st->node < 0) return code;
  const struct node *n = &p->s.g->node[st->node];
  fail_node(op_label(n), n->name, n->where);
  return code;
}

/* Stores how long the timed steps took, which have ended on the device. */
static void segment_note_times(struct ctx *c)
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

/* steps of a GPU that are timed at once: each holds two events of the device until it is read */
enum { MAX_TIMED_STEPS = 512 };

/* Executes the steps of a task one by one, times each and checks its outputs where that is asked
** for. */
static int segment_run_watched(struct ctx *c)
{
  for (int t = c->first; t < c->last; t++) {
    struct step *st = &c->p->step[t];
    bool skipped = false;
    if (c->ntimed == MAX_TIMED_STEPS) {
      TRY(device_finish(c->segment->device));
      segment_note_times(c);
    }
    if (c->ntimed == c->timed_cap)
      NEED(GROW(c->timed, c->ntimed, c->timed_cap), TY_EMEMORY, "out of memory: profile");
    struct timed_step *s = &c->timed[c->ntimed++];
    timing_begin(st->device, &s->time);
    int code = program_run_step(c->p, st);
    if (!code) code = step_skipped(st, &skipped);
    timing_end(&s->time);
    s->step = t;
    s->profiled = profiling(TY_PROFILE_SYMBOLIC) && !skipped && !code;
    if (code) return exec_fail_step(c->p, st, code);
    if (c->e->check && !skipped) TRY(exec_check_step(c->p, st));
    if (interrupt_pending()) return fail(TY_EINTERRUPTED, "interrupted");
  }
  return TY_OK;
}

/* Executes the steps of a task on its queue's thread (struct task). */
static int segment_run_steps(void *context)
{
  struct ctx *c = context;
  struct program *p = c->p;
  int slot = c->segment->slot;
  p->run[slot] = c->run;
  for (int i = 0; i < c->segment->nseen; i++)
    c->e->version[slot][c->segment->seen[i]] = c->version[i];
  if (c->run.there)
    TRY(device_copy(c->segment->device, (void *)c->run.there, TY_CPU, &p->run[slot].rng,
        sizeof(struct rng_state)));
  if (c->e->check || c->e->profile || profiling(TY_PROFILE_SYMBOLIC)) return segment_run_watched(c);
  for (int t = c->first; t < c->last;) {
    int from = t;
    TRY(exec_replay(p, c->segment, c->run.is_train, c->generation, c->last, &t));
    if (t == from) {
      struct step *st = &p->step[t++];
      int code = program_run_step(p, st);
      if (!code && device_sync()) code = device_finish(st->device);
      if (code) return exec_fail_step(p, st, code);
    }
    if (interrupt_pending()) return fail(TY_EINTERRUPTED, "interrupted");
  }
  return TY_OK;
}

/* Ends a task, after it has run or was skipped (struct task). */
static void segment_release(void *context)
{
  struct ctx *c = context;
  segment_note_times(c);
  ty_exec_free(c->e);
}

/* -- what a segment accesses ------------------------------------------------------------------- */

/* Returns whether the step changes input k in place. */
static bool access_changes_input(const struct program *p, const struct step *st, int k)
{
  const struct node *n = st->node >= 0 ? &p->s.g->node[st->node] : NULL;
  if (!n || st->kind != STEP_NODE || n->mirror) return false;
  if (st->v.call.with_grad && k < n->nin && n->kind->inport[k].overwritten) return true;
  if (!n->kind->reads || !n->kind->reads->changes)
    return !n->backward && n->kind->inport[k].mutated;
  if (!n->backward) return false; /* its gradient operator does */
  const struct node *f = &p->s.g->node[n->forward];
  struct read_walk w = reads_walk(n->kind->reads, f->nin, f->kind->nout);
  while (reads_next(&w))
    if (w.operand == k) return w.changed;
  return false;
}

/* the latest accesses of a list, which a new one is compared with */
enum { MAX_COMPARED_ACCESSES = 64 };

/* Adds an access to a list, or extends one of its latest by it where the bytes of both are adjacent
** (but for the gap that aligns arrays). */
static void access_add(struct access *list, int *n, struct access a)
{
  for (int i = MAX(0, *n - MAX_COMPARED_ACCESSES); i < *n; i++) {
    struct access *b = &list[i];
    if (b->storage != a.storage || b->in_place != a.in_place) continue;
    if (a.begin > b->end && a.begin - b->end >= ALIGN) continue;
    if (b->begin > a.end && b->begin - a.end >= ALIGN) continue;
    b->begin = MIN(b->begin, a.begin);
    b->end = MAX(b->end, a.end);
    return;
  }
  list[(*n)++] = a;
}

/* Adds an access to a bound array. In a movable executor each array has an entry of its own. */
static void access_add_bound(
    const ty_exec *e, struct access *list, int *n, int *bound_of, int bound, bool in_place)
{
  struct access a = tensor_access(e->bound[bound]);
  a.in_place = in_place;
  if (!e->movable) {
    access_add(list, n, a);
    return;
  }
  for (int i = 0; i < *n; i++)
    if (bound_of[i] == bound && list[i].in_place == in_place) return;
  bound_of[*n] = bound;
  list[(*n)++] = a;
}

/* Allocates the lists of a segment, `heads` of them for heads. */
static int access_make_lists(struct program *p, struct segment *g, int heads)
{
  int cap = 2 * MAX_DEVICES + heads + 4;
  for (int t = g->first; t < g->last; t++) cap += p->step[t].nin + p->step[t].nout + 1;
  g->nread = g->nwrite = 0;
  g->read = arena_new(&p->arena, sizeof *g->read * (size_t)cap);
  g->write = arena_new(&p->arena, sizeof *g->write * (size_t)cap);
  g->read_of = arena_new(&p->arena, sizeof *g->read_of * (size_t)cap);
  g->write_of = arena_new(&p->arena, sizeof *g->write_of * (size_t)cap);
  NEED(g->read && g->write && g->read_of && g->write_of, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < cap; i++) g->read_of[i] = g->write_of[i] = -1;
  return TY_OK;
}

/* Adds a write to a bound array, and a read if the step adds to it. */
static void access_add_output(const ty_exec *e, struct segment *g, int bound, bool add)
{
  if (add) access_add_bound(e, g->read, &g->nread, g->read_of, bound, false);
  access_add_bound(e, g->write, &g->nwrite, g->write_of, bound, false);
}

/* Adds what step t accesses of bound arrays. */
static void access_list_step(const ty_exec *e, const struct program *p, struct segment *g, int t)
{
  const struct step *st = &p->step[t];
  for (int k = 0; k < st->nin; k++) {
    const struct value *r = &p->value[p->value[st->in[k]].root];
    if (r->kind != V_BOUND) continue;
    access_add_bound(e, g->read, &g->nread, g->read_of, r->bound, false);
    if (access_changes_input(p, st, k))
      access_add_bound(e, g->write, &g->nwrite, g->write_of, r->bound, true);
  }
  for (int k = 0; k < st->nout; k++) {
    const struct value *x = st->out[k] >= 0 ? &p->value[st->out[k]] : NULL;
    if (x && x->kind == V_BOUND) access_add_output(e, g, x->bound, x->add);
  }
  if (st->bound >= 0) access_add_output(e, g, st->bound, st->kind == STEP_ADD);
}

/* Returns the value that has the bytes of head h. */
static int access_head_root(const ty_exec *e, const struct program *p, int h)
{
  return p->value[value_of(e->g, e->head[h])].root;
}

/* Adds the access to the storage of output h, if the segment has one. */
static void access_list_head(const ty_exec *e, const struct program *p, struct segment *g, int h)
{
  const struct value *r = &p->value[access_head_root(e, p, h)];
  if (!e->output_storage[h]) return;
  const struct access a = access_all(e->output_storage[h]);
  if (r->last_write >= g->first && r->last_write < g->last)
    access_add(g->write, &g->nwrite, a);
  else if (g->first >= p->nforward && r->device == g->device)
    access_add(g->read, &g->nread, a);
}

/* Returns whether a segment is the first of a device in forward, where failures of earlier runs no
** longer count. */
static bool access_begins_run(const struct program *p, int segment)
{
  bool first = p->segment[segment].first < p->nforward;
  for (int k = 0; k < segment; k++) first &= p->segment[k].device != p->segment[segment].device;
  return first;
}

/* Adds the accesses to tokens: its device's, and those of the devices that a segment waits for. */
static void access_list_tokens(
    const ty_exec *e, const struct program *p, int segment, struct segment *g)
{
  const struct access own = access_all(e->token[g->slot]);
  if (!access_begins_run(p, segment)) access_add(g->read, &g->nread, own);
  for (int k = 0; k < p->ndevice; k++)
    if (g->wait[k] >= 0) access_add(g->read, &g->nread, access_all(e->token[k]));
  access_add(g->write, &g->nwrite, own);
}

/* Lists what each segment of a program accesses. */
static int access_list_segments(ty_exec *e, struct program *p)
{
  int *all = arena_new(&p->arena, sizeof *all * (size_t)e->nbound);
  NEED(all, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->nbound; i++) all[i] = i;
  for (int i = 0; i < p->nsegment; i++) {
    struct segment *g = &p->segment[i];
    TRY(access_make_lists(p, g, e->nhead));
    g->seen = all;
    g->nseen = e->nbound;
    for (int t = g->first; t < g->last; t++) access_list_step(e, p, g, t);
    for (int h = 0; h < e->nhead; h++) access_list_head(e, p, g, h);
    TRY(exec_list_records(e, p, g));
    access_list_tokens(e, p, i, g);
  }
  p->ready = true;
  return TY_OK;
}

/* -- exchanging arrays ------------------------------------------------------------------------- */

void exec_find_bound(const ty_exec *e, const char *name, int *value, int *grad)
{
  const int arg = names_first(&e->arg_names, name);
  const int aux = arg < 0 ? names_first(&e->aux_names, name) : -1;
  const struct bound *b = arg >= 0 ? &e->arg[arg] : aux >= 0 ? &e->aux[aux] : NULL;
  *value = b ? b->value_bound : -1;
  *grad = b ? b->grad_bound : -1;
}

bool exec_set_array(ty_exec *e, int at, ty_tensor *t)
{
  ty_tensor *old = e->bound[at];
  if (t == old) return false;
  if (t) ty_tensor_keep(t);
  e->bound[at] = t;
  ty_tensor_free(old);
  return true;
}

/* Takes the storages of the arrays that are bound now into a list. */
static void access_refresh(const ty_exec *e, struct access *list, const int *bound_of, int n)
{
  for (int i = 0; i < n; i++) {
    if (bound_of[i] < 0) continue;
    const bool in_place = list[i].in_place;
    list[i] = tensor_access(e->bound[bound_of[i]]);
    list[i].in_place = in_place;
  }
}

int exec_rebind(ty_exec *e)
{
  bool moved = pool_generation(e->pool) != e->generation;
  for (int i = 0; i < e->nbound; i++) {
    if (!e->bound[i]) continue;
    TRY(storage_load(e->bound[i]->storage));
    moved |= e->bound_at[i] != tensor_at(e->bound[i]);
  }
  if (moved) TRY(exec_resolve(e));
  for (int w = 0; w < VARIANTS; w++) {
    struct program *p = e->variant[w];
    if (!p || !p->ready) continue;
    if (moved) exec_forget_records(p);
    for (int i = 0; i < p->nsegment; i++) {
      struct segment *g = &p->segment[i];
      access_refresh(e, g->read, g->read_of, g->nread);
      access_refresh(e, g->write, g->write_of, g->nwrite);
    }
  }
  return TY_OK;
}

/* -- steps as segments of their own ------------------------------------------------------------ */

/* lists of heads by the value that has their bytes */
struct head_lists {
  int *first;                                         /* per value, -1: none */
  int *next;                                          /* per head, -1: no more */
};

/* Returns the value that has the bytes of operand i (inputs, then outputs) of a step, -1: none. */
static int access_operand_root(const struct program *p, const struct step *st, int i)
{
  int v = i < st->nin ? st->in[i] : st->out[i - st->nin];
  return v < 0 ? -1 : p->value[v].root;
}

/* Lists what a segment of one step accesses. */
static int access_list_alone(
    ty_exec *e, struct program *p, const struct head_lists *by, int segment, struct segment *g)
{
  const struct step *st = &p->step[g->first];
  const int n = st->nin + st->nout;
  int heads = 0;
  for (int i = 0; i < n; i++) {
    int v = access_operand_root(p, st, i);
    for (int h = v < 0 ? -1 : by->first[v]; h >= 0; h = by->next[h]) heads++;
  }
  TRY(access_make_lists(p, g, heads));
  g->seen = arena_new(&p->arena, sizeof *g->seen * (size_t)st->nin);
  NEED(g->seen, TY_EMEMORY, "out of memory: executor");
  g->nseen = 0;
  access_list_step(e, p, g, g->first);
  for (int i = 0; i < n; i++) {
    int v = access_operand_root(p, st, i);
    for (int h = v < 0 ? -1 : by->first[v]; h >= 0; h = by->next[h]) access_list_head(e, p, g, h);
    if (v >= 0 && i < st->nin && p->value[v].kind == V_BOUND)
      g->seen[g->nseen++] = p->value[v].bound;
  }
  access_list_tokens(e, p, segment, g);
  return TY_OK;
}

/* Makes p->alone. A task of one step has lists of its own: with its segment's, a walk would take
** time in proportion to the square of the number of steps. */
static int access_list_each(ty_exec *e, struct program *p, struct head_lists *by)
{
  by->first = NEWS(int, e->g->nvalue + 1);
  by->next = NEWS(int, e->nhead + 1);
  struct segment *alone = arena_new(&p->arena, sizeof *alone * (size_t)p->n);
  NEED(by->first && by->next && alone, TY_EMEMORY, "out of memory: executor");
  for (int v = 0; v < e->g->nvalue; v++) by->first[v] = -1;
  for (int h = 0; h < e->nhead; h++) {
    int root = access_head_root(e, p, h);
    by->next[h] = by->first[root];
    by->first[root] = h;
  }
  for (int t = 0; t < p->n; t++) {
    int segment = segment_of(p, t);
    alone[t] = p->segment[segment];
    alone[t].first = t;
    alone[t].last = t + 1;
    alone[t].record = NULL;
    alone[t].nrecord = 0;
    TRY(access_list_alone(e, p, by, segment, &alone[t]));
  }
  p->alone = alone;
  return TY_OK;
}

int exec_list_alone(ty_exec *e, struct program *p)
{
  struct head_lists by = { 0 };
  if (p->alone) return TY_OK;
  int code = access_list_each(e, p, &by);
  mem_free(by.first);
  mem_free(by.next);
  return code;
}

/* -- contexts ---------------------------------------------------------------------------------- */

void exec_wait_runs(const ty_exec *e)
{
  for (int i = 0; i < e->nring; i++) ticket_wait(e->ring[i].ticket);
}

void exec_free_ring(ty_exec *e)
{
  if (e->ring) mem_free(e->ring[0].version);
  for (int i = 0; i < e->nring; i++) mem_free(e->ring[i].timed);
  mem_free(e->ring);
  mem_free(e->seg_ticket);
}

/* Makes the ring large enough for a program: four runs, and walks. */
static int ring_make(ty_exec *e, const struct program *p)
{
  int n = 4 * p->nsegment + 28;
  if (n <= e->nring) return TY_OK;
  exec_wait_runs(e);
  struct ctx *ring = NEWS(struct ctx, n);
  uint64_t *version = NEWS(uint64_t, (size_t)n * (size_t)e->nbound + 1);
  struct ticket *tickets = NEWS(struct ticket, p->nsegment + 1);
  if (!ring || !version || !tickets)
    return mem_free(ring), mem_free(version), mem_free(tickets),
           fail(TY_EMEMORY, "out of memory: executor");
  exec_free_ring(e);
  e->ring = ring;
  e->nring = n;
  e->at_ring = 0;
  e->seg_ticket = tickets;
  for (int i = 0; i < n; i++) ring[i].version = version + (size_t)i * (size_t)e->nbound;
  e->stats.allocations += e->stats.runs ? 3 : 0;
  return TY_OK;
}

/* Returns the next context. If its task still runs, waits until half of the ring is free, so that
** the caller sleeps once for many runs. */
static struct ctx *ring_next(ty_exec *e)
{
  struct ctx *c = &e->ring[e->at_ring];
  if (!ticket_past(c->ticket)) ticket_wait(e->ring[(e->at_ring + e->nring / 2) % e->nring].ticket);
  ticket_wait(c->ticket);                               /* the other may be of another device */
  e->at_ring = (e->at_ring + 1) % e->nring;
  return c;
}

int exec_submit(ty_exec *e, struct program *p, const struct segment *g, int first, int last,
    const struct ticket *after, int nafter, struct ticket *out)
{
  struct ctx *c = ring_next(e);
  c->e = e;
  c->p = p;
  c->segment = g;
  c->generation = e->generation;
  c->first = first;
  c->last = last;
  c->run = e->last;
  c->run.there = e->draws[g->slot] ? e->draws[g->slot]->data : NULL;
  for (int i = 0; i < g->nseen; i++) c->version[i] = e->bound[g->seen[i]]->storage->version;
  ty_exec_keep(e);
  struct task t = { segment_run_steps, segment_release, c, g->read, g->write, g->nread, g->nwrite,
    after, nafter, 0 };
  t.in_order = true;                                    /* executors may share a pool */
  struct ticket ticket = { 0 };
  int code = device_submit(g->device, &t, &ticket);
  c->ticket = ticket;
  *out = ticket;
  pool_ran(e->pool, ticket);
  return code;
}

void exec_begin_host_segment(const ty_exec *e, const struct program *p, int segment)
{
  if (!access_begins_run(p, segment)) return;
  const struct access token = access_all(e->token[p->segment[segment].slot]);
  storage_wait_quiet(token.storage, 1);
  storage_mark(&token, NULL);
}

int exec_check_token(const ty_exec *e, int slot)
{
  const struct access token = access_all(e->token[slot]);
  struct failure *f = storage_failure(&token);
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

void exec_note_host_event(ty_exec *e, const struct program *p, int t)
{
  const struct node *n = &p->s.g->node[p->step[t].node];
  e->walk.node = p->step[t].node;
  e->event = (ty_event){ n->name, op_label(n), n->name, NULL, n->backward | e->last.is_train << 1,
    false, n->nin, n->kind->nout };
}

/* Submits segments *at .. to - 1. After a failure or TY_EV_HOST *at is the segment that failed or
** that the front end has to run. */
static int segment_submit_range(ty_exec *e, struct program *p, int *at, int to)
{
  struct ticket before[MAX_DEVICES * 2], after[MAX_DEVICES * 3];
  int nbefore = pool_last(e->pool, before, COUNT(before));
  const int from = *at;
  e->host.p = NULL;
  for (; *at < to; ++*at) {
    const int i = *at;
    const struct segment *g = &p->segment[i];
    int n = 0;
    if (step_of_host(p, &p->step[g->first])) {
      exec_begin_host_segment(e, p, i);
      for (int k = from; k < i; k++) ticket_wait(e->seg_ticket[k]);
      for (int k = 0; k < p->ndevice; k++) TRY(exec_check_token(e, k));
      e->seg_ticket[i] = (struct ticket){ 0 };
      bool skipped;
      TRY(step_skipped(&p->step[g->first], &skipped));
      if (skipped) continue;
      e->host.p = p;
      e->host.at = i;
      e->host.to = to;
      exec_note_host_event(e, p, g->first);
      return TY_EV_HOST;
    }
    for (int k = 0; k < nbefore; k++)
      if (before[k].device != g->device) after[n++] = before[k];
    for (int k = 0; k < p->ndevice; k++)
      if (g->wait[k] >= from) after[n++] = e->seg_ticket[g->wait[k]];
    TRY(exec_submit(e, p, g, g->first, g->last, after, n, &e->seg_ticket[i]));
  }
  return TY_OK;
}

int exec_submit_all(ty_exec *e, struct program *p, int from, int to)
{
  int at = from, code = segment_submit_range(e, p, &at, to);
  return code > 0 ? exec_abandon(p, at, to, code) : code;
}

int ty_exec_buckets(ty_exec *e, const int *bucket)
{
  TRY(exec_state(e, "buckets"));
  int *list = NEWS(int, e->nbound + 1), most = -1;
  NEED(list, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->nbound; i++) list[i] = -1;
  for (int i = 0; i < e->narg; i++) {
    const struct bound *a = &e->arg[i];
    if (a->grad_bound >= 0) list[a->grad_bound] = list[a->value_bound] = bucket[i];
    most = MAX(most, bucket[i]);
  }
  exec_wait_runs(e);
  mem_free(e->bucket);
  e->bucket = list;
  e->nbucket = most + 1;
  for (int w = 0; w < VARIANTS; w++) {
    struct program *p = e->variant[w];
    if (!p) continue;
    exec_forget_records(p);
    p->ready = false;
    TRY(program_cut(p, e->bucket, e->nbucket));
  }
  return TY_OK;
}

int exec_choose_variant(ty_exec *e, int which, struct program **p)
{
  TRY(exec_variant(e, which, p));
  if (pool_generation(e->pool) != e->generation) TRY(exec_resolve(e));
  if (!(*p)->ready) TRY(access_list_segments(e, *p));
  return ring_make(e, *p);
}

