/* rewrite_test.c - the mapper of rewrites, tested with one that drops multiplications by 1: heads,
** variables, gradients, shapes, devices and the end of the forward part refer to the new nodes.
*/
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "pass/extract.h"
#include "pass/rewrite.h"

static bool is_identity(const struct node *n)
{
  const char *scalar = n->op && !strcmp(n->op->name, "_mul_scalar") ? node_attr(n, "scalar") : NULL;
  return scalar && atof(scalar) == 1;
}

static int drop_identities(struct typed_graph *x)
{
  struct mapper m;
  int code = mapper_begin(&m, x);
  if (code) return code;
  for (int i = 0; i < x->g->n && !code; i++) {
    mapper_visit(&m, i);
    if (is_identity(&x->g->node[i]))
      m.entry[x->g->node[i].first] = mapper_input(&m, i, 0);
    else
      code = mapper_copy(&m, i, NULL);
  }
  return mapper_end(&m, code);
}

/* -- a graph with everything known ------------------------------------------------------------- */

static ty_entry add_variable(ty_graph *g, const char *name)
{
  ty_entry e;
  RUN(ty_graph_var(g, name, NULL, 0, &e));
  return e;
}

static ty_entry add_scaled(ty_graph *g, const char *name, ty_entry x, const char *by)
{
  ty_entry e;
  const ty_attr attr = { "scalar", by };
  RUN(ty_graph_op(g, "_mul_scalar", name, &attr, 1, &x, 1, &e));
  return e;
}

/* Makes y = (x * 1 * 2) * 1, z = y + w * 1, with the gradient of y by x alone. */
static void make_graph(struct typed_graph *x)
{
  static const ty_desc desc[] = { { .dtype = TY_F32, .ndim = 2, .dim = { 2, 3 } },
    { .dtype = TY_F32, .ndim = 2, .dim = { 2, 3 } } };
  static const bool with_grad[] = { true, false };
  static const int nowhere[] = { -1, -1 };
  ty_graph *g;
  RUN(ty_graph_new(&g));
  ty_entry a = add_variable(g, "x"), w = add_variable(g, "w"), z;
  ty_entry y = add_scaled(g, "last", add_scaled(g, "two", add_scaled(g, "one", a, "1"), "2"), "1");
  ty_entry in[] = { y, add_scaled(g, "other", w, "1.0") };
  RUN(ty_graph_op(g, "elemwise_add", "z", NULL, 0, in, 2, &z));
  const ty_entry head[] = { y, z };
  *x = (struct typed_graph){ .head = NEWS(ty_entry, 2), .nhead = 2, .variable = NEWS(int, 2),
    .nvariable = 2 };
  RUN(graph_extract(g, head, 2, false, &x->g, x->head));
  ty_graph_free(g);
  for (int i = 0; i < x->g->n; i++)
    if (!x->g->node[i].op) x->variable[!strcmp(x->g->node[i].name, "w")] = i;
  const struct rewrite_request r = { .variable = desc,
    .with_grad = with_grad,
    .sum_cap = 8,
    .default_device = TY_CPU,
    .array_device = nowhere,
    .grad_device = nowhere };
  RUN(rewrite_all(x, &r));
}

static const char *name_of(const struct typed_graph *x, ty_entry e)
{
  return x->g->node[e.node].name;
}

static void test_dropping(void)
{
  struct typed_graph x;
  make_graph(&x);
  const int nodes = x.g->n, forward = x.forward;
  CHECK(!strcmp(name_of(&x, x.head[0]), "last"), "%s", name_of(&x, x.head[0]));
  RUN(drop_identities(&x));
  CHECK(forward - x.forward == 3, "%d of %d nodes", x.forward, forward);
  CHECK(nodes > x.g->n, "%d of %d nodes", x.g->n, nodes);
  CHECK(!strcmp(name_of(&x, x.head[0]), "two"), "head 0 is %s", name_of(&x, x.head[0]));
  CHECK(!strcmp(name_of(&x, x.head[1]), "z"), "head 1 is %s", name_of(&x, x.head[1]));
  const struct node *z = &x.g->node[x.head[1].node];
  CHECK(!strcmp(name_of(&x, z->in[0]), "two") && !strcmp(name_of(&x, z->in[1]), "w"),
      "z reads %s and %s", name_of(&x, z->in[0]), name_of(&x, z->in[1]));
  CHECK(!strcmp(x.g->node[x.variable[0]].name, "x") && !strcmp(x.g->node[x.variable[1]].name, "w"),
      "variables");
  CHECK(x.grad[0].node >= x.forward && x.grad[1].node < 0, "gradient at %d", x.grad[0].node);
  for (int v = 0; v < x.g->nvalue; v++)
    CHECK(x.desc[v].dtype == TY_F32 && x.desc[v].ndim == 2 && x.desc[v].dim[1] == 3, "value %d", v);
  for (int i = 0; i < x.g->n; i++) {
    CHECK(x.device[i] == TY_CPU, "node %d is on %d", i, x.device[i]);
    const struct node *n = &x.g->node[i];
    CHECK(n->forward < 0 || x.g->node[n->forward].op == n->op, "%s", n->name);
    for (int k = 0; k < n->nin; k++) CHECK(n->in[k].node < i, "%s reads what follows", n->name);
  }
  typed_graph_done(&x);
}

/* Checks that a rewrite that fails leaves the graph as it was. */
static void test_failing(void)
{
  struct typed_graph x;
  struct mapper m;
  make_graph(&x);
  const ty_graph *g = x.g;
  const int n = x.g->n;
  RUN(mapper_begin(&m, &x));
  mapper_visit(&m, 0);
  RUN(mapper_copy(&m, 0, NULL));
  CHECK(mapper_end(&m, fail(TY_ERUN, "no")) == TY_ERUN, "%s", ty_error());
  CHECK(x.g == g && x.g->n == n, "another graph");
  RUN(mapper_begin(&m, &x));
  CHECK(mapper_end(&m, TY_OK) == TY_EINTERNAL && x.g == g, "%s", ty_error());
  typed_graph_done(&x);
}

/* Checks that shapes of a new node follow from those of its inputs where the value that it replaces
** is unknown. */
static void test_new_nodes(void)
{
  struct typed_graph x;
  struct mapper m;
  ty_entry made;
  make_graph(&x);
  RUN(mapper_begin(&m, &x));
  for (int i = 0; i < x.g->n; i++) {
    mapper_visit(&m, i);
    RUN(mapper_copy(&m, i, NULL));
    if (i != x.head[1].node) continue;
    RUN(graph_node(m.to, op_find("sum"), "total", NULL, 0, &m.entry[x.g->node[i].first], 1, &made));
    m.entry[x.g->node[i].first] = made;
  }
  x.desc[value_of(x.g, x.head[1])] = (ty_desc){ .dtype = TY_NODTYPE };
  RUN(mapper_end(&m, TY_OK));
  CHECK(!strcmp(name_of(&x, x.head[1]), "total"), "head 1 is %s", name_of(&x, x.head[1]));
  const ty_desc *d = &x.desc[value_of(x.g, x.head[1])];
  CHECK(d->ndim == 1 && d->dim[0] == 1, "%d axes", d->ndim);
  CHECK(x.device[x.head[1].node] == TY_CPU, "on %d", x.device[x.head[1].node]);
  typed_graph_done(&x);
}

int main(void)
{
  int64_t before = ty_live("graph");
  test_dropping();
  test_failing();
  test_new_nodes();
  CHECK(ty_live("graph") == before, "%lld graphs", (long long)ty_live("graph"));
  return check_end();
}
