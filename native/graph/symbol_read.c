/* symbol_read.c - symbol files of all versions become graphs.
**
** The text is read node by node (base/json.c) into drafts; these are brought up to the present
** form, ordered depth-first from the heads, and built through graph.c's ordinary calls, so a file
** can say nothing that a program could not. Indices, input counts and cycles are checked. The text
** that the file stands for is kept with the graph where it is not the one that would be written
** (symbol_write.c says why). Order: read_drafts, read_heads, draft_upgrade, order_drafts, build.
** Source: the reference's reader.
*/
#include "graph/graph.h"
#include "op/registry.h"
#include "base/json.h"
#include "base/whole_file.h"
#include "graph/symbol_draft.h"
#include "graph/symbol_file.h"

static int corrupt(const struct json *at, const char *what, const char *got)
{
  int code = fail(TY_EFORMAT, "byte %zu: expected %s, got %s", at ? at->at : 0, what, got);
  fail_argument(NULL, what, got);
  return code;
}

static const char *kind(const struct json *v)
{
  static const char *const names[] = { "a text", "a number", "a list", "an object" };
  return v ? names[v->type] : "nothing";
}

/* -- fields ------------------------------------------------------------------------------------ */

static int check_fields(const struct json *object, const char *required, const char *optional)
{
  char name[64];
  if (object->type != J_OBJECT) return corrupt(object, "an object", kind(object));
  for (const struct json *v = object->first; v; v = v->next) {
    snprintf(name, sizeof name, " %.60s ", v->key);
    if (!strstr(required, name) && !strstr(optional, name)) {
      int code = fail(TY_EFORMAT, "byte %zu: unknown field \"%s\"", v->at, v->key);
      fail_argument(v->key, NULL, NULL);
      return code;
    }
  }
  for (const char *s = required + 1; *s; s += strcspn(s, " ") + 1) {
    snprintf(name, sizeof name, "%.*s", (int)strcspn(s, " "), s);
    if (json_get(object, name)) continue;
    int code = fail(TY_EFORMAT, "byte %zu: field \"%s\" is missing", object->at, name);
    fail_argument(name, "a field", "nothing");
    return code;
  }
  return TY_OK;
}

static int read_whole(const struct json *v, const char *what, int *out)
{
  if (v->type != J_NUMBER) return corrupt(v, what, kind(v));
  bool fits = v->number >= 0 && v->number < 2147483647;
  if (!fits || v->number != (double)(int)v->number) return corrupt(v, what, "another number");
  *out = (int)v->number;
  return TY_OK;
}

/* [node, output] or [node, output, version] */
static int read_entry(const struct json *v, struct input *out)
{
  *out = (struct input){ 0, 0, 0 };
  if (v->type != J_LIST || v->n < 2 || v->n > 3)
    return corrupt(v, "[node, output, version]", kind(v));
  TRY(read_whole(v->first, "the number of a node", &out->node));
  TRY(read_whole(v->first->next, "the number of an output", &out->out));
  return v->n == 3 ? read_whole(v->first->next->next, "a version", &out->version) : TY_OK;
}

static int read_inputs(struct file *f, struct draft *d, const struct json *list)
{
  if (list->type != J_LIST) return corrupt(list, "a list", kind(list));
  if (!list->n) return TY_OK;
  d->in = arena_new(f->arena, sizeof *d->in * (size_t)list->n);
  NEED(d->in, TY_EMEMORY, "out of memory: symbol file");
  for (const struct json *v = list->first; v; v = v->next) TRY(read_entry(v, &d->in[d->nin++]));
  return TY_OK;
}

static int add_head(const struct json *v, void *file)
{
  struct file *f = file;
  return read_entry(v, &f->head[f->nhead++]);
}

static int read_heads(struct file *f, const struct json *list)
{
  if (list->type != J_LIST) return corrupt(list, "a list", kind(list));
  f->head = arena_new(f->arena, sizeof *f->head * (size_t)list->n);
  NEED(f->head, TY_EMEMORY, "out of memory: symbol file");
  return json_each(f->text, list, add_head, f);
}

