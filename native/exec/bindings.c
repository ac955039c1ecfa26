/* bindings.c - the arrays of an executor: matches them to variables, finds and exchanges them. */
#include "exec/inner.h"

int exec_variables(const ty_graph *g, int *arg, int *narg, int *aux, int *naux)
{
  uint8_t *mutated = NEWS(uint8_t, g->n);
  NEED(mutated, TY_EMEMORY, "out of memory");
  for (int i = 0; i < g->n; i++)
    for (int k = 0; g->node[i].op && !g->node[i].backward && k < g->node[i].nin; k++)
      if (g->node[i].kind->inport[k].mutated) mutated[g->node[i].in[k].node] = 1;
  *narg = *naux = 0;
  for (int i = 0; i < g->n; i++) {
    if (g->node[i].op || g->node[i].head_gradient) continue;
    if (mutated[i])
      aux[(*naux)++] = i;
    else
      arg[(*narg)++] = i;
  }
  mem_free(mutated);
  return TY_OK;
}

int exec_add_bound(ty_exec *e, ty_tensor *t, int *index)
{
  if (e->bind.nbound == e->bind.cap) {
    int cap = e->bind.cap * 2 + 16;
    ty_tensor **more = mem_grow(e->bind.bound, sizeof *more * (size_t)cap);
    NEED(more, TY_EMEMORY, "out of memory: executor");
    e->bind.bound = more;
    e->bind.cap = cap;
  }
  if (t) ty_tensor_keep(t);
  e->bind.bound[e->bind.nbound] = t;
  *index = e->bind.nbound++;
  return TY_OK;
}

/* Binds the given arrays a to a variable. a NULL: none were given. */
static int bind_match_one(ty_exec *e, const ty_bind *a, const char *what, struct bound *b)
{
  const bool dry = e->flags & TY_DRY_RUN;
  if (!a || (!a->value && !dry)) {
    int code = fail(TY_ENAME, "bind: no array was given for %s '%s'", what, b->name);
    fail_argument(b->name, what, "nothing");
    return code;
  }
  NEED(a->req == TY_NULL || a->req == TY_WRITE || a->req == TY_ADD, TY_EVALUE,
      "bind: grad_req of '%s' is %d; expected null (0), write (1) or add (3)", b->name, a->req);
  b->value = a->value;
  b->req = a->grad || dry ? a->req : TY_NULL;
  b->grad = b->req ? a->grad : NULL;
  if (b->value) storage_set_lasting(b->value->storage);
  if (b->value) TRY(storage_load(b->value->storage));
  TRY(exec_add_bound(e, b->value, &b->value_bound));
  if (b->req) TRY(exec_add_bound(e, b->grad, &b->grad_bound));
  if (!b->grad || !b->value) return TY_OK;
  const ty_desc *value = &b->value->d, *grad = &b->grad->d;
  const bool same = desc_same_shape(grad, value) && desc_count(grad) == desc_count(value);
  if (same && grad->dtype == value->dtype) return TY_OK;
  char want[160], got[160];
  int code = fail(desc_same_shape(grad, value) ? TY_EDTYPE : TY_ESHAPE,
      "bind: the gradient array of '%s' is %s %s, but the argument is %s %s", b->name,
      dtype_name(grad->dtype), text_shape(grad, got, sizeof got), dtype_name(value->dtype),
      text_shape(value, want, sizeof want));
  fail_argument(b->name, want, got);
  return code;
}

/* Binds arrays to the variables `nodes`: the k-th array of a name to the k-th variable of that
** name. */
static int bind_match_list(ty_exec *e, const ty_graph *g, const int *nodes, int n,
    const ty_bind *given, int ngiven, const char *what, struct bound *out)
{
  struct names names;
  int code = names_index(&names, given, sizeof *given, ngiven);
  for (int i = 0; i < n && !code; i++) {
    const char *name = g->node[nodes[i]].name;
    int at = names_take(&names, name);
    out[i] = (struct bound){ .name = name, .node = nodes[i], .value_bound = -1, .grad_bound = -1 };
    code = bind_match_one(e, at < 0 ? NULL : &given[at], what, &out[i]);
  }
  names_done(&names);
  return code;
}

int exec_match_arrays(ty_exec *e, const struct exec_source *s, const ty_graph *g)
{
  struct exec_bindings *b = &e->bind;
  int *arg = NEWS(int, g->n), *aux = NEWS(int, g->n);
  int code = arg && aux ? exec_variables(g, arg, &b->narg, aux, &b->naux)
                        : fail(TY_EMEMORY, "out of memory: executor");
  b->arg = NEWS(struct bound, b->narg);
  b->aux = NEWS(struct bound, b->naux);
  if (!code && (!b->arg || !b->aux)) code = fail(TY_EMEMORY, "out of memory: executor");
  if (!code) code = bind_match_list(e, g, arg, b->narg, s->arg, s->narg, "argument", b->arg);
  if (!code) code = bind_match_list(e, g, aux, b->naux, s->aux, s->naux, "auxiliary state", b->aux);
  if (!code) code = names_index(&b->arg_names, b->arg, sizeof *b->arg, b->narg);
  if (!code) code = names_index(&b->aux_names, b->aux, sizeof *b->aux, b->naux);
  mem_free(arg);
  mem_free(aux);
  return code;
}

static int bind_fail_device(const struct bound *b, int is, int expected, const char *what)
{
  char x[32], y[32];
  int code = fail(TY_EDEVICE,
      "bind: %s '%s' is on %s, but %s is needed here; use as_in_context or group2ctx", what,
      b->name, device_name(is, x, sizeof x), device_name(expected, y, sizeof y));
  fail_argument(b->name, y, x);
  return code;
}

int exec_check_devices(ty_exec *e)
{
  for (int i = 0; i < e->bind.narg + e->bind.naux; i++) {
    struct bound *b = exec_variable_at(e, i);
    if (!e->nplace && b->value && b->value->d.device != e->default_device)
      return bind_fail_device(b, b->value->d.device, e->default_device, "array of");
    if (!b->req || !b->grad) continue;
    int at = e->graph.device[e->graph.grad_entry[i].node];
    if (b->grad->d.device != at)
      return bind_fail_device(b, b->grad->d.device, at, "gradient array of");
  }
  return TY_OK;
}

void exec_find_bound(const ty_exec *e, const char *name, int *value, int *grad)
{
  const int arg = names_first(&e->bind.arg_names, name);
  const int aux = arg < 0 ? names_first(&e->bind.aux_names, name) : -1;
  const struct bound *b = arg >= 0 ? &e->bind.arg[arg] : aux >= 0 ? &e->bind.aux[aux] : NULL;
  *value = b ? b->value_bound : -1;
  *grad = b ? b->grad_bound : -1;
}

void exec_set_array(ty_exec *e, int at, ty_tensor *t)
{
  ty_tensor *old = e->bind.bound[at];
  if (t == old) return;
  if (t) ty_tensor_keep(t);
  e->bind.bound[at] = t;
  ty_tensor_free(old);
}
