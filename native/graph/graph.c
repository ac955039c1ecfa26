/* graph.c - building graphs: variables, operators, names of outputs.
**
** What a node refers to (names, inputs) and its kind (attributes, parameters, ports) are in the
** graph's arena and freed with it. Order of calls: ty_graph_new, then ty_graph_var and ty_graph_op,
** inputs before their readers.
*/
#include "graph/graph.h"
#include "op/registry.h"

const char *node_attr(const struct node *n, const char *key)
{
  return attr_given(n->kind->attr, n->kind->nattr, key);
}

const char *op_label(const struct node *n)
{
  static __thread char label[256];
  if (!n->op) return "null";
  if (!n->backward) return n->op->name;
  if (n->op->back) return n->op->back;
  snprintf(label, sizeof label, "_backward_%s", n->op->name + (n->op->name[0] == '_'));
  return label;
}

void output_name(const struct node *n, int out, char *buffer, size_t size)
{
  const char *sep = *n->name ? "_" : "";
  if (!n->op)
    snprintf(buffer, size, "%s", n->name);
  else if (n->backward)
    snprintf(buffer, size, n->kind->nout == 1 ? "%s%soutput" : "%s%soutput%d", n->name, sep, out);
  else
    snprintf(buffer, size, "%s%s%s", n->name, sep, n->kind->outport[out].name);
}

/* -- kinds ------------------------------------------------------------------------------------- */

static int compare_attr(const void *a, const void *b)
{
  return strcmp(((const ty_attr *)a)->key, ((const ty_attr *)b)->key);
}

/* Copies attributes of an operator, or with NULL of a variable. Names of parameters are not copied,
** but point to the operator's. */
static const ty_attr *copy_attrs(struct arena *a, const struct op *op, const ty_attr *attr, int n)
{
  static const ty_attr none = { 0 };
  if (!n) return &none;
  ty_attr *out = arena_new(a, sizeof *out * (size_t)n);
  for (int i = 0; out && i < n; i++) {
    const char *name = op ? op_param_name(op, attr[i].key) : NULL;
    out[i].key = name ? name : arena_text(a, attr[i].key);
    out[i].value = arena_text(a, attr[i].value);
    if (!out[i].key || !out[i].value) return NULL;
  }
  if (out) qsort(out, (size_t)n, sizeof *out, compare_attr);
  return out;
}

/* Returns whether a kind has these attributes, in any order. */
static bool same_attrs(const struct kind *k, const ty_attr *attr, int nattr)
{
  bool same = k && k->nattr == nattr;
  for (int i = 0; i < nattr && same; i++) {
    bool alike = !strcmp(k->attr[i].key, attr[i].key);
    const char *value = alike ? attr[i].value : attr_given(attr, nattr, k->attr[i].key);
    same = value && !strcmp(k->attr[i].value, value);
  }
  return same;
}

/* Returns the slot of `recent` for these attributes; their order does not matter. */
static int recent_slot(const struct op *op, const ty_attr *attr, int nattr, int nin)
{
  uint32_t h = name_hash(op ? op->name : "") + 31u * (uint32_t)nin;
  for (int i = 0; i < nattr; i++) h += name_hash(attr[i].value) * (name_hash(attr[i].key) | 1);
  return (int)((h ^ h >> 16) % RECENT_KINDS);
}

static int set_ports(ty_graph *g, struct kind *k, int nin)
{
  struct ports p;
  TRY(op_ports(k->op, k->param, nin, &g->arena, &p));
  k->inport = p.in;
  k->outport = p.out;
  k->nin = p.nin;
  k->nout = p.nout;
  k->nreal = p.nreal;
  k->nvisible = p.nvisible;
  return TY_OK;
}

static int set_param(ty_graph *g, struct kind *k, const char *name)
{
  static int64_t none; /* parameters of operators that have none; never written */
  void *param = k->op->param_size ? arena_new(&g->arena, k->op->param_size) : &none;
  NEED(param, TY_EMEMORY, "out of memory: node %s", name);
  int code = op_parse(k->op, k->attr, k->nattr, param);
  if (code) fail_node(k->op->name, name, g->where);
  k->param = param;
  return code;
}

static const struct port variable_port = { "", false, false, false };

