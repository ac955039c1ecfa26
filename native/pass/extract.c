/* extract.c - see extract.h. */
#include "pass/extract.h"
#include "pass/gradient.h"

int graph_order(const ty_graph *g, const ty_entry *head, int nhead, int *order)
{
  int *stack = NEWS(int, g->n + 1), *next = NEWS(int, g->n + 1), n = 0;
  uint8_t *seen = NEWS(uint8_t, g->n + 1);
  if (!stack || !next || !seen) n = -1;
  for (int h = 0; n >= 0 && h < nhead; h++) {
    int top = 0;
    if (seen[head[h].node]) continue;
    stack[top++] = head[h].node;
    seen[head[h].node] = 1;
    while (top) {
      int i = stack[top - 1];
      if (next[i] < g->node[i].nin) {
        int child = g->node[i].in[next[i]++].node;
        if (!seen[child]) seen[child] = 1, stack[top++] = child;
      }
      else {
        order[n++] = i;
        top--;
      }
    }
  }
  mem_free(stack);
  mem_free(next);
  mem_free(seen);
  return n;
}

int graph_borrow(ty_graph *to, const struct node *from, const ty_entry *in, ty_entry *out)
{
  NEED(GROW(to->node, to->n, to->cap), TY_EMEMORY, "out of memory: graph of %d nodes", to->n);
  struct node *n = &to->node[to->n];
  *n = *from;
  n->first = to->nvalue;
  n->borrowed = true;
  n->guard = 0;
  if (from->nin) {
    ty_entry *copy = arena_new(&to->arena, sizeof *copy * (size_t)from->nin);
    NEED(copy, TY_EMEMORY, "out of memory: graph");
    memcpy(copy, in, sizeof *copy * (size_t)from->nin);
    n->in = copy;
  }
  if (out) *out = (ty_entry){ to->n, 0 };
  to->nvalue += n->kind->nout;
  to->n++;
  return TY_OK;
}

/* -- merging equal nodes ----------------------------------------------------------------------- */

struct merger { const ty_graph *to; int *slot; uint32_t cap; };

static uint32_t extract_mix_hash(uint32_t h, const void *p, size_t n)
{
  for (const unsigned char *s = p; n--; s++) h = (h ^ *s) * 16777619u;
  return h;
}

static bool extract_counts_attr(const char *key)
{
  return strncmp(key, "__", 2) || !strcmp(key, "__ctx_group__") ||
      !strcmp(key, "__force_mirroring__");
}

static uint32_t extract_hash_node(const struct node *n, const ty_entry *in)
{
  uint32_t h = extract_mix_hash(2166136261u, &n->op, sizeof n->op);
  for (int i = 0; i < n->kind->nattr; i++)
    if (extract_counts_attr(n->kind->attr[i].key))
      h = extract_mix_hash(extract_mix_hash(h, n->kind->attr[i].key, strlen(n->kind->attr[i].key)),
          n->kind->attr[i].value, strlen(n->kind->attr[i].value));
  return extract_mix_hash(h, in, sizeof *in * (size_t)n->nin);
}

static bool extract_has_same_attrs(const struct node *a, const struct node *b)
{
  int i = 0, j = 0;
  for (;;) {
    while (i < a->kind->nattr && !extract_counts_attr(a->kind->attr[i].key)) i++;
    while (j < b->kind->nattr && !extract_counts_attr(b->kind->attr[j].key)) j++;
    if (i == a->kind->nattr || j == b->kind->nattr)
      return i == a->kind->nattr && j == b->kind->nattr;
    if (strcmp(a->kind->attr[i].key, b->kind->attr[j].key) ||
        strcmp(a->kind->attr[i].value, b->kind->attr[j].value))
      return false;
    i++, j++;
  }
}

static bool extract_is_mergeable(const struct node *n)
{
  if (!n->op || n->op->flags & (OP_RANDOM | OP_CALLBACK) || n->nbody || !n->nin) return false;
  if (gradient_is_own(n)) return false;               /* each loss adds its gradient */
  for (int k = 0; k < n->nin; k++)
    if (n->kind->inport[k].mutated) return false;
  return true;
}

