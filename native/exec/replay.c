/* replay.c - runs of steps that their device records and then starts as a whole.
**
** A device that can (struct device_ops) does so with every run of steps between two that need the
** host: kernels of the CPU, guards, random numbers whose key is the host's. The first run of such
** steps makes what their kernels keep; the second is recorded; from then on one call starts all of
** them. A recording holds addresses, and so is good until the pool moves; the random state of a
** run is copied to the device in front of it. What kernels have packed of bound arrays is not
** recorded: where one of these has changed, the steps run one by one and pack it anew.
*/
#include "exec/inner.h"

enum { MODES = 2, LEAST_STEPS = 2 };                  /* inference, training */

/* steps first .. last - 1, per mode: how often they ran, and what was recorded in which generation
** of the pool */
struct replay {
  int first, last, device;
  struct { int runs; void *made; uint64_t generation, packed; } mode[MODES];
  bool never;                                         /* the device could not */
};

static bool draws(const struct program *p, const struct step *st)
{
  return st->kind == STEP_NODE && p->s.g->node[st->node].op->flags & OP_RANDOM;
}

static bool recordable(const struct program *p, const struct step *st)
{
  if (st->guard_at || st->fold || st->folded || step_of_host(p, st)) return false;
  if (st->kind != STEP_NODE) return true;
  for (int k = 0; k < st->nin; k++)
    if (st->v.call.in[k].d.device != st->device) return false;
  return !st->v.hosted && (!draws(p, st) || st->v.kernel->flags & K_DRAWS_THERE);
}

int exec_list_records(ty_exec *e, struct program *p, struct segment *g)
{
  const struct device_ops *ops = device_ops(g->device);
  if (!ops->record || device_sync() || !env_number("TYCHO_GRAPHS", 1)) return TY_OK;
  g->record = arena_new(&p->arena, sizeof *g->record * (size_t)(g->last - g->first));
  NEED(g->record, TY_EMEMORY, "out of memory: executor");
  for (int t = g->first, end; t < g->last; t = end + 1) {
    for (end = t; end < g->last && recordable(p, &p->step[end]); end++)
      if (draws(p, &p->step[end]) && !e->draws[g->slot])
        TRY(storage_new(g->device, sizeof(struct rng_state), &e->draws[g->slot]));
    if (end - t < LEAST_STEPS) continue;
    g->record[g->nrecord++] = (struct replay){ .first = t, .last = end, .device = g->device };
  }
  return TY_OK;
}

static void forget(struct replay *r, int mode)
{
  if (r->mode[mode].made) device_ops(r->device)->forget(r->device, r->mode[mode].made);
  r->mode[mode].made = NULL;
  r->mode[mode].runs = 0;
}

void exec_forget_records(struct program *p)
{
  for (int i = 0; p && i < p->nsegment; i++)
    for (int k = 0; k < p->segment[i].nrecord; k++)
      for (int m = 0; m < MODES; m++) forget(&p->segment[i].record[k], m);
}

/* What fails here fails again when the steps run one by one, and is told then. */
static void make(struct program *p, struct replay *r, int mode)
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

static struct replay *record_at(const struct segment *g, int t)
{
  for (int i = 0; i < g->nrecord; i++)
    if (g->record[i].first == t) return &g->record[i];
  return NULL;
}

/* Returns a number that changes whenever an array does that a kernel packs. */
static uint64_t packed_versions(const struct program *p, const struct replay *r)
{
  uint64_t sum = 0;
  for (int t = r->first; t < r->last; t++) {
    const struct step *st = &p->step[t];
    if (st->kind != STEP_NODE || !st->v.call.state || !st->v.kernel->packs) continue;
    const uint64_t *version = st->v.call.in[st->v.kernel->packs - 1].version;
    sum = sum * 31 + (version ? *version : 0);
  }
  return sum;
}

static const char *name_of(const struct program *p, int t)
{
  int node = p->step[t].node;
  return node < 0 ? "a copy" : p->s.g->node[node].name;
}

static int start(const struct program *p, const struct replay *r, void *made)
{
  int code = device_ops(r->device)->replay(r->device, made);
  if (!code) return TY_OK;
  return fail(code, "%s; it has the steps from %s to %s", ty_error(), name_of(p, r->first),
      name_of(p, r->last - 1));
}

int exec_replay(struct program *p, const struct segment *g, int mode, uint64_t generation,
    int last, int *t)
{
  struct replay *r = record_at(g, *t);
  if (!r || r->never || r->last > last) return TY_OK;
  if (r->mode[mode].generation != generation) {
    forget(r, mode);
    r->mode[mode].generation = generation;
  }
  uint64_t packed = packed_versions(p, r);
  bool fresh = r->mode[mode].packed == packed;
  r->mode[mode].packed = packed;
  if (!fresh && r->mode[mode].runs) return TY_OK;
  if (!r->mode[mode].made && r->mode[mode].runs++) make(p, r, mode);
  if (!r->mode[mode].made) return TY_OK;
  *t = r->last;
  return start(p, r, r->mode[mode].made);
}
