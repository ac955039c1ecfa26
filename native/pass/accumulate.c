/* accumulate.c - additions that products do themselves.
**
** A chain of gradient sums (`_grad_add`: the sum so far, and a new part) needs no step where the
** part comes from an operator whose kernels can all add to that output: the operator adds to the
** bytes of the sum so far. Those bytes are then the result. Conditions: nothing else reads the
** part or the sum so far, the sum so far is there before the part (a pointwise program might run
** later: it is none), and device and dtype agree. Monitored programs do not use it: they report
** parts and sums apart.
*/
#include "pass/passes.h"

bool can_add_to(const struct node *n, int device, int out)
{
  return !n->op->formula && out < 32 && op_common_caps(n->op, n->backward, device).add >> out & 1;
}

int accumulate_sums(const struct source *s, int *into, uint8_t *summed)
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
    if (!maker->op || !s->g->node[total.node].op || total.node < s->forward ||
        total.node >= part.node)
      continue;
    if (readers[v] != 1 || readers[u] != 1 || s->device[i] != s->device[part.node] ||
        s->device[i] != s->device[total.node])
      continue;
    if (formula_of(&s->g->node[total.node], total.out) && !summed[total.node])
      continue; /* its pointwise program may run later */
    if (s->desc[v].dtype != s->desc[u].dtype) continue;
    if (!can_add_to(maker, s->device[i], part.out)) continue;
    into[u] = v;
    summed[i] = 1;
  }
  mem_free(readers);
  return TY_OK;
}