/* -- drafts ------------------------------------------------------------------------------------ */

/* The tree of a node goes when the next one is read. */
static int keep(struct file *f, const char *text, const char **out)
{
  *out = arena_text(f->arena, text);
  return *out ? TY_OK : fail(TY_EMEMORY, "out of memory: symbol file");
}

/* The operator's own text of a parameter's name, else a copy. */
static int keep_key(struct file *f, const struct op *op, const char *key, const char **out)
{
  *out = op ? op_param_name(op, key) : NULL;
  return *out ? TY_OK : keep(f, key, out);
}

static int read_attrs(
    struct file *f, struct draft *d, const struct op *op, const struct json *dict)
{
  const char *key, *value;
  if (!dict) return TY_OK;
  if (dict->type != J_OBJECT) return corrupt(dict, "an object of texts", kind(dict));
  TRY(draft_reserve_attrs(f, d, dict->n));
  for (const struct json *v = dict->first; v; v = v->next) {
    if (v->type != J_TEXT) return corrupt(v, "a text", kind(v));
    if (draft_attr(d, v->key)) continue; /* what came first stays */
    TRY(keep_key(f, op, v->key, &key));
    TRY(keep(f, v->text, &value));
    TRY(draft_add_attr(f, d, key, value));
  }
  return TY_OK;
}

static int read_bodies(struct file *f, struct draft *d, const struct json *list)
{
  if (!list) return TY_OK;
  if (list->type != J_LIST) return corrupt(list, "a list of graphs", kind(list));
  d->body = arena_new(f->arena, sizeof *d->body * (size_t)list->n);
  NEED(d->body, TY_EMEMORY, "out of memory: symbol file");
  for (const struct json *v = list->first; v; v = v->next) {
    if (v->type != J_OBJECT) return corrupt(v, "an object", kind(v));
    d->body[d->nbody++] = v->at;
  }
  return TY_OK;
}

static int read_node(struct file *f, const struct json *v, struct draft *d)
{
  const char *what[] = { "op", "name" };
  TRY(check_fields(
      v, " op name inputs ", " attrs attr param control_deps backward_source_id subgraphs "));
  for (int i = 0; i < 2; i++) {
    const struct json *s = json_get(v, what[i]);
    if (s->type != J_TEXT) return corrupt(s, "a text", kind(s));
  }
  const char *name = json_get(v, "op")->text, *attrs[] = { "attrs", "attr", "param" };
  const struct op *op = op_find(name);
  if (op && !strcmp(op->name, name))
    d->op = op->name;
  else if (strcmp(name, "null"))
    TRY(keep(f, name, &d->op));
  TRY(keep(f, json_get(v, "name")->text, &d->name));
  for (int i = 0; i < COUNT(attrs); i++) TRY(read_attrs(f, d, op, json_get(v, attrs[i])));
  TRY(read_bodies(f, d, json_get(v, "subgraphs")));
  TRY(read_inputs(f, d, json_get(v, "inputs")));
  if (!d->op && d->nin) return corrupt(v, "no inputs of a variable", "some");
  return TY_OK;
}

static int add_draft(const struct json *v, void *file)
{
  struct file *f = file;
  return read_node(f, v, &f->node[f->n++]);
}

static int read_drafts(struct file *f, const struct json *list)
{
  if (list->type != J_LIST) return corrupt(list, "a list of nodes", kind(list));
  TRY(draft_reserve(f, list->n + 1));
  return json_each(f->text, list, add_draft, f);
}

static int check_argument(const struct json *v, void *file)
{
  const struct file *f = file;
  int id = 0;
  TRY(read_whole(v, "the number of a node", &id));
  const char *got = id >= f->n ? "no node" : f->node[id].op ? "an operator" : NULL;
  return got ? corrupt(v, "the number of a variable", got) : TY_OK;
}

