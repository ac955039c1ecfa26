/* run.c - runs an executor: segments as tasks on the queues of their devices, or step by step
** between events.
**
** A run is one task per segment; a segment on another device waits for the segments it reads
** from, the first segments wait for everything that still runs in the pool. What a task needs
** (mode, random draw, versions of bound tensors) is copied into a context from a ring that is
** made once: a step allocates nothing. Monitored runs use the plain variant and go node by node:
** run, report each value before anything may overwrite it, return to the caller, go on at
** ty_exec_resume.
*/
#include "exec/exec.h"
#include "device/profile.h"

/* what a walk from node to node covers; ONE: a partial forward */
enum { FORWARD, BACKWARD, ONE };

struct ctx {
  ty_exec *e;
  struct program *p;
  int slot, first, last;
  struct run run;
  uint64_t *version;
  struct ticket ticket;
};

int exec_state(const ty_exec *e, const char *what)
{
  NEED(e, TY_ETYPE, "%s: null executor", what);
  NEED(!(e->flags & TY_DRY_RUN), TY_ESTATE,
      "%s: this executor was bound with dry_run and has no memory; bind it again without", what);
  return TY_OK;
}

/* -- one segment ------------------------------------------------------------------------------- */

static int blame(struct program *p, const struct step *st, int code)
{
  if (st->node < 0) return code;
  const struct node *n = &p->s.g->node[st->node];
  fail_node(op_label(n), n->name, n->where);
  return code;
}

static double number_at(const void *p, int dtype, int64_t i) { return dtype == TY_F64 ? ((const double *)p)[i]
    : (double)((const float *)p)[i]; }

/* "data in [-1, 3]" for each float input */
static void describe_inputs(struct program *p, const struct step *st, struct text *t)
{
  const struct node *n = &p->s.g->node[st->node];
  for (int k = 0; k < n->nin && st->kind == STEP_NODE; k++) {
    const struct operand *a = &st->v.call.in[k];
    if (!a->p || (a->d.dtype != TY_F32 && a->d.dtype != TY_F64)) continue;
    double lo = INFINITY, hi = -INFINITY;
    for (int64_t i = 0; i < desc_count(&a->d); i++) {
      double x = number_at(a->p, a->d.dtype, i);
      lo = fmin(lo, x);
      hi = fmax(hi, x);
    }
    text_add(t, "%s%s in [%g, %g]", t->n ? ", " : "",
        n->inport && !n->backward ? n->inport[k].name : "input", lo, hi);
  }
  for (int k = 0; k < st->nin && st->kind == STEP_POINTWISE; k++) {
    const ty_desc *d = &p->s.desc[st->in[k]];
    if (d->dtype != TY_F32 && d->dtype != TY_F64) continue;
    double lo = INFINITY, hi = -INFINITY;
    for (int64_t i = 0; i < desc_count(d); i++) {
      double x = number_at(st->operand[k], d->dtype, i);
      lo = fmin(lo, x);
      hi = fmax(hi, x);
    }
    text_add(t, "%sinput %d in [%g, %g]", t->n ? ", " : "", k, lo, hi);
  }
}

static int check_value(struct program *p, const struct step *st, const void *data, const ty_desc *d)
{
  if (!data || (d->dtype != TY_F32 && d->dtype != TY_F64)) return TY_OK;
  for (int64_t i = 0; i < desc_count(d); i++) {
    double x = number_at(data, d->dtype, i);
    if (isfinite(x)) continue;
    struct text t = { 0 };
    const struct node *n = &p->s.g->node[st->node];
    describe_inputs(p, st, &t);
    int code = fail(TY_ERUN, "%s %s: element %lld of its output is %g; inputs: %s", op_label(n),
        n->name, (long long)i, x, t.s ? t.s : "none");
    text_done(&t);
    return blame(p, st, code);
  }
  return TY_OK;
}

static int check_step(struct program *p, const struct step *st)
{
  if (st->kind == STEP_NODE)
    for (int k = 0; k < st->nout; k++)
      TRY(check_value(p, st, st->v.call.out[k].p, &st->v.call.out[k].d));
  if (st->kind == STEP_POINTWISE)
    for (int k = st->nin; k < st->npw; k++)
      TRY(check_value(p, st, st->operand[k], &p->s.desc[st->pw_value[k]]));
  return TY_OK;
}

