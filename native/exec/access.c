/* access.c - lists what segments access, for the queues of their devices. */
#include "exec/inner.h"

/* Returns whether the step changes input k in place. */
static bool access_changes_input(const struct program *p, const struct step *st, int k)
{
  const struct node *n = st->node >= 0 ? &p->s.g->node[st->node] : NULL;
  if (!n || st->kind != STEP_NODE || n->mirror) return false;
  if (k >= n->nin) return false;                        /* what fused nodes read */
  if (st->v.call.with_grad && n->kind->inport[k].overwritten) return true;
  if (!n->kind->reads || !n->kind->reads->changes)
    return !n->backward && n->kind->inport[k].mutated;
  if (!n->backward) return false; /* the gradient operator changes it */
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
  struct access a = tensor_access(e->bind.bound[bound]);
  a.in_place = in_place;
  if (!e->bind.movable) {
    access_add(list, n, a);
    return;
  }
  for (int i = 0; i < *n; i++)
    if (bound_of[i] == bound && list[i].in_place == in_place) return;
  bound_of[*n] = bound;
  list[(*n)++] = a;
}

/* Allocates the lists of a segment in the arena `from`, with room for the accesses of its steps and
** of `heads` outputs. */
static int access_make_lists(
    const struct program *p, struct segment *g, int heads, struct arena *from)
{
  int cap = 2 * MAX_DEVICES + heads + 4;
  for (int t = g->first; t < g->last; t++) cap += p->step[t].nin + p->step[t].nout + 1;
  g->nread = g->nwrite = 0;
  g->read = arena_new(from, sizeof *g->read * (size_t)cap);
  g->write = arena_new(from, sizeof *g->write * (size_t)cap);
  g->read_of = arena_new(from, sizeof *g->read_of * (size_t)cap);
  g->write_of = arena_new(from, sizeof *g->write_of * (size_t)cap);
  NEED(g->read && g->write && g->read_of && g->write_of, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < cap; i++) g->read_of[i] = g->write_of[i] = -1;
  return TY_OK;
}