/* Every reference must name a node of the file; arguments must be variables. */
static int check_references(struct file *f, const struct json *arguments)
{
  if (arguments->type != J_LIST) return corrupt(arguments, "a list of numbers", kind(arguments));
  TRY(json_each(f->text, arguments, check_argument, f));
  for (int i = 0; i < f->n; i++)
    for (int k = 0; k < f->node[i].nin; k++) {
      int id = f->node[i].in[k].node;
      NEED(id < f->n, TY_EFORMAT, "node %s: input %d is node %d of %d", f->node[i].name, k, id,
          f->n);
    }
  for (int i = 0; i < f->nhead; i++)
    NEED(f->head[i].node < f->n, TY_EFORMAT, "head %d is node %d of %d", i, f->head[i].node, f->n);
  return TY_OK;
}

/* -- order ------------------------------------------------------------------------------------- */

struct frame { int node, at; };

static int order_from(struct file *f, int root, struct frame *stack, bool keep)
{
  int depth = 0;
  if (f->node[root].mark) return TY_OK;
  f->node[root].mark = 1;
  stack[depth++] = (struct frame){ root, 0 };
  while (depth) {
    struct frame *top = &stack[depth - 1];
    struct draft *d = &f->node[top->node];
    if (top->at == d->nin) {
      d->mark = 2;
      if (keep) d->index = f->norder, f->order[f->norder++] = top->node;
      depth--;
      continue;
    }
    struct draft *next = &f->node[d->in[top->at].node];
    NEED(next->mark != 1, TY_EFORMAT, "node %s is, through its inputs, an input of itself",
        next->name);
    int id = d->in[top->at++].node;
    if (next->mark) continue;
    next->mark = 1;
    stack[depth++] = (struct frame){ id, 0 };
  }
  return TY_OK;
}

static int order_drafts(struct file *f)
{
  struct frame *stack = NEWS(struct frame, f->n);
  f->order = arena_new(f->arena, sizeof *f->order * (size_t)(f->n + 1));
  int code = stack && f->order ? TY_OK : fail(TY_EMEMORY, "out of memory: order of %d nodes", f->n);
  for (int i = 0; i < f->nhead && !code; i++) code = order_from(f, f->head[i].node, stack, true);
  for (int i = 0; i < f->n && !code; i++) /* the rest: cycles only */
    code = order_from(f, i, stack, false);
  mem_free(stack);
  return code;
}

/* -- building ---------------------------------------------------------------------------------- */

static int parse_body(const char *text, size_t at, ty_graph **out);

static int add_bodies(struct file *f, ty_graph *g, const struct draft *d)
{
  for (int k = 0; k < d->nbody; k++) {
    ty_graph *body;
    TRY(parse_body(f->text, d->body[k], &body));
    int code = ty_graph_subgraph(g, body);
    ty_graph_free(body);
    TRY(code);
  }
  return TY_OK;
}

static int check_input(
    const struct draft *d, const struct port *port, int k, const struct node *from)
{
  NEED(d->in[k].out < from->nreal, TY_EFORMAT, "%s %s: input %d is output %d of %s, which has %d",
      d->op, d->name, k, d->in[k].out, from->name, from->nreal);
  NEED(!port->mutated || !from->op, TY_EFORMAT,
      "%s %s: the operator changes input %s: a variable is needed, got %s", d->op, d->name,
      port->name, from->name);
  return TY_OK;
}

static int check_inputs(
    struct file *f, const ty_graph *g, const struct draft *d, struct arena *a)
{
  struct ports p;
  TRY(draft_ports(d, a, &p));
  int code = TY_OK;
  if (p.nin != d->nin)
    code = fail(TY_EFORMAT, "%s %s: expected %d inputs, got %d", d->op, d->name, p.nin, d->nin);
  for (int k = 0; !code && k < d->nin; k++)
    code = check_input(d, &p.in[k], k, &g->node[f->node[d->in[k].node].index]);
  if (code) fail_node(d->op, d->name, NULL);
  return code;
}

