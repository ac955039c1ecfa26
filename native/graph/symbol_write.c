/* symbol_write.c - writes graphs as the JSON of symbol files, byte for byte in the reference's
** layout; lists nodes.
**
** Only nodes that the heads reach are written, numbered depth-first from the heads. Each operator
** that changes a variable increments its version. A parsed graph keeps its file's versions
** (symbol_read.c) if they differ, as in old files; they are written if the heads are those of the
** file.
*/
#include "graph/graph.h"
#include "op/registry.h"
#include "base/json.h"
#include "graph/symbol_file.h"

/* -- order ------------------------------------------------------------------------------------- */

struct visit { int node, at; };

static int visit_node(
    const ty_graph *g, int root, int *id, struct listing *out, struct visit *stack)
{
  int depth = 0;
  if (id[root]) return TY_OK;
  stack[depth++] = (struct visit){ root, 0 };
  id[root] = -1;
  while (depth) {
    struct visit *f = &stack[depth - 1];
    const struct node *n = &g->node[f->node];
    if (f->at == n->nin) {
      out->order[out->n++] = f->node;
      id[f->node] = out->n;
      depth--;
      continue;
    }
    int next = n->in[f->at++].node;
    if (id[next]) continue;
    id[next] = -1;
    stack[depth++] = (struct visit){ next, 0 };
  }
  return TY_OK;
}

int listing_make(
    const ty_graph *g, const ty_entry *head, int nhead, struct arena *a, struct listing *out)
{
  struct visit *stack = arena_new(a, sizeof *stack * (size_t)(g->n + 1));
  size_t bytes = sizeof(int) * (size_t)(g->n + 1);
  *out = (struct listing){ .order = arena_new(a, bytes), .id = arena_new(a, bytes) };
  NEED(stack && out->order && out->id, TY_EMEMORY, "out of memory: order of %d nodes", g->n);
  for (int i = 0; i < nhead; i++) {
    NEED(head[i].node >= 0 && head[i].node < g->n, TY_EINDEX, "head %d is node %d of %d", i,
        head[i].node, g->n);
    TRY(visit_node(g, head[i].node, out->id, out, stack));
  }
  for (int i = 0; i < g->n; i++) out->id[i]--; /* -1: not reached */
  return TY_OK;
}

/* -- layout: brackets and lines as the reference's writer sets them ---------------------------- */

struct page { struct text *t; int indent; };

static void begin_line(struct page *p, int i)
{
  text_add(p->t, "%s\n%*s", i ? ", " : "", p->indent, "");
}

static void write_key(struct page *p, int i, const char *name)
{
  begin_line(p, i);
  text_add(p->t, "\"%s\": ", name);
}
static void open_scope(struct page *p, const char *bracket)
{
  text_put(p->t, bracket, 1);
  p->indent += 2;
}
static void close_scope(struct page *p, const char *bracket)
{
  p->indent -= 2;
  text_add(p->t, "\n%*s%s", p->indent, "", bracket);
}

/* A list; up to ten items are put on one line. */
struct items { struct page *p; int n; };
static struct items open_items(struct page *p, int n)
{
  if (n > 10)
    open_scope(p, "[");
  else
    text_put(p->t, "[", 1);
  return (struct items){ p, n };
}
static void begin_item(struct items *l, int i)
{
  if (l->n > 10)
    begin_line(l->p, i);
  else if (i)
    text_put(l->p->t, ", ", 2);
}
static void close_items(struct items *l)
{
  if (l->n > 10)
    close_scope(l->p, "]");
  else
    text_put(l->p->t, "]", 1);
}

/* Returns whether an attribute exists only in memory (operators/control/custom.c). */
static bool is_unwritten(const ty_attr *a) { return !strncmp(a->key, "__custom_", 9); }

static int count_written(const ty_attr *attr, int nattr)
{
  int n = 0;
  for (int i = 0; i < nattr; i++) n += !is_unwritten(&attr[i]);
  return n;
}

static void write_attrs(struct page *p, const ty_attr *attr, int nattr)
{
  int n = count_written(attr, nattr), k = 0;
  text_put(p->t, "{", 1);
  if (n > 1) p->indent += 2;
  for (int i = 0; i < nattr; i++) {
    if (is_unwritten(&attr[i])) continue;
    if (n > 1) begin_line(p, k++);
    json_quote(p->t, attr[i].key);
    text_put(p->t, ": ", 2);
    json_quote(p->t, attr[i].value);
  }
  if (n > 1)
    close_scope(p, "}");
  else
    text_put(p->t, "}", 1);
}

/* -- nodes ------------------------------------------------------------------------------------- */

static void write_graph(struct page *p, const ty_graph *g, const ty_entry *head, int nhead,
    const struct listing *l, bool top);

static int entry_version(const struct listing *l, int node, int input)
{
  if (l->given) return l->given[node] ? l->given[node][input] : 0;
  return l->version[node][input];
}

