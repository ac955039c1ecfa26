/* control_bodies.c - the bodies of control flow: checks that they fit the node, and infers shapes
** and types of their values.
**
** A body's variables are entries of the graph around it, its heads outputs of the node; the node's
** attributes say which (operators/control/subgraphs.h). What is known on either side is passed to
** the other.
*/
#include "pass/control_bodies.h"
#include "pass/control_flow.h"
#include "operators/control/subgraphs.h"

/* -- locations: the value around that a body's variable is ------------------------------------- */

int body_variables(const ty_graph *g)
{
  int n = 0;
  for (int i = 0; i < g->n; i++) n += !g->node[i].op;
  return n;
}

/* Returns the node of variable k, -1: there is none. */
static int variable_at(const ty_graph *g, int64_t k)
{
  for (int i = 0; i < g->n; i++)
    if (!g->node[i].op && k-- == 0) return i;
  return -1;
}

static int bad_locations(const struct node *n, const char *what)
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
    if (l->d[k] < least || l->d[k] >= limit) return bad_locations(n, what);
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
    if (!n->body[k]->nhead) return bad_locations(n, "their outputs");
  return TY_OK;
}

/* Checks that each variable of a _foreach's body has a value around it. */
static int check_variables(const struct node *n, int vars)
{
  for (int k = 0; k < vars; k++)
    if (n->op->body_input(n->kind->param, 0, k) < 0)
      return bad_locations(n, "the places of their variables");
  return TY_OK;
}

static int check_foreach(const struct node *n, const struct foreach_param *p)
{
  TRY(check_bodies(n, 1));
  int vars = body_variables(n->body[0]);
  TRY(check_list(n, &p->data_locs, -1, vars, "in_data_locs"));
  TRY(check_list(n, &p->state_locs, -1, vars, "in_state_locs"));
  TRY(check_list(n, &p->remain_locs, 0, vars, "remain_locs"));
  if (p->data_locs.n + p->state_locs.n + p->remain_locs.n != n->nin)
    return bad_locations(n, "num_args");
  TRY(check_variables(n, vars));
  if (p->num_out_data < 0 || p->num_out_data + p->state_locs.n != p->num_outputs)
    return bad_locations(n, "num_out_data");
  return n->body[0]->nhead == p->num_outputs ? TY_OK : bad_locations(n, "num_outputs");
}

static int check_while(const struct node *n, const struct while_param *p)
{
  TRY(check_bodies(n, 2));
  TRY(check_list(n, &p->cond_locs, 0, n->nin, "cond_input_locs"));
  TRY(check_list(n, &p->func_locs, 0, n->nin, "func_input_locs"));
  TRY(check_list(n, &p->var_locs, 0, body_variables(n->body[1]), "func_var_locs"));
  if (p->cond_locs.n != body_variables(n->body[0])) return bad_locations(n, "cond_input_locs");
  if (p->func_locs.n != body_variables(n->body[1])) return bad_locations(n, "func_input_locs");
  if (p->num_out_data < 0 || p->num_out_data + p->var_locs.n != p->num_outputs)
    return bad_locations(n, "num_out_data");
  return n->body[1]->nhead == p->num_outputs && n->body[0]->nhead == 1
      ? TY_OK
      : bad_locations(n, "num_outputs");
}

static int check_cond(const struct node *n, const struct cond_param *p)
{
  const struct ints *list[] = { &p->cond_locs, &p->then_locs, &p->else_locs };
  static const char *const what[] = { "cond_input_locs", "then_input_locs", "else_input_locs" };
  TRY(check_bodies(n, 3));
  for (int k = 0; k < 3; k++) {
    TRY(check_list(n, list[k], 0, n->nin, what[k]));
    if (list[k]->n != body_variables(n->body[k]) || n->body[k]->nhead != (k ? p->num_outputs : 1))
      return bad_locations(n, what[k]);
  }
  return TY_OK;
}