static int build_op(struct file *f, ty_graph *g, const struct draft *d, struct arena *a)
{
  ty_entry out;
  TRY(check_inputs(f, g, d, a));
  ty_entry *in = arena_new(a, sizeof *in * (size_t)d->nin);
  NEED(in, TY_EMEMORY, "out of memory: inputs");
  for (int k = 0; k < d->nin; k++) in[k] = (ty_entry){ f->node[d->in[k].node].index, d->in[k].out };
  TRY(add_bodies(f, g, d));
  return ty_graph_op(g, d->op, d->name, d->attr, d->nattr, in, d->nin, &out);
}

static int build_node(struct file *f, ty_graph *g, const struct draft *d)
{
  ty_entry out;
  if (!d->op) return ty_graph_var(g, d->name, d->attr, d->nattr, &out);
  struct arena a = { 0 };
  int code = build_op(f, g, d, &a);
  arena_done(&a);
  return code;
}

static int build_heads(const struct file *f, ty_graph *g)
{
  NEED(f->nhead, TY_EFORMAT, "the graph has no heads");
  g->head = NEWS(ty_entry, f->nhead);
  NEED(g->head, TY_EMEMORY, "out of memory: heads");
  g->nhead = f->nhead;
  for (int i = 0; i < f->nhead; i++) {
    const struct node *n = &g->node[f->node[f->head[i].node].index];
    NEED(f->head[i].out < n->nreal, TY_EFORMAT, "head %d is output %d of %s, which has %d", i,
        f->head[i].out, n->name, n->nreal);
    g->head[i] = (ty_entry){ f->node[f->head[i].node].index, f->head[i].out };
  }
  return TY_OK;
}

/* Whether the file's versions are those that would be counted. counter: a 0 for each node */
static bool versions_are_counted(const struct file *f, const ty_graph *g, int *counter)
{
  for (int i = 0; i < f->norder; i++) {
    const struct draft *d = &f->node[f->order[i]];
    const struct node *n = &g->node[i];
    for (int k = 0; k < d->nin; k++) {
      const int from = n->in[k].node;
      counter[from] += n->inport[k].mutated;
      if (counter[from] != d->in[k].version) return false;
    }
  }
  return true;
}

/* The text that the file stands for, where its versions are not those that would be counted. */
static int keep_text(struct file *f, ty_graph *g)
{
  struct listing l;
  int *counter = NEWS(int, g->n);
  NEED(counter, TY_EMEMORY, "out of memory: versions of %d nodes", g->n);
  const bool counted = versions_are_counted(f, g, counter);
  mem_free(counter);
  if (counted) return TY_OK;
  TRY(listing_make(g, g->head, g->nhead, f->arena, &l));
  TRY(listing_versions(g, &l, f->arena));
  for (int i = 0; i < f->norder; i++) {
    const struct draft *d = &f->node[f->order[i]];
    for (int k = 0; k < d->nin; k++) l.version[i][k] = d->in[k].version;
  }
  return graph_print(g, g->head, g->nhead, (const int *const *)l.version, &g->printed);
}

/* How many outputs an operator of the front end has is not in the file: as many as somebody
** reads, until it is asked. */
static int count_host_outputs(struct file *f, int node)
{
  struct draft *d = &f->node[node];
  struct text t = { 0 };
  int n = 1;
  for (int i = 0; i < f->n; i++)
    for (int k = 0; k < f->node[i].nin; k++)
      if (f->node[i].in[k].node == node) n = MAX(n, f->node[i].in[k].out + 1);
  for (int i = 0; i < f->nhead; i++)
    if (f->head[i].node == node) n = MAX(n, f->head[i].out + 1);
  for (int k = 0; k < n && n <= 1000; k++) text_add(&t, "%soutput%d", k ? " " : "", k);
  char *names = t.s ? arena_text(f->arena, t.s) : NULL;
  text_done(&t);
  return names ? draft_add_attr(f, d, "__custom_out__", names) : TY_OK;
}

