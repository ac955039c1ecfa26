/* infer.c - infers the shape and dtype of every value from those that are known.
**
** Sweeps go forward and backward over the nodes until nothing changes; an operator's shape() and
** type() fill in all that follows, inputs from outputs too (an initial state gets its batch size
** so). A dim of 0 is unknown, ndim 0 is an unknown shape, TY_NODTYPE an unknown dtype. A conflict
** fails with node, argument and both shapes. Order of calls: infer_seed, then infer_run for shapes
** and for dtypes in any order.
*/
#include "operators/control/subgraphs.h"
#include "op/registry.h"
#include "pass/control_bodies.h"

/* -- seeds ------------------------------------------------------------------------------------- */

static void infer_seed_attr(const struct node *n, ty_desc *d)
{
  struct dims shape;
  const char *s = node_attr(n, "__shape__"), *t = node_attr(n, "__dtype__");
  if (s && !desc_known(d) && shape_parse(s, &shape) && shape.n > 0 && shape.n <= TY_MAXDIM) {
    d->ndim = (int)shape.n;
    for (int i = 0; i < d->ndim; i++) d->dim[i] = shape.d[i] > 0 ? shape.d[i] : 0;
  }
  if (t && d->dtype == TY_NODTYPE && dtype_size(atoi(t))) d->dtype = atoi(t);
}

static int infer_fail_unknown(const ty_graph *g, const char *name)
{
  struct text t = { 0 };
  for (int i = 0; i < g->n; i++)
    if (!g->node[i].op && t.n < 400) text_add(&t, "%s%s", t.n ? ", " : "", g->node[i].name);
  int code = fail(
      TY_ENAME, "there is no argument '%s'; arguments are: %s", name, t.s ? t.s : "none");
  fail_argument(name, t.s, name);
  text_done(&t);
  return code;
}

/* Fails where the product of the sizes that a variable was given does not fit. */
static int infer_check_seed(const struct node *n, const ty_desc *d)
{
  char shape[200];
  if (desc_countable(d)) return TY_OK;
  int code = fail(TY_ESHAPE, "%s: a tensor of shape %s is too large", n->name,
      text_shape(d, shape, sizeof shape));
  fail_node(NULL, n->name, n->where);
  fail_argument(n->name, NULL, NULL);
  return code;
}

/* Unifies each variable with all that is given under its name. found: per given entry, whether a
** variable has its name. */
static int infer_seed_variables(
    const ty_graph *g, const struct names *names, const ty_want *given, bool *found, ty_desc *desc)
{
  for (int i = 0; i < g->n; i++) {
    const struct node *n = &g->node[i];
    if (n->op) continue;
    for (int k = names_first(names, n->name); k >= 0; k = names_next(names, k)) {
      const ty_desc *known = &given[k].desc;
      ty_desc *d = &desc[n->first];
      if (known->ndim) {
        d->ndim = known->ndim;
        memcpy(d->dim, known->dim, sizeof d->dim);
      }
      if (known->dtype != TY_NODTYPE) d->dtype = known->dtype;
      found[k] = true;
    }
    infer_seed_attr(n, &desc[n->first]);
    TRY(infer_check_seed(n, &desc[n->first]));
  }
  return TY_OK;
}

int infer_seed(const ty_graph *g, const ty_want *given, int n, ty_desc *desc)
{
  struct names names;
  for (int v = 0; v < g->nvalue; v++) desc[v] = (ty_desc){ .dtype = TY_NODTYPE };
  TRY(names_index(&names, given, sizeof *given, n));
  bool *found = NEWS(bool, n);
  int code = found ? TY_OK : fail(TY_EMEMORY, "out of memory: inference");
  if (!code) code = infer_seed_variables(g, &names, given, found, desc);
  for (int k = 0; k < n && !code; k++)
    if (!found[k]) code = infer_fail_unknown(g, given[k].name);
  mem_free(found);
  names_done(&names);
  return code;
}

/* -- bodies: descriptors pass between a body and the graph around it, both ways ---------------- */

/* a body and the descriptors of its values */
struct view { const ty_graph *g; ty_desc *desc; struct infer *s; int what; };

static void infer_clear_first(ty_desc *d)
{
  if (d->ndim > 1)
    memmove(d->dim, d->dim + 1, sizeof *d->dim * (size_t)--d->ndim);
  else if (d->ndim == 1)
    d->dim[0] = 1; /* rows of a vector have one element */
}

