/* control_bodies.c - checks that the bodies of control flow fit their node.
**
** A body's variables are entries of the graph around it, its heads outputs of the node; the node's
** attributes say which (operators/control/subgraphs.h).
*/
#include "pass/control_bodies.h"
#include "operators/control/subgraphs.h"

/* -- locations: which value of the graph around a body's variable is --------------------------- */

int body_variables(const ty_graph *g)
{
  int n = 0;
  for (int i = 0; i < g->n; i++) n += !g->node[i].op;
  return n;
}

int body_variable(const ty_graph *g, int64_t k)
{
  for (int i = 0; i < g->n; i++)
    if (!g->node[i].op && k-- == 0) return i;
  return -1;
}

static int bodies_fail_locations(const struct node *n, const char *what)
{
  int code = fail(
      TY_EFORMAT, "%s %s: its bodies and %s do not fit together", n->op->name, n->name, what);
  fail_node(n->op->name, n->name, n->where);
  return code;
}

static int bodies_check_list(
    const struct node *n, const struct ints *l, int64_t least, int64_t limit, const char *what)
{
  for (int64_t k = 0; k < l->n; k++)
    if (l->d[k] < least || l->d[k] >= limit) return bodies_fail_locations(n, what);
  return TY_OK;
}

static int bodies_check_all(const struct node *n, int bodies)
{
  if (n->nbody != bodies) {
    int code = fail(TY_EVALUE, "%s %s: %d bodies, expected %d; build it with ty.sym.contrib",
        n->op->name, n->name, n->nbody, bodies);
    fail_node(n->op->name, n->name, n->where);
    return code;
  }
  for (int k = 0; k < bodies; k++)
    if (!n->body[k]->nhead) return bodies_fail_locations(n, "their outputs");
  return TY_OK;
}

/* Checks that each variable of a _foreach's body has a value around it. */
static int bodies_check_variables(const struct node *n, int vars)
{
  for (int k = 0; k < vars; k++)
    if (n->op->body_input(n->kind->param, 0, k) < 0)
      return bodies_fail_locations(n, "the places of their variables");
  return TY_OK;
}

static int bodies_check_foreach(const struct node *n, const struct foreach_param *p)
{
  TRY(bodies_check_all(n, 1));
  int vars = body_variables(n->body[0]);
  TRY(bodies_check_list(n, &p->data_locs, -1, vars, "in_data_locs"));
  TRY(bodies_check_list(n, &p->state_locs, -1, vars, "in_state_locs"));
  TRY(bodies_check_list(n, &p->remain_locs, 0, vars, "remain_locs"));
  if (p->data_locs.n + p->state_locs.n + p->remain_locs.n != n->nin)
    return bodies_fail_locations(n, "num_args");
  TRY(bodies_check_variables(n, vars));
  if (p->num_out_data < 0 || p->num_out_data + p->state_locs.n != p->num_outputs)
    return bodies_fail_locations(n, "num_out_data");
  return n->body[0]->nhead == p->num_outputs ? TY_OK : bodies_fail_locations(n, "num_outputs");
}

static int bodies_check_while(const struct node *n, const struct while_param *p)
{
  TRY(bodies_check_all(n, 2));
  TRY(bodies_check_list(n, &p->cond_locs, 0, n->nin, "cond_input_locs"));
  TRY(bodies_check_list(n, &p->func_locs, 0, n->nin, "func_input_locs"));
  TRY(bodies_check_list(n, &p->var_locs, 0, body_variables(n->body[1]), "func_var_locs"));
  if (p->cond_locs.n != body_variables(n->body[0]))
    return bodies_fail_locations(n, "cond_input_locs");
  if (p->func_locs.n != body_variables(n->body[1]))
    return bodies_fail_locations(n, "func_input_locs");
  if (p->num_out_data < 0 || p->num_out_data + p->var_locs.n != p->num_outputs)
    return bodies_fail_locations(n, "num_out_data");
  return n->body[1]->nhead == p->num_outputs && n->body[0]->nhead == 1
      ? TY_OK
      : bodies_fail_locations(n, "num_outputs");
}

static int bodies_check_cond(const struct node *n, const struct cond_param *p)
{
  const struct ints *list[] = { &p->cond_locs, &p->then_locs, &p->else_locs };
  static const char *const what[] = { "cond_input_locs", "then_input_locs", "else_input_locs" };
  TRY(bodies_check_all(n, 3));
  for (int k = 0; k < 3; k++) {
    TRY(bodies_check_list(n, list[k], 0, n->nin, what[k]));
    if (list[k]->n != body_variables(n->body[k]) || n->body[k]->nhead != (k ? p->num_outputs : 1))
      return bodies_fail_locations(n, what[k]);
  }
  return TY_OK;
}

int control_check(const struct node *n)
{
  switch (n->op->control) {
  case CONTROL_FOREACH: return bodies_check_foreach(n, n->kind->param);
  case CONTROL_WHILE: return bodies_check_while(n, n->kind->param);
  default: return bodies_check_cond(n, n->kind->param);
  }
}