/* The same as run_steps with a look at each instruction: its time, its results. */
static int run_watched(struct ctx *c)
{
  for (int t = c->first; t < c->last; t++) {
    struct step *st = &c->p->step[t];
    int64_t from = profile_now();
    int code = program_run_step(c->p, st), skipped = step_skipped(st);
    int64_t to = profile_now();
    st->ns = to - from;
    if (code) return blame(c->p, st, code);
    if (profiling(TY_PROFILE_SYMBOLIC) && !skipped) exec_profile_step(c->p, st, from, to);
    if (c->e->check && !skipped) TRY(check_step(c->p, st));
    if (interrupted()) return fail(TY_EINTERRUPTED, "interrupted");
  }
  return TY_OK;
}

static int run_steps(void *context)
{
  struct ctx *c = context;
  struct program *p = c->p;
  p->run[c->slot] = c->run;
  memcpy(c->e->version[c->slot], c->version, sizeof(uint64_t) * (size_t)c->e->nbound);
  if (c->e->check || c->e->profile || profiling(TY_PROFILE_SYMBOLIC)) return run_watched(c);
  for (int t = c->first; t < c->last; t++) {
    int code = program_run_step(p, &p->step[t]);
    if (code) return blame(p, &p->step[t], code);
    if (interrupted()) return fail(TY_EINTERRUPTED, "interrupted");
  }
  return TY_OK;
}

static void let_go(void *context) { ty_exec_free(((struct ctx *)context)->e); }

/* -- what a segment touches -------------------------------------------------------------------- */

/* Does the step change input k in place? */
static bool changes_input(const struct program *p, const struct step *st, int k)
{
  const struct node *n = st->node >= 0 ? &p->s.g->node[st->node] : NULL;
  if (!n || st->kind != STEP_NODE || n->mirror) return false;
  const char *reads = op_reads(n->op, n->param);
  if (!n->backward) return n->inport[k].mutated && (!reads || !strchr(reads, '!'));
  for (const char *s = reads; s && *s; s += strcspn(s, " "), s += strspn(s, " "))
    if (k-- == 0) return memchr(s, '!', strcspn(s, " ")) != NULL;
  return false;
}

static void put(struct storage **list, int *n, struct storage *s)
{
  if (!s) return;
  for (int i = MAX(0, *n - 64); i < *n; i++)
    if (list[i] == s) return;
  list[(*n)++] = s;
}

static int list_storages(ty_exec *e, struct program *p, struct segment *g)
{
  int cap = 2 * MAX_DEVICES + 2 * e->nhead + 4;
  for (int t = g->first; t < g->last; t++) cap += p->step[t].nin + p->step[t].nout + 1;
  g->read = arena_new(&p->arena, sizeof(void *) * (size_t)cap);
  g->write = arena_new(&p->arena, sizeof(void *) * (size_t)cap);
  NEED(g->read && g->write, TY_EMEMORY, "out of memory: executor");
  for (int t = g->first; t < g->last; t++) {
    const struct step *st = &p->step[t];
    for (int k = 0; k < st->nin; k++) {
      const struct value *r = &p->value[p->value[st->in[k]].root];
      if (r->kind != V_BOUND) continue;
      struct storage *s = e->bound[r->bound]->storage;
      if (changes_input(p, st, k)) put(g->write, &g->nwrite, s);
      put(g->read, &g->nread, s);
    }
    for (int k = 0; k < st->nout; k++)
      if (st->out[k] >= 0 && p->value[st->out[k]].kind == V_BOUND)
        put(g->write, &g->nwrite, e->bound[p->value[st->out[k]].bound]->storage);
    if (st->bound >= 0) put(g->write, &g->nwrite, e->bound[st->bound]->storage);
  }
  for (int h = 0; h < e->nhead; h++) {
    const struct value *r = &p->value[p->value[value_of(e->g, e->head[h])].root];
    if (!e->output_storage[h]) continue;
    if (r->last_write >= g->first && r->last_write < g->last)
      put(g->write, &g->nwrite, e->output_storage[h]);
    else if (g->first >= p->nforward && r->device == g->device)
      put(g->read, &g->nread, e->output_storage[h]);
  }
  return TY_OK;
}

