/* graph.c - building graphs: variables, operators, names of outputs.
**
** Everything a node holds (names, attributes, parameters, inputs, ports) lies in the graph's
** arena and goes with it. Order of calls: ty_graph_new, then ty_graph_var / ty_graph_op, inputs
** before their readers.
*/
#include "graph/graph.h"
#include "op/registry.h"

const char *node_attr(const struct node *n, const char *key)
{
  return attr_given(n->attr, n->nattr, key);
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
    snprintf(buffer, size, n->nout == 1 ? "%s%soutput" : "%s%soutput%d", n->name, sep, out);
  else
    snprintf(buffer, size, "%s%s%s", n->name, sep, n->outport[out].name);
}

/* -- nodes ------------------------------------------------------------------------------------- */

static int compare_attr(const void *a, const void *b)
{
  return strcmp(((const ty_attr *)a)->key, ((const ty_attr *)b)->key);
}

/* op NULL: a variable's. Names of parameters are the operator's own. */
static const ty_attr *copy_attrs(
    struct arena *a, const struct op *op, const ty_attr *attr, int n)
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

static bool same_attrs(const struct node *n, const ty_attr *attr, int nattr)
{
  bool same = n->nattr == nattr;
  for (int i = 0; i < nattr && same; i++)
    same = !strcmp(n->attr[i].key, attr[i].key) && !strcmp(n->attr[i].value, attr[i].value);
  return same;
}

/* Room for one more node with operator (NULL: a variable), name, origin and attributes; the caller
** fills the rest and then counts it in with `added`. */
static int begin_node(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr,
    int nattr, struct node **out)
{
  NEED(GROW(g->node, g->n, g->cap), TY_EMEMORY, "out of memory: graph of %d nodes", g->n);
  struct node *n = &g->node[g->n];
  *n = (struct node){ .op = op,
    .name = arena_text(&g->arena, name ? name : ""),
    .where = g->where,
    .nattr = nattr,
    .first = g->nvalue,
    .forward = -1 };
  /* variables of a node stand before it and say what it says: they share the list */
  n->attr = g->n && same_attrs(n - 1, attr, nattr) ? n[-1].attr
                                                   : copy_attrs(&g->arena, op, attr, nattr);
  NEED(n->name && n->attr, TY_EMEMORY, "out of memory: node %s", name ? name : "");
  *out = n;
  return TY_OK;
}

static void added(ty_graph *g, ty_entry *out)
{
  if (out) *out = (ty_entry){ g->n, 0 };
  g->nvalue += g->node[g->n].nout;
  g->n++;
}

static const struct port variable_port = { "", false, false, false };

int graph_var(ty_graph *g, const char *name, const ty_attr *attr, int nattr, ty_entry *out)
{
  struct node *n;
  TRY(begin_node(g, NULL, name, attr, nattr, &n));
  n->nout = n->nreal = n->nvisible = 1;
  n->outport = &variable_port;
  added(g, out);
  return TY_OK;
}

static int check_inputs(
    const ty_graph *g, const struct op *op, const char *name, const ty_entry *in, int nin)
{
  for (int i = 0; i < nin; i++)
    if (in[i].node < 0 || in[i].node >= g->n || in[i].out < 0 ||
        in[i].out >= g->node[in[i].node].nout) {
      int code = fail(TY_EINDEX, "%s %s: input %d is output %d of node %d, which does not exist",
          op->name, name, i, in[i].out, in[i].node);
      fail_node(op->name, name, g->where);
      return code;
    }
  return TY_OK;
}

static int copy_inputs(ty_graph *g, struct node *n, const ty_entry *in, int nin)
{
  ty_entry *copy = arena_new(&g->arena, sizeof *copy * (size_t)(nin + 1));
  NEED(copy, TY_EMEMORY, "out of memory: node %s", n->name);
  if (nin) memcpy(copy, in, sizeof *in * (size_t)nin);
  n->in = copy;
  n->nin = nin;
  return TY_OK;
}

static int set_ports(ty_graph *g, struct node *n, int nin)
{
  struct ports p;
  TRY(op_ports(n->op, n->param, nin, &g->arena, &p));
  n->inport = p.in;
  n->outport = p.out;
  n->nout = p.nout;
  n->nreal = p.nreal;
  n->nvisible = p.nvisible;
  if (p.nin == nin) return TY_OK;
  int code = fail(TY_EVALUE, "%s %s: expected %d inputs, got %d", n->op->name, n->name, p.nin, nin);
  fail_node(n->op->name, n->name, n->where);
  return code;
}

static int set_param(ty_graph *g, struct node *n)
{
  static int64_t none; /* of what has no parameters; nobody writes there */
  void *param = n->op->param_size ? arena_new(&g->arena, n->op->param_size) : &none;
  NEED(param, TY_EMEMORY, "out of memory: node %s", n->name);
  int code = op_parse(n->op, n->attr, n->nattr, param);
  if (code) fail_node(n->op->name, n->name, n->where);
  n->param = param;
  return code;
}

