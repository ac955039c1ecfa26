/* control_flow.c - control flow without nested executors: bodies are part of the graph when it
** is bound.
**
** A loop over rows becomes one copy of its body per row. A loop with a condition becomes
** max_iterations copies, each behind a guard: a byte that holds while every condition so far
** did; a choice becomes both branches, each behind its own guard. What enters a guarded part
** passes a _gate, what leaves it a _select (operators/control/control_flow.c); in between each
** node carries its guard, and the program skips its instructions while the byte is zero, forward
** and backward. Guards nest: the guard of an inner part includes the bound one. All bodies'
** variables stand for entries of the graph around them. Calls: control_infer during inference;
** control_expand once, when all shapes are known and before gradients.
*/
#include "pass/control_flow.h"
#include "pass/extract.h"
#include "operators/control/subgraphs.h"

static bool is(const struct node *n, const char *name)
{
  return n->op && !strcmp(n->op->name, name);
}

bool control_used(const ty_graph *g)
{
  for (int i = 0; i < g->n; i++)
    if (g->node[i].nbody) return true;
  return false;
}

/* -- places: which value around stands for a body's variable ----------------------------------- */

static int variables_of(const ty_graph *g)
{
  int n = 0;
  for (int i = 0; i < g->n; i++) n += !g->node[i].op;
  return n;
}

/* The node of variable k, -1. */
static int variable_at(const ty_graph *g, int64_t k)
{
  for (int i = 0; i < g->n; i++)
    if (!g->node[i].op && k-- == 0) return i;
  return -1;
}

static int bad_places(const struct node *n, const char *what)
{
  int code = fail(
      TY_EFORMAT, "%s %s: its bodies and %s do not fit together", n->op->name, n->name, what);
  fail_node(n->op->name, n->name, n->where);
  return code;
}

static int check_list(
    const struct node *n, const struct ints *l, int64_t least, int64_t limit, const char *what)
{
  for (int64_t k = 0; k < l->n; k++)
    if (l->d[k] < least || l->d[k] >= limit) return bad_places(n, what);
  return TY_OK;
}

static int check_bodies(const struct node *n, int bodies)
{
  if (n->nbody != bodies) {
    int code = fail(TY_EVALUE, "%s %s: %d bodies, expected %d; build it with ty.sym.contrib",
        n->op->name, n->name, n->nbody, bodies);
    fail_node(n->op->name, n->name, n->where);
    return code;
  }
  for (int k = 0; k < bodies; k++)
    if (!n->body[k]->nhead) return bad_places(n, "their outputs");
  return TY_OK;
}

static int check_foreach(const struct node *n, const struct foreach_param *p)
{
  TRY(check_bodies(n, 1));
  int vars = variables_of(n->body[0]);
  TRY(check_list(n, &p->data_locs, -1, vars, "in_data_locs"));
  TRY(check_list(n, &p->state_locs, -1, vars, "in_state_locs"));
  TRY(check_list(n, &p->remain_locs, 0, vars, "remain_locs"));
  if (p->data_locs.n + p->state_locs.n + p->remain_locs.n != n->nin)
    return bad_places(n, "num_args");
  if (p->num_out_data < 0 || p->num_out_data + p->state_locs.n != p->num_outputs)
    return bad_places(n, "num_out_data");
  return n->body[0]->nhead == p->num_outputs ? TY_OK : bad_places(n, "num_outputs");
}

static int check_while(const struct node *n, const struct while_param *p)
{
  TRY(check_bodies(n, 2));
  TRY(check_list(n, &p->cond_locs, 0, n->nin, "cond_input_locs"));
  TRY(check_list(n, &p->func_locs, 0, n->nin, "func_input_locs"));
  TRY(check_list(n, &p->var_locs, 0, variables_of(n->body[1]), "func_var_locs"));
  if (p->cond_locs.n != variables_of(n->body[0])) return bad_places(n, "cond_input_locs");
  if (p->func_locs.n != variables_of(n->body[1])) return bad_places(n, "func_input_locs");
  if (p->num_out_data < 0 || p->num_out_data + p->var_locs.n != p->num_outputs)
    return bad_places(n, "num_out_data");
  return n->body[1]->nhead == p->num_outputs && n->body[0]->nhead == 1
      ? TY_OK
      : bad_places(n, "num_outputs");
}