static int prepare_storages(ty_exec *e, struct program *p)
{
  for (int i = 0; i < p->nsegment; i++) {
    struct segment *g = &p->segment[i];
    bool first = i == 0; /* the first forward segment of a device starts afresh */
    if (g->first < p->nforward) {
      first = true;
      for (int k = 0; k < i; k++) first &= p->segment[k].device != g->device;
    }
    else
      first = false;
    TRY(list_storages(e, p, g));
    if (!first) put(g->read, &g->nread, e->token[g->slot]);
    for (int k = 0; k < p->ndevice; k++)
      if (g->wait[k] >= 0) put(g->read, &g->nread, e->token[k]);
    put(g->write, &g->nwrite, e->token[g->slot]);
  }
  p->ready = true;
  return TY_OK;
}

/* -- contexts ---------------------------------------------------------------------------------- */

static int make_ring(ty_exec *e, const struct program *p)
{
  int n = 4 * p->nsegment + 28;
  if (n <= e->nring) return TY_OK;
  for (int i = 0; i < e->nring; i++) ticket_wait(e->ring[i].ticket);
  struct ctx *ring = NEWS(struct ctx, n);
  uint64_t *version = NEWS(uint64_t, (size_t)n * (size_t)e->nbound + 1);
  struct ticket *tickets = NEWS(struct ticket, p->nsegment + 1);
  if (!ring || !version || !tickets)
    return mem_free(ring), mem_free(version), mem_free(tickets),
           fail(TY_EMEMORY, "out of memory: executor");
  if (e->ring) mem_free(e->ring[0].version);
  mem_free(e->ring);
  mem_free(e->seg_ticket);
  e->ring = ring;
  e->nring = n;
  e->at_ring = 0;
  e->seg_ticket = tickets;
  for (int i = 0; i < n; i++) ring[i].version = version + (size_t)i * (size_t)e->nbound;
  e->stats.allocations += e->stats.runs ? 3 : 0;
  return TY_OK;
}

void exec_free_ring(ty_exec *e)
{
  if (e->ring) mem_free(e->ring[0].version);
  mem_free(e->ring);
  mem_free(e->seg_ticket);
}

/* The next context. When all are taken, half of them are let pass: who waits then sleeps once
** for many runs. */
static struct ctx *next_context(ty_exec *e)
{
  struct ctx *c = &e->ring[e->at_ring];
  if (!ticket_past(c->ticket)) ticket_wait(e->ring[(e->at_ring + e->nring / 2) % e->nring].ticket);
  ticket_wait(c->ticket); /* the other one may be another device's */
  e->at_ring = (e->at_ring + 1) % e->nring;
  return c;
}

static int submit(ty_exec *e, struct program *p, const struct segment *g, int first, int last,
    const struct ticket *after, int nafter, struct ticket *out)
{
  struct ctx *c = next_context(e);
  c->e = e;
  c->p = p;
  c->slot = g->slot;
  c->first = first;
  c->last = last;
  c->run = e->last;
  for (int i = 0; i < e->nbound; i++) c->version[i] = e->bound[i]->storage->version;
  ty_exec_keep(e);
  struct task t = { run_steps, let_go, c, g->read, g->write, g->nread, g->nwrite, after, nafter,
    0 };
  struct ticket ticket = { 0 };
  int code = device_submit(g->device, &t, &ticket);
  c->ticket = ticket;
  *out = ticket;
  pool_ran(e->pool, ticket);
  return code;
}

/* Waits for the segments before `at` and raises what failed in them. */
static int finish_before(ty_exec *e, struct program *p, int from, int at)
{
  for (int i = from; i < at; i++) ticket_wait(e->seg_ticket[i]);
  for (int k = 0; k < p->ndevice; k++) {
    struct failure *f = e->token[k]->failed;
    if (f && !failure_told(f)) return failure_tell(f);
  }
  return TY_OK;
}

static void note_host_event(ty_exec *e, const struct program *p, int t)
{
  const struct node *n = &p->s.g->node[p->step[t].node];
  e->walk.node = p->step[t].node;
  e->event = (ty_event){ n->name, op_label(n), n->name, NULL, n->backward | e->last.is_train << 1,
    false, n->nin, n->nout };
}