static int check_node(const struct node *n)
{
  switch (n->op->control) {
  case CONTROL_FOREACH: return check_foreach(n, n->kind->param);
  case CONTROL_WHILE: return check_while(n, n->kind->param);
  default: return check_cond(n, n->kind->param);
  }
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

static int unify_descs(struct view *w, ty_desc *a, ty_desc *b)
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

/* Unifies variable k of the body with a slot of the node: they are one array. */
static int match_whole(struct view *w, int64_t k, ty_desc *slot)
{
  ty_desc *v = k < 0 ? NULL : variable_desc(w, k);
  return v ? unify_descs(w, v, slot) : TY_OK;
}

/* Unifies value v of the body with a row of a slot. A row of a vector has one element, so rows of
** one element do not determine how many axes the slot has. */
static int match_row(struct view *w, ty_desc *v, ty_desc *slot, int64_t rows)
{
  ty_desc row = *slot;
  bool vector = slot->ndim == 1;
  clear_first(&row);
  TRY(unify_descs(w, v, &row));
  if (w->what == INFER_TYPES) return slot->dtype = row.dtype, TY_OK;
  if (vector || (!slot->ndim && v->ndim == 1 && v->dim[0] < 2)) return TY_OK;
  row = *v;
  put_first(&row, rows);
  return shape_as(w->s, slot, &row);
}

/* Unifies value v of the body with a row of an output, which stacks it. */
static int match_stack(struct view *w, ty_desc *v, ty_desc *slot, int64_t rows)
{
  ty_desc row = *slot, whole;
  if (w->what == INFER_TYPES) return type_both(w->s, v, slot);
  clear_first(&row);
  if (slot->ndim > 1) TRY(unify_descs(w, v, &row));
  whole = *v;
  put_first(&whole, rows);
  return shape_as(w->s, slot, &whole);
}

static int64_t rows_of(const ty_desc *slot, int n)
{
  for (int k = 0; k < n; k++)
    if (slot[k].ndim && slot[k].dim[0]) return slot[k].dim[0];
  return 0;
}

static int match_foreach(struct view *w, const struct foreach_param *p)
{
  ty_desc *in = w->s->in, *out = w->s->out;
  int nd = (int)p->data_locs.n, ns = (int)p->state_locs.n;
  int64_t rows = rows_of(in, nd);
  if (!rows) rows = rows_of(out, (int)p->num_out_data);
  for (int k = 0; k < nd; k++) {
    if (rows && w->what == INFER_SHAPES) TRY(shape_dim(w->s, &in[k], 0, rows));
    if (p->data_locs.d[k] >= 0)
      TRY(match_row(w, variable_desc(w, p->data_locs.d[k]), &in[k], rows));
  }
  for (int k = 0; k < ns; k++) TRY(match_whole(w, p->state_locs.d[k], &in[nd + k]));
  for (int k = 0; k < p->remain_locs.n; k++)
    TRY(match_whole(w, p->remain_locs.d[k], &in[nd + ns + k]));
  for (int k = 0; k < p->num_out_data; k++) TRY(match_stack(w, head_desc(w, k), &out[k], rows));
  for (int k = 0; k < ns; k++) {
    TRY(unify_descs(w, head_desc(w, (int)p->num_out_data + k), &in[nd + k]));
    TRY(unify_descs(w, &in[nd + k], &out[p->num_out_data + k]));
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
    TRY(unify_descs(w, head_desc(w, (int)p->num_out_data + k), var));
    TRY(unify_descs(w, var, &out[p->num_out_data + k]));
  }
  return TY_OK;
}

static int match_cond(struct view *w, const struct cond_param *p, int body)
{
  const struct ints *locs = body == 0 ? &p->cond_locs : body == 1 ? &p->then_locs : &p->else_locs;
  for (int k = 0; k < locs->n; k++) TRY(match_whole(w, k, &w->s->in[locs->d[k]]));
  for (int k = 0; body && k < p->num_outputs; k++)
    TRY(unify_descs(w, head_desc(w, k), &w->s->out[k]));
  return TY_OK;
}

static int match_body(struct view *w, const struct node *n, int body)
{
  switch (n->op->control) {
  case CONTROL_FOREACH: return match_foreach(w, n->kind->param);
  case CONTROL_WHILE: return match_while(w, n->kind->param, body == 0);
  default: return match_cond(w, n->kind->param, body);
  }
}

static int infer_body(const struct node *n, int body, struct infer *s, int what)
{
  struct view w;
  int code = open_view(&w, n->body[body], s, what);
  /* what a body determines of a state may determine more of its own values */
  for (int round = 0; round < 2 && !code; round++) {
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

int body_describe(const struct node *n, int body, struct infer *s, ty_desc **out)
{
  struct view w;
  int code = open_view(&w, n->body[body], s, INFER_SHAPES);
  for (int what = 0; what < 2 && !code; what++) {
    w.what = what ? INFER_TYPES : INFER_SHAPES;
    code = match_body(&w, n, body);
    if (!code) code = infer_run(w.g, w.what, w.desc);
  }
  if (code)
    mem_free(w.desc);
  else
    *out = w.desc;
  return code;
}
