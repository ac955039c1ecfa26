/* device_placement.c - the device of every node, from ctx groups and bound arrays; copies where
** values cross devices.
**
** Rules: a variable is on its array's device; a node of a mapped ctx group on that group's device;
** any other where its first placed input is, a gradient node where its forward node is; a node
** without a device so far takes that of a reader, then the default. Without groups everything
** is on the default device.
*/
#include "pass/rewrite.h"

struct placing {
  int device;                                         /* default */
  /* ctx group -> device */
  const ty_place *place;
  int nplace;
  /* per node: device of a variable's array, -1: by group, else default */
  const int *variable;
};

/* Finds the device of a node's ctx group; -1: none. */
static int placement_find_group_device(const struct placing *w, const struct node *n, int *device)
{
  const char *group = node_attr(n, "__ctx_group__");
  *device = -1;
  if (!w->nplace || !group) return TY_OK;
  for (int i = 0; i < w->nplace; i++)
    if (!strcmp(w->place[i].group, group)) {
      *device = w->place[i].device;
      return TY_OK;
    }
  int code = fail(TY_EDEVICE, "%s belongs to ctx group '%s', but group2ctx names no device for it",
      n->name, group);
  fail_node(n->op ? n->op->name : NULL, n->name, n->where);
  fail_argument("group2ctx", group, NULL);
  return code;
}

static int placement_find_own_device(
    const ty_graph *g, const struct placing *w, int i, const int *device, int *out)
{
  const struct node *n = &g->node[i];
  *out = -1;
  if (!n->op && w->variable[i] >= 0) {
    *out = w->variable[i];
    return TY_OK;
  }
  if (n->forward >= 0) {
    *out = device[n->forward];
    return TY_OK;
  }
  TRY(placement_find_group_device(w, n, out));
  for (int k = 0; *out < 0 && n->op && k < n->nin; k++) *out = device[n->in[k].node];
  return TY_OK;
}

static int placement_assign_devices(const ty_graph *g, const struct placing *w, int *device)
{
  for (int i = 0; i < g->n; i++) TRY(placement_find_own_device(g, w, i, device, &device[i]));
  for (int i = g->n - 1; i >= 0; i--) /* what nothing has placed yet takes the device of a reader */
    for (int k = 0; device[i] >= 0 && k < g->node[i].nin; k++)
      if (device[g->node[i].in[k].node] < 0) device[g->node[i].in[k].node] = device[i];
  for (int i = 0; i < g->n; i++)
    if (device[i] < 0) device[i] = w->device;
  return TY_OK;
}

/* -- copies ------------------------------------------------------------------------------------ */

struct copied { ty_entry from; int device, node; };
struct copier { struct mapper m; struct copied *made; int n, cap; };

/* Returns the copy of a new value on a device, which it makes if there is none. */
static int placement_copy_across(struct copier *c, ty_entry from, int device, ty_entry *out)
{
  for (int i = 0; i < c->n; i++) {
    const struct copied *x = &c->made[i];
    if (x->from.node != from.node || x->from.out != from.out || x->device != device) continue;
    *out = (ty_entry){ x->node, 0 };
    return TY_OK;
  }
  char name[512];
  snprintf(name, sizeof name, "%s_%d_copy", c->m.to->node[from.node].name, from.out);
  TRY(graph_node(c->m.to, op_find("_CrossDeviceCopy"), name, NULL, 0, &from, 1, out));
  TRY(mapper_set_device(&c->m, out->node, device));
  NEED(GROW(c->made, c->n, c->cap), TY_EMEMORY, "out of memory: placing");
  c->made[c->n++] = (struct copied){ from, device, out->node };
  return TY_OK;
}

static int placement_fail_state_elsewhere(const struct node *n, const char *state)
{
  int code = fail(TY_EDEVICE,
      "%s: auxiliary state %s is on another device than the operator that changes it", n->name,
      state);
  fail_node(n->op->name, n->name, n->where);
  return code;
}

static int placement_copy_inputs(struct copier *c, int i, ty_entry *in)
{
  const struct typed_graph *x = c->m.x;
  const struct node *n = &x->g->node[i];
  for (int k = 0; k < n->nin; k++) {
    in[k] = mapper_input(&c->m, i, k);
    if (x->device[n->in[k].node] == x->device[i]) continue;
    if (n->kind->inport && !n->backward && n->kind->inport[k].mutated)
      return placement_fail_state_elsewhere(n, x->g->node[n->in[k].node].name);
    TRY(placement_copy_across(c, in[k], x->device[i], &in[k]));
  }
  return TY_OK;
}