/* Segments from .. to - 1 of a program; stops where the front end has to run a step. */
static int submit_all(ty_exec *e, struct program *p, int from, int to)
{
  struct ticket before[MAX_DEVICES * 2], after[MAX_DEVICES * 3];
  int nbefore = pool_last(e->pool, before, COUNT(before));
  e->host.p = NULL;
  for (int i = from; i < to; i++) {
    const struct segment *g = &p->segment[i];
    int n = 0;
    if (step_of_host(p, &p->step[g->first])) {
      TRY(finish_before(e, p, from, i));
      e->seg_ticket[i] = (struct ticket){ 0 };
      if (step_skipped(&p->step[g->first])) continue;
      e->host.p = p;
      e->host.at = i;
      e->host.to = to;
      note_host_event(e, p, g->first);
      return TY_EV_HOST;
    }
    for (int k = 0; k < nbefore; k++)
      if (before[k].device != g->device) after[n++] = before[k];
    for (int k = 0; k < p->ndevice; k++)
      if (g->wait[k] >= from) after[n++] = e->seg_ticket[g->wait[k]];
    TRY(submit(e, p, g, g->first, g->last, after, n, &e->seg_ticket[i]));
  }
  return TY_OK;
}

static int choose_variant(ty_exec *e, int which, struct program **p)
{
  TRY(exec_variant(e, which, p));
  if (pool_generation(e->pool) != e->generation) TRY(exec_resolve(e));
  if (!(*p)->ready) TRY(prepare_storages(e, *p));
  return make_ring(e, *p);
}

/* -- forward and backward ---------------------------------------------------------------------- */

static int start(ty_exec *e, const char *what, int which, int is_train, struct program **p)
{
  TRY(exec_state(e, what));
  NEED(!interrupted(), TY_EINTERRUPTED, "interrupted");
  TRY(choose_variant(e, which, p));
  e->last = (struct run){ is_train != 0, e->with_grad, device_next_rng(e->default_device) };
  e->ran = which;
  e->forward_train = is_train;
  e->spent = false;
  e->walk.active = false;
  e->host.p = NULL;
  e->host.rerun = false;
  return TY_OK;
}

static int advance(ty_exec *e);

static int forward(ty_exec *e, int is_train)
{
  struct program *p;
  bool plain = e && (e->monitor || e->check);
  TRY(start(e, "forward", plain ? PLAIN : FUSED, is_train, &p));
  e->stats.runs++;
  if (!e->monitor) return submit_all(e, p, 0, p->nsegment_forward);
  e->walk.active = true;
  e->walk.node = 0;
  e->walk.item = 0;
  e->walk.phase = FORWARD;
  return advance(e);
}

int ty_exec_forward(ty_exec *e, int is_train)
{
  int64_t from = profile_begin();
  int code = forward(e, is_train);
  profile_call("Executor:forward", from);
  return code;
}

static int wrong_head(const ty_exec *e, int h, const ty_tensor *t)
{
  char want[160], got[160], name[512];
  const ty_desc *d = &e->desc[value_of(e->g, e->head[h])];
  output_name(&e->g->node[e->head[h].node], e->head[h].out, name, sizeof name);
  int code = fail(TY_ESHAPE,
      "backward: the gradient of output %s has shape %s, but the output has %s", name,
      text_shape(&t->d, got, sizeof got), text_shape(d, want, sizeof want));
  fail_argument(name, want, got);
  return code;
}

static int missing_head(const ty_exec *e, int h)
{
  const struct node *n = &e->g->node[e->head[h].node];
  int code = fail(TY_EVALUE,
      "backward: output %d (%s) is no loss, so its gradient must be given in out_grads", h,
      n->name);
  fail_node(n->op ? n->op->name : NULL, n->name, n->where);
  fail_argument("out_grads", "an array for this output", "nothing");
  return code;
}

/* A head gradient has its output's shape; of an output that a run fills in part, as many rows as
** the run filled. */
static bool head_fits(const ty_exec *e, int h, const ty_desc *d)
{
  const struct node *n = &e->g->node[e->head[h].node];
  ty_desc want = e->desc[value_of(e->g, e->head[h])];
  if (n->op && n->op->flags & OP_DYNAMIC_ROWS && d->ndim == want.ndim && d->dim[0] <= want.dim[0])
    want.dim[0] = d->dim[0];
  return desc_same_shape(d, &want);
}

