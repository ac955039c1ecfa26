/* memory_verify.c - checks a plan from the instruction list alone.
**
** It does not use lifetimes: it goes through the instructions and notes for each range of pool
** bytes which value was last written there. An instruction that reads a value must find exactly
** that value in its place; a write removes what the bytes held before. A result may be written over
** an input of the same instruction, since reads come first. Heads must be intact at the end. Cost:
** O(instructions x live ranges).
*/
#include "pass/program.h"

struct held { int64_t from, to; int value, device; };
struct memory { struct held *h; int n, cap; };

static int verify_fail_read(const struct program *p, int t, int value, int owner)
{
  const ty_graph *g = p->s.g;
  return fail(TY_EINTERNAL, "plan: instruction %d reads %s, but its bytes hold %s", t,
      g->node[find_value_node(g, value)].name,
      owner >= 0 ? g->node[find_value_node(g, owner)].name : "something else");
}

static bool verify_does_step_write(const struct program *p, int node, int v)
{
  if (p->step_of[node] < 0) return false;
  const struct step *st = &p->step[p->step_of[node]];
  for (int k = 0; k < st->nout; k++)
    if (st->out[k] == v) return true;
  return false;
}

/* Follows views from v to the value whose bytes they are. */
static int verify_find_stored_value(const struct program *p, int v)
{
  const ty_graph *g = p->s.g;
  const int node = find_value_node(g, v);
  if (verify_does_step_write(p, node, v)) return v;
  if (p->s.summed && p->s.summed[node])
    return verify_find_stored_value(
        p, value_of(g, g->node[node].in[1])); /* the part that was added last */
  int in = view_of(&p->s, node, v - g->node[node].first);
  return in >= 0 ? verify_find_stored_value(p, value_of(g, g->node[node].in[in])) : v;
}

static int verify_check_read(const struct program *p, const struct memory *m, int t, int v)
{
  const struct value *r = &p->value[p->value[v].root];
  if (r->kind != V_POOL || !r->bytes) return TY_OK;
  int want = verify_find_stored_value(p, v), owner = -1;
  for (int i = 0; i < m->n; i++) {
    const struct held *h = &m->h[i];
    if (h->device != r->device || h->to <= r->offset || r->offset + p->value[v].bytes <= h->from)
      continue;
    if (h->value == want && h->from == r->offset) return TY_OK;
    owner = h->value;
  }
  return verify_fail_read(p, t, v, owner);
}

static int verify_write_range(struct memory *m, int64_t from, int64_t bytes, int value, int device)
{
  int keep = 0;
  for (int i = 0; i < m->n; i++)
    if (m->h[i].device != device || m->h[i].to <= from || from + bytes <= m->h[i].from)
      m->h[keep++] = m->h[i];
  m->n = keep;
  NEED(GROW(m->h, m->n, m->cap), TY_EMEMORY, "out of memory: verify");
  m->h[m->n++] = (struct held){ from, from + bytes, value, device };
  return TY_OK;
}

static int verify_play_step(const struct program *p, struct memory *m, int t)
{
  const struct step *st = &p->step[t];
  for (int k = 0; k < st->nin; k++) TRY(verify_check_read(p, m, t, st->in[k]));
  if (st->guard >= 0) TRY(verify_check_read(p, m, t, st->guard));
  if (st->scratch) {
    TRY(verify_write_range(m, st->scratch_at, (int64_t)st->scratch, -1, st->device));
    for (int k = 0; k < st->nin; k++)
      TRY(verify_check_read(p, m, t, st->in[k])); /* scratch must not overlap an input */
  }
  for (int k = 0; k < st->nout; k++) {
    int v = st->out[k];
    if (v < 0 || p->value[p->value[v].root].kind != V_POOL) continue;
    const struct value *r = &p->value[p->value[v].root];
    if (p->s.into && p->s.into[v] >= 0) TRY(verify_check_read(p, m, t, p->s.into[v]));
    bool over_scratch = st->scratch && r->offset < st->scratch_at + (int64_t)st->scratch &&
        st->scratch_at < r->offset + p->value[v].bytes;
    NEED(!over_scratch, TY_EINTERNAL, "plan: scratch of instruction %d overlaps its result", t);
    TRY(verify_write_range(m, r->offset, p->value[v].bytes, v, r->device));
  }
  return TY_OK;
}

/* Checks that results of one instruction overlap neither each other nor an input that its operator
** may not overwrite. */
static int verify_check_results(const struct program *p, int t)
{
  const struct step *st = &p->step[t];
  for (int k = 0; k < st->nout; k++) {
    if (st->out[k] < 0 || p->value[p->value[st->out[k]].root].kind != V_POOL) continue;
    const struct value *a = &p->value[p->value[st->out[k]].root];
    for (int j = 0; j < k; j++) {
      if (st->out[j] < 0 || p->value[p->value[st->out[j]].root].kind != V_POOL) continue;
      const struct value *b = &p->value[p->value[st->out[j]].root];
      NEED(a->device != b->device || a->offset + a->bytes <= b->offset ||
              b->offset + b->bytes <= a->offset,
          TY_EINTERNAL, "plan: two results of instruction %d overlap", t);
    }
    const bool reduced = st->end && st->out[k] == p->s.g->node[st->node].first;
    for (int j = 0; j < st->nin && (st->kind == STEP_NODE || reduced); j++) {
      const struct value *b = &p->value[p->value[st->in[j]].root];
      if (b->kind != V_POOL || b->device != a->device || a->offset + a->bytes <= b->offset ||
          b->offset + b->bytes <= a->offset)
        continue;
      NEED(!reduced && a->offset == b->offset && step_in_place(p, st, k, j), TY_EINTERNAL,
          "plan: result %d of %s overlaps its input %d, which its operator does not allow", k,
          p->s.g->node[st->node].name, j);
    }
  }
  return TY_OK;
}

int plan_verify(const struct program *p)
{
  struct memory m = { 0 };
  int code = TY_OK;
  for (int t = 0; t < p->n && !code; t++) {
    code = verify_check_results(p, t);
    if (!code) code = verify_play_step(p, &m, t);
  }
  for (int h = 0; h < p->s.nhead && !code; h++)
    code = verify_check_read(p, &m, p->n, value_of(p->s.g, p->s.head[h]));
  mem_free(m.h);
  return code;
}