static int check_cond(const struct node *n, const struct cond_param *p)
{
  const struct ints *list[] = { &p->cond_locs, &p->then_locs, &p->else_locs };
  static const char *const what[] = { "cond_input_locs", "then_input_locs", "else_input_locs" };
  TRY(check_bodies(n, 3));
  for (int k = 0; k < 3; k++) {
    TRY(check_list(n, list[k], 0, n->nin, what[k]));
    if (list[k]->n != variables_of(n->body[k]) || n->body[k]->nhead != (k ? p->num_outputs : 1))
      return bad_places(n, what[k]);
  }
  return TY_OK;
}

static int check_node(const struct node *n)
{
  if (is(n, "_foreach")) return check_foreach(n, n->param);
  return is(n, "_while_loop") ? check_while(n, n->param) : check_cond(n, n->param);
}

/* -- inference --------------------------------------------------------------------------------- */

/* a body and what is known of it */
struct view { const ty_graph *g; ty_desc *desc; struct infer *s; int what; };

static void clear_first(ty_desc *d)
{
  if (d->ndim > 1)
    memmove(d->dim, d->dim + 1, sizeof *d->dim * (size_t)--d->ndim);
  else if (d->ndim == 1)
    d->dim[0] = 1; /* rows of a vector have one element */
}

static void put_first(ty_desc *d, int64_t rows)
{
  if (!d->ndim || d->ndim == TY_MAXDIM) return;
  memmove(d->dim + 1, d->dim, sizeof *d->dim * (size_t)d->ndim++);
  d->dim[0] = rows;
}

static int agree(struct view *w, ty_desc *a, ty_desc *b)
{
  return w->what == INFER_SHAPES ? shape_both(w->s, a, b) : type_both(w->s, a, b);
}

static ty_desc *variable_desc(struct view *w, int64_t k)
{
  int i = variable_at(w->g, k);
  return i < 0 ? NULL : &w->desc[w->g->node[i].first];
}

static ty_desc *head_desc(struct view *w, int k) { return &w->desc[value_of(w->g, w->g->head[k])]; }

static int open_view(struct view *w, const ty_graph *body, struct infer *s, int what)
{
  *w = (struct view){ body, NEWS(ty_desc, body->nvalue), s, what };
  NEED(w->desc, TY_EMEMORY, "out of memory: inference");
  return infer_seed(body, NULL, 0, w->desc);
}

/* Variable k of the body and a slot of the node are one array. */
static int match_whole(struct view *w, int64_t k, ty_desc *slot)
{
  ty_desc *v = k < 0 ? NULL : variable_desc(w, k);
  return v ? agree(w, v, slot) : TY_OK;
}

/* Variable k (or value v) of the body is a row of a slot. */
static int match_row(struct view *w, ty_desc *v, ty_desc *slot)
{
  ty_desc row = *slot;
  int64_t rows = slot->ndim ? slot->dim[0] : 0;
  bool vector = slot->ndim == 1;
  if (!v) return TY_OK;
  clear_first(&row);
  TRY(agree(w, v, &row));
  if (w->what == INFER_TYPES) return slot->dtype = row.dtype, TY_OK;
  if (vector || !slot->ndim) return TY_OK;
  put_first(&row, rows);
  return shape_as(w->s, slot, &row);
}

static int match_stack(struct view *w, ty_desc *v, ty_desc *slot, int64_t rows)
{
  ty_desc whole = *v;
  put_first(&whole, rows);
  if (w->what == INFER_SHAPES) return shape_as(w->s, slot, &whole);
  return type_both(w->s, v, slot);
}