static int give_head(ty_exec *e, int h, ty_tensor *from)
{
  ty_tensor *part, *to = e->bound[e->head_grad[h]];
  if (from->d.dim[0] == to->d.dim[0]) return ty_tensor_copy(to, from);
  ty_desc d = to->d;
  d.dim[0] = from->d.dim[0];
  TRY(ty_tensor_view(to, &d, 0, &part));
  int code = ty_tensor_copy(part, from);
  ty_tensor_free(part);
  return code;
}

static int give_heads(ty_exec *e, ty_tensor *const *head, int n)
{
  NEED(n <= e->nhead, TY_ESHAPE, "backward: %d head gradients for %d outputs", n, e->nhead);
  for (int h = 0; h < n; h++)
    if (head[h] && !head_fits(e, h, &head[h]->d)) return wrong_head(e, h, head[h]);
  for (int h = 0; h < e->nhead; h++)
    if (e->head_grad[h] >= 0 && (h >= n || !head[h])) return missing_head(e, h);
  for (int h = 0; h < n; h++)
    if (e->head_grad[h] >= 0 && head[h]) TRY(give_head(e, h, head[h]));
  return TY_OK;
}

static int begin_backward(ty_exec *e, struct program *p)
{
  e->host.rerun = false;
  e->last.is_train = e->host.train;
  e->spent = true;
  if (!e->monitor || e->ran == FUSED) return submit_all(e, p, p->nsegment_forward, p->nsegment);
  e->walk.active = true;
  e->walk.node = e->forward;
  e->walk.item = 0;
  e->walk.phase = BACKWARD;
  return advance(e);
}

static int backward(ty_exec *e, ty_tensor *const *head, int n, int is_train)
{
  struct program *p;
  TRY(exec_state(e, "backward"));
  NEED(!interrupted(), TY_EINTERRUPTED, "interrupted");
  if (!e->with_grad) return TY_OK;
  NEED(e->ran >= 0, TY_ESTATE, "backward: call forward first");
  TRY(give_heads(e, head, n));
  TRY(choose_variant(e, e->ran, &p));
  e->host.train = is_train != 0;
  e->host.rerun = e->spent; /* the last backward has used up what forward left: run that again */
  if (!e->spent) return begin_backward(e, p);
  e->last.is_train = e->forward_train;
  TRY(submit_all(e, p, 0, p->nsegment_forward));
  return begin_backward(e, p);
}

int ty_exec_backward(ty_exec *e, ty_tensor *const *head, int n, int is_train)
{
  int64_t from = profile_begin();
  int code = backward(e, head, n, is_train);
  profile_call("Executor:backward", from);
  return code;
}

/* -- node by node ------------------------------------------------------------------------------ */

/* Runs one step of the plain variant as a task of its own and waits for it. */
static int run_alone(ty_exec *e, struct program *p, int t)
{
  struct ticket ticket;
  for (int i = 0; i < p->nsegment; i++) {
    struct segment *g = &p->segment[i];
    if (t < g->first || t >= g->last) continue;
    TRY(submit(e, p, g, t, t + 1, NULL, 0, &ticket));
    ticket_wait(ticket);
    if (e->token[g->slot]->failed && !failure_told(e->token[g->slot]->failed))
      return failure_tell(e->token[g->slot]->failed);
    return TY_OK;
  }
  return TY_OK;
}

/* A step of the front end's, between events of a walk: the next ty_exec_resume goes on behind
** it. */
static int host_alone(ty_exec *e, struct program *p, int t)
{
  if (step_skipped(&p->step[t])) return TY_OK;
  note_host_event(e, p, t);
  return TY_EV_HOST;
}

/* The step of a node, and where the last copies into bound gradients stand. */
static int run_node(ty_exec *e, struct program *p, int node)
{
  int t = p->step_of[node];
  if (t < 0 || p->step[t].node != node) return TY_OK;
  return step_of_host(p, &p->step[t]) ? host_alone(e, p, t) : run_alone(e, p, t);
}

