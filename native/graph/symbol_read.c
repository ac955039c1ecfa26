/* symbol_read.c - reads symbol files of all versions into graphs.
**
** The whole text is checked first (base/json.c). Then nodes are read from it depth-first from the
** heads, each after its inputs, and added by graph.c's ordinary functions, so that a file can make
** nothing that a program could not. Indices, input counts and cycles are checked. Versions of
** inputs in the file are kept with the graph if they differ from those that symbol_write.c would
** count (which says why). Old files: symbol_upgrade.c. Source: the reference's reader.
*/
#include "graph/graph.h"
#include "op/registry.h"
#include "base/file_kind.h"
#include "base/json.h"
#include "base/names.h"
#include "base/whole_file.h"
#include "graph/symbol_file.h"
#include "graph/symbol_reader.h"

/* A graph may take LIMIT_MIB plus LIMIT_TIMES the bytes of its text. LUA_HEAD: bytes that Lua uses
** per head. */
enum { LIMIT_MIB = 64, LIMIT_TIMES = 4, LUA_HEAD = 160 };

/* Fails for a short text that describes a large graph. */
static int fail_limit(void)
{
  return fail(TY_EFORMAT, "the graph would take more memory than %d MiB and %d times its text",
      LIMIT_MIB, LIMIT_TIMES);
}

static int take_bytes(struct file *f, size_t bytes)
{
  if (bytes > *f->left) return fail_limit();
  *f->left -= bytes;
  return TY_OK;
}

/* -- building ---------------------------------------------------------------------------------- */

static int parse_object(
    const char *text, const char *object, bool top, size_t *left, ty_graph **out);

static int add_bodies(const struct file *f, const struct parsed_node *d)
{
  for (const char *v = d->bodies ? json_first(d->bodies) : NULL; v; v = json_next(v)) {
    ty_graph *body;
    TRY(parse_object(f->text, v, false, f->left, &body));
    int code = ty_graph_subgraph(f->g, body);
    ty_graph_free(body);
    TRY(code);
  }
  return TY_OK;
}

/* Counts how many outputs of each node are read. */
static int count_outputs(struct file *f, const char *heads)
{
  const char *v[FIELDS];
  struct input in;
  for (int i = -1; i < f->n; i++) {
    if (i >= 0) TRY(file_node_fields(f, i, v));
    for (const char *e = json_first(i < 0 ? heads : v[INPUTS]); e; e = json_next(e)) {
      TRY(file_read_entry(f, e, &in));
      if (in.node < f->n) f->node[in.node].outputs = MAX(f->node[in.node].outputs, in.out + 1);
    }
  }
  f->counted = true;
  return TY_OK;
}

/* Gives an operator of the front end as many outputs as other nodes read: the file does not say how
** many it has. */
static int add_callback_outputs(struct file *f, int node, struct parsed_node *d, struct arena *a)
{
  struct text t = { 0 };
  if (!f->counted) TRY(count_outputs(f, f->heads));
  const int n = MAX(1, f->node[node].outputs);
  if (n > 1000) return TY_OK; /* too many: reading them fails later */
  for (int k = 0; k < n; k++) text_add(&t, "%soutput%d", k ? " " : "", k);
  char *names = t.lost ? NULL : arena_text(a, t.s);
  text_done(&t);
  NEED(names, TY_EMEMORY, "out of memory: outputs of %s", d->name);
  return parsed_add_attr(d, a, "__custom_out__", names);
}

/* Adds missing last inputs as variables with the operator's attributes: old files leave out
** auxiliary states. */
static int add_missing_inputs(
    struct file *f, const struct parsed_node *d, const struct kind *kind, struct arena *a,
    ty_entry *in)
{
  for (int k = d->nin; k < kind->nin; k++) {
    const char *port = kind->inport[k].name, *init = upgrade_initialiser(d, k);
    size_t size = strlen(d->name) + strlen(port) + 2;
    char *name = arena_chars(a, size);
    ty_attr *attr = arena_new(a, sizeof *attr * (size_t)(d->nattr + 1));
    int n = d->nattr;
    if (!name || !attr) return file_fail_memory();
    snprintf(name, size, "%s_%s", d->name, port);
    if (n) memcpy(attr, d->attr, sizeof *attr * (size_t)n);
    if (init && f->version < 904 && !parsed_attr(d, "__init__"))
      attr[n++] = (ty_attr){ "__init__", init };
    TRY(graph_var(f->g, name, attr, n, &in[k]));
    f->own_versions |= kind->inport[k].mutated; /* the file gives it version 0 */
  }
  return TY_OK;
}