static int build(struct file *f, ty_graph *g)
{
  for (int i = 0; i < f->n; i++) {
    const struct op *op = f->node[i].op ? op_find(f->node[i].op) : NULL;
    if (op && op->flags & OP_CALLBACK) TRY(count_host_outputs(f, i));
  }
  g->node = NEWS(struct node, f->norder);
  NEED(g->node, TY_EMEMORY, "out of memory: graph of %d nodes", f->norder);
  g->cap = f->norder;
  for (int i = 0; i < f->norder; i++) TRY(build_node(f, g, &f->node[f->order[i]]));
  TRY(build_heads(f, g));
  return keep_text(f, g);
}

/* -- the file ---------------------------------------------------------------------------------- */

/* ["int", 10901] */
static int read_version(const struct json *attrs, int *out)
{
  const struct json *v = json_get(attrs, "mxnet_version");
  *out = 800; /* files before 0.9 did not say */
  if (!v) return TY_OK;
  if (v->type != J_LIST || v->n != 2) return corrupt(v, "[\"int\", version]", kind(v));
  return read_whole(v->first->next, "a version", out);
}

/* Rows of the file's own, written by symbol_write.c as ["str", lines]. */
static int add_rows(const struct json *attrs)
{
  const struct json *v = json_get(attrs, "tycho_rows");
  if (!v) return TY_OK;
  if (v->type != J_LIST || v->n != 2 || v->first->next->type != J_TEXT)
    return corrupt(v, "[\"str\", rows]", kind(v));
  return formula_define(v->first->next->text);
}

static int read_file(struct file *f, const struct json *object, bool top)
{
  const struct json *attrs = json_get(object, "attrs");
  TRY(check_fields(object, " nodes arg_nodes heads ", " node_row_ptr attrs "));
  if (attrs && attrs->type != J_OBJECT) return corrupt(attrs, "an object", kind(attrs));
  f->version = FILE_VERSION;
  if (top) {
    TRY(read_version(attrs, &f->version));
    TRY(add_rows(attrs));
  }
  TRY(read_drafts(f, json_get(object, "nodes")));
  TRY(read_heads(f, json_get(object, "heads")));
  TRY(check_references(f, json_get(object, "arg_nodes")));
  TRY(draft_upgrade(f));
  return order_drafts(f);
}

static int parse_object(struct file *f, const struct json *object, bool top, ty_graph **out)
{
  ty_graph *g;
  TRY(read_file(f, object, top));
  TRY(ty_graph_new(&g));
  g->version = f->version;
  int code = build(f, g);
  if (code)
    ty_graph_free(g);
  else
    *out = g;
  return code;
}

static int parse_body(const char *text, size_t at, ty_graph **out)
{
  struct arena a = { 0 };
  struct file f = { .text = text, .arena = &a };
  struct json *object;
  int code = json_object(text, at, &a, &object);
  if (!code) code = parse_object(&f, object, false, out);
  arena_done(&a);
  return code;
}

int ty_graph_parse(const char *text, ty_graph **out)
{
  NEED(text && out, TY_ETYPE, "graph_parse: null argument");
  struct arena a = { 0 };
  struct file f = { .text = text, .arena = &a };
  struct json *object;
  int code = json_read(text, &a, &object);
  if (!code) code = parse_object(&f, object, true, out);
  arena_done(&a);
  return code;
}

int ty_graph_load(const char *path, ty_graph **out)
{
  NEED(path && out, TY_ETYPE, "graph_load: null argument");
  char *text;
  size_t n;
  TRY(file_read(path, &text, &n));
  size_t broken = strlen(text); /* a text would end there unnoticed */
  int code = broken < n ? fail(TY_EFORMAT, "byte %zu: this is not text", broken)
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
