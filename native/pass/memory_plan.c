/* memory_plan.c - gives values offsets in the pool: those that live at the same time get different
** bytes, others share bytes.
**
** A step's scratch is one more item that lives for that step only. Outputs keep the offsets that
** another program has given them. memory_fit.c finds the offsets; memory_verify.c checks them.
*/
#include "pass/passes.h"

/* value >= 0: a root; < 0: scratch of step -1 - value */
struct plan_items {
  int n, *first, *last, *value;
  int64_t *bytes, *offset;
};

static void plan_add_item(
    struct plan_items *q, int value, int64_t bytes, int first, int last, int64_t kept)
{
  q->value[q->n] = value;
  q->bytes[q->n] = bytes;
  q->first[q->n] = first;
  q->last[q->n] = last;
  q->offset[q->n] = kept;
  q->n++;
}

/* Lists the values and scratch of a device. kept: per value, the offset that it must get, -1: any
** offset. */
static void plan_gather_items(
    const struct program *p, int slot, struct plan_items *q, const int64_t *kept)
{
  bool apart = p->s.flags & TY_NOSHARE; /* everything lives all the time */
  for (int v = 0; v < p->s.g->nvalue; v++) {
    const struct value *x = &p->value[v];
    if (x->kind != V_POOL || x->root != v || x->device != p->device[slot] || !x->bytes) continue;
    plan_add_item(q, v, x->bytes, apart ? 0 : x->first, apart ? p->n : x->last, kept[v]);
  }
  for (int t = 0; t < p->n; t++)
    if (p->step[t].scratch && p->step[t].device == p->device[slot])
      plan_add_item(q, -1 - t, (int64_t)align_up(p->step[t].scratch, ALIGN), apart ? 0 : t,
          apart ? p->n : t, -1);
}

static int64_t plan_count_unshared_bytes(const struct program *p, int device)
{
  int64_t sum = 0;
  for (int t = 0; t < p->n; t++) {
    const struct step *st = &p->step[t];
    if (st->device != device) continue;
    for (int k = 0; k < st->nout; k++)
      if (st->out[k] >= 0 && p->value[st->out[k]].kind == V_POOL) sum += p->value[st->out[k]].bytes;
    sum += (int64_t)align_up(st->scratch, ALIGN);
  }
  return sum;
}

/* Returns the pool bytes on a device of the program whose output offsets are kept. */
static int64_t plan_count_held_bytes(const struct program *p, int device)
{
  const struct program *from = p->like.program;
  for (int i = 0; from && i < from->ndevice; i++)
    if (from->device[i] == device) return from->pool[i];
  return 0;
}

static int plan_fit_device(struct program *p, int slot, const int64_t *kept)
{
  const int64_t held = plan_count_held_bytes(p, p->device[slot]);
  size_t cap = (size_t)(p->s.g->nvalue + p->n + 1);
  struct plan_items q = { 0, NEWS(int, cap), NEWS(int, cap), NEWS(int, cap), NEWS(int64_t, cap),
    NEWS(int64_t, cap) };
  bool complete = q.first && q.last && q.value && q.bytes && q.offset;
  int code = complete ? TY_OK : fail(TY_EMEMORY, "out of memory: plan");
  if (complete) plan_gather_items(p, slot, &q, kept);
  if (!code)
    code = plan_offsets(
        q.n, q.bytes, q.first, q.last, held, q.offset, &p->pool[slot], &p->bound[slot]);
  for (int i = 0; i < q.n && !code; i++)
    if (q.value[i] >= 0)
      p->value[q.value[i]].offset = q.offset[i];
    else
      p->step[-1 - q.value[i]].scratch_at = q.offset[i];
  p->unshared[slot] = plan_count_unshared_bytes(p, p->device[slot]);
  mem_free(q.first);
  mem_free(q.last);
  mem_free(q.value);
  mem_free(q.bytes);
  mem_free(q.offset);
  return code;
}

/* Keeps outputs at the offsets that `like` has for them, if they fit there. */
static void plan_keep_outputs(const struct program *p, int64_t *kept)
{
  const struct outputs_of *of = &p->like;
  for (int h = 0; of->program && h < MIN(p->s.nhead, of->nhead); h++) {
    const struct program *from = of->program;
    const int r = p->value[value_of(p->s.g, p->s.head[h])].root;
    const struct value *to = &p->value[r],
                       *x = &from->value[from->value[value_of(from->s.g, of->head[h])].root];
    if (kept[r] < 0 && x->kind == V_POOL && to->kind == V_POOL && to->bytes <= x->bytes &&
        to->device == x->device)
      kept[r] = x->offset;
  }
}

int pass_plan(struct program *p)
{
  int64_t *kept = NEWS(int64_t, p->s.g->nvalue);
  NEED(kept, TY_EMEMORY, "out of memory: plan");
  for (int v = 0; v < p->s.g->nvalue; v++) kept[v] = -1;
  plan_keep_outputs(p, kept);
  int code = TY_OK;
  for (int i = 0; i < p->ndevice && !code; i++) code = plan_fit_device(p, i, kept);
  mem_free(kept);
  for (int v = 0; v < p->s.g->nvalue; v++) p->value[v].offset = p->value[p->value[v].root].offset;
  return code;
}