static int make_kind(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr,
    int nattr, int nin, const struct kind **out)
{
  const struct kind *last = g->n ? g->node[g->n - 1].kind : NULL;
  struct kind *k = arena_new(&g->arena, sizeof *k);
  NEED(k, TY_EMEMORY, "out of memory: node %s", name);
  *k = (struct kind){ .op = op, .nattr = nattr, .given = nin };
  /* variables made for a node come before it with the same attributes: share the list */
  k->attr = same_attrs(last, attr, nattr) ? last->attr : copy_attrs(&g->arena, op, attr, nattr);
  NEED(k->attr, TY_EMEMORY, "out of memory: node %s", name);
  if (op) {
    TRY(set_param(g, k, name));
    TRY(set_ports(g, k, nin));
    TRY(op_reads(op, k->param, &k->reads));
    TRY(op_in_place(op, false, &k->in_place));
  }
  else {
    k->nout = k->nreal = k->nvisible = 1;
    k->outport = &variable_port;
  }
  return *out = k, TY_OK;
}

int graph_kind(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr, int nattr,
    int nin, const struct kind **out)
{
  const struct kind **recent = &g->recent[recent_slot(op, attr, nattr, nin)], *k = *recent;
  if (k && k->op == op && k->given == nin && same_attrs(k, attr, nattr)) return *out = k, TY_OK;
  TRY(make_kind(g, op, name, attr, nattr, nin, out));
  return *recent = *out, TY_OK;
}

/* -- nodes ------------------------------------------------------------------------------------- */

/* Begins a node at the end of the list; the caller fills in further fields and then calls
** end_node. */
static int begin_node(ty_graph *g, const struct kind *kind, const char *name, const ty_entry *in,
    int nin, struct node **out)
{
  NEED(GROW(g->node, g->n, g->cap), TY_EMEMORY, "out of memory: graph of %d nodes", g->n);
  ty_entry *copy = nin ? arena_new(&g->arena, sizeof *copy * (size_t)nin) : NULL;
  struct node *n = &g->node[g->n];
  *n = (struct node){ .op = kind->op,
    .kind = kind,
    .name = arena_text(&g->arena, name),
    .where = g->where,
    .in = copy,
    .nin = nin,
    .first = g->nvalue,
    .forward = -1 };
  NEED(n->name && (copy || !nin), TY_EMEMORY, "out of memory: node %s", name);
  if (nin) memcpy(copy, in, sizeof *in * (size_t)nin);
  *out = n;
  return TY_OK;
}

static void end_node(ty_graph *g, ty_entry *out)
{
  if (out) *out = (ty_entry){ g->n, 0 };
  g->nvalue += g->node[g->n].kind->nout;
  g->n++;
}

/* Marks inputs that a body changes in place as auxiliary states, like those of the body. */
static int mark_states(ty_graph *g, struct node *n, const ty_graph *body, int which)
{
  int *variable = NEWS(int, body->n), count = 0;
  struct port *port = arena_new(&g->arena, sizeof *port * (size_t)(n->nin + 1));
  struct kind *kind = arena_new(&g->arena, sizeof *kind);
  int code = variable && port && kind ? TY_OK : fail(TY_EMEMORY, "out of memory: node %s", n->name);
  if (!code && n->nin) memcpy(port, n->kind->inport, sizeof *port * (size_t)n->nin);
  for (int i = 0; i < body->n && !code; i++) {
    const struct node *m = &body->node[i];
    if (!m->op) variable[i] = count++;
    for (int k = 0; m->op && k < m->nin; k++) {
      if (!m->kind->inport[k].mutated || body->node[m->in[k].node].op) continue;
      int64_t input = n->op->body_input(n->kind->param, which, variable[m->in[k].node]);
      if (input >= 0 && input < n->nin) port[input].mutated = true;
    }
  }
  mem_free(variable);
  if (code) return code;
  *kind = *n->kind;
  kind->inport = port;
  n->kind = kind;
  return TY_OK;
}

static int take_bodies(ty_graph *g)
{
  struct node *n = &g->node[g->n - 1];
  ty_graph **copy = arena_new(&g->arena, sizeof *copy * (size_t)g->nbody);
  NEED(copy, TY_EMEMORY, "out of memory");
  memcpy(copy, g->body, sizeof *copy * (size_t)g->nbody);
  n->body = copy;
  n->nbody = g->nbody;
  g->nbody = 0;
  for (int k = 0; k < n->nbody; k++) TRY(mark_states(g, n, n->body[k], k));
  return TY_OK;
}