/* Returns a node of the new graph that equals this one, -1: none. Sets the slot of the hash table
** for it. */
static int extract_find_equal(
    struct merger *m, const struct node *n, const ty_entry *in, uint32_t *slot)
{
  uint32_t i = extract_hash_node(n, in) % m->cap;
  for (; m->slot[i]; i = (i + 1) % m->cap) {
    const struct node *o = &m->to->node[m->slot[i] - 1];
    if (o->op == n->op && o->nin == n->nin && !memcmp(o->in, in, sizeof *in * (size_t)n->nin) &&
        extract_has_same_attrs(o, n))
      return m->slot[i] - 1;
  }
  *slot = i;
  return -1;
}

/* -- extraction -------------------------------------------------------------------------------- */

static int extract_copy_nodes(
    const ty_graph *g, const int *order, int n, bool merge, ty_graph *to, int *map)
{
  struct merger m = { to, NULL, (uint32_t)n * 2 + 16 };
  int widest = 1, code = TY_OK;
  for (int k = 0; k < n; k++) widest = MAX(widest, g->node[order[k]].nin);
  ty_entry *in = NEWS(ty_entry, widest);
  m.slot = NEWS(int, m.cap);
  if (!in || !m.slot) code = fail(TY_EMEMORY, "out of memory: graph");
  for (int k = 0; k < n && !code; k++) {
    const struct node *node = &g->node[order[k]];
    for (int j = 0; j < node->nin; j++)
      in[j] = (ty_entry){ map[node->in[j].node], node->in[j].out };
    uint32_t slot = 0;
    bool may = merge && extract_is_mergeable(node);
    int equal = may ? extract_find_equal(&m, node, in, &slot) : -1;
    ty_entry made = { equal, 0 };
    if (equal < 0) code = graph_borrow(to, node, in, &made);
    if (equal < 0 && may && !code) m.slot[slot] = made.node + 1;
    map[order[k]] = made.node;
  }
  mem_free(in);
  mem_free(m.slot);
  return code;
}

/* Replaces a head that merging made equal to an earlier, different one by a copy of it. Heads that
** were one value stay one, because the last of them alone has a gradient. */
static int extract_copy_equal_heads(
    const ty_graph *g, ty_graph *to, const ty_entry *old, ty_entry *head, int nhead)
{
  /* per value of to and of g: 1 + the first head that is it */
  int *merged = NEWS(int, to->nvalue), *same = NEWS(int, g->nvalue);
  int code = merged && same ? TY_OK : fail(TY_EMEMORY, "out of memory: graph");
  for (int h = 0; h < nhead && !code; h++) {
    int *k = &same[value_of(g, old[h])], *m = &merged[value_of(to, head[h])];
    if (*k) {
      head[h] = head[*k - 1];
      continue;
    }
    *k = h + 1;
    if (!*m) {
      *m = h + 1;
      continue;
    }
    char name[512];
    snprintf(name, sizeof name, "%s_%d_copy", to->node[head[h].node].name, head[h].out);
    code = graph_node(to, op_find("_copy"), name, NULL, 0, &head[*m - 1], 1, &head[h]);
  }
  mem_free(merged);
  mem_free(same);
  return code;
}

int graph_extract(
    ty_graph *g, const ty_entry *head, int nhead, bool merge, ty_graph **out, ty_entry *new_head)
{
  for (int h = 0; h < nhead; h++)
    NEED(head[h].node >= 0 && head[h].node < g->n && head[h].out >= 0 &&
            head[h].out < g->node[head[h].node].kind->nout,
        TY_EINDEX, "head %d is output %d of node %d, which does not exist", h, head[h].out,
        head[h].node);
  ty_graph *to;
  TRY(ty_graph_new(&to));
  ty_graph_keep(g);
  to->base = g;
  int *order = NEWS(int, g->n), *map = NEWS(int, g->n),
      code = order && map ? TY_OK : fail(TY_EMEMORY, "out of memory: graph");
  int n = code ? 0 : graph_order(g, head, nhead, order);
  if (n < 0) code = fail(TY_EMEMORY, "out of memory: graph");
  if (!code) code = extract_copy_nodes(g, order, n, merge, to, map);
  for (int h = 0; h < nhead && !code; h++)
    new_head[h] = (ty_entry){ map[head[h].node], head[h].out };
  if (!code && merge) code = extract_copy_equal_heads(g, to, head, new_head, nhead);
  mem_free(order);
  mem_free(map);
  if (code) return ty_graph_free(to), code;
  *out = to;
  return TY_OK;
}