static void write_inputs(struct page *p, const struct listing *l, int index, const struct node *n)
{
  struct items list = open_items(p, n->nin);
  for (int k = 0; k < n->nin; k++) {
    begin_item(&list, k);
    text_add(p->t, "[%d, %d, %d]", l->id[n->in[k].node], n->in[k].out, entry_version(l, index, k));
  }
  close_items(&list);
}

static void write_bodies(struct page *p, const struct node *n, struct arena *a)
{
  write_key(p, 1, "subgraphs");
  open_scope(p, "[");
  for (int k = 0; k < n->nbody; k++) {
    const ty_graph *body = n->body[k];
    struct listing l;
    begin_line(p, k);
    if (listing_make(body, body->head, body->nhead, a, &l) || listing_versions(body, &l, a))
      p->t->lost = true;
    else
      write_graph(p, body, body->head, body->nhead, &l, false);
  }
  close_scope(p, "]");
}

static void write_node(
    struct page *p, const ty_graph *g, const struct listing *l, int index, struct arena *a)
{
  const struct node *n = &g->node[index];
  open_scope(p, "{");
  write_key(p, 0, "op");
  json_quote(p->t, op_label(n));
  write_key(p, 1, "name");
  json_quote(p->t, n->name);
  if (count_written(n->kind->attr, n->kind->nattr)) {
    write_key(p, 1, "attrs");
    write_attrs(p, n->kind->attr, n->kind->nattr);
  }
  write_key(p, 1, "inputs");
  write_inputs(p, l, index, n);
  if (n->nbody) write_bodies(p, n, a);
  close_scope(p, "}");
}

/* Returns how many outputs the reference counts for a node. */
static int count_outputs(const struct node *n)
{
  bool more = n->op && n->op->further_outputs;
  return n->kind->nreal + (more ? n->op->further_outputs(n->kind->param) : 0);
}

static void write_numbers(struct page *p, const ty_graph *g, const struct listing *l)
{
  int n = 0, outputs = 0;
  for (int i = 0; i < l->n; i++) n += !g->node[l->order[i]].op;
  write_key(p, 1, "arg_nodes");
  struct items list = open_items(p, n);
  for (int i = 0, k = 0; i < l->n; i++)
    if (!g->node[l->order[i]].op) begin_item(&list, k++), text_add(p->t, "%d", i);
  close_items(&list);
  write_key(p, 1, "node_row_ptr");
  list = open_items(p, l->n + 1);
  for (int i = 0; i <= l->n; i++) {
    begin_item(&list, i);
    text_add(p->t, "%d", outputs);
    if (i < l->n) outputs += count_outputs(&g->node[l->order[i]]);
  }
  close_items(&list);
}

static void write_heads(
    struct page *p, const ty_graph *g, const ty_entry *head, int nhead, const struct listing *l)
{
  write_key(p, 1, "heads");
  struct items list = open_items(p, nhead);
  for (int i = 0; i < nhead; i++) {
    begin_item(&list, i);
    text_add(p->t, "[%d, %d, 0]", l->id[head[i].node], head[i].out);
  }
  close_items(&list);
}

/* Adds the definition of a node's operator if the user made it (ty_op_pointwise), and those in its
** bodies. */
static void add_rows(const struct node *n, struct text *t)
{
  const char *row = NULL;
  bool is_row = n->op && !ty_op_row(n->op->name, &row) && row;
  if (is_row && !(t->n && strstr(t->s, row))) text_add(t, "%s%s", t->n ? "\n" : "", row);
  for (int k = 0; k < n->nbody; k++)
    for (int i = 0; i < n->body[k]->n; i++) add_rows(&n->body[k]->node[i], t);
}

/* Returns the definitions of the user's formula operators in the graph, one per line; NULL: there
** are none. */
static const char *rows_used(const ty_graph *g, const struct listing *l, struct text *t)
{
  for (int i = 0; i < l->n; i++) add_rows(&g->node[l->order[i]], t);
  return t->n ? t->s : NULL;
}

static void write_graph_attrs(struct page *p, const ty_graph *g, const struct listing *l)
{
  struct text t = { 0 };
  const char *rows = rows_used(g, l, &t);
  p->t->lost |= t.lost;
  write_key(p, 1, "attrs");
  if (!rows)
    text_add(p->t, "{\"mxnet_version\": [\"int\", %d]}", FILE_VERSION);
  else {
    open_scope(p, "{");
    write_key(p, 0, "mxnet_version");
    text_add(p->t, "[\"int\", %d]", FILE_VERSION);
    write_key(p, 1, "tycho_rows");
    text_add(p->t, "[\"str\", ");
    json_quote(p->t, rows);
    text_add(p->t, "]");
    close_scope(p, "}");
  }
  text_done(&t);
}

