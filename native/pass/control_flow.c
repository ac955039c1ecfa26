/* control_flow.c - control flow without nested executors: bodies are part of the graph when it
** is bound.
**
** A loop over rows becomes one copy of its body per row. A loop with a condition becomes
** max_iterations copies, each with a guard: a byte that is 1 while every condition so far held; a
** choice becomes both branches, each with its own guard. A value that enters a guarded part passes
** a _gate, one that leaves it a _select (operators/control/control_flow.c); each node between them
** carries the guard, and its steps are skipped while the byte is zero, forward and backward. Guards
** nest: the guard of an inner part includes the outer one. All variables of bodies are entries of
** the graph around them (control_bodies.c). Done once, when all shapes are known and before
** gradients.
*/
#include "pass/control_bodies.h"
#include "pass/control_flow.h"
#include "pass/extract.h"
#include "pass/rewrite.h"
#include "operators/control/subgraphs.h"

bool control_used(const ty_graph *g)
{
  for (int i = 0; i < g->n; i++)
    if (g->node[i].nbody) return true;
  return false;
}

/* -- expansion --------------------------------------------------------------------------------- */

/* to: the new graph; g: the old one, desc: per value of it */
struct expansion { ty_graph *to; const ty_graph *g; const ty_desc *desc; };
/* One copy of a body, or of the whole graph: where its variables come from, and the new entries of
** its values. */
struct copy {
  const ty_graph *g;
  const ty_desc *desc;
  ty_entry *of;
  const char *prefix, *where;
  int guard;
};

static int control_expand_node(struct expansion *x, struct copy *c, int i);

/* Adds a node named prefix + name, without the attributes of variables and of the node's ctx group,
** which do not matter to it. */
static int control_add_op(struct expansion *x, struct copy *c, const char *op, const char *name,
    const ty_attr *attr, int nattr, const ty_entry *in, int nin, ty_entry *out)
{
  char full[600];
  snprintf(full, sizeof full, "%s%s", c->prefix, name);
  TRY(ty_graph_origin(x->to, c->where));
  TRY(graph_node(x->to, op_find(op), full, attr, nattr, in, nin, out));
  x->to->node[out->node].guard = c->guard;
  return TY_OK;
}

static int control_make_guard(struct expansion *x, struct copy *c, const char *name,
    ty_entry condition, bool negate, int bound, int *guard)
{
  ty_entry in[2] = { condition, { bound - 1, 0 } }, made;
  ty_attr attr[] = { { "negate", negate ? "True" : "False" },
    { "nested", bound ? "True" : "False" } };
  struct copy always = *c;
  always.guard = 0; /* an inner guard reads the outer one */
  TRY(control_add_op(x, &always, "_guard", name, attr, 2, in, bound ? 2 : 1, &made));
  *guard = made.node + 1;
  return TY_OK;
}

static int control_make_gate(
    struct expansion *x, struct copy *c, const char *name, ty_entry value, int guard, ty_entry *out)
{
  ty_entry in[2] = { value, { guard - 1, 0 } };
  return control_add_op(x, c, "_gate", name, NULL, 0, in, 2, out);
}

static int control_make_select(struct expansion *x, struct copy *c, const char *name, int guard,
    ty_entry first, ty_entry second, ty_entry *out)
{
  ty_entry in[3] = { { guard - 1, 0 }, first, second };
  return control_add_op(x, c, "_select", name, NULL, 0, in, 3, out);
}

static int control_make_zeros(
    struct expansion *x, struct copy *c, const char *name, const ty_desc *d, ty_entry *out)
{
  struct text t = { 0 };
  for (int i = 0; i < d->ndim; i++) text_add(&t, "%s%lld", i ? ", " : "(", (long long)d->dim[i]);
  text_add(&t, d->ndim == 1 ? ",)" : ")");
  ty_attr attr[] = { { "dtype", dtype_name(d->dtype) }, { "shape", t.s } };
  int code = t.lost ? fail(TY_EMEMORY, "out of memory: control flow")
                    : control_add_op(x, c, "_zeros", name, attr, 2, NULL, 0, out);
  text_done(&t);
  return code;
}