static int match_foreach(struct view *w, const struct foreach_param *p)
{
  ty_desc *in = w->s->in, *out = w->s->out;
  int64_t rows = 0;
  int nd = (int)p->data_locs.n, ns = (int)p->state_locs.n;
  for (int k = 0; k < nd; k++) {
    if (in[k].ndim && in[k].dim[0]) rows = in[k].dim[0];
    TRY(match_row(w, p->data_locs.d[k] < 0 ? NULL : variable_desc(w, p->data_locs.d[k]), &in[k]));
  }
  for (int k = 0; k < ns; k++) TRY(match_whole(w, p->state_locs.d[k], &in[nd + k]));
  for (int k = 0; k < p->remain_locs.n; k++)
    TRY(match_whole(w, p->remain_locs.d[k], &in[nd + ns + k]));
  for (int k = 0; k < p->num_out_data; k++) TRY(match_stack(w, head_desc(w, k), &out[k], rows));
  for (int k = 0; k < ns; k++) {
    TRY(agree(w, head_desc(w, (int)p->num_out_data + k), &in[nd + k]));
    TRY(agree(w, &in[nd + k], &out[p->num_out_data + k]));
  }
  return TY_OK;
}

static int match_while(struct view *w, const struct while_param *p, bool condition)
{
  ty_desc *in = w->s->in, *out = w->s->out;
  const struct ints *locs = condition ? &p->cond_locs : &p->func_locs;
  for (int k = 0; k < locs->n; k++) TRY(match_whole(w, k, &in[locs->d[k]]));
  if (condition) return TY_OK;
  for (int k = 0; k < p->num_out_data; k++)
    TRY(match_stack(w, head_desc(w, k), &out[k], p->max_iterations));
  for (int k = 0; k < p->var_locs.n; k++) {
    ty_desc *var = &in[p->func_locs.d[p->var_locs.d[k]]];
    TRY(agree(w, head_desc(w, (int)p->num_out_data + k), var));
    TRY(agree(w, var, &out[p->num_out_data + k]));
  }
  return TY_OK;
}

static int match_cond(struct view *w, const struct cond_param *p, int body)
{
  const struct ints *locs = body == 0 ? &p->cond_locs : body == 1 ? &p->then_locs : &p->else_locs;
  for (int k = 0; k < locs->n; k++) TRY(match_whole(w, k, &w->s->in[locs->d[k]]));
  for (int k = 0; body && k < p->num_outputs; k++) TRY(agree(w, head_desc(w, k), &w->s->out[k]));
  return TY_OK;
}

static int match_body(struct view *w, const struct node *n, int body)
{
  if (is(n, "_foreach")) return match_foreach(w, n->param);
  return is(n, "_while_loop") ? match_while(w, n->param, body == 0) : match_cond(w, n->param, body);
}

static int infer_body(const struct node *n, int body, struct infer *s, int what)
{
  struct view w;
  int code = open_view(&w, n->body[body], s, what);
  for (int round = 0; round < 2 && !code;
       round++) { /* what the body says of a state may tell it more of itself */
    code = match_body(&w, n, body);
    if (!code) code = infer_run(w.g, what, w.desc);
  }
  if (!code) code = match_body(&w, n, body);
  mem_free(w.desc);
  return code;
}

int control_infer(const struct node *n, struct infer *s, int what)
{
  TRY(check_node(n));
  for (int k = 0; k < n->nbody; k++) TRY(infer_body(n, k, s, what));
  return TY_OK;
}

/* -- expansion --------------------------------------------------------------------------------- */

/* g: the graph around, desc: its values */
struct expansion { ty_graph *to; const ty_graph *g; const ty_desc *desc; };
/* One copy of a body (or of the whole graph): where its variables come from, what its values
** became. */
struct copy { const ty_graph *g; const ty_desc *desc; ty_entry *of; const char *prefix; int guard; const char *where; };

static int expand_node(struct expansion *x, struct copy *c, int i);

/* A node of our own: prefix + name; the attributes of variables and of the node's ctx group do
** not matter to it. */
static int add_op(struct expansion *x, struct copy *c, const char *op, const char *name,
    const ty_attr *attr, int nattr, const ty_entry *in, int nin, ty_entry *out)
{
  char full[600];
  snprintf(full, sizeof full, "%s%s", c->prefix, name);
  TRY(ty_graph_origin(x->to, c->where));
  TRY(graph_node(x->to, op_find(op), full, attr, nattr, in, nin, out));
  x->to->node[out->node].guard = c->guard;
  return TY_OK;
}

