/* states.c - memory that kernels keep between runs. Steps that pack one bound array in the same way
** share what the first of them packs. Forward and backward steps share only where their kernels
** have `before`.
*/
#include "pass/passes.h"

static bool states_pack_alike(const struct program *p, const struct step *a, const struct step *b)
{
  const struct kernel *k = a->v.kernel, *l = b->v.kernel;
  const bool both = k->before && l->before && k->done == l->done;
  return (k == l || both) && a->device == b->device &&
      desc_same_shape(&p->s.desc[a->in[k->packs - 1]], &p->s.desc[b->in[l->packs - 1]]);
}

static int states_find_shared(struct program *p)
{
  /* per root, twice (forward, backward): 1 + the first step that packs it, 0: none */
  int *first = NEWS(int, 2 * p->s.g->nvalue);
  NEED(first, TY_EMEMORY, "out of memory: states");
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    if (st->kind != STEP_NODE || !st->v.kernel || !st->v.kernel->packs) continue;
    int root = p->value[st->in[st->v.kernel->packs - 1]].root,
        *at = &first[2 * root + (st->v.backward && !st->v.kernel->before)];
    if (p->value[root].kind != V_BOUND) continue;
    if (p->value[root].first >= 0) continue; /* the program writes it */
    if (!*at)
      *at = t + 1;
    else if (states_pack_alike(p, &p->step[*at - 1], st))
      st->state_of = *at - 1, p->step[*at - 1].state_shared = true;
  }
  mem_free(first);
  return TY_OK;
}

static int states_give_state(struct program *p, struct step *st)
{
  if (!st->v.state) return TY_OK;
  if (st->state_of >= 0) {
    st->v.call.state = p->step[st->state_of].state;
    return TY_OK;
  }
  if (st->v.kernel->flags & K_REUSED && !st->state_shared) return TY_OK;
  st->state = st->v.call.state = mem_new(st->v.state);
  return st->state ? TY_OK : TY_EMEMORY;
}

int pass_states(struct program *p)
{
  TRY(states_find_shared(p));
  for (int t = 0; t < p->n; t++) TRY(states_give_state(p, &p->step[t]));
  return TY_OK;
}