static void write_graph(struct page *p, const ty_graph *g, const ty_entry *head, int nhead,
    const struct listing *l, bool top)
{
  struct arena a = { 0 };
  open_scope(p, "{");
  write_key(p, 0, "nodes");
  open_scope(p, "[");
  for (int i = 0; i < l->n; i++) {
    begin_line(p, i);
    write_node(p, g, l, l->order[i], &a);
  }
  if (l->n)
    close_scope(p, "]");
  else
    p->indent -= 2, text_put(p->t, "]", 1);
  write_numbers(p, g, l);
  write_heads(p, g, head, nhead, l);
  if (top) write_graph_attrs(p, g, l);
  close_scope(p, "}");
  arena_done(&a);
}

int listing_versions(const ty_graph *g, struct listing *l, struct arena *a)
{
  int *counter = arena_new(a, sizeof *counter * (size_t)(g->n + 1));
  l->version = arena_new(a, sizeof *l->version * (size_t)(g->n + 1));
  NEED(counter && l->version, TY_EMEMORY, "out of memory: versions of %d nodes", g->n);
  for (int i = 0; i < l->n; i++) {
    const struct node *n = &g->node[l->order[i]];
    int *v = l->version[l->order[i]] = arena_new(a, sizeof *v * (size_t)(n->nin + 1));
    NEED(v, TY_EMEMORY, "out of memory: versions");
    for (int k = 0; k < n->nin; k++) {
      if (!n->backward && n->kind->inport[k].mutated) counter[n->in[k].node]++;
      v[k] = counter[n->in[k].node];
    }
  }
  return TY_OK;
}

int graph_print(
    const ty_graph *g, const ty_entry *head, int nhead, const int *const *version, struct text *out)
{
  struct arena a = { 0 };
  struct listing l;
  struct page p = { out, 0 };
  int code = listing_make(g, head, nhead, &a, &l);
  l.given = version;
  if (!code && !version) code = listing_versions(g, &l, &a);
  text_clear(out);
  if (!code) {
    write_graph(&p, g, head, nhead, &l, true);
    if (out->lost) code = fail(TY_EMEMORY, "out of memory: text of a graph");
  }
  if (code) out->n = 0;
  arena_done(&a);
  return code;
}

/* -- the public interface ---------------------------------------------------------------------- */

static bool own_heads(const ty_graph *g, const ty_entry *head, int nhead)
{
  return g->nhead && nhead == g->nhead && !memcmp(head, g->head, sizeof *head * (size_t)nhead);
}

int ty_graph_text(ty_graph *g, const ty_entry *head, int nhead, const char **out)
{
  NEED(g && out && (head || !nhead), TY_ETYPE, "graph_text: null argument");
  if (!g->nhead || own_heads(g, head, nhead)) {
    if (!g->nhead || !g->printed.n) TRY(graph_print(g, head, nhead, g->versions, &g->printed));
    return *out = g->printed.s, TY_OK;
  }
  struct text t = { 0 };
  int code = graph_print(g, head, nhead, NULL, &t);
  if (!code) *out = arena_text(&g->arena, t.s);
  text_done(&t);
  if (code) return code;
  return *out ? TY_OK : fail(TY_EMEMORY, "out of memory: text of a graph");
}

int ty_graph_heads(ty_graph *g, const ty_entry **head, int *nhead)
{
  NEED(g && head && nhead, TY_ETYPE, "graph_heads: null argument");
  *head = g->head;
  *nhead = g->nhead;
  return TY_OK;
}

int ty_graph_size(ty_graph *g, int *nodes)
{
  NEED(g && nodes, TY_ETYPE, "graph_size: null argument");
  *nodes = g->n;
  return TY_OK;
}

int ty_graph_node(ty_graph *g, int i, ty_node *out)
{
  NEED(g && out, TY_ETYPE, "graph_node: null argument");
  NEED(i >= 0 && i < g->n, TY_EINDEX, "node %d of a graph with %d", i, g->n);
  const struct node *n = &g->node[i];
  *out = (ty_node){ .op = n->op ? op_label(n) : NULL,
    .name = n->name,
    .where = n->where,
    .attr = n->kind->attr,
    .in = n->in,
    .nattr = n->kind->nattr,
    .nin = n->nin,
    .nout = n->kind->nreal,
    .nvisible = n->kind->nvisible };
  return TY_OK;
}

/* Returns subgraph k of node i (control flow), borrowed; NULL past the last. */
int ty_graph_body(ty_graph *g, int i, int k, ty_graph **out)
{
  NEED(g && out, TY_ETYPE, "graph_body: null argument");
  NEED(i >= 0 && i < g->n && k >= 0, TY_EINDEX, "subgraph %d of node %d of a graph with %d", k, i,
      g->n);
  *out = k < g->node[i].nbody ? g->node[i].body[k] : NULL;
  return TY_OK;
}