/* Copies the lists of a segment, which are complete, into the program's arena: they are a tenth of
** what was allocated for them. */
static int access_keep_lists(struct program *p, struct segment *g)
{
  const size_t nread = (size_t)g->nread, nwrite = (size_t)g->nwrite;
  struct access *read = arena_new(&p->arena, sizeof *read * nread),
                *write = arena_new(&p->arena, sizeof *write * nwrite);
  int *read_of = arena_new(&p->arena, sizeof *read_of * nread),
      *write_of = arena_new(&p->arena, sizeof *write_of * nwrite);
  NEED(read && write && read_of && write_of, TY_EMEMORY, "out of memory: executor");
  g->read = memcpy(read, g->read, sizeof *read * nread);
  g->write = memcpy(write, g->write, sizeof *write * nwrite);
  g->read_of = memcpy(read_of, g->read_of, sizeof *read_of * nread);
  g->write_of = memcpy(write_of, g->write_of, sizeof *write_of * nwrite);
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
  return p->value[value_of(e->graph.g, e->graph.head[h])].root;
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

bool exec_begins_run(const struct program *p, int segment)
{
  bool first = true;
  for (int k = 0; k < segment; k++) first &= p->segment[k].device != p->segment[segment].device;
  return first;
}

/* Adds the accesses to failure links: that of the segment's device, and those of the devices that
** it waits for. */
static void access_list_links(
    const ty_exec *e, const struct program *p, int segment, struct segment *g)
{
  const struct access own = access_all(e->submit.failure_link[g->slot]);
  if (!exec_begins_run(p, segment)) access_add(g->read, &g->nread, own);
  for (int k = 0; k < p->ndevice; k++)
    if (g->wait[k] >= 0) access_add(g->read, &g->nread, access_all(e->submit.failure_link[k]));
  access_add(g->write, &g->nwrite, own);
}

/* Lists what segment i accesses. all: the indices of all arrays. */
static int access_list_segment(ty_exec *e, struct program *p, int i, int *all)
{
  struct segment *g = &p->segment[i];
  struct arena work = { 0 };
  int code = access_make_lists(p, g, e->graph.nhead, &work);
  g->seen = all;
  g->nseen = e->bind.nbound;
  if (!code) {
    for (int t = g->first; t < g->last; t++) access_list_step(e, p, g, t);
    for (int h = 0; h < e->graph.nhead; h++) access_list_head(e, p, g, h);
    code = exec_list_records(e, p, g);
  }
  if (!code) {
    access_list_links(e, p, i, g);
    code = access_keep_lists(p, g);
  }
  if (code) g->nread = g->nwrite = 0;
  arena_done(&work);
  return code;
}

int exec_list_segments(ty_exec *e, struct program *p)
{
  int *all = arena_new(&p->arena, sizeof *all * (size_t)e->bind.nbound);
  NEED(all, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->bind.nbound; i++) all[i] = i;
  for (int i = 0; i < p->nsegment; i++) TRY(access_list_segment(e, p, i, all));
  p->ready = true;
  return TY_OK;
}

/* -- exchanged arrays -------------------------------------------------------------------------- */

/* Replaces the accesses of a list to bound arrays by those to the arrays that are bound now. */
static void access_refresh(const ty_exec *e, struct access *list, const int *bound_of, int n)
{
  for (int i = 0; i < n; i++) {
    if (bound_of[i] < 0) continue;
    const bool in_place = list[i].in_place;
    list[i] = tensor_access(e->bind.bound[bound_of[i]]);
    list[i].in_place = in_place;
  }
}

/* Bytes of exchanged arrays up to which the next run is submitted while the run with the former
** arrays goes on: until that one ends, both are alive. */
enum { MOST_AHEAD = 32 << 10 };

int exec_rebind(ty_exec *e)
{
  bool moved = pool_generation(e->pool) != e->generation;
  bool list_again = false;                            /* other steps can be recorded now */
  /* the task of the next run may write the pointers, since all tasks that read them run one after
  ** another on a CPU's queue */
  bool may_follow = !moved;
  for (int w = 0; w < VARIANTS; w++) {
    const struct program *p = e->variant[w];
    if (p) may_follow = may_follow && p->ndevice == 1 && device_kind(p->device[0]) == TY_CPU;
  }
  size_t bytes = 0;
  for (int i = 0; i < e->bind.nbound; i++) {
    if (!e->bind.bound[i]) continue;
    TRY(storage_load(e->bind.bound[i]->storage));
    const bool stays = e->bind.address[i] == tensor_at(e->bind.bound[i]);
    const bool was_moving = exec_array_moves(e, i);
    uint8_t *moves = &e->bind.moves[i];
    *moves = stays ? MAX(*moves - NOT_MOVED, 0) : MIN(*moves + MOVED, MOST_MOVES);
    moved |= !stays;
    bytes += stays ? 0 : desc_bytes(&e->bind.bound[i]->d);
    list_again |= was_moving != exec_array_moves(e, i) || (!stays && !was_moving);
  }
  if (moved && may_follow && bytes <= MOST_AHEAD) {
    for (int i = 0; i < e->bind.nbound; i++)
      if (e->bind.bound[i]) e->bind.address[i] = tensor_at(e->bind.bound[i]);
    e->bind.serial++;
  }
  else if (moved) {
    TRY(exec_resolve(e));
  }
  for (int w = 0; w < VARIANTS; w++) {
    struct program *p = e->variant[w];
    if (!p || !p->ready) continue;
    if (list_again) TRY(exec_list_records_again(e, p));
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
static int access_list_single(
    ty_exec *e, struct program *p, const struct head_lists *by, int segment, struct segment *g)
{
  const struct step *st = &p->step[g->first];
  const int n = st->nin + st->nout;
  int heads = 0;
  for (int i = 0; i < n; i++) {
    int v = access_operand_root(p, st, i);
    for (int h = v < 0 ? -1 : by->first[v]; h >= 0; h = by->next[h]) heads++;
  }
  TRY(access_make_lists(p, g, heads, &p->arena));
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
  access_list_links(e, p, segment, g);
  return TY_OK;
}

int exec_list_single(ty_exec *e, struct program *p)
{
  if (p->step_segment) return TY_OK;
  const int nvalue = e->graph.g->nvalue, nhead = e->graph.nhead;
  struct head_lists by = { NEWS(int, nvalue + 1), NEWS(int, nhead + 1) };
  struct segment *single = arena_new(&p->arena, sizeof *single * (size_t)p->n);
  int code = by.first && by.next && single ? TY_OK : fail(TY_EMEMORY, "out of memory: executor");
  for (int v = 0; !code && v < nvalue; v++) by.first[v] = -1;
  for (int h = 0; !code && h < nhead; h++) {
    int root = access_head_root(e, p, h);
    by.next[h] = by.first[root];
    by.first[root] = h;
  }
  for (int t = 0; !code && t < p->n; t++) {
    int segment = find_segment(p, t);
    single[t] = p->segment[segment];
    single[t].first = t;
    single[t].last = t + 1;
    single[t].record = NULL;
    single[t].nrecord = 0;
    code = access_list_single(e, p, &by, segment, &single[t]);
  }
  if (!code) p->step_segment = single;
  mem_free(by.first);
  mem_free(by.next);
  return code;
}