static int run_copies(ty_exec *e, struct program *p)
{
  for (int t = p->nforward; t < p->n; t++)
    if (p->step[t].kind == STEP_COPY || p->step[t].kind == STEP_ADD) TRY(run_alone(e, p, t));
  return TY_OK;
}

ty_tensor *exec_value_view(ty_exec *e, struct program *p, int v)
{
  const struct value *x = &p->value[v], *r = &p->value[x->root];
  ty_tensor *t = NULL;
  struct storage *s = NULL;
  ty_desc d = e->desc[v];
  d.device = r->device;
  if (r->kind == V_BOUND) {
    d.device = e->bound[r->bound]->d.device;
    if (ty_tensor_view(e->bound[r->bound], &d, 0, &t)) return NULL;
  }
  else if (r->kind == V_POOL) {
    if (pool_storage(e->pool, r->device, (size_t)r->offset, desc_bytes(&d), &s)) return NULL;
    if (tensor_on(&d, s, 0, &t)) t = NULL;
    storage_free(s);
  }
  if (t) t->readonly = 1;
  return t;
}

static int report(
    ty_exec *e, struct program *p, int node, int value, bool is_input, const char *format, ...)
{
  va_list args;
  ty_tensor_free(e->event_tensor);
  e->event_tensor = exec_value_view(e, p, value);
  if (!e->event_tensor) return TY_OK;
  va_start(args, format);
  vsnprintf(e->event_name, sizeof e->event_name, format, args);
  va_end(args);
  const struct node *n = &e->g->node[node];
  e->event = (ty_event){ n->name, op_label(n), e->event_name, e->event_tensor, 0, is_input, n->nin,
    n->nout };
  return TY_EV_MONITOR;
}

/* Partial sums of a chain are nobody's gradient yet. */
static bool partial_sum(const struct node *n) { return !strncmp(n->name, "sum_grad_", 9) && strcmp(n->name, "sum_grad_final")
    && n->forward < 0; }

/* The inputs that a monitor reports: a gradient operator's are those that the reference's reads. */
enum { SHOWN = 64 };
static int shown_inputs(const ty_exec *e, const struct node *n, ty_entry *out)
{
  int count = 0;
  if (!n->backward || !n->op->shown) {
    for (; count < n->nin && count < SHOWN; count++) out[count] = n->in[count];
    return count;
  }
  const struct node *f = &e->g->node[n->forward];
  for (const char *s = n->op->shown; *s && count < SHOWN;
       s += strcspn(s, " "), s += strspn(s, " ")) {
    int k = atoi(s + 1);
    if (*s == 'g')
      out[count++] = n->in[0];
    else if (*s == 'i' && k < f->nin)
      out[count++] = f->in[k];
    else if (*s == 'o' && k < f->nout)
      out[count++] = (ty_entry){ n->forward, k };
  }
  return count;
}

/* Items of one node, in order: (monitor_all) for each input the variable's own name, then
** <node>_<input>; then it runs; then its outputs. */
static int walk_node(ty_exec *e, struct program *p)
{
  const struct node *n = &e->g->node[e->walk.node];
  ty_entry in[SHOWN];
  int inputs = e->monitor == TY_MON_ALL ? 2 * shown_inputs(e, n, in) : 0;
  char name[600];
  while (e->walk.item < inputs) {
    int k = e->walk.item / 2, first = !(e->walk.item++ & 1), v = value_of(e->g, in[k]),
        code = TY_OK;
    const struct node *from = &e->g->node[in[k].node];
    if (first && !from->op)
      code = report(e, p, e->walk.node, v, true, "%s", from->name);
    else if (!first && !n->backward && monitor_input_named(n->op))
      code = report(e, p, e->walk.node, v, true, "%s_%s", n->name, n->inport[k].name);
    else if (!first)
      code = report(e, p, e->walk.node, v, true, "%s_input%d", n->name, k);
    if (code) return code;
  }
  if (e->walk.item == inputs) {
    e->walk.item++;
    int code = run_node(e, p, e->walk.node);
    if (code) return code;
  }
  while (e->walk.item - inputs - 1 < n->nreal) {
    int k = e->walk.item++ - inputs - 1;
    if (partial_sum(n)) continue;
    output_name(n, k, name, sizeof name);
    int code = report(e, p, e->walk.node, n->first + k, false, "%s", name);
    if (code) return code;
  }
  return TY_OK;
}