static void infer_put_first(ty_desc *d, int64_t rows)
{
  if (!d->ndim || d->ndim == TY_MAXDIM) return;
  memmove(d->dim + 1, d->dim, sizeof *d->dim * (size_t)d->ndim++);
  d->dim[0] = rows;
}

static int infer_unify_descs(struct view *w, ty_desc *a, ty_desc *b)
{
  return w->what == INFER_SHAPES ? shape_both(w->s, a, b) : type_both(w->s, a, b);
}

static ty_desc *infer_get_variable(struct view *w, int64_t k)
{
  int i = body_variable(w->g, k);
  return i < 0 ? NULL : &w->desc[w->g->node[i].first];
}

static ty_desc *infer_get_head(struct view *w, int k)
{
  return &w->desc[value_of(w->g, w->g->head[k])];
}

static int infer_open_view(struct view *w, const ty_graph *body, struct infer *s, int what)
{
  *w = (struct view){ body, NEWS(ty_desc, body->nvalue), s, what };
  NEED(w->desc, TY_EMEMORY, "out of memory: inference");
  return infer_seed(body, NULL, 0, w->desc);
}

/* Unifies variable k of the body with a slot of the node: they are one array. */
static int infer_match_whole(struct view *w, int64_t k, ty_desc *slot)
{
  ty_desc *v = k < 0 ? NULL : infer_get_variable(w, k);
  return v ? infer_unify_descs(w, v, slot) : TY_OK;
}

/* Unifies value v of the body with a row of a slot. A row of a vector has one element, so rows of
** one element do not determine how many axes the slot has. */
static int infer_match_row(struct view *w, ty_desc *v, ty_desc *slot, int64_t rows)
{
  ty_desc row = *slot;
  bool vector = slot->ndim == 1;
  infer_clear_first(&row);
  TRY(infer_unify_descs(w, v, &row));
  if (w->what == INFER_TYPES) return slot->dtype = row.dtype, TY_OK;
  if (vector || (!slot->ndim && v->ndim == 1 && v->dim[0] < 2)) return TY_OK;
  row = *v;
  infer_put_first(&row, rows);
  return shape_as(w->s, slot, &row);
}

/* Unifies value v of the body with a row of an output, which stacks it. */
static int infer_match_stack(struct view *w, ty_desc *v, ty_desc *slot, int64_t rows)
{
  ty_desc row = *slot, whole;
  if (w->what == INFER_TYPES) return type_both(w->s, v, slot);
  infer_clear_first(&row);
  if (slot->ndim > 1) TRY(infer_unify_descs(w, v, &row));
  whole = *v;
  infer_put_first(&whole, rows);
  return shape_as(w->s, slot, &whole);
}

static int64_t infer_find_rows(const ty_desc *slot, int n)
{
  for (int k = 0; k < n; k++)
    if (slot[k].ndim && slot[k].dim[0]) return slot[k].dim[0];
  return 0;
}

static int infer_match_foreach(struct view *w, const struct foreach_param *p)
{
  ty_desc *in = w->s->in, *out = w->s->out;
  int nd = (int)p->data_locs.n, ns = (int)p->state_locs.n;
  int64_t rows = infer_find_rows(in, nd);
  if (!rows) rows = infer_find_rows(out, (int)p->num_out_data);
  for (int k = 0; k < nd; k++) {
    if (rows && w->what == INFER_SHAPES) TRY(shape_dim(w->s, &in[k], 0, rows));
    if (p->data_locs.d[k] >= 0)
      TRY(infer_match_row(w, infer_get_variable(w, p->data_locs.d[k]), &in[k], rows));
  }
  for (int k = 0; k < ns; k++) TRY(infer_match_whole(w, p->state_locs.d[k], &in[nd + k]));
  for (int k = 0; k < p->remain_locs.n; k++)
    TRY(infer_match_whole(w, p->remain_locs.d[k], &in[nd + ns + k]));
  for (int k = 0; k < p->num_out_data; k++)
    TRY(infer_match_stack(w, infer_get_head(w, k), &out[k], rows));
  for (int k = 0; k < ns; k++) {
    TRY(infer_unify_descs(w, infer_get_head(w, (int)p->num_out_data + k), &in[nd + k]));
    TRY(infer_unify_descs(w, &in[nd + k], &out[p->num_out_data + k]));
  }
  return TY_OK;
}