static int make_guard(struct expansion *x, struct copy *c, const char *name, ty_entry condition,
    bool negate, int bound, int *guard)
{
  ty_entry in[2] = { condition, { bound - 1, 0 } }, made;
  ty_attr attr[] = { { "negate", negate ? "True" : "False" },
    { "nested", bound ? "True" : "False" } };
  struct copy always = *c;
  always.guard = 0; /* it says no by itself where the bound one does */
  TRY(add_op(x, &always, "_guard", name, attr, 2, in, bound ? 2 : 1, &made));
  *guard = made.node + 1;
  return TY_OK;
}

static int make_gate(
    struct expansion *x, struct copy *c, const char *name, ty_entry value, int guard, ty_entry *out)
{
  ty_entry in[2] = { value, { guard - 1, 0 } };
  return add_op(x, c, "_gate", name, NULL, 0, in, 2, out);
}

static int make_select(struct expansion *x, struct copy *c, const char *name, int guard,
    ty_entry first, ty_entry second, ty_entry *out)
{
  ty_entry in[3] = { { guard - 1, 0 }, first, second };
  return add_op(x, c, "_select", name, NULL, 0, in, 3, out);
}

static int make_zeros(
    struct expansion *x, struct copy *c, const char *name, const ty_desc *d, ty_entry *out)
{
  struct text t = { 0 };
  for (int i = 0; i < d->ndim; i++) text_add(&t, "%s%lld", i ? ", " : "(", (long long)d->dim[i]);
  text_add(&t, d->ndim == 1 ? ",)" : ")");
  ty_attr attr[] = { { "dtype", dtype_name(d->dtype) }, { "shape", t.s ? t.s : "()" } };
  int code = add_op(x, c, "_zeros", name, attr, 2, NULL, 0, out);
  text_done(&t);
  return code;
}

/* Rows of a value as the outputs of one node. */
static int make_rows(struct expansion *x, struct copy *c, const char *name, ty_entry value,
    const ty_desc *d, ty_entry *out)
{
  char number[24];
  snprintf(number, sizeof number, "%lld", (long long)d->dim[0]);
  ty_attr attr[] = { { "axis", "0" }, { "num_outputs", number },
    { "squeeze_axis", d->ndim > 1 ? "True" : "False" } };
  return add_op(x, c, "SliceChannel", name, attr, 3, &value, 1, out);
}

static int make_stack(struct expansion *x, struct copy *c, const char *name, const ty_entry *part,
    int n, ty_entry *out)
{
  char number[24];
  snprintf(number, sizeof number, "%d", n);
  ty_attr attr[] = { { "axis", "0" }, { "num_args", number } };
  return add_op(x, c, "stack", name, attr, 2, part, n, out);
}

/* Copies a body. var[k] stands for variable k; head[k] receives what output k became. prefix: of
** the names of its nodes. */
static int instantiate(struct expansion *x, const struct copy *around, const ty_graph *body,
    const ty_desc *desc, const char *prefix, int guard, const ty_entry *var, ty_entry *head)
{
  struct copy c = { body, desc, NEWS(ty_entry, body->nvalue), prefix, guard, around->where };
  int k = 0, code = c.of ? TY_OK : fail(TY_EMEMORY, "out of memory: control flow");
  for (int i = 0; i < body->n && !code; i++) {
    if (!body->node[i].op)
      c.of[body->node[i].first] = var[k++];
    else
      code = expand_node(x, &c, i);
  }
  for (int h = 0; h < body->nhead && !code; h++) head[h] = c.of[value_of(body, body->head[h])];
  mem_free(c.of);
  return code;
}

/* Shapes of a body's values, which expanding the bodies inside it needs. */
static int describe_body(const struct copy *c, const struct node *n, int body, ty_desc **out)
{
  struct view w;
  int ports = n->nin + n->nout;
  struct infer s = { n->op, n->param, n->nin, n->nout, NEWS(ty_desc, ports + 1), NULL };
  NEED(s.in, TY_EMEMORY, "out of memory: control flow");
  s.out = s.in + n->nin;
  for (int k = 0; k < n->nin; k++) s.in[k] = c->desc[value_of(c->g, n->in[k])];
  for (int k = 0; k < n->nout; k++) s.out[k] = c->desc[n->first + k];
  int code = open_view(&w, n->body[body], &s, INFER_SHAPES);
  for (int what = 0; what < 2 && !code; what++) {
    w.what = what ? INFER_TYPES : INFER_SHAPES;
    code = match_body(&w, n, body);
    if (!code) code = infer_run(w.g, w.what, w.desc);
  }
  mem_free(s.in);
  if (code)
    mem_free(w.desc);
  else
    *out = w.desc;
  return code;
}

