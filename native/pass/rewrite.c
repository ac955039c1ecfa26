/* rewrite.c - typed graphs, and the mapper that replaces one by another. */
#include "pass/extract.h"
#include "pass/rewrite.h"

void typed_graph_done(struct typed_graph *x)
{
  ty_graph_free(x->g);
  mem_free(x->desc);
  mem_free(x->device);
  mem_free(x->head);
  mem_free(x->variable);
  mem_free(x->grad);
  mem_free(x->head_grad);
  mem_free(x->extra);
  *x = (struct typed_graph){ 0 };
}

/* -- inference --------------------------------------------------------------------------------- */

int typed_graph_infer(struct typed_graph *x)
{
  TRY(infer_run(x->g, INFER_SHAPES, x->desc));
  TRY(infer_run(x->g, INFER_TYPES, x->desc));
  for (int v = 0; v < x->g->nvalue; v++)
    if (x->desc[v].dtype == TY_NODTYPE) x->desc[v].dtype = TY_F32;
  return infer_undecided(x->g, x->desc, INFER_SHAPES);
}

int rewrite_infer(struct typed_graph *x, const struct rewrite_request *r)
{
  x->desc = NEWS(ty_desc, x->g->nvalue + 1);
  NEED(x->desc, TY_EMEMORY, "out of memory: inference");
  x->desc_cap = x->g->nvalue + 1;
  for (int v = 0; v < x->g->nvalue; v++) x->desc[v] = (ty_desc){ .dtype = TY_NODTYPE };
  for (int i = 0; i < x->nvariable; i++) {
    ty_desc *d = &x->desc[x->g->node[x->variable[i]].first];
    *d = r->variable[i];
    d->device = 0;
  }
  return typed_graph_infer(x);
}

/* -- rows that only a run knows ---------------------------------------------------------------- */

/* Checks that outputs whose number of rows is known only after a run have no readers but their own
** gradients. */
int rewrite_check_rows(struct typed_graph *x, const struct rewrite_request *r)
{
  (void)r;
  for (int i = 0; i < x->g->n; i++)
    for (int k = 0; k < x->g->node[i].nin; k++) {
      const struct node *n = &x->g->node[i], *from = &x->g->node[n->in[k].node];
      if (!from->op || !(from->op->flags & OP_DYNAMIC_ROWS)) continue;
      int code = fail(TY_ESHAPE,
          "%s %s: input %s is %s, whose number of rows is known only when it has run; it can be an "
          "output only",
          n->op->name, n->name, n->kind->inport[k].name, from->name);
      fail_node(n->op->name, n->name, n->where);
      fail_argument(
          n->kind->inport[k].name, "a shape that follows from other shapes", from->op->name);
      return code;
    }
  return TY_OK;
}

/* -- the mapper -------------------------------------------------------------------------------- */

int mapper_begin(struct mapper *m, struct typed_graph *x)
{
  *m = (struct mapper){ .x = x, .forward = -1 };
  TRY(ty_graph_new(&m->to));
  m->to->base = x->g;
  ty_graph_keep(x->g);
  m->entry = NEWS(ty_entry, x->g->nvalue + 1);
  m->node = NEWS(int, x->g->n + 1);
  if (!m->entry || !m->node) return mapper_end(m, fail(TY_EMEMORY, "out of memory: a graph"));
  for (int v = 0; v < x->g->nvalue; v++) m->entry[v].node = -1;
  for (int i = 0; i < x->g->n; i++) m->node[i] = -1;
  return TY_OK;
}

void mapper_visit(struct mapper *m, int i)
{
  if (i >= m->x->forward && m->forward < 0) m->forward = m->to->n;
}

ty_entry mapper_input(const struct mapper *m, int i, int k)
{
  return m->entry[value_of(m->x->g, m->x->g->node[i].in[k])];
}

int mapper_set_device(struct mapper *m, int node, int device)
{
  while (m->device_cap <= node) {
    const int before = m->device_cap;
    NEED(GROW(m->device, m->device_cap, m->device_cap), TY_EMEMORY, "out of memory: placing");
    for (int i = before; i < m->device_cap; i++) m->device[i] = -1;
  }
  m->device[node] = device;
  return TY_OK;
}