static bool runs_in(const ty_exec *e, const struct program *p, int node)
{
  const struct node *n = &e->g->node[node];
  if (!n->op) return false;
  if (p->step_of[node] >= 0) return true;
  for (int k = 0; k < n->nout; k++)
    if (p->value[n->first + k].kind != V_NONE) return true; /* a view */
  return false;
}

/* A node of a part that is skipped has no values to report. Its guard ran before it, alone, and
** is done. */
static bool skipped(const ty_exec *e, const struct program *p, int node)
{
  int t = p->step_of[node];
  return t >= 0 && p->step[t].node == node && step_skipped(&p->step[t]);
}

static int advance(ty_exec *e)
{
  struct program *p = e->variant[PLAIN];
  int end = e->walk.phase == ONE  ? e->walk.node + 1
      : e->walk.phase == BACKWARD ? e->g->n
                                  : e->forward;
  for (; e->walk.node < end; e->walk.node++, e->walk.item = 0) {
    if (!runs_in(e, p, e->walk.node) || skipped(e, p, e->walk.node)) continue;
    int code = walk_node(e, p);
    if (code > 0) e->walk.active = false;
    if (code) return code;
  }
  e->walk.active = false;
  ty_tensor_free(e->event_tensor);
  e->event_tensor = NULL;
  return e->walk.phase == BACKWARD ? run_copies(e, p) : TY_OK;
}

int ty_exec_resume(ty_exec *e)
{
  TRY(exec_state(e, "resume"));
  NEED(e->walk.active || e->host.p, TY_ESTATE, "resume: there is no run to go on with");
  if (!e->host.p) return advance(e);
  struct program *p = e->host.p;
  int code = submit_all(e, p, e->host.at + 1, e->host.to);
  return code || !e->host.rerun ? code : begin_backward(e, p);
}

int ty_exec_event(ty_exec *e, ty_event *out)
{
  TRY(exec_state(e, "event"));
  NEED((e->walk.active || e->host.p) && out, TY_ESTATE, "event: none is waiting");
  *out = e->event;
  return TY_OK;
}

int ty_exec_event_tensor(ty_exec *e, int part, int i, ty_tensor **out)
{
  TRY(exec_state(e, "event_tensor"));
  NEED((e->walk.active || e->host.p) && out && e->walk.node < e->g->n, TY_ESTATE,
      "event_tensor: no event is waiting");
  const struct node *n = &e->g->node[e->walk.node];
  int count = part == TY_OUT ? n->nout : n->nin;
  NEED(i >= 0 && i < count, TY_EINDEX, "event_tensor: %d of %d", i, count);
  struct program *p = e->host.p ? e->host.p : e->variant[PLAIN];
  *out = exec_value_view(e, p, part == TY_OUT ? n->first + i : value_of(e->g, n->in[i]));
  if (!*out) return fail(TY_ESTATE, "event_tensor: this value has no memory");
  bool state = false; /* an auxiliary state is the operator's to change */
  for (int k = 0; part != TY_OUT && k < e->naux; k++) state |= e->aux[k].node == n->in[i].node;
  (*out)->readonly = part != TY_OUT && !state;
  return TY_OK;
}

int ty_exec_partial_forward(ty_exec *e, int is_train, int step, int *step_left)
{
  struct program *p;
  TRY(exec_state(e, "partial_forward"));
  NEED(step >= 0, TY_EINDEX, "partial_forward: step %d; expected 0 to %d", step, e->forward - 1);
  NEED(step_left, TY_ETYPE, "partial_forward: null argument");
  *step_left = step < e->forward ? e->forward - step - 1 : 0;
  if (step >= e->forward) return TY_OK;
  if (step == 0 || e->ran != PLAIN)
    TRY(start(e, "partial_forward", PLAIN, is_train, &p));
  else
    TRY(choose_variant(e, PLAIN, &p));
  e->last.is_train = is_train != 0;
  e->walk.active = true;
  e->walk.phase = ONE;
  e->walk.node = step;
  e->walk.item = INT32_MAX / 2;
  int code = run_node(e, p, step);
  if (code != TY_EV_HOST) e->walk.active = false;
  return code;
}
