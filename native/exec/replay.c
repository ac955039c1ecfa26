/* replay.c - sequences of steps that their device records and then starts with one call.
**
** Steps that need the host end a sequence: kernels of the CPU, guards, random numbers whose key is
** in host memory. The first execution makes what the kernels keep, the second is recorded, later
** ones are replayed. A recording contains addresses, so it is valid until the pool moves. The
** random state of a run is copied to the device before each replay. Packing of bound arrays is not
** recorded, except by kernels that pack for a whole segment in every run (pass/together.c). Where a
** packed array has changed, the steps are executed one by one, which packs it again.
**
** Arrays that are exchanged between runs (exec_set_array) may be elsewhere in each: a loop's data
** and results. Steps that access such an array end a sequence; those between them, which access
** weights, gradients and the pool, are recorded.
*/
#include "exec/inner.h"

enum { MODES = 2 };                                   /* inference, training */
enum { MIN_RECORDED_STEPS = 2 };

/* a sequence: steps first .. last - 1 */
struct replay {
  int first, last, device;
  struct {
    int runs;
    void *made;                                       /* the device's recording; NULL: none */
    uint64_t generation;                              /* of the pool when it was recorded */
    uint64_t packed;                                  /* hash of the packed arrays' versions */
  } mode[MODES];
  bool never;                                         /* recording failed */
};

static bool record_draws(const struct program *p, const struct step *st)
{
  const struct node *n = st->kind == STEP_NODE ? &p->s.g->node[st->node] : NULL;
  return n && op_draws(n->op, n->kind->param, true);
}

/* Returns whether value v is in an array whose address changes. */
static bool record_value_moves(const ty_exec *e, const struct program *p, int v)
{
  if (v < 0) return false;
  const struct value *x = &p->value[v], *r = &p->value[x->root];
  return (x->kind == V_BOUND && exec_array_moves(e, x->bound)) ||
      (r->kind == V_BOUND && exec_array_moves(e, r->bound));
}

static bool record_operands_move(const ty_exec *e, const struct program *p, const struct step *st)
{
  bool moves = st->bound >= 0 && exec_array_moves(e, st->bound);
  for (int k = 0; k < st->nin; k++) moves |= record_value_moves(e, p, st->in[k]);
  for (int k = 0; k < st->nout; k++) moves |= record_value_moves(e, p, st->out[k]);
  return moves;
}

/* Returns whether an operand moves of the steps whose work is joined (pass/together.c); j NULL:
** there are none. */
static bool record_joined_move(const ty_exec *e, const struct program *p, const struct joined *j)
{
  bool moves = false;
  for (int k = 0; j && k < j->n; k++) moves |= record_operands_move(e, p, &p->step[j->step[k]]);
  return moves;
}

/* Returns whether a step can be part of a sequence. */
static bool record_accepts(const ty_exec *e, const struct program *p, const struct step *st)
{
  const bool moves = e->bind.movable &&
      (record_operands_move(e, p, st) || record_joined_move(e, p, st->before) ||
          record_joined_move(e, p, st->after));
  if (moves) return false; /* a replay would access an array where it was */
  if (st->guard_at || st->fused_norm || st->fused_into || step_is_front_end(p, st)) return false;
  if (st->kind != STEP_NODE) return true;
  for (int k = 0; k < st->nin; k++)
    if (st->v.call.in[k].d.device != st->device) return false;
  if (st->v.cpu_fallback || !record_draws(p, st)) return !st->v.cpu_fallback;
  /* random states of single nodes are the host's: a replay would draw the same again */
  return !e->nown && st->v.kernel->flags & K_DRAWS_ON_DEVICE;
}