static int infer_match_while(struct view *w, const struct while_param *p, bool condition)
{
  ty_desc *in = w->s->in, *out = w->s->out;
  const struct ints *locs = condition ? &p->cond_locs : &p->func_locs;
  for (int k = 0; k < locs->n; k++) TRY(infer_match_whole(w, k, &in[locs->d[k]]));
  if (condition) return TY_OK;
  for (int k = 0; k < p->num_out_data; k++)
    TRY(infer_match_stack(w, infer_get_head(w, k), &out[k], p->max_iterations));
  for (int k = 0; k < p->var_locs.n; k++) {
    ty_desc *var = &in[p->func_locs.d[p->var_locs.d[k]]];
    TRY(infer_unify_descs(w, infer_get_head(w, (int)p->num_out_data + k), var));
    TRY(infer_unify_descs(w, var, &out[p->num_out_data + k]));
  }
  return TY_OK;
}

static int infer_match_cond(struct view *w, const struct cond_param *p, int body)
{
  const struct ints *locs = body == 0 ? &p->cond_locs : body == 1 ? &p->then_locs : &p->else_locs;
  for (int k = 0; k < locs->n; k++) TRY(infer_match_whole(w, k, &w->s->in[locs->d[k]]));
  for (int k = 0; body && k < p->num_outputs; k++)
    TRY(infer_unify_descs(w, infer_get_head(w, k), &w->s->out[k]));
  return TY_OK;
}

static int infer_match_body(struct view *w, const struct node *n, int body)
{
  switch (n->op->control) {
  case CONTROL_FOREACH: return infer_match_foreach(w, n->kind->param);
  case CONTROL_WHILE: return infer_match_while(w, n->kind->param, body == 0);
  default: return infer_match_cond(w, n->kind->param, body);
  }
}

static int infer_body(const struct node *n, int body, struct infer *s, int what)
{
  struct view w;
  int code = infer_open_view(&w, n->body[body], s, what);
  /* what a body determines of a state may determine more of its own values */
  for (int round = 0; round < 2 && !code; round++) {
    code = infer_match_body(&w, n, body);
    if (!code) code = infer_run(w.g, what, w.desc);
  }
  if (!code) code = infer_match_body(&w, n, body);
  mem_free(w.desc);
  return code;
}

/* Infers from and through the bodies of a node. */
static int infer_bodies(const struct node *n, struct infer *s, int what)
{
  TRY(control_check(n));
  for (int k = 0; k < n->nbody; k++) TRY(infer_body(n, k, s, what));
  return TY_OK;
}

int body_describe(const struct node *n, int body, struct infer *s, ty_desc **out)
{
  struct view w;
  int code = infer_open_view(&w, n->body[body], s, INFER_SHAPES);
  for (int what = 0; what < 2 && !code; what++) {
    w.what = what ? INFER_TYPES : INFER_SHAPES;
    code = infer_match_body(&w, n, body);
    if (!code) code = infer_run(w.g, w.what, w.desc);
  }
  if (code)
    mem_free(w.desc);
  else
    *out = w.desc;
  return code;
}

/* -- sweeps ------------------------------------------------------------------------------------ */

struct sweep { const ty_graph *g; int what; ty_desc *desc, *work; uint8_t *done; int64_t unknown; };

static int64_t infer_count_unknown(int what, const ty_desc *d)
{
  int64_t n = 0;
  if (what == INFER_TYPES) return d->dtype == TY_NODTYPE;
  for (int i = 0; i < d->ndim; i++) n += d->dim[i] == 0;
  return d->ndim ? n : TY_MAXDIM + 1;
}

static void infer_take_back(int what, ty_desc *d, const ty_desc *from)
{
  if (what == INFER_TYPES)
    d->dtype = from->dtype;
  else
    d->ndim = from->ndim, memcpy(d->dim, from->dim, sizeof d->dim);
}

/* Makes the failure of a node name it, its line and the descriptors of its inputs. Returns code. */
static int infer_explain_node(struct sweep *s, const struct node *n, int code)
{
  for (int i = 0; i < n->nin; i++) s->work[i] = s->desc[value_of(s->g, n->in[i])];
  infer_explain(code, s->what, n->op->name, n->name, n->kind->inport, s->work, n->nin);
  fail_node(n->op->name, n->name, n->where);
  return code;
}

