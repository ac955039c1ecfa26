/* profile.c - tells the profiler about the instructions of executors: a span per instruction
** with the operators it runs, its nodes, its kernel and the bytes of its operands. Called by
** segment.c once a timed instruction has ended on its device. */
#include "exec/exec.h"
#include "device/profile.h"

/* nodes of a pointwise program that are written out */
enum { SHOWN = 6 };

static void name_program(
    const struct program *p, const struct step *st, struct text *name, struct text *nodes)
{
  for (int k = 0; k < st->nmember; k++) {
    const struct node *n = &p->s.g->node[p->member[st->member + k]];
    if (k == SHOWN) {
      text_add(name, "+%d more", st->nmember - k);
      text_add(nodes, " and %d more", st->nmember - k);
      return;
    }
    text_add(name, "%s%s", k ? "+" : "", op_label(n));
    text_add(nodes, "%s%s", k ? " " : "", n->name);
  }
}

static void name_step(
    const struct program *p, const struct step *st, struct text *name, struct text *nodes)
{
  const struct node *n = st->node >= 0 ? &p->s.g->node[st->node] : NULL;
  if (st->kind == STEP_POINTWISE && st->nmember > 1) {
    name_program(p, st, name, nodes);
    return;
  }
  if (!n || st->kind == STEP_COPY || st->kind == STEP_ADD) {
    text_add(name, st->kind == STEP_ADD ? "add" : "copy");
  }
  else
    text_add(name, "%s", op_label(n));
  if (n) text_add(nodes, "%s", n->name);
  const struct fusion *f = step_fusion(p, st);
  for (int k = 0; f && k < f->n; k++) text_add(nodes, " %s", p->s.g->node[f->node[k].node].name);
}

static int64_t moved(const struct program *p, const struct step *st)
{
  int64_t bytes = 0;
  for (int k = 0; k < st->nin; k++) bytes += (int64_t)desc_bytes(&p->s.desc[st->in[k]]);
  for (int k = 0; k < st->nout; k++)
    if (st->out[k] >= 0) bytes += (int64_t)desc_bytes(&p->s.desc[st->out[k]]);
  return bytes;
}

void exec_profile_step(const struct program *p, const struct step *st, int64_t from, int64_t to)
{
  struct text name = { 0 }, nodes = { 0 };
  name_step(p, st, &name, &nodes);
  const char *kernel = st->kind == STEP_NODE ? st->v.kernel->name
      : st->kind == STEP_POINTWISE           ? "pointwise"
                                             : "";
  struct profile_label l = { "operator", name.s ? name.s : "", nodes.s ? nodes.s : "", kernel, 0 };
  profile_span(&l, st->device, moved(p, st), from, to);
  text_done(&name);
  text_done(&nodes);
}