/* Fails if bodies were given for an operator that is no control flow; frees them. */
static int refuse_bodies(ty_graph *g, const struct op *op, const char *name)
{
  int code = fail(TY_EVALUE, "%s %s: it has no bodies, but was given %d", op->name, name, g->nbody);
  fail_node(op->name, name, g->where);
  while (g->nbody) ty_graph_free(g->body[--g->nbody]);
  return code;
}

int graph_add(
    ty_graph *g, const struct kind *kind, const char *name, const ty_entry *in, ty_entry *out)
{
  struct node *n;
  bool bodies = kind->op && g->nbody;
  if (bodies && !kind->op->control) return refuse_bodies(g, kind->op, name);
  TRY(begin_node(g, kind, name, in, kind->nin, &n));
  end_node(g, out);
  return bodies ? take_bodies(g) : TY_OK;
}

int graph_var(ty_graph *g, const char *name, const ty_attr *attr, int nattr, ty_entry *out)
{
  const struct kind *kind;
  TRY(graph_kind(g, NULL, name, attr, nattr, 0, &kind));
  return graph_add(g, kind, name, NULL, out);
}

static int check_inputs(
    const ty_graph *g, const struct op *op, const char *name, const ty_entry *in, int nin)
{
  for (int i = 0; i < nin; i++)
    if (in[i].node < 0 || in[i].node >= g->n || in[i].out < 0 ||
        in[i].out >= g->node[in[i].node].kind->nout) {
      int code = fail(TY_EINDEX, "%s %s: input %d is output %d of node %d, which does not exist",
          op->name, name, i, in[i].out, in[i].node);
      fail_node(op->name, name, g->where);
      return code;
    }
  return TY_OK;
}

static int add_op(ty_graph *g, const struct kind *kind, const char *name, const ty_entry *in,
    int nin, ty_entry *out)
{
  const char *op = kind->op->name;
  TRY(check_inputs(g, kind->op, name, in, nin));
  if (kind->nin == nin) return graph_add(g, kind, name, in, out);
  int code = fail(TY_EVALUE, "%s %s: expected %d inputs, got %d", op, name, kind->nin, nin);
  fail_node(op, name, g->where);
  return code;
}

int graph_node(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr, int nattr,
    const ty_entry *in, int nin, ty_entry *out)
{
  const struct kind *kind;
  TRY(graph_kind(g, op, name ? name : "", attr, nattr, nin, &kind));
  return add_op(g, kind, name ? name : "", in, nin, out);
}

/* Returns the kind of a gradient operator with these counts; NULL: out of memory. */
static const struct kind *gradient_kind(ty_graph *g, const struct kind *of, int nin, int nout)
{
  const struct kind **recent = &g->gradient[(uintptr_t)of / sizeof *of % RECENT_KINDS],
                    *r = *recent;
  if (r && r->op == of->op && r->param == of->param && r->inport == of->inport && r->nin == nin &&
      r->nout == nout)
    return r;
  struct kind *k = arena_new(&g->arena, sizeof *k);
  if (!k) return NULL;
  *k = *of;
  k->nattr = 0;
  k->nin = nin;
  k->nout = k->nreal = k->nvisible = nout;
  return op_in_place(of->op, true, &k->in_place) ? NULL : (*recent = k);
}

int graph_clone(ty_graph *g, int of, const char *name, bool backward, const ty_entry *in, int nin,
    int nout, ty_entry *out)
{
  struct node *n;
  const struct kind *kind = g->node[of].kind;
  if (backward) kind = gradient_kind(g, kind, nin, nout);
  NEED(kind, TY_EMEMORY, "out of memory: node %s", name);
  g->where = g->node[of].where;
  TRY(begin_node(g, kind, name, in, nin, &n));
  const struct node *f = &g->node[of];
  n->forward = of;
  n->backward = backward;
  n->mirror = !backward;
  n->body = f->body;
  n->nbody = f->nbody;
  n->guard = f->guard;
  n->draw = f->draw;
  n->inside = f->inside;
  end_node(g, out);
  return TY_OK;
}

/* -- the public interface ---------------------------------------------------------------------- */