/* -- _foreach ---------------------------------------------------------------------------------- */

struct work { ty_entry *var, *head, *state, *part; ty_entry *row; ty_desc *desc[3]; };

static int open_work(struct work *w, struct copy *c, const struct node *n, int64_t rows)
{
  int vars = 1, heads = 1;
  for (int k = 0; k < n->nbody; k++)
    vars = MAX(vars, variables_of(n->body[k])), heads = MAX(heads, n->body[k]->nhead);
  *w = (struct work){ NEWS(ty_entry, vars), NEWS(ty_entry, heads), NEWS(ty_entry, n->nout + 1),
    NEWS(ty_entry, (size_t)heads * (size_t)rows + 1), NEWS(ty_entry, n->nin + 1), { NULL } };
  NEED(w->var && w->head && w->state && w->part && w->row, TY_EMEMORY,
      "out of memory: control flow");
  for (int k = 0; k < n->nbody; k++) TRY(describe_body(c, n, k, &w->desc[k]));
  return TY_OK;
}

static void close_work(struct work *w)
{
  mem_free(w->var);
  mem_free(w->head);
  mem_free(w->state);
  mem_free(w->part);
  mem_free(w->row);
  for (int k = 0; k < 3; k++) mem_free(w->desc[k]);
}

static ty_entry input_of(const struct copy *c, const struct node *n, int64_t k)
{
  return c->of[value_of(c->g, n->in[k])];
}

static int stack_outputs(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w, int count, int rows)
{
  for (int k = 0; k < count; k++) {
    char name[600];
    output_name(n, k, name, sizeof name);
    TRY(make_stack(x, c, name, w->part + (size_t)k * (size_t)rows, rows, &c->of[n->first + k]));
  }
  return TY_OK;
}

static int foreach_rows(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w, int rows)
{
  const struct foreach_param *p = n->param;
  int nd = (int)p->data_locs.n, ns = (int)p->state_locs.n;
  for (int t = 0; t < rows; t++) {
    char prefix[600];
    snprintf(prefix, sizeof prefix, "%s%s_%d_", c->prefix, n->name, t);
    for (int k = 0; k < nd; k++)
      if (p->data_locs.d[k] >= 0) w->var[p->data_locs.d[k]] = (ty_entry){ w->row[k].node, t };
    for (int k = 0; k < ns; k++)
      if (p->state_locs.d[k] >= 0) w->var[p->state_locs.d[k]] = w->state[k];
    for (int k = 0; k < p->remain_locs.n; k++)
      w->var[p->remain_locs.d[k]] = input_of(c, n, nd + ns + k);
    TRY(instantiate(x, c, n->body[0], w->desc[0], prefix, c->guard, w->var, w->head));
    for (int k = 0; k < p->num_out_data; k++)
      w->part[(size_t)k * (size_t)rows + (size_t)t] = w->head[k];
    for (int k = 0; k < ns; k++) w->state[k] = w->head[p->num_out_data + k];
  }
  return TY_OK;
}

static int expand_foreach(
    struct expansion *x, struct copy *c, const struct node *n, struct work *w, int rows)
{
  const struct foreach_param *p = n->param;
  int nd = (int)p->data_locs.n;
  for (int k = 0; k < nd; k++) {
    char name[600];
    snprintf(name, sizeof name, "%s_rows%d", n->name, k);
    TRY(make_rows(x, c, name, input_of(c, n, k), &c->desc[value_of(c->g, n->in[k])], &w->row[k]));
  }
  for (int k = 0; k < p->state_locs.n; k++) w->state[k] = input_of(c, n, nd + k);
  TRY(foreach_rows(x, c, n, w, rows));
  for (int k = 0; k < p->state_locs.n; k++) c->of[n->first + p->num_out_data + k] = w->state[k];
  return stack_outputs(x, c, n, w, (int)p->num_out_data, rows);
}

/* -- _while_loop ------------------------------------------------------------------------------- */