int mapper_copy(struct mapper *m, int i, const ty_entry *in)
{
  const struct node *n = &m->x->g->node[i];
  ty_entry made, *own = in ? NULL : NEWS(ty_entry, n->nin);
  NEED(in || own, TY_EMEMORY, "out of memory: a graph");
  for (int k = 0; own && k < n->nin; k++) own[k] = mapper_input(m, i, k);
  int code = graph_borrow(m->to, n, in ? in : own, &made);
  mem_free(own);
  TRY(code);
  struct node *copy = &m->to->node[made.node];
  if (n->forward >= 0) copy->forward = m->node[n->forward];
  if (n->guard) copy->guard = m->node[n->guard - 1] + 1;
  m->node[i] = made.node;
  for (int k = 0; k < n->kind->nout; k++) m->entry[n->first + k] = (ty_entry){ made.node, k };
  return m->x->device ? mapper_set_device(m, made.node, m->x->device[i]) : TY_OK;
}

/* Sets the descriptors of the new graph: copies those of the old values, and infers the others. */
static int rewrite_map_descs(const struct mapper *m, ty_desc *desc)
{
  const struct typed_graph *x = m->x;
  bool unknown = false;
  for (int v = 0; v < m->to->nvalue; v++) desc[v] = (ty_desc){ .dtype = TY_NODTYPE };
  for (int v = 0; v < x->g->nvalue; v++)
    if (m->entry[v].node >= 0) desc[value_of(m->to, m->entry[v])] = x->desc[v];
  for (int v = 0; v < m->to->nvalue; v++)
    unknown |= desc[v].dtype == TY_NODTYPE || !desc_known(&desc[v]);
  if (!unknown) return TY_OK;
  TRY(infer_run(m->to, INFER_SHAPES, desc));
  TRY(infer_run(m->to, INFER_TYPES, desc));
  return infer_undecided(m->to, desc, INFER_SHAPES);
}

/* Places each new node without a device on that of its first input. */
static int rewrite_map_devices(struct mapper *m)
{
  if (!m->device && !m->x->device) return TY_OK;
  if (m->to->n) TRY(mapper_set_device(m, m->to->n - 1, m->device[m->to->n - 1]));
  for (int i = 0; i < m->to->n; i++) {
    const struct node *n = &m->to->node[i];
    if (m->device[i] < 0) m->device[i] = n->nin ? m->device[n->in[0].node] : m->device[0];
  }
  return TY_OK;
}

static void rewrite_map_entries(const struct mapper *m, ty_entry *e, int n)
{
  for (int i = 0; e && i < n; i++)
    if (e[i].node >= 0) e[i] = m->entry[value_of(m->x->g, e[i])];
}

static int rewrite_replace_graph(struct mapper *m)
{
  struct typed_graph *x = m->x;
  ty_desc *desc = NEWS(ty_desc, m->to->nvalue + 1);
  int code = desc ? rewrite_map_descs(m, desc) : fail(TY_EMEMORY, "out of memory: a graph");
  if (!code) code = rewrite_map_devices(m);
  for (int i = 0; i < x->nvariable && !code; i++)
    if (m->node[x->variable[i]] < 0)
      code = fail(TY_EINTERNAL, "a rewrite has dropped variable %s",
          x->g->node[x->variable[i]].name);
  if (code) return mem_free(desc), code;
  rewrite_map_entries(m, x->head, x->nhead);
  rewrite_map_entries(m, x->grad, x->nvariable);
  rewrite_map_entries(m, x->head_grad, x->nhead);
  rewrite_map_entries(m, x->extra, x->nextra);
  for (int i = 0; i < x->nvariable; i++) x->variable[i] = m->node[x->variable[i]];
  x->forward = m->forward < 0 ? m->to->n : m->forward;
  mem_free(x->desc);
  x->desc = desc;
  x->desc_cap = m->to->nvalue + 1;
  mem_free(x->device);
  x->device = m->device;
  m->device = NULL;
  ty_graph_free(x->g);
  x->g = m->to;
  m->to = NULL;
  return TY_OK;
}

int mapper_end(struct mapper *m, int code)
{
  if (!code) code = rewrite_replace_graph(m);
  ty_graph_free(m->to);
  mem_free(m->entry);
  mem_free(m->node);
  mem_free(m->device);
  return code;
}