int graph_node(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr, int nattr,
    const ty_entry *in, int nin, ty_entry *out)
{
  struct node *n;
  TRY(check_inputs(g, op, name ? name : "", in, nin));
  TRY(begin_node(g, op, name, attr, nattr, &n));
  TRY(set_param(g, n));
  TRY(set_ports(g, n, nin));
  TRY(op_reads(op, n->param, &n->reads));
  TRY(op_in_place(op, false, &n->in_place));
  TRY(copy_inputs(g, n, in, nin));
  added(g, out);
  return TY_OK;
}

/* A clone of node `of` (a mirror, or the gradient operator): same operator and parameters, other
** inputs. */
int graph_clone(ty_graph *g, int of, const char *name, bool backward, const ty_entry *in, int nin,
    int nout, ty_entry *out)
{
  struct node *n;
  g->where = g->node[of].where;
  TRY(begin_node(
      g, g->node[of].op, name, g->node[of].attr, backward ? 0 : g->node[of].nattr, &n));
  const struct node *f = &g->node[of];
  n->param = f->param;
  n->inport = f->inport;
  n->outport = f->outport;
  n->reads = f->reads;
  n->nout = n->nreal = n->nvisible = nout;
  if (!backward) n->nreal = f->nreal, n->nvisible = f->nvisible;
  n->forward = of;
  n->backward = backward;
  n->mirror = !backward;
  n->body = f->body;
  n->nbody = f->nbody;
  n->guard = f->guard;
  n->inside = f->inside;
  TRY(op_in_place(n->op, backward, &n->in_place));
  TRY(copy_inputs(g, n, in, nin));
  added(g, out);
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

/* Inputs that are not given become variables `<node>_<input>` with the node's attributes. */
static int complete_inputs(ty_graph *g, const struct op *op, const char *name, const ty_attr *attr,
    int nattr, const ty_entry *in, int nin, struct arena *a, const ty_entry **all, int *nall)
{
  void *param = arena_new(a, op->param_size + 16);
  struct ports p;
  NEED(param, TY_EMEMORY, "out of memory");
  int code = op_parse(op, attr, nattr, param);
  if (code) return fail_node(op->name, name, g->where), code;
  TRY(op_ports(op, param, nin, a, &p));
  *all = in;
  *nall = nin;
  if (p.nin <= nin) return TY_OK;
  ty_entry *more = arena_new(a, sizeof *more * (size_t)p.nin);
  NEED(more, TY_EMEMORY, "out of memory");
  for (int i = 0; i < p.nin; i++) {
    char var[512];
    if (i < nin) {
      more[i] = in[i];
      continue;
    }
    snprintf(var, sizeof var, "%s%s%s", name, *name ? "_" : "", p.in[i].name);
    TRY(graph_var(g, var, attr, nattr, &more[i]));
  }
  *all = more;
  *nall = p.nin;
  return TY_OK;
}

/* An input of the node that a body changes in place is an auxiliary state, as the body's is. */
static int mark_states(ty_graph *g, struct node *n, const ty_graph *body, int which)
{
  int *variable = NEWS(int, body->n), count = 0;
  struct port *port = arena_new(&g->arena, sizeof *port * (size_t)(n->nin + 1));
  int code = variable && port ? TY_OK : fail(TY_EMEMORY, "out of memory: node %s", n->name);
  if (!code && n->nin) memcpy(port, n->inport, sizeof *port * (size_t)n->nin);
  for (int i = 0; i < body->n && !code; i++) {
    const struct node *m = &body->node[i];
    if (!m->op) variable[i] = count++;
    for (int k = 0; m->op && k < m->nin; k++) {
      if (!m->inport[k].mutated || body->node[m->in[k].node].op) continue;
      int64_t input = n->op->body_input(n->param, which, variable[m->in[k].node]);
      if (input >= 0 && input < n->nin) port[input].mutated = true;
    }
  }
  mem_free(variable);
  if (!code) n->inport = port;
  return code;
}

static int take_bodies(ty_graph *g)
{
  struct node *n = &g->node[g->n - 1];
  if (!g->nbody) return TY_OK;
  ty_graph **copy = arena_new(&g->arena, sizeof *copy * (size_t)g->nbody);
  NEED(copy, TY_EMEMORY, "out of memory");
  memcpy(copy, g->body, sizeof *copy * (size_t)g->nbody);
  n->body = copy;
  n->nbody = g->nbody;
  g->nbody = 0;
  for (int k = 0; k < n->nbody && n->op->body_input; k++) TRY(mark_states(g, n, n->body[k], k));
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
  int nall, code = more ? TY_OK : fail(TY_EMEMORY, "out of memory");
  if (!code) attr = op_counted(op, attr, &nattr, nin, more, number);
  if (!code) code = complete_inputs(g, op, name ? name : "", attr, nattr, in, nin, &a, &all, &nall);
  if (!code) code = graph_node(g, op, name, attr, nattr, all, nall, out);
  if (!code) code = take_bodies(g);
  arena_done(&a);
  return code;
}