/* Variables of a body: a loop variable as it is now, any other input as it is around; all of
** them through gates. */
static int while_variables(struct expansion *x, struct copy *c, const struct node *n,
    struct work *w, const struct ints *locs, int guard, const char *prefix)
{
  const struct while_param *p = n->param;
  for (int k = 0; k < locs->n; k++) {
    w->var[k] = input_of(c, n, locs->d[k]);
    for (int j = 0; j < p->var_locs.n; j++)
      if (p->func_locs.d[p->var_locs.d[j]] == locs->d[k]) w->var[k] = w->state[j];
    char name[700];
    snprintf(name, sizeof name, "%sgate%d", prefix, k);
    if (guard) TRY(make_gate(x, c, name, w->var[k], guard, &w->var[k]));
  }
  return TY_OK;
}

static int while_step(struct expansion *x, struct copy *c, const struct node *n, struct work *w,
    int t, const ty_entry *zero, int *guard)
{
  const struct while_param *p = n->param;
  int rows = (int)p->max_iterations, nd = (int)p->num_out_data;
  char own[600], prefix[700], name[700];
  snprintf(own, sizeof own, "%s_%d_", n->name, t);
  snprintf(prefix, sizeof prefix, "%s%s", c->prefix, own);
  TRY(while_variables(x, c, n, w, &p->cond_locs, 0, own));
  TRY(instantiate(
      x, c, n->body[0], w->desc[0], prefix, *guard ? *guard : c->guard, w->var, w->head));
  snprintf(name, sizeof name, "%sguard", own);
  TRY(make_guard(x, c, name, w->head[0], false, *guard ? *guard : c->guard, guard));
  TRY(while_variables(x, c, n, w, &p->func_locs, *guard, own));
  TRY(instantiate(x, c, n->body[1], w->desc[1], prefix, *guard, w->var, w->head));
  for (int k = 0; k < p->num_outputs; k++) {
    snprintf(name, sizeof name, "%sselect%d", own, k);
    ty_entry *to = k < nd ? &w->part[(size_t)k * (size_t)rows + (size_t)t] : &w->state[k - nd];
    TRY(make_select(x, c, name, *guard, w->head[k], k < nd ? zero[k] : w->state[k - nd], to));
  }
  return TY_OK;
}

static int expand_while(struct expansion *x, struct copy *c, const struct node *n, struct work *w)
{
  const struct while_param *p = n->param;
  int rows = (int)p->max_iterations, nd = (int)p->num_out_data, guard = 0;
  for (int k = 0; k < nd; k++) {
    char name[600];
    ty_desc d = c->desc[n->first + k];
    snprintf(name, sizeof name, "%s_zeros%d", n->name, k);
    d.ndim--;
    memmove(d.dim, d.dim + 1, sizeof *d.dim * (size_t)d.ndim);
    TRY(make_zeros(x, c, name, &d, &w->row[k]));
  }
  for (int k = 0; k < p->var_locs.n; k++)
    w->state[k] = input_of(c, n, p->func_locs.d[p->var_locs.d[k]]);
  for (int t = 0; t < rows; t++) TRY(while_step(x, c, n, w, t, w->row, &guard));
  for (int k = 0; k < p->var_locs.n; k++) c->of[n->first + nd + k] = w->state[k];
  return stack_outputs(x, c, n, w, nd, rows);
}

/* -- _cond ------------------------------------------------------------------------------------- */

static int branch(struct expansion *x, struct copy *c, const struct node *n, struct work *w,
    int body, int guard, ty_entry *head)
{
  static const char *const label[] = { "if", "then", "else" };
  const struct cond_param *p = n->param;
  const struct ints *locs = body == 0 ? &p->cond_locs : body == 1 ? &p->then_locs : &p->else_locs;
  char prefix[700];
  snprintf(prefix, sizeof prefix, "%s%s_%s_", c->prefix, n->name, label[body]);
  for (int k = 0; k < locs->n; k++) {
    char name[700];
    w->var[k] = input_of(c, n, locs->d[k]);
    snprintf(name, sizeof name, "%s_%s_gate%d", n->name, label[body], k);
    if (body) TRY(make_gate(x, c, name, w->var[k], guard, &w->var[k]));
  }
  return instantiate(x, c, n->body[body], w->desc[body], prefix, guard, w->var, head);
}