/* Makes the rows of a value the outputs of one node. */
static int control_make_rows(struct expansion *x, struct copy *c, const char *name, ty_entry value,
    const ty_desc *d, ty_entry *out)
{
  char number[24];
  snprintf(number, sizeof number, "%lld", (long long)d->dim[0]);
  ty_attr attr[] = { { "axis", "0" }, { "num_outputs", number },
    { "squeeze_axis", d->ndim > 1 ? "True" : "False" } };
  return control_add_op(x, c, "SliceChannel", name, attr, 3, &value, 1, out);
}

static int control_make_stack(struct expansion *x, struct copy *c, const char *name,
    const ty_entry *part, int n, ty_entry *out)
{
  char number[24];
  snprintf(number, sizeof number, "%d", n);
  ty_attr attr[] = { { "axis", "0" }, { "num_args", number } };
  return control_add_op(x, c, "stack", name, attr, 2, part, n, out);
}

/* Checks that what a body changes in place is a variable around it. */
static int control_check_states(
    const struct expansion *x, const struct node *n, int which, const ty_entry *var)
{
  for (int k = 0; k < body_variables(n->body[which]); k++) {
    int64_t input = n->op->body_input(n->kind->param, which, k);
    if (input < 0 || !n->kind->inport[input].mutated || !x->to->node[var[k].node].op) continue;
    int code = fail(TY_EVALUE, "%s %s: its body changes input %d in place; expected a variable, "
        "which is neither a row nor a state", n->op->name, n->name, (int)input);
    fail_node(n->op->name, n->name, n->where);
    return code;
  }
  return TY_OK;
}

/* Copies body `which` of a node. var[k]: the entry that variable k is; head[k] receives what output
** k became. prefix: of the names of its nodes. */
static int control_copy_body(struct expansion *x, const struct copy *around, const struct node *n,
    int which, const ty_desc *desc, const char *prefix, int guard, const ty_entry *var,
    ty_entry *head)
{
  TRY(control_check_states(x, n, which, var));
  const ty_graph *body = n->body[which];
  struct copy c = { body, desc, NEWS(ty_entry, body->nvalue), prefix, around->where, guard };
  int k = 0, code = c.of ? TY_OK : fail(TY_EMEMORY, "out of memory: control flow");
  for (int i = 0; i < body->n && !code; i++) {
    if (!body->node[i].op)
      c.of[body->node[i].first] = var[k++];
    else
      code = control_expand_node(x, &c, i);
  }
  for (int h = 0; h < body->nhead && !code; h++) head[h] = c.of[value_of(body, body->head[h])];
  mem_free(c.of);
  return code;
}

/* Infers descriptors of a body's values, which the expansion of bodies inside it needs. */
static int control_describe_body(
    const struct copy *c, const struct node *n, int body, ty_desc **out)
{
  struct infer s = { n->op, n->kind->param, n->nin, n->kind->nout,
    NEWS(ty_desc, n->nin + n->kind->nout + 1), NULL };
  NEED(s.in, TY_EMEMORY, "out of memory: control flow");
  s.out = s.in + n->nin;
  for (int k = 0; k < n->nin; k++) s.in[k] = c->desc[value_of(c->g, n->in[k])];
  for (int k = 0; k < n->kind->nout; k++) s.out[k] = c->desc[n->first + k];
  int code = body_describe(n, body, &s, out);
  mem_free(s.in);
  return code;
}

/* -- _foreach ---------------------------------------------------------------------------------- */

struct work { ty_entry *var, *head, *state, *part; ty_entry *row; ty_desc *desc[3]; };

static int control_open_work(struct work *w, struct copy *c, const struct node *n, int64_t rows)
{
  int vars = 1, heads = 1;
  for (int k = 0; k < n->nbody; k++)
    vars = MAX(vars, body_variables(n->body[k])), heads = MAX(heads, n->body[k]->nhead);
  *w = (struct work){ NEWS(ty_entry, vars), NEWS(ty_entry, heads),
    NEWS(ty_entry, n->kind->nout + 1), NEWS(ty_entry, (size_t)heads * (size_t)rows + 1),
    NEWS(ty_entry, n->nin + 1), { NULL } };
  NEED(w->var && w->head && w->state && w->part && w->row, TY_EMEMORY,
      "out of memory: control flow");
  for (int k = 0; k < n->nbody; k++) TRY(control_describe_body(c, n, k, &w->desc[k]));
  return TY_OK;
}