int exec_list_records(ty_exec *e, struct program *p, struct segment *g)
{
  const struct device_ops *ops = device_ops(g->device);
  if (!ops->record || device_sync() || !env_number("TYCHO_GRAPHS", 1)) return TY_OK;
  const size_t bytes = sizeof *g->record * (size_t)(g->last - g->first);
  if (!g->record) g->record = arena_new(&p->arena, bytes);
  NEED(g->record, TY_EMEMORY, "out of memory: executor");
  g->nrecord = 0;
  for (int t = g->first, end; t < g->last; t = end + 1) {
    for (end = t; end < g->last && record_accepts(e, p, &p->step[end]); end++)
      if (record_draws(p, &p->step[end]) && !e->submit.rng[g->slot])
        TRY(storage_new(g->device, sizeof(struct rng_state), &e->submit.rng[g->slot]));
    if (end - t < MIN_RECORDED_STEPS) continue;
    g->record[g->nrecord++] = (struct replay){ .first = t, .last = end, .device = g->device };
  }
  return TY_OK;
}

static void record_forget(struct replay *r, int mode)
{
  if (r->mode[mode].made) device_ops(r->device)->forget(r->device, r->mode[mode].made);
  r->mode[mode].made = NULL;
  r->mode[mode].runs = 0;
}

void exec_forget_records(struct program *p)
{
  for (int i = 0; p && i < p->nsegment; i++)
    for (int k = 0; k < p->segment[i].nrecord; k++)
      for (int m = 0; m < MODES; m++) record_forget(&p->segment[i].record[k], m);
}

int exec_list_records_again(ty_exec *e, struct program *p)
{
  exec_forget_records(p);
  for (int i = 0; i < p->nsegment; i++) TRY(exec_list_records(e, p, &p->segment[i]));
  return TY_OK;
}

/* Records a sequence. A step that fails here fails again when the steps are executed one by one,
** and is reported then. */
static void record_make(struct program *p, struct replay *r, int mode)
{
  const struct device_ops *ops = device_ops(r->device);
  int code = ops->record(r->device);
  bool began = !code;
  for (int t = r->first; t < r->last && !code; t++) code = program_run_step(p, &p->step[t]);
  if (began) {
    int ended = ops->recorded(r->device, code ? NULL : &r->mode[mode].made);
    code = code ? code : ended;
  }
  r->never = code != TY_OK;
  if (code) failure_drop(failure_take(code));
}

static const char *record_step_name(const struct program *p, int t)
{
  int node = p->step[t].node;
  return node < 0 ? "a copy" : p->s.g->node[node].name;
}

int exec_replay(struct program *p, const struct segment *g, int mode, uint64_t generation,
    int last, int *t)
{
  struct replay *r = NULL;
  for (int i = 0; i < g->nrecord && !r; i++)
    if (g->record[i].first == *t) r = &g->record[i];
  if (!r || r->never || r->last > last) return TY_OK;
  if (r->mode[mode].generation != generation) {
    record_forget(r, mode);
    r->mode[mode].generation = generation;
  }
  uint64_t packed = 0;                                  /* a hash of the packed arrays' versions */
  for (int i = r->first; i < r->last; i++) {
    const struct step *st = &p->step[i];
    if (st->kind != STEP_NODE || !st->v.call.state || !st->v.kernel->packs) continue;
    if (st->v.kernel->before && st->v.call.trains) continue;
    const uint64_t *version = st->v.call.in[st->v.kernel->packs - 1].version;
    packed = packed * 31 + (version ? *version : 0);
  }
  const bool unchanged = r->mode[mode].packed == packed;
  r->mode[mode].packed = packed;
  if (!unchanged && r->mode[mode].runs) return TY_OK;
  if (!r->mode[mode].made && r->mode[mode].runs++) record_make(p, r, mode);
  if (!r->mode[mode].made) return TY_OK;
  *t = r->last;
  int code = device_ops(r->device)->replay(r->device, r->mode[mode].made);
  if (!code) return TY_OK;
  return fail(code, "%s; it has the steps from %s to %s", ty_error(),
      record_step_name(p, r->first), record_step_name(p, r->last - 1));
}