static int expand_cond(struct expansion *x, struct copy *c, const struct node *n, struct work *w)
{
  const struct cond_param *p = n->param;
  char name[700];
  int yes, no;
  TRY(branch(x, c, n, w, 0, c->guard, w->head));
  snprintf(name, sizeof name, "%s_then_guard", n->name);
  TRY(make_guard(x, c, name, w->head[0], false, c->guard, &yes));
  snprintf(name, sizeof name, "%s_else_guard", n->name);
  TRY(make_guard(x, c, name, w->head[0], true, c->guard, &no));
  TRY(branch(x, c, n, w, 1, yes, w->head));
  TRY(branch(x, c, n, w, 2, no, w->part));
  for (int k = 0; k < p->num_outputs; k++) {
    output_name(n, k, name, sizeof name);
    TRY(make_select(x, c, name, yes, w->head[k], w->part[k], &c->of[n->first + k]));
  }
  return TY_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

static int expand_bodies(struct expansion *x, struct copy *c, const struct node *n)
{
  struct work w = { 0 };
  struct copy mine = *c;
  bool each = is(n, "_foreach"), loop = is(n, "_while_loop");
  int64_t rows = each && ((const struct foreach_param *)n->param)->data_locs.n
      ? c->desc[value_of(c->g, n->in[0])].dim[0]
      : loop ? ((const struct while_param *)n->param)->max_iterations
      : each ? 0
             : 1;
  if (n->where) mine.where = n->where;
  if (rows < 1 || rows > 100000) {
    int code = fail(TY_EVALUE, "%s %s: %lld iterations; expected 1 to 100000", n->op->name, n->name,
        (long long)rows);
    fail_node(n->op->name, n->name, n->where);
    return code;
  }
  int code = open_work(&w, c, n, rows);
  if (!code)
    code = each ? expand_foreach(x, &mine, n, &w, (int)rows)
        : loop  ? expand_while(x, &mine, n, &w)
                : expand_cond(x, &mine, n, &w);
  close_work(&w);
  return code;
}

static int borrow_node(struct expansion *x, struct copy *c, const struct node *n)
{
  ty_entry made, *in = NEWS(ty_entry, n->nin);
  NEED(in, TY_EMEMORY, "out of memory: control flow");
  for (int k = 0; k < n->nin; k++) in[k] = input_of(c, n, k);
  int code = graph_borrow(x->to, n, in, &made);
  mem_free(in);
  TRY(code);
  struct node *copy = &x->to->node[made.node];
  copy->guard = c->guard;
  if (!copy->where) copy->where = c->where;
  for (int k = 0; k < n->nout; k++) c->of[n->first + k] = (ty_entry){ made.node, k };
  if (!*c->prefix) return TY_OK;
  char name[1200];
  snprintf(name, sizeof name, "%s%s", c->prefix, n->name);
  copy->name = arena_text(&x->to->arena, name);
  NEED(copy->name, TY_EMEMORY, "out of memory: control flow");
  return TY_OK;
}

static int expand_node(struct expansion *x, struct copy *c, int i)
{
  const struct node *n = &c->g->node[i];
  return n->nbody ? expand_bodies(x, c, n) : borrow_node(x, c, n);
}

int control_expand(
    ty_graph *g, const ty_desc *desc, ty_entry *head, int nhead, ty_graph **out, int *to_node)
{
  struct expansion x = { NULL, g, desc };
  struct copy c = { g, desc, NEWS(ty_entry, g->nvalue), "", 0, NULL };
  NEED(c.of, TY_EMEMORY, "out of memory: control flow");
  int code = ty_graph_new(&x.to);
  if (!code) x.to->base = g, ty_graph_keep(g);
  for (int i = 0; i < g->n && !code; i++) {
    code = expand_node(&x, &c, i);
    to_node[i] = code || g->node[i].nbody ? -1 : c.of[g->node[i].first].node;
  }
  for (int h = 0; h < nhead && !code; h++) head[h] = c.of[value_of(g, head[h])];
  mem_free(c.of);
  if (code) return ty_graph_free(x.to), code;
  *out = x.to;
  return TY_OK;
}