static void control_close_work(struct work *w)
{
  mem_free(w->var);
  mem_free(w->head);
  mem_free(w->state);
  mem_free(w->part);
  mem_free(w->row);
  for (int k = 0; k < 3; k++) mem_free(w->desc[k]);
}

static ty_entry control_input_of(const struct copy *c, const struct node *n, int64_t k)
{
  return c->of[value_of(c->g, n->in[k])];
}

static int control_stack_outputs(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w, int count, int rows)
{
  for (int k = 0; k < count; k++) {
    char name[600];
    output_name(n, k, name, sizeof name);
    TRY(control_make_stack(
        x, c, name, w->part + (size_t)k * (size_t)rows, rows, &c->of[n->first + k]));
  }
  return TY_OK;
}

static int control_take_foreach_rows(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w, int rows)
{
  const struct foreach_param *p = n->kind->param;
  int nd = (int)p->data_locs.n, ns = (int)p->state_locs.n;
  for (int t = 0; t < rows; t++) {
    char prefix[600];
    snprintf(prefix, sizeof prefix, "%s%s_%d_", c->prefix, n->name, t);
    for (int k = 0; k < nd; k++)
      if (p->data_locs.d[k] >= 0) w->var[p->data_locs.d[k]] = (ty_entry){ w->row[k].node, t };
    for (int k = 0; k < ns; k++)
      if (p->state_locs.d[k] >= 0) w->var[p->state_locs.d[k]] = w->state[k];
    for (int k = 0; k < p->remain_locs.n; k++)
      w->var[p->remain_locs.d[k]] = control_input_of(c, n, nd + ns + k);
    TRY(control_copy_body(x, c, n, 0, w->desc[0], prefix, c->guard, w->var, w->head));
    for (int k = 0; k < p->num_out_data; k++)
      w->part[(size_t)k * (size_t)rows + (size_t)t] = w->head[k];
    for (int k = 0; k < ns; k++) w->state[k] = w->head[p->num_out_data + k];
  }
  return TY_OK;
}

static int control_expand_foreach(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w, int rows)
{
  const struct foreach_param *p = n->kind->param;
  int nd = (int)p->data_locs.n;
  for (int k = 0; k < nd; k++) {
    char name[600];
    snprintf(name, sizeof name, "%s_rows%d", n->name, k);
    TRY(control_make_rows(
        x, c, name, control_input_of(c, n, k), &c->desc[value_of(c->g, n->in[k])], &w->row[k]));
  }
  for (int k = 0; k < p->state_locs.n; k++) w->state[k] = control_input_of(c, n, nd + k);
  TRY(control_take_foreach_rows(x, c, n, w, rows));
  for (int k = 0; k < p->state_locs.n; k++) c->of[n->first + p->num_out_data + k] = w->state[k];
  return control_stack_outputs(x, c, n, w, (int)p->num_out_data, rows);
}

/* -- _while_loop ------------------------------------------------------------------------------- */

/* Returns whether variable k of a body is loop variable j. An attribute lists those of the
** function; a variable of the condition is a loop variable if it has the same input. */
static bool control_is_loop_variable(
    const struct while_param *p, const struct ints *locs, int k, int j)
{
  int at = (int)p->var_locs.d[j];
  return locs == &p->func_locs ? at == k : p->func_locs.d[at] == locs->d[k];
}

/* Finds the entries of a body's variables: of a loop variable its present value, of another one the
** value in the graph around; each passes a gate. */
static int control_find_while_variables(struct expansion *x, struct copy *c, const struct node *n,
    struct work *w, const struct ints *locs, int guard, const char *prefix)
{
  const struct while_param *p = n->kind->param;
  for (int k = 0; k < locs->n; k++) {
    w->var[k] = control_input_of(c, n, locs->d[k]);
    for (int j = 0; j < p->var_locs.n; j++)
      if (control_is_loop_variable(p, locs, k, j)) w->var[k] = w->state[j];
    char name[700];
    snprintf(name, sizeof name, "%sgate%d", prefix, k);
    if (guard && !n->kind->inport[locs->d[k]].mutated)
      TRY(control_make_gate(x, c, name, w->var[k], guard, &w->var[k]));
  }
  return TY_OK;
}