int ty_graph_new(ty_graph **out)
{
  NEED(out, TY_ETYPE, "graph_new: null argument");
  ty_graph *g = NEW(ty_graph);
  NEED(g, TY_EMEMORY, "out of memory: graph");
  g->refs = 1;
  live_add(LIVE_GRAPH, 1);
  *out = g;
  return TY_OK;
}

int ty_graph_keep(ty_graph *g)
{
  NEED(g, TY_ETYPE, "graph_keep: null graph");
  __atomic_add_fetch(&g->refs, 1, __ATOMIC_RELAXED);
  return TY_OK;
}

void ty_graph_free(ty_graph *g)
{
  if (!g || mem_kept() || __atomic_sub_fetch(&g->refs, 1, __ATOMIC_ACQ_REL)) return;
  for (int i = 0; i < g->nbody; i++) ty_graph_free(g->body[i]);
  for (int i = 0; i < g->n; i++)
    if (g->node[i].forward < 0 && !g->node[i].borrowed)
      for (int k = 0; k < g->node[i].nbody; k++) ty_graph_free(g->node[i].body[k]);
  mem_free(g->body);
  mem_free(g->node);
  mem_free(g->head);
  text_done(&g->printed);
  arena_done(&g->arena);
  ty_graph_free(g->base);
  mem_free(g);
  live_add(LIVE_GRAPH, -1);
}

int ty_graph_origin(ty_graph *g, const char *where)
{
  NEED(g, TY_ETYPE, "graph_origin: null graph");
  if (where && g->where && !strcmp(where, g->where)) return TY_OK;
  g->where = where ? arena_text(&g->arena, where) : NULL;
  NEED(!where || g->where, TY_EMEMORY, "out of memory");
  return TY_OK;
}

int ty_graph_var(ty_graph *g, const char *name, const ty_attr *attr, int nattr, ty_entry *out)
{
  NEED(g && name && out, TY_ETYPE, "graph_var: null argument");
  return graph_var(g, name, attr, nattr, out);
}

int ty_graph_subgraph(ty_graph *g, ty_graph *body)
{
  NEED(g && body && g != body, TY_ETYPE, "graph_subgraph: a graph and another graph are needed");
  ty_graph **more = mem_grow(g->body, sizeof *more * (size_t)(g->nbody + 1));
  NEED(more, TY_EMEMORY, "out of memory");
  g->body = more;
  g->body[g->nbody++] = body;
  return ty_graph_keep(body);
}

/* Adds variables `<node>_<input>` with the node's attributes for inputs that are not given. */
static int complete_inputs(ty_graph *g, const struct kind *kind, const char *name,
    const ty_attr *attr, int nattr, const ty_entry *in, int nin, struct arena *a,
    const ty_entry **all)
{
  *all = in;
  if (kind->nin <= nin) return TY_OK;
  ty_entry *more = arena_new(a, sizeof *more * (size_t)kind->nin);
  NEED(more, TY_EMEMORY, "out of memory");
  for (int i = 0; i < kind->nin; i++) {
    char var[512];
    if (i < nin) {
      more[i] = in[i];
      continue;
    }
    snprintf(var, sizeof var, "%s%s%s", name, *name ? "_" : "", kind->inport[i].name);
    TRY(graph_var(g, var, attr, nattr, &more[i]));
  }
  *all = more;
  return TY_OK;
}

int ty_graph_op(ty_graph *g, const char *name_of_op, const char *name, const ty_attr *attr,
    int nattr, const ty_entry *in, int nin, ty_entry *out)
{
  NEED(g && out, TY_ETYPE, "graph_op: null argument");
  const struct op *op = op_find(name_of_op);
  if (!op) {
    int code = op_unknown(name_of_op ? name_of_op : "");
    fail_node(name_of_op, name, g->where);
    return code;
  }
  struct arena a = { 0 };
  char number[16];
  ty_attr *more = arena_new(&a, sizeof *more * (size_t)(nattr + 1));
  const ty_entry *all;
  const struct kind *kind;
  int code = more ? TY_OK : fail(TY_EMEMORY, "out of memory");
  name = name ? name : "";
  if (!code) attr = op_counted(op, attr, &nattr, nin, more, number);
  if (!code) code = graph_kind(g, op, name, attr, nattr, nin, &kind);
  if (!code) code = complete_inputs(g, kind, name, attr, nattr, in, nin, &a, &all);
  if (!code) code = add_op(g, kind, name, all, MAX(nin, kind->nin), out);
  arena_done(&a);
  return code;
}
