/* profile.c - reports the instructions of executors to the profiler: a span per instruction with
** the operators that it runs, its nodes, its kernel and the bytes of its operands. */
#include "exec/inner.h"

/* nodes of a pointwise program that a span names; it counts the others */
enum { MAX_NAMED_NODES = 6 };

/* Adds operators and nodes of a step to two texts. */
static void profile_name_step(
    const struct program *p, const struct step *st, struct text *name, struct text *nodes)
{
  const struct node *n = st->node >= 0 ? &p->s.g->node[st->node] : NULL;
  if (st->kind == STEP_POINTWISE && st->nmember > 1) {
    const int shown = MIN(st->nmember, MAX_NAMED_NODES);
    for (int k = 0; k < shown; k++) {
      const struct node *m = &p->s.g->node[p->member[st->member + k]];
      text_add(name, "%s%s", k ? "+" : "", op_label(m));
      text_add(nodes, "%s%s", k ? " " : "", m->name);
    }
    if (shown == st->nmember) return;
    text_add(name, "+%d more", st->nmember - shown);
    text_add(nodes, " and %d more", st->nmember - shown);
    return;
  }
  if (!n || st->kind == STEP_COPY || st->kind == STEP_ADD)
    text_add(name, st->kind == STEP_ADD ? "add" : "copy");
  else
    text_add(name, "%s", op_label(n));
  if (n) text_add(nodes, "%s", n->name);
  const struct fusion *f = step_fusion(p, st);
  for (int k = 0; f && k < f->n; k++) text_add(nodes, " %s", p->s.g->node[f->node[k].node].name);
}

void exec_profile_step(const struct program *p, const struct step *st, int64_t from, int64_t to)
{
  struct text name = { 0 }, nodes = { 0 };
  profile_name_step(p, st, &name, &nodes);
  const char *kernel = st->kind == STEP_NODE ? st->v.kernel->name
      : st->kind == STEP_POINTWISE           ? "pointwise"
                                             : "";
  int64_t bytes = 0;
  for (int k = 0; k < st->nin; k++) bytes += (int64_t)desc_bytes(&p->s.desc[st->in[k]]);
  for (int k = 0; k < st->nout; k++)
    if (st->out[k] >= 0) bytes += (int64_t)desc_bytes(&p->s.desc[st->out[k]]);
  struct profile_label l = { "operator", name.s ? name.s : "", nodes.s ? nodes.s : "", kernel, 0 };
  profile_span(&l, st->device, bytes, from, to);
  text_done(&name);
  text_done(&nodes);
}