static int control_expand_while_step(struct expansion *x, struct copy *c, const struct node *n,
    struct work *w, int t, const ty_entry *zero, int *guard)
{
  const struct while_param *p = n->kind->param;
  int rows = (int)p->max_iterations, nd = (int)p->num_out_data;
  char own[600], prefix[700], name[700];
  snprintf(own, sizeof own, "%s_%d_", n->name, t);
  snprintf(prefix, sizeof prefix, "%s%s", c->prefix, own);
  TRY(control_find_while_variables(x, c, n, w, &p->cond_locs, 0, own));
  TRY(control_copy_body(
      x, c, n, 0, w->desc[0], prefix, *guard ? *guard : c->guard, w->var, w->head));
  snprintf(name, sizeof name, "%sguard", own);
  TRY(control_make_guard(x, c, name, w->head[0], false, *guard ? *guard : c->guard, guard));
  TRY(control_find_while_variables(x, c, n, w, &p->func_locs, *guard, own));
  TRY(control_copy_body(x, c, n, 1, w->desc[1], prefix, *guard, w->var, w->head));
  for (int k = 0; k < p->num_outputs; k++) {
    snprintf(name, sizeof name, "%sselect%d", own, k);
    ty_entry *to = k < nd ? &w->part[(size_t)k * (size_t)rows + (size_t)t] : &w->state[k - nd];
    TRY(control_make_select(
        x, c, name, *guard, w->head[k], k < nd ? zero[k] : w->state[k - nd], to));
  }
  return TY_OK;
}

static int control_expand_while(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w)
{
  const struct while_param *p = n->kind->param;
  int rows = (int)p->max_iterations, nd = (int)p->num_out_data, guard = 0;
  for (int k = 0; k < nd; k++) {
    char name[600];
    ty_desc d = c->desc[n->first + k];
    snprintf(name, sizeof name, "%s_zeros%d", n->name, k);
    d.ndim--;
    memmove(d.dim, d.dim + 1, sizeof *d.dim * (size_t)d.ndim);
    TRY(control_make_zeros(x, c, name, &d, &w->row[k]));
  }
  for (int k = 0; k < p->var_locs.n; k++)
    w->state[k] = control_input_of(c, n, p->func_locs.d[p->var_locs.d[k]]);
  for (int t = 0; t < rows; t++) TRY(control_expand_while_step(x, c, n, w, t, w->row, &guard));
  for (int k = 0; k < p->var_locs.n; k++) c->of[n->first + nd + k] = w->state[k];
  return control_stack_outputs(x, c, n, w, nd, rows);
}

/* -- _cond ------------------------------------------------------------------------------------- */

static int control_expand_branch(struct expansion *x, struct copy *c, const struct node *n,
    struct work *w, int body, int guard, ty_entry *head)
{
  static const char *const label[] = { "if", "then", "else" };
  const struct cond_param *p = n->kind->param;
  const struct ints *locs = body == 0 ? &p->cond_locs : body == 1 ? &p->then_locs : &p->else_locs;
  char prefix[700];
  snprintf(prefix, sizeof prefix, "%s%s_%s_", c->prefix, n->name, label[body]);
  for (int k = 0; k < locs->n; k++) {
    char name[700];
    w->var[k] = control_input_of(c, n, locs->d[k]);
    snprintf(name, sizeof name, "%s_%s_gate%d", n->name, label[body], k);
    if (body && !n->kind->inport[locs->d[k]].mutated)
      TRY(control_make_gate(x, c, name, w->var[k], guard, &w->var[k]));
  }
  return control_copy_body(x, c, n, body, w->desc[body], prefix, guard, w->var, head);
}