static int check_input(
    const struct file *f, const struct parsed_node *d, const struct port *port, int k, ty_entry in)
{
  const struct node *from = &f->g->node[in.node];
  NEED(in.out < from->kind->nreal, TY_EFORMAT,
      "%s %s: input %d is output %d of %s, which has %d", d->op_name, d->name, k, in.out,
      from->name, from->kind->nreal);
  NEED(!port->mutated || !from->op, TY_EFORMAT,
      "%s %s: the operator changes input %s: a variable is needed, got %s", d->op_name, d->name,
      port->name, from->name);
  return TY_OK;
}

/* Finds the inputs in the graph, and notes whether their versions in the file differ from counted
** ones. */
static int find_inputs(
    struct file *f, const struct parsed_node *d, const struct kind *kind, ty_entry *in)
{
  for (int k = 0; k < d->nin; k++) {
    struct node_record *from = &f->node[d->in[k].node];
    in[k] = (ty_entry){ from->index, d->in[k].out };
    TRY(check_input(f, d, &kind->inport[k], k, in[k]));
    from->changes += kind->inport[k].mutated;
    f->own_versions |= from->changes != d->in[k].version;
  }
  return TY_OK;
}

static int build_op(struct file *f, int node, struct parsed_node *d, struct arena *a)
{
  const struct kind *kind;
  char number[16];
  int nattr = d->nattr;
  if (!d->op) return op_unknown(d->op_name);
  if (d->op->flags & OP_CALLBACK) TRY(add_callback_outputs(f, node, d, a));
  nattr = d->nattr;
  ty_attr *more = arena_new(a, sizeof *more * (size_t)(nattr + 1));
  if (!more) return file_fail_memory();
  const ty_attr *attr = op_counted(d->op, d->attr, &nattr, d->nin, more, number);
  TRY(graph_kind(f->g, d->op, d->name, attr, nattr, d->nin, &kind));
  const int n = f->version < 900 ? MAX(d->nin, kind->nin) : d->nin;
  NEED(kind->nin == n, TY_EFORMAT, "%s %s: expected %d inputs, got %d", d->op_name, d->name,
      kind->nin, d->nin);
  ty_entry *in = arena_new(a, sizeof *in * (size_t)n);
  if (!in) return file_fail_memory();
  TRY(find_inputs(f, d, kind, in));
  TRY(add_missing_inputs(f, d, kind, a, in));
  TRY(add_bodies(f, d));
  return graph_add(f->g, kind, d->name, in, NULL);
}

/* values of node_record.index before a node is built */
enum { NEW = -1, LEFT_OUT = -2, OPEN = -4 };

/* Builds an open node, whose inputs are built. keep: it is reached from the heads, else only
** checked. */
static int close_node(struct file *f, int node, bool keep)
{
  struct arena a = { 0 };
  struct parsed_node d;
  int code = file_parse_node(f, node, &a, &d);
  f->node[node].changes = 0;
  f->node[node].index = LEFT_OUT;
  if (!code && f->version < FILE_VERSION) code = upgrade_attrs(f, node, &d, &a);
  if (!code && keep) {
    code = d.op_name ? build_op(f, node, &d, &a)
                     : graph_var(f->g, d.name, d.attr, d.nattr, NULL);
    if (code && d.op_name) fail_node(d.op_name, d.name, NULL);
    f->node[node].index = f->g->n - 1;
    if (!code) code = take_bytes(f, f->g->arena.bytes - f->taken);
    f->taken = f->g->arena.bytes;
  }
  arena_done(&a);
  return code;
}

/* -- order ------------------------------------------------------------------------------------- */

/* Opens a node, which is an input of node `from`. Open nodes form a chain from reader to input. */
static int open_node(struct file *f, int node, int from)
{
  const char *v[FIELDS];
  TRY(file_node_fields(f, node, v));
  f->node[node].next = json_first(v[INPUTS]);
  f->node[node].index = OPEN - from;
  return TY_OK;
}

static int bad_input(const struct file *f, int node, const struct input *in)
{
  struct arena a = { 0 };
  const char *v[FIELDS], *name = "";
  int k = 0;
  if (!file_node_fields(f, in->node < f->n ? in->node : node, v)) name = json_text(v[NAME], &a);
  if (!name) name = "";
  for (const char *e = json_first(v[INPUTS]); e && e != f->node[node].next; e = json_next(e)) k++;
  int code = in->node < f->n
      ? fail(TY_EFORMAT, "node %s is, through its inputs, an input of itself", name)
      : fail(TY_EFORMAT, "node %s: input %d is node %d of %d", name, k, in->node, f->n);
  arena_done(&a);
  return code;
}