static int infer_visit_node(struct sweep *s, int i)
{
  const struct node *n = &s->g->node[i];
  if (!n->op || n->backward || s->done[i]) return TY_OK;
  struct infer f = { n->op, n->kind->param, n->nin, n->kind->nout, s->work, s->work + n->nin };
  for (int k = 0; k < n->nin; k++) f.in[k] = s->desc[value_of(s->g, n->in[k])];
  for (int k = 0; k < n->kind->nout; k++) f.out[k] = s->desc[n->first + k];
  int code = n->op->control ? infer_bodies(n, &f, s->what) : op_infer(&f, s->what);
  if (code) return infer_explain_node(s, n, code);
  int64_t unknown = 0;
  for (int k = 0; k < n->nin; k++)
    infer_take_back(s->what, &s->desc[value_of(s->g, n->in[k])], &f.in[k]),
        unknown += infer_count_unknown(s->what, &f.in[k]);
  for (int k = 0; k < n->kind->nout; k++)
    infer_take_back(s->what, &s->desc[n->first + k], &f.out[k]),
        unknown += infer_count_unknown(s->what, &f.out[k]);
  s->done[i] = unknown == 0; /* all is known and consistent: need not be visited again */
  s->unknown += unknown;
  return TY_OK;
}

static int infer_sweep_all(struct sweep *s)
{
  int64_t before = INT64_MAX;
  for (int round = 0; round < 1000; round++) {
    s->unknown = 0;
    for (int i = 0; i < s->g->n; i++) TRY(infer_visit_node(s, i));
    if (!s->unknown) return TY_OK;
    for (int i = s->g->n - 1; i >= 0; i--) TRY(infer_visit_node(s, i));
    if (s->unknown >= before) return TY_OK;
    before = s->unknown;
  }
  return TY_OK;
}

int infer_run(const ty_graph *g, int what, ty_desc *desc)
{
  int ports = 1;
  for (int i = 0; i < g->n; i++) ports = MAX(ports, g->node[i].nin + g->node[i].kind->nout);
  struct sweep s = { g, what, desc, NEWS(ty_desc, ports), NEWS(uint8_t, g->n), 0 };
  int code = s.work && s.done ? infer_sweep_all(&s) : fail(TY_EMEMORY, "out of memory: inference");
  mem_free(s.work);
  mem_free(s.done);
  return code;
}

/* Fails with the first argument whose shape (or dtype) is not known; the failure's candidates are
** up to ten of them. */
int infer_undecided(const ty_graph *g, const ty_desc *desc, int what)
{
  struct text t = { 0 };
  const char *first = NULL;
  int n = 0, code = what == INFER_TYPES ? TY_EDTYPE : TY_ESHAPE;
  for (int pass = 0; pass < 2 && !n; pass++) /* variables first; if all are known, operators */
    for (int i = 0; i < g->n; i++)
      for (int k = 0; k < g->node[i].kind->nout; k++) {
        if (!g->node[i].op != !pass || !infer_count_unknown(what, &desc[g->node[i].first + k]))
          continue;
        if (!first) first = g->node[i].name;
        if (n++ < 10) text_add(&t, "%s%s", t.n ? ", " : "", g->node[i].name);
      }
  if (n) {
    char got[160] = "unknown";
    fail(code, "the %s of these cannot be inferred from what was given: %s%s; give %s",
        what == INFER_TYPES ? "dtypes" : "shapes", t.s ? t.s : "", n > 10 ? ", ..." : "",
        what == INFER_TYPES ? "the dtype of more arguments (type_dict)"
                            : "the shape of more arguments");
    fail_argument(first, t.s, got);
  }
  text_done(&t);
  return n ? code : TY_OK;
}

int ty_graph_infer(ty_graph *g, const ty_want *given, int n, int partial, ty_desc *out)
{
  NEED(g && out, TY_ETYPE, "graph_infer: null argument");
  ty_desc *desc = NEWS(ty_desc, g->nvalue);
  NEED(desc, TY_EMEMORY, "out of memory: inference");
  int code = infer_seed(g, given, n, desc);
  if (!code) code = infer_run(g, INFER_SHAPES, desc);
  if (!code) code = infer_run(g, INFER_TYPES, desc);
  if (!code && !partial) code = infer_undecided(g, desc, INFER_SHAPES);
  if (!code && !partial) code = infer_undecided(g, desc, INFER_TYPES);
  for (int i = 0; !code && i < g->n; i++)
    for (int k = 0; k < g->node[i].kind->nreal; k++) *out++ = desc[g->node[i].first + k];
  mem_free(desc);
  return code;
}
