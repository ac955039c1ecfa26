/* accumulate.c - additions that products do themselves.
**
** A gradient sum (`_grad_add`: the sum so far, and a new part) needs no step where the part comes
** from an operator whose kernels can all add to that output: the operator adds to the bytes of the
** sum so far, which then hold the result. Conditions: nothing else reads the part, the sum so far,
** or what that is a view of; neither is an argument's gradient; the sum so far is computed before
** the part, and by no pointwise program, which might run later; device and dtype agree. Monitored
** programs report parts and sums separately and do not use this.
*/
#include "pass/passes.h"

bool can_add_to(const struct node *n, int device, int out)
{
  return !n->op->formula && out < 32 && op_common_caps(n->op, n->backward, device).add >> out & 1;
}

/* Returns whether the bytes of value e may be overwritten: backward makes them, and e and all that
** it is a view of have one reader and go to no array. */
static bool accumulate_may_change(
    const struct source *s, const int *readers, const int *arrays, ty_entry e)
{
  for (;;) {
    int v = value_of(s->g, e);
    if (e.node < s->forward || !s->g->node[e.node].op || is_known(s, e.node)) return false;
    if (readers[v] != 1 || arrays[v]) return false;
    int in = view_of(s, e.node, e.out);
    if (in < 0) return true;
    e = s->g->node[e.node].in[in];
  }
}

int accumulate_sums(const struct source *s, const int *arrays, int *into, uint8_t *summed)
{
  const struct op *sum = op_find("_grad_add");
  int *readers = count_reads(s);
  NEED(readers, TY_EMEMORY, "out of memory: sums");
  for (int v = 0; v < s->g->nvalue; v++) into[v] = -1;
  for (int i = s->forward; i < s->g->n; i++) {
    const struct node *n = &s->g->node[i];
    if (n->op != sum || n->backward) continue;
    ty_entry total = n->in[0], part = n->in[1];
    int v = value_of(s->g, total), u = value_of(s->g, part);
    const struct node *maker = &s->g->node[part.node];
    if (!maker->op || total.node >= part.node) continue;
    if (readers[u] != 1 || arrays[u] || !accumulate_may_change(s, readers, arrays, total)) continue;
    if (s->device[i] != s->device[part.node] || s->device[i] != s->device[total.node]) continue;
    if (formula_of(&s->g->node[total.node], total.out) && !summed[total.node])
      continue; /* the pointwise program of the sum may run after the part */
    if (s->desc[v].dtype != s->desc[u].dtype) continue;
    if (!can_add_to(maker, s->device[i], part.out)) continue;
    into[u] = v;
    summed[i] = 1;
  }
  mem_free(readers);
  return TY_OK;
}
