/* batch_weight_gradients.c - computes products that add to one sum as one long product.
**
** The gradient of a weight that many nodes read (a cell at each time step) is a sum of products
** over few rows each. Each of these reads and writes the whole sum, so memory takes the time, not
** arithmetic. Here steps that add to the same sums are batched, in order, until they have enough
** rows: the last one gets the operands of the others after its own and computes all, the others
** keep their other outputs. The operands live until then; the limit on rows bounds their memory. A
** group ends early where another step reads or writes its sums. Rounding differs from that of
** single products. A fused recurrent operator does the same when it multiplies all time steps at
** once.
*/
#include "pass/passes.h"

/* rows of a group that is complete: a block of a product's inner dimension */
enum { ENOUGH_ROWS = 256 };

struct group { int *step, n, cap; int64_t rows; };
/* of: per root, its open group + 1 */
struct batching { struct program *p; struct group *group; int *of, n, cap; uint8_t *changes; };

bool batches_sums(const struct op *op, int device)
{
  return op_common_caps(op, true, device).flags & K_BATCHES;
}

static int batch_find_root(const struct program *p, int v) { return v < 0 ? -1 : p->value[v].root; }

static int64_t batch_count_vec_ops(const struct batching *j, const struct step *st)
{
  const ty_desc *d = j->p->s.desc, *weight = &d[j->p->s.g->node[st->node].first + 1];
  return desc_count(&d[st->in[1]]) / (desc_count(weight) / weight->dim[0]);
}

static bool batch_accepts_step(const struct batching *j, const struct step *st)
{
  if (st->kind != STEP_NODE || step_fusion(j->p, st) || st->guard >= 0 ||
      !j->p->s.g->node[st->node].backward ||
      !batches_sums(j->p->s.g->node[st->node].op, st->device))
    return false;
  return st->out[1] >= 0 && !j->changes[st->in[0]] && !j->changes[st->in[1]] &&
      batch_count_vec_ops(j, st) < ENOUGH_ROWS;
}

/* Ends a group: its last step takes the operands of all steps, and writes what the first would have
** written. */
static int batch_close_group(struct batching *j, struct group *g)
{
  struct program *p = j->p;
  struct step *first = &p->step[g->step[0]], *last = &p->step[g->step[g->n - 1]];
  for (int k = 1; k < last->nout; k++)
    if (first->out[k] >= 0) j->of[batch_find_root(p, first->out[k])] = 0;
  if (g->n < 2) return TY_OK;
  int *in = arena_new(&p->arena, sizeof *in * (size_t)(last->nin + 2 * g->n));
  NEED(in, TY_EMEMORY, "out of memory: plan");
  memcpy(in, last->in, sizeof *in * (size_t)last->nin);
  last->in = in;
  for (int k = 1; k < last->nout; k++) last->out[k] = first->out[k];
  for (int i = 0; i < g->n - 1; i++) {
    struct step *st = &p->step[g->step[i]];
    for (int k = 0; k < 2; k++) last->in[last->nin++] = st->in[k];
    for (int k = 1; k < st->nout; k++) st->out[k] = -1;
  }
  return TY_OK;
}

static int batch_close_at(struct batching *j, int v)
{
  int r = batch_find_root(j->p, v);
  return r < 0 || !j->of[r] ? TY_OK : batch_close_group(j, &j->group[j->of[r] - 1]);
}

/* Returns whether the step adds to all sums of the group, and to nothing else. */
static bool batch_group_accepts_step(
    const struct batching *j, const struct group *g, const struct step *st)
{
  const struct step *first = &j->p->step[g->step[0]];
  const struct node *a = &j->p->s.g->node[first->node], *b = &j->p->s.g->node[st->node];
  if (a->op != b->op || first->nout != st->nout || first->nin != st->nin ||
      first->device != st->device)
    return false;
  for (int k = 1; k < st->nout; k++)
    if (batch_find_root(j->p, first->out[k]) != batch_find_root(j->p, st->out[k]) ||
        (st->out[k] >= 0 && !j->p->value[st->out[k]].add))
      return false;
  for (int k = 0; k < 2; k++)
    if (j->p->s.desc[first->in[k]].dtype != j->p->s.desc[st->in[k]].dtype) return false;
  return true;
}

static int batch_open_group(struct batching *j, const struct step *st, struct group **out)
{
  NEED(GROW(j->group, j->n, j->cap), TY_EMEMORY, "out of memory: plan");
  j->group[j->n] = (struct group){ 0 };
  *out = &j->group[j->n++];
  for (int k = 1; k < st->nout; k++)
    if (st->out[k] >= 0) j->of[batch_find_root(j->p, st->out[k])] = j->n;
  return TY_OK;
}

static int batch_step(struct batching *j, int t)
{
  struct step *st = &j->p->step[t];
  int r = batch_find_root(j->p, st->out[1]);
  struct group *g = j->of[r] ? &j->group[j->of[r] - 1] : NULL;
  if (!g || !batch_group_accepts_step(j, g, st)) {
    for (int k = 1; k < st->nout; k++) TRY(batch_close_at(j, st->out[k]));
    TRY(batch_open_group(j, st, &g));
  }
  NEED(GROW(g->step, g->n, g->cap), TY_EMEMORY, "out of memory: plan");
  g->step[g->n++] = t;
  g->rows += batch_count_vec_ops(j, st);
  return g->rows >= ENOUGH_ROWS ? batch_close_group(j, g) : TY_OK;
}

static int batch_all(struct batching *j)
{
  struct program *p = j->p;
  for (int i = 0; i < p->s.g->n; i++) {
    const struct node *n = &p->s.g->node[i];
    for (int k = 0; n->op && !n->backward && k < n->nin; k++)
      if (n->kind->inport[k].mutated) j->changes[value_of(p->s.g, n->in[k])] = 1;
  }
  for (int t = p->nforward; t < p->n; t++) {
    struct step *st = &p->step[t];
    bool batched = batch_accepts_step(j, st);
    for (int k = 0; k < st->nin; k++) TRY(batch_close_at(j, st->in[k]));
    for (int k = 0; k < (batched ? 1 : st->nout); k++) TRY(batch_close_at(j, st->out[k]));
    if (batched) TRY(batch_step(j, t));
  }
  for (int i = 0; i < j->n; i++) {
    const struct group *g = &j->group[i];
    if (g->rows < ENOUGH_ROWS) TRY(batch_close_at(j, p->step[g->step[0]].out[1]));
  }
  return TY_OK;
}

int pass_batch_weight_gradients(struct program *p)
{
  int n = p->s.g->nvalue;
  if (p->s.flags & (TY_NOSHARE | TY_KEEP | TY_NOFUSE)) return TY_OK;
  struct batching j = { .p = p, .of = NEWS(int, n), .changes = NEWS(uint8_t, n) };
  int code = j.of && j.changes ? batch_all(&j) : fail(TY_EMEMORY, "out of memory: plan");
  for (int i = 0; i < j.n; i++) mem_free(j.group[i].step);
  mem_free(j.group);
  mem_free(j.of);
  mem_free(j.changes);
  return code;
}