static int visit_node(struct file *f, int root, bool keep)
{
  struct input in;
  if (f->node[root].index != NEW) return TY_OK;
  TRY(open_node(f, root, -1));
  for (int node = root; node >= 0;) {
    struct node_record *d = &f->node[node];
    if (!d->next) {
      const int from = OPEN - d->index;
      TRY(close_node(f, node, keep));
      node = from;
      continue;
    }
    TRY(file_read_entry(f, d->next, &in));
    if (in.node >= f->n || f->node[in.node].index < LEFT_OUT) return bad_input(f, node, &in);
    d->next = json_next(d->next);
    if (f->node[in.node].index != NEW) continue;
    TRY(open_node(f, in.node, node));
    node = in.node;
  }
  return TY_OK;
}

static int read_heads(struct file *f)
{
  ty_graph *g = f->g;
  const int n = file_count_items(f->heads);
  NEED(n, TY_EFORMAT, "the graph has no heads");
  TRY(take_bytes(f, sizeof *g->head * (size_t)n));
  g->head = NEWS(ty_entry, n);
  NEED(g->head, TY_EMEMORY, "out of memory: heads");
  for (const char *v = json_first(f->heads); v; v = json_next(v)) {
    struct input in;
    TRY(file_read_entry(f, v, &in));
    NEED(in.node < f->n, TY_EFORMAT, "head %d is node %d of %d", g->nhead, in.node, f->n);
    TRY(visit_node(f, in.node, true));
    const struct node *from = &g->node[f->node[in.node].index];
    NEED(in.out < from->kind->nreal, TY_EFORMAT, "head %d is output %d of %s, which has %d",
        g->nhead, in.out, from->name, from->kind->nreal);
    g->head[g->nhead++] = (ty_entry){ f->node[in.node].index, in.out };
  }
  return TY_OK;
}

static int check_arguments(const struct file *f, const char *list)
{
  for (const char *v = json_first(list); v; v = json_next(v)) {
    int id = 0;
    TRY(file_read_number(f, v, "the number of a node", &id));
    const char *got = id >= f->n ? "no node" : file_is_variable(f, id) ? NULL : "an operator";
    if (got) return file_fail(f, v, "the number of a variable", got);
  }
  return TY_OK;
}

/* -- versions ---------------------------------------------------------------------------------- */

static int keep_versions(const struct file *f)
{
  ty_graph *g = f->g;
  const int **list = arena_new(&g->arena, sizeof *list * (size_t)g->n);
  if (!list) return file_fail_memory();
  for (int i = 0; i < f->n; i++) {
    const char *v[FIELDS];
    const int index = f->node[i].index;
    if (index < 0 || !g->node[index].nin) continue;
    int *version = arena_new(&g->arena, sizeof *version * (size_t)g->node[index].nin), k = 0;
    if (!version) return file_fail_memory();
    list[index] = version;
    TRY(file_node_fields(f, i, v));
    for (const char *e = json_first(v[INPUTS]); e; e = json_next(e)) {
      struct input in;
      TRY(file_read_entry(f, e, &in));
      version[k++] = in.version;
    }
  }
  g->versions = list;
  return TY_OK;
}

/* -- the file ---------------------------------------------------------------------------------- */

enum { NODES, ARGUMENTS, HEADS, ROWS, GRAPH_ATTRS, GRAPH_FIELDS };
static const char *const graph_fields[GRAPH_FIELDS] = {
  "nodes", "arg_nodes", "heads", "node_row_ptr", "attrs",
};

/* Finds the second item of a graph attribute such as ["int", 10901]; NULL: there is none. */
static int graph_attr(const struct file *f, const char *attrs, const char *name, const char *form,
    int type, const char **out)
{
  *out = NULL;
  for (const char *v, *key = json_first(attrs); key && !*out; key = json_next(v)) {
    v = json_value(key);
    if (!json_is(key, name)) continue;
    if (json_type(v) != J_LIST || file_count_items(v) != 2)
      return file_fail(f, v, form, file_type_name(v));
    *out = json_next(json_first(v));
    if (json_type(*out) != type) return file_fail(f, v, form, file_type_name(v));
  }
  return TY_OK;
}

static int read_graph_attrs(struct file *f, const char *attrs)
{
  struct arena a = { 0 };
  const char *v = NULL, *rows = NULL;
  f->version = 800; /* files before 0.9 did not say */
  if (!attrs) return TY_OK;
  TRY(graph_attr(f, attrs, "mxnet_version", "[\"int\", version]", J_NUMBER, &v));
  if (v) TRY(file_read_number(f, v, "a version", &f->version));
  TRY(graph_attr(f, attrs, "tycho_rows", "[\"str\", rows]", J_TEXT, &v));
  if (!v) return TY_OK;
  rows = json_text(v, &a);
  int code = rows ? formula_define(rows) : file_fail_memory();
  arena_done(&a);
  return code;
}

