/* device_placement.c - the device of every node, from ctx groups and bound arrays; copies where
** values cross devices.
**
** Rules: a variable stands where its array is; a node of a mapped ctx group on that group's
** device; any other where its first placed input is, a gradient node where its forward node is;
** what is still open takes the device of a reader, then the default. Without groups everything
** is on the default device.
*/
#include "pass/device_placement.h"
#include "pass/extract.h"

int group_device(const struct placing *w, const struct node *n, int *device)
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

static int own_device(
    const ty_graph *g, const struct placing *w, int i, const int *device, int *out)
{
  const struct node *n = &g->node[i];
  *out = -1;
  if (!n->op && w->var[i] >= 0) {
    *out = w->var[i];
    return TY_OK;
  }
  if (n->forward >= 0) {
    *out = device[n->forward];
    return TY_OK;
  }
  TRY(group_device(w, n, out));
  for (int k = 0; *out < 0 && n->op && k < n->nin; k++) *out = device[n->in[k].node];
  return TY_OK;
}

int assign_devices(const ty_graph *g, const struct placing *w, int *device)
{
  for (int i = 0; i < g->n; i++) TRY(own_device(g, w, i, device, &device[i]));
  for (int i = g->n - 1; i >= 0; i--) /* what nothing has placed yet takes the device of a reader */
    for (int k = 0; device[i] >= 0 && k < g->node[i].nin; k++)
      if (device[g->node[i].in[k].node] < 0) device[g->node[i].in[k].node] = device[i];
  for (int i = 0; i < g->n; i++)
    if (device[i] < 0) device[i] = w->device;
  return TY_OK;
}

/* -- copies ------------------------------------------------------------------------------------ */

struct copied { int from, out, device, node; };
struct copier {
  ty_graph *to;
  int *device, cap;
  struct copied *made;
  int n, made_cap;
  const struct op *op;
};

static int note_device(struct copier *c, int device)
{
  if (!GROW(c->device, c->to->n - 1, c->cap)) return fail(TY_EMEMORY, "out of memory: placing");
  c->device[c->to->n - 1] = device;
  return TY_OK;
}

static int cross(struct copier *c, ty_entry from, int device, ty_entry *out)
{
  for (int i = 0; i < c->n; i++)
    if (c->made[i].from == from.node && c->made[i].out == from.out && c->made[i].device == device)
      return *out = (ty_entry){ c->made[i].node, 0 }, TY_OK;
  char name[512];
  snprintf(name, sizeof name, "%s_%d_copy", c->to->node[from.node].name, from.out);
  TRY(graph_node(c->to, c->op, name, NULL, 0, &from, 1, out));
  TRY(note_device(c, device));
  NEED(GROW(c->made, c->n, c->made_cap), TY_EMEMORY, "out of memory: placing");
  c->made[c->n++] = (struct copied){ from.node, from.out, device, out->node };
  return TY_OK;
}

static int copy_node(
    struct copier *c, const ty_graph *g, int i, const int *device, const int *map, ty_entry *made)
{
  const struct node *n = &g->node[i];
  ty_entry *in = NEWS(ty_entry, n->nin);
  int code = in ? TY_OK : fail(TY_EMEMORY, "out of memory: placing");
  for (int k = 0; k < n->nin && !code; k++) {
    in[k] = (ty_entry){ map[n->in[k].node], n->in[k].out };
    bool changed = n->kind->inport && !n->backward && n->kind->inport[k].mutated;
    if (device[n->in[k].node] == device[i]) continue;
    if (changed) {
      code = fail(TY_EDEVICE,
          "%s: auxiliary state %s is on another device than the operator that changes it", n->name,
          g->node[n->in[k].node].name);
      fail_node(n->op->name, n->name, n->where);
    }
    else
      code = cross(c, in[k], device[i], &in[k]);
  }
  if (!code) code = graph_borrow(c->to, n, in, made);
  if (!code && n->forward >= 0) c->to->node[made->node].forward = map[n->forward];
  if (!code && n->guard) c->to->node[made->node].guard = map[n->guard - 1] + 1;
  mem_free(in);
  return code ? code : note_device(c, device[i]);
}

int insert_device_copies(
    ty_graph *g, const int *device, ty_graph **out, int *map, int **new_device)
{
  struct copier c = { .op = op_find("_CrossDeviceCopy") };
  NEED(c.op, TY_EINTERNAL, "operator _CrossDeviceCopy is missing");
  TRY(ty_graph_new(&c.to));
  ty_graph_keep(g);
  c.to->base = g;
  int code = TY_OK;
  for (int i = 0; i < g->n && !code; i++) {
    ty_entry made;
    code = copy_node(&c, g, i, device, map, &made);
    if (!code) map[i] = made.node;
  }
  mem_free(c.made);
  if (code) return mem_free(c.device), ty_graph_free(c.to), code;
  *out = c.to;
  *new_device = c.device;
  return TY_OK;
}