static int control_expand_cond(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w)
{
  const struct cond_param *p = n->kind->param;
  char name[700];
  int yes, no;
  TRY(control_expand_branch(x, c, n, w, 0, c->guard, w->head));
  snprintf(name, sizeof name, "%s_then_guard", n->name);
  TRY(control_make_guard(x, c, name, w->head[0], false, c->guard, &yes));
  snprintf(name, sizeof name, "%s_else_guard", n->name);
  TRY(control_make_guard(x, c, name, w->head[0], true, c->guard, &no));
  TRY(control_expand_branch(x, c, n, w, 1, yes, w->head));
  TRY(control_expand_branch(x, c, n, w, 2, no, w->part));
  for (int k = 0; k < p->num_outputs; k++) {
    output_name(n, k, name, sizeof name);
    TRY(control_make_select(x, c, name, yes, w->head[k], w->part[k], &c->of[n->first + k]));
  }
  return TY_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

/* Hides nodes `from` on from monitors, except the outputs of the node that they replace, in
** order. */
static int control_hide_nodes(struct expansion *x, struct copy *c, const struct node *n, int from)
{
  int last = from - 1;
  for (int k = 0; k < n->kind->nout; k++) {
    ty_entry *e = &c->of[n->first + k];
    char name[600];
    output_name(n, k, name, sizeof name);
    if (e->node <= last || x->to->node[e->node].kind->nout > 1)
      TRY(control_add_op(x, c, "_copy", name, NULL, 0, e, 1, e));
    last = e->node;
    struct node *out = &x->to->node[e->node];
    out->shown = arena_text(&x->to->arena, name);
    NEED(out->shown, TY_EMEMORY, "out of memory: control flow");
  }
  for (int i = from; i < x->to->n; i++) x->to->node[i].inside = true;
  return TY_OK;
}

/* Returns how often the body runs at most; 0: a _foreach over nothing. */
static int64_t control_count_iterations(const struct copy *c, const struct node *n)
{
  switch (n->op->control) {
  case CONTROL_FOREACH:
    if (!((const struct foreach_param *)n->kind->param)->data_locs.n) return 0;
    return c->desc[value_of(c->g, n->in[0])].dim[0];
  case CONTROL_WHILE: return ((const struct while_param *)n->kind->param)->max_iterations;
  default: return 1;
  }
}

static int control_expand_rows(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w, int rows)
{
  switch (n->op->control) {
  case CONTROL_FOREACH: return control_expand_foreach(x, c, n, w, rows);
  case CONTROL_WHILE: return control_expand_while(x, c, n, w);
  default: return control_expand_cond(x, c, n, w);
  }
}

static int control_expand_bodies(struct expansion *x, struct copy *c, const struct node *n)
{
  struct work w = { 0 };
  struct copy mine = *c;
  int from = x->to->n;
  int64_t rows = control_count_iterations(c, n);
  if (n->where) mine.where = n->where;
  if (rows < 1 || rows > 100000) {
    int code = fail(TY_EVALUE, "%s %s: %lld iterations; expected 1 to 100000", n->op->name, n->name,
        (long long)rows);
    fail_node(n->op->name, n->name, n->where);
    return code;
  }
  int code = control_open_work(&w, c, n, rows);
  if (!code) code = control_expand_rows(x, &mine, n, &w, (int)rows);
  control_close_work(&w);
  return code || *c->prefix ? code : control_hide_nodes(x, &mine, n, from);
}

static int control_borrow_node(struct expansion *x, struct copy *c, const struct node *n)
{
  ty_entry made, *in = NEWS(ty_entry, n->nin);
  NEED(in, TY_EMEMORY, "out of memory: control flow");
  for (int k = 0; k < n->nin; k++) in[k] = control_input_of(c, n, k);
  int code = graph_borrow(x->to, n, in, &made);
  mem_free(in);
  TRY(code);
  struct node *copy = &x->to->node[made.node];
  copy->guard = c->guard;
  if (!copy->where) copy->where = c->where;
  for (int k = 0; k < n->kind->nout; k++) c->of[n->first + k] = (ty_entry){ made.node, k };
  if (!*c->prefix) return TY_OK;
  char name[1200];
  snprintf(name, sizeof name, "%s%s", c->prefix, n->name);
  copy->name = arena_text(&x->to->arena, name);
  NEED(copy->name, TY_EMEMORY, "out of memory: control flow");
  return TY_OK;
}

static int control_expand_node(struct expansion *x, struct copy *c, int i)
{
  const struct node *n = &c->g->node[i];
  return n->nbody ? control_expand_bodies(x, c, n) : control_borrow_node(x, c, n);
}

int rewrite_control_flow(struct typed_graph *x, const struct rewrite_request *r)
{
  struct mapper m;
  if (!control_used(x->g)) return TY_OK;
  TRY(mapper_begin(&m, x));
  struct expansion e = { m.to, x->g, x->desc };
  struct copy c = { x->g, x->desc, m.entry, "", NULL, 0 };
  int code = TY_OK;
  for (int i = 0; i < x->g->n && !code; i++) {
    const struct node *n = &x->g->node[i];
    code = n->nbody ? control_expand_bodies(&e, &c, n) : mapper_copy(&m, i, NULL);
  }
  return mapper_end(&m, code);
}