/* Shrinks the list of nodes: it has capacity for nodes that were only checked, too. */
static int fit_nodes(ty_graph *g)
{
  struct node *node = mem_grow(g->node, sizeof *node * (size_t)g->n);
  NEED(node, TY_EMEMORY, "out of memory: graph of %d nodes", g->n);
  g->node = node;
  g->cap = g->n;
  return TY_OK;
}

static int read_graph(struct file *f, const char *object, bool top)
{
  const char *v[GRAPH_FIELDS];
  TRY(file_read_fields(f, object, graph_fields, GRAPH_FIELDS, HEADS + 1, v));
  if (v[GRAPH_ATTRS] && json_type(v[GRAPH_ATTRS]) != J_OBJECT)
    return file_fail(f, v[GRAPH_ATTRS], "an object", file_type_name(v[GRAPH_ATTRS]));
  f->version = FILE_VERSION;
  if (top) TRY(read_graph_attrs(f, v[GRAPH_ATTRS]));
  static const char *const what[] = { "a list of nodes", "a list of numbers", "a list" };
  for (int i = NODES; i <= HEADS; i++)
    if (json_type(v[i]) != J_LIST) return file_fail(f, v[i], what[i], file_type_name(v[i]));
  f->heads = v[HEADS];
  f->g->cap = file_count_items(v[NODES]);
  TRY(take_bytes(f, (sizeof *f->node + sizeof *f->g->node) * (size_t)f->g->cap));
  f->node = NEWS(struct node_record, f->g->cap);
  f->g->node = NEWS(struct node, f->g->cap);
  NEED(f->node && f->g->node, TY_EMEMORY, "out of memory: symbol file of %d nodes", f->g->cap);
  for (const char *at = json_first(v[NODES]); at; at = json_next(at))
    f->node[f->n++] = (struct node_record){ .at = at, .index = NEW };
  if (f->version < FILE_VERSION) TRY(upgrade_begin(f));
  TRY(read_heads(f));
  for (int i = 0; i < f->n; i++) TRY(visit_node(f, i, false)); /* the rest is only checked */
  TRY(check_arguments(f, v[ARGUMENTS]));
  f->g->version = f->version;
  TRY(fit_nodes(f->g));
  return f->own_versions ? keep_versions(f) : TY_OK;
}

static int parse_object(
    const char *text, const char *object, bool top, size_t *left, ty_graph **out)
{
  struct file f = { .text = text, .left = left };
  TRY(ty_graph_new(&f.g));
  int code = read_graph(&f, object, top);
  arena_done(&f.arena);
  mem_free(f.inherited);
  mem_free(f.node);
  if (code)
    ty_graph_free(f.g);
  else
    *out = f.g;
  return code;
}

int ty_graph_parse(const char *text, ty_graph **out)
{
  NEED(text && out, TY_ETYPE, "graph_parse: null argument");
  TRY(json_check(text));
  const size_t most = ((size_t)LIMIT_MIB << 20) + LIMIT_TIMES * strlen(text);
  size_t left = most - strlen(text);
  TRY(parse_object(text, text + strspn(text, " \t\r\n"), true, &left, out));
  const ty_graph *g = *out;                           /* what stays when the text is freed */
  size_t bytes = g->arena.bytes + sizeof *g->node * (size_t)g->n + LUA_HEAD * (size_t)g->nhead;
  if (bytes <= most) return TY_OK;
  ty_graph_free(*out);
  *out = NULL;
  return fail_limit();
}

int ty_graph_load(const char *path, ty_graph **out)
{
  NEED(path && out, TY_ETYPE, "graph_load: null argument");
  char *text;
  size_t n;
  TRY(file_read(path, &text, &n));
  size_t broken = strlen(text); /* a zero byte would hide what follows */
  const char *kind = text[strspn(text, " \t\r\n")] == '{' ? NULL : file_kind(text, n);
  int code = kind  ? fail(TY_EFORMAT, "this is not a network but %s", kind)
      : broken < n ? fail(TY_EFORMAT, "byte %zu: this is not text", broken)
                   : ty_graph_parse(text, out);
  mem_free(text);
  return code;
}

int ty_graph_version(ty_graph *g, int *out)
{
  NEED(g && out, TY_ETYPE, "graph_version: null argument");
  *out = g->version;
  return TY_OK;
}