static int placement_insert_copies(struct typed_graph *x)
{
  struct copier c = { 0 };
  int widest = 1;
  for (int i = 0; i < x->g->n; i++) widest = MAX(widest, x->g->node[i].nin);
  ty_entry *in = NEWS(ty_entry, widest);
  NEED(in, TY_EMEMORY, "out of memory: placing");
  int code = mapper_begin(&c.m, x);
  if (code) return mem_free(in), code;
  for (int i = 0; i < x->g->n && !code; i++) {
    mapper_visit(&c.m, i);
    code = placement_copy_inputs(&c, i, in);
    if (!code) code = mapper_copy(&c.m, i, in);
  }
  mem_free(in);
  mem_free(c.made);
  return mapper_end(&c.m, code);
}

/* -- gradients --------------------------------------------------------------------------------- */

/* Returns whether an argument's array and its gradient's are both on the device of its group;
** others fail when arrays are checked. */
static bool placement_is_well_placed(
    const struct typed_graph *x, const struct rewrite_request *r, int i)
{
  const struct placing w = { .place = r->group, .nplace = r->ngroup };
  const int at = r->grad_device[i];
  int group;
  placement_find_group_device(&w, &x->g->node[x->variable[i]], &group); /* -1: none has a device */
  return (group < 0 || group == at) && (r->array_device[i] < 0 || r->array_device[i] == at);
}

/* Copies each gradient that is computed on another device than its array to the array's device. */
static int placement_bring_gradients(struct typed_graph *x, const struct rewrite_request *r)
{
  ty_desc *desc = mem_grow(x->desc, sizeof *desc * (size_t)(x->g->nvalue + x->nvariable + 1));
  if (desc) x->desc = desc, x->desc_cap = x->g->nvalue + x->nvariable + 1;
  int *device = desc
      ? mem_grow(x->device, sizeof *device * (size_t)(x->g->n + x->nvariable + 1))
      : NULL;
  NEED(device, TY_EMEMORY, "out of memory: placing");
  x->device = device;
  for (int i = 0; i < x->nvariable; i++) {
    ty_entry made, *of = &x->grad[i];
    const int at = r->grad_device[i];
    if (of->node < 0 || at < 0 || device[of->node] == at || !placement_is_well_placed(x, r, i))
      continue;
    char name[600];
    snprintf(name, sizeof name, "%s_grad_copy", x->g->node[x->variable[i]].name);
    TRY(graph_node(x->g, op_find("_copy"), name, NULL, 0, of, 1, &made));
    x->desc[value_of(x->g, made)] = x->desc[value_of(x->g, *of)];
    device[made.node] = at;
    *of = made;
  }
  return TY_OK;
}

static int placement_assign_all(struct typed_graph *x, const struct rewrite_request *r)
{
  int *variable = NEWS(int, x->g->n + 1);
  NEED(variable, TY_EMEMORY, "out of memory: placing");
  for (int i = 0; i < x->g->n; i++) variable[i] = -1;
  for (int i = 0; i < x->nvariable; i++) variable[x->variable[i]] = r->array_device[i];
  struct placing w = { r->default_device, r->group, r->ngroup, variable };
  int code = placement_assign_devices(x->g, &w, x->device);
  mem_free(variable);
  return code;
}

int rewrite_placement(struct typed_graph *x, const struct rewrite_request *r)
{
  x->device = NEWS(int, x->g->n + 1);
  NEED(x->device, TY_EMEMORY, "out of memory: placing");
  for (int i = 0; i < x->g->n; i++) x->device[i] = r->default_device;
  if (!r->ngroup) return device_open(r->default_device);
  TRY(placement_assign_all(x, r));
  for (int h = 0; h < x->nhead; h++) /* a head gradient arrives where its head is */
    if (x->head_grad[h].node >= 0)
      x->device[x->head_grad[h].node] = x->device[x->head[h].node];
  TRY(placement_bring_gradients(x, r));
  bool several = false;
  for (int i = 1; i < x->g->n; i++) several |= x->device[i] != x->device[0];
  if (several) TRY(placement_insert_copies(x));
  for (int i = 0; i < x->g->n; i++) TRY(device_open(x->device[i]));
  return TY_OK;
}
