/* bind.c - makes an executor: its own graph, gradients, devices, programs, bound tensors,
** outputs.
**
** Order: extract the graph (merging equal nodes), match arrays to variables, infer, append
** gradients, place and insert copies, decide where each gradient is written, compile the first
** program, reserve the pool, resolve pointers.
*/
#include "pass/control_flow.h"
#include "exec/inner.h"
#include "pass/extract.h"
#include "pass/device_placement.h"

bool exec_fuses(const ty_exec *e)
{
  return !(e->flags & TY_NOFUSE) && env_number("TYCHO_FUSE", 1);
}

/* -- variables --------------------------------------------------------------------------------- */

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

static int missing_array(const ty_graph *g, int node, const char *what)
{
  const char *name = g->node[node].name;
  int code = fail(TY_ENAME, "bind: no array was given for %s '%s'", what, name);
  fail_argument(name, what, "nothing");
  return code;
}

int exec_add_bound(ty_exec *e, ty_tensor *t, int *index)
{
  if (e->nbound == e->bound_cap) {
    int cap = e->bound_cap * 2 + 16;
    ty_tensor **more = mem_grow(e->bound, sizeof *more * (size_t)cap);
    NEED(more, TY_EMEMORY, "out of memory: executor");
    e->bound = more;
    e->bound_cap = cap;
  }
  if (t) ty_tensor_keep(t);
  e->bound[e->nbound] = t;
  *index = e->nbound++;
  return TY_OK;
}

static int check_gradient(const struct bound *b)
{
  char want[160], got[160];
  if (!b->grad || !b->value) return TY_OK;
  if (b->grad->d.dtype == b->value->d.dtype &&
      desc_count(&b->grad->d) == desc_count(&b->value->d) &&
      desc_same_shape(&b->grad->d, &b->value->d))
    return TY_OK;
  int code = fail(desc_same_shape(&b->grad->d, &b->value->d) ? TY_EDTYPE : TY_ESHAPE,
      "bind: the gradient array of '%s' is %s %s, but the argument is %s %s", b->name,
      dtype_name(b->grad->d.dtype), text_shape(&b->grad->d, got, sizeof got),
      dtype_name(b->value->d.dtype), text_shape(&b->value->d, want, sizeof want));
  fail_argument(b->name, want, got);
  return code;
}

/* The k-th array of a name belongs to the k-th variable of that name. */
static int match_one(ty_exec *e, const ty_bind *a, bool dry, const char *what, struct bound *b)
{
  if (!a || (!a->value && !dry)) return missing_array(e->g, b->node, what);
  NEED(a->req == TY_NULL || a->req == TY_WRITE || a->req == TY_ADD, TY_EVALUE,
      "bind: grad_req of '%s' is %d; expected null (0), write (1) or add (3)", b->name, a->req);
  b->value = a->value;
  b->req = a->grad || dry ? a->req : TY_NULL;
  b->grad = b->req ? a->grad : NULL;
  TRY(exec_add_bound(e, b->value, &b->value_bound));
  if (b->req) TRY(exec_add_bound(e, b->grad, &b->grad_bound));
  return check_gradient(b);
}

static int match(ty_exec *e, const int *nodes, int n, const ty_bind *given, int ngiven, bool dry,
    const char *what, struct bound *out)
{
  struct names names;
  int code = names_index(&names, given, sizeof *given, ngiven);
  for (int i = 0; i < n && !code; i++) {
    const char *name = e->g->node[nodes[i]].name;
    int at = names_take(&names, name);
    out[i] = (struct bound){ .name = name, .node = nodes[i], .value_bound = -1, .grad_bound = -1 };
    code = match_one(e, at < 0 ? NULL : &given[at], dry, what, &out[i]);
  }
  names_done(&names);
  return code;
}

static int match_all(ty_exec *e, const struct exec_source *s)
{
  int *arg = NEWS(int, e->g->n), *aux = NEWS(int, e->g->n);
  int code = arg && aux ? exec_variables(e->g, arg, &e->narg, aux, &e->naux)
                        : fail(TY_EMEMORY, "out of memory: executor");
  e->arg = NEWS(struct bound, e->narg);
  e->aux = NEWS(struct bound, e->naux);
  if (!code && (!e->arg || !e->aux)) code = fail(TY_EMEMORY, "out of memory: executor");
  bool dry = e->flags & TY_DRY_RUN;
  if (!code) code = match(e, arg, e->narg, s->arg, s->narg, dry, "argument", e->arg);
  if (!code) code = match(e, aux, e->naux, s->aux, s->naux, dry, "auxiliary state", e->aux);
  if (!code) code = names_index(&e->arg_names, e->arg, sizeof *e->arg, e->narg);
  if (!code) code = names_index(&e->aux_names, e->aux, sizeof *e->aux, e->naux);
  mem_free(arg);
  mem_free(aux);
  return code;
}

/* -- shapes ------------------------------------------------------------------------------------ */

static int seed_bound(
    ty_exec *e, const struct bound *b, int n, const ty_bind *given, int ngiven, const ty_desc *desc)
{
  struct names names;
  TRY(names_index(&names, given, sizeof *given, ngiven));
  for (int i = 0; i < n; i++) {
    ty_desc *d = &e->desc[e->g->node[b[i].node].first];
    int at = names_first(&names, b[i].name);
    if (b[i].value)
      *d = b[i].value->d;
    else if (desc && at >= 0)
      *d = desc[at];
    d->device = 0;
  }
  names_done(&names);
  return TY_OK;
}

static int infer_all(ty_exec *e, const struct exec_source *s)
{
  e->desc = NEWS(ty_desc, e->g->nvalue + 64);
  NEED(e->desc, TY_EMEMORY, "out of memory: executor");
  for (int v = 0; v < e->g->nvalue; v++) e->desc[v] = (ty_desc){ .dtype = TY_NODTYPE };
  TRY(seed_bound(e, e->arg, e->narg, s->arg, s->narg, s->arg_desc));
  TRY(seed_bound(e, e->aux, e->naux, s->aux, s->naux, s->aux_desc));
  TRY(infer_run(e->g, INFER_SHAPES, e->desc));
  TRY(infer_run(e->g, INFER_TYPES, e->desc));
  for (int v = 0; v < e->g->nvalue; v++)
    if (e->desc[v].dtype == TY_NODTYPE) e->desc[v].dtype = TY_F32;
  return infer_undecided(e->g, e->desc, INFER_SHAPES);
}

/* -- control flow ------------------------------------------------------------------------------ */

/* Bodies become part of the graph; every variable keeps its shape and its place in the lists. */
static int expand_bodies(ty_exec *e)
{
  if (!control_used(e->g)) return TY_OK;
  ty_graph *to = NULL;
  int *map = NEWS(int, e->g->n);
  NEED(map, TY_EMEMORY, "out of memory: executor");
  int code = control_expand(e->g, e->desc, e->head, e->nhead, &to, map);
  ty_desc *desc = code ? NULL : NEWS(ty_desc, to->nvalue + 64);
  if (!code && !desc) code = fail(TY_EMEMORY, "out of memory: executor"), ty_graph_free(to);
  if (code) return mem_free(map), code;
  for (int v = 0; v < to->nvalue; v++) desc[v] = (ty_desc){ .dtype = TY_NODTYPE };
  for (int i = 0; i < e->g->n; i++)
    if (!e->g->node[i].op) desc[to->node[map[i]].first] = e->desc[e->g->node[i].first];
  for (int i = 0; i < e->narg; i++) e->arg[i].node = map[e->arg[i].node];
  for (int i = 0; i < e->naux; i++) e->aux[i].node = map[e->aux[i].node];
  mem_free(map);
  mem_free(e->desc);
  ty_graph_free(e->g);
  e->g = to;
  e->desc = desc;
  e->forward = to->n;
  TRY(infer_run(e->g, INFER_SHAPES, e->desc));
  TRY(infer_run(e->g, INFER_TYPES, e->desc));
  return infer_undecided(e->g, e->desc, INFER_SHAPES);
}

/* -- gradients --------------------------------------------------------------------------------- */

static int append_gradients(ty_exec *e, const uint8_t *mirror, struct gradient *out)
{
  bool any = false;
  uint8_t *requested = NEWS(uint8_t, e->g->n);
  NEED(requested, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->narg; i++)
    if (e->arg[i].req) requested[e->arg[i].node] = any = true;
  for (int i = 0; i < e->g->n; i++)
    any |= e->g->node[i].op && e->g->node[i].op->flags & OP_FUSED_UPDATE;
  e->with_grad = any;
  struct gradient_request request = { e->head, e->nhead, requested, mirror,
    (int)env_number("TYCHO_GRAD_SUM_CAP", 8) };
  struct descs d = { e->desc, e->g->nvalue + 64 };
  for (int i = 0; i < e->forward; i++) out->of[i].node = -1;
  for (int h = 0; h < e->nhead; h++) out->head[h].node = -1;
  int code = any ? gradient_append(e->g, &d, &request, out) : TY_OK;
  e->desc = d.d;
  mem_free(requested);
  return code;
}

static int mark_mirrors(ty_exec *e, uint8_t **out)
{
  *out = NULL;
  bool any = false;
  uint8_t *m = NEWS(uint8_t, e->g->n);
  NEED(m, TY_EMEMORY, "out of memory: executor");
  exec_mark_mirrors(e, e->flags & TY_MIRROR || env_number("TYCHO_MIRROR", 0), m);
  for (int i = 0; i < e->g->n; i++) any |= m[i];
  e->mirror = any;
  if (any)
    *out = m;
  else
    mem_free(m);
  return TY_OK;
}

/* -- devices ----------------------------------------------------------------------------------- */

static int wrong_device(const struct bound *b, int is, int expected, const char *what)
{
  char x[32], y[32];
  int code = fail(TY_EDEVICE,
      "bind: %s '%s' is on %s, but %s is needed here; use as_in_context or group2ctx", what,
      b->name, device_name(is, x, sizeof x), device_name(expected, y, sizeof y));
  fail_argument(b->name, y, x);
  return code;
}

static int check_devices(ty_exec *e)
{
  for (int i = 0; i < e->narg + e->naux; i++) {
    struct bound *b = i < e->narg ? &e->arg[i] : &e->aux[i - e->narg];
    if (!e->nplace && b->value && b->value->d.device != e->default_device)
      return wrong_device(b, b->value->d.device, e->default_device, "array of");
    if (!b->req || !b->grad) continue;
    int at = e->device[e->grad_entry[i].node];
    if (b->grad->d.device != at) return wrong_device(b, b->grad->d.device, at, "gradient array of");
  }
  return TY_OK;
}

static void remap(ty_entry *e, int n, const int *map)
{
  for (int i = 0; i < n; i++)
    if (e[i].node >= 0) e[i].node = map[e[i].node];
}

static int insert_copies(ty_exec *e, struct gradient *grad)
{
  ty_graph *to;
  int *map = NEWS(int, e->g->n), *device;
  NEED(map, TY_EMEMORY, "out of memory: executor");
  int code = insert_device_copies(e->g, e->device, &to, map, &device);
  if (code) return mem_free(map), code;
  ty_desc *desc = NEWS(ty_desc, to->nvalue + 1);
  int *from = NEWS(int, to->n + 1);
  if (!desc || !from) {
    void *const made[] = { map, device, desc, from };
    for (int i = 0; i < COUNT(made); i++) mem_free(made[i]);
    ty_graph_free(to);
    return fail(TY_EMEMORY, "out of memory: executor");
  }
  for (int i = 0; i < to->n; i++) from[i] = -1;
  for (int i = 0; i < e->g->n; i++) from[map[i]] = i;
  for (int i = 0; i < to->n; i++)
    for (int k = 0; k < to->node[i].kind->nout; k++)
      desc[to->node[i].first + k] = from[i] >= 0 ? e->desc[e->g->node[from[i]].first + k]
                                                 : desc[value_of(to, to->node[i].in[0])];
  int forward = 0;
  for (int i = 0; i < e->forward; i++) forward = MAX(forward, map[i] + 1);
  for (int i = 0; i < e->narg; i++) e->arg[i].node = map[e->arg[i].node];
  for (int i = 0; i < e->naux; i++) e->aux[i].node = map[e->aux[i].node];
  remap(e->head, e->nhead, map);
  remap(e->grad_entry, e->narg, map);
  remap(grad->head, e->nhead, map);
  mem_free(map);
  mem_free(from);
  mem_free(e->desc);
  mem_free(e->device);
  ty_graph_free(e->g);
  e->g = to;
  e->desc = desc;
  e->device = device;
  e->forward = forward;
  return TY_OK;
}

/* Whether an argument's arrays lie together, where its group says; others are refused below. */
static bool well_placed(const ty_exec *e, const struct bound *b)
{
  const struct placing w = { .place = e->place, .nplace = e->nplace };
  int group, at = b->grad->d.device;
  group_device(&w, &e->g->node[b->node], &group); /* -1: none has a device */
  return (group < 0 || group == at) && (!b->value || b->value->d.device == at);
}

/* A gradient that is made elsewhere than its argument lies is copied there. */
static int bring_gradients(ty_exec *e)
{
  ty_desc *desc = mem_grow(e->desc, sizeof *desc * (size_t)(e->g->nvalue + e->narg));
  if (desc) e->desc = desc;
  int *device = desc ? mem_grow(e->device, sizeof *device * (size_t)(e->g->n + e->narg)) : NULL;
  NEED(device, TY_EMEMORY, "out of memory: executor");
  e->device = device;
  for (int i = 0; i < e->narg; i++) {
    const struct bound *b = &e->arg[i];
    ty_entry made, *of = &e->grad_entry[i];
    if (!b->req || !b->grad || !well_placed(e, b)) continue;
    if (device[of->node] == b->grad->d.device) continue;
    char name[600];
    snprintf(name, sizeof name, "%s_grad_copy", b->name);
    TRY(graph_node(e->g, op_find("_copy"), name, NULL, 0, of, 1, &made));
    desc[value_of(e->g, made)] = desc[value_of(e->g, *of)];
    device[made.node] = b->grad->d.device;
    *of = made;
  }
  return TY_OK;
}

static int assign_all_devices(ty_exec *e, struct gradient *grad)
{
  int first = -1;
  e->device = NEWS(int, e->g->n);
  int *var = e->device ? NEWS(int, e->g->n) : NULL;
  NEED(var, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->g->n; i++) var[i] = -1;
  for (int i = 0; i < e->narg; i++)
    if (e->arg[i].value && e->nplace) var[e->arg[i].node] = e->arg[i].value->d.device;
  for (int i = 0; i < e->naux; i++)
    if (e->aux[i].value && e->nplace) var[e->aux[i].node] = e->aux[i].value->d.device;
  struct placing w = { e->default_device, e->place, e->nplace, var, true };
  int code = e->nplace ? assign_devices(e->g, &w, e->device) : TY_OK;
  for (int i = 0; !e->nplace && i < e->g->n; i++) e->device[i] = e->default_device;
  mem_free(var);
  TRY(code);
  for (int h = 0; h < e->nhead; h++) /* a head gradient arrives where its head is */
    if (grad->head[h].node >= 0) e->device[grad->head[h].node] = e->device[e->head[h].node];
  if (e->nplace) TRY(bring_gradients(e));
  bool several = false;
  for (int i = 0; i < e->g->n; i++) {
    if (first < 0) first = e->device[i];
    several |= e->device[i] != first;
  }
  if (several) TRY(insert_copies(e, grad));
  for (int i = 0; i < e->g->n; i++) TRY(device_open(e->device[i]));
  return check_devices(e);
}

/* -- programs ---------------------------------------------------------------------------------- */

/* Outputs keep the places that they have in the other variant, or in the executor that this one is
** a reshape of. */
static int compile(ty_exec *e, int which, const ty_exec *before, struct program **out)
{
  struct program *p = NEW(struct program);
  const struct program *other = e->variant[!which];
  int flags = e->flags | (which == UNFUSED ? TY_NOFUSE | TY_KEEP : 0);
  NEED(p, TY_EMEMORY, "out of memory: program");
  if (!exec_fuses(e)) flags |= TY_NOFUSE;
  p->s = exec_source_of(e, which, flags);
  if (other)
    p->like = (struct outputs_of){ other, e->head, e->nhead };
  else if (before)
    p->like = (struct outputs_of){ before->variant[before->variant[FUSED] ? FUSED : UNFUSED],
      before->head, before->nhead };
  const int code = program_compile(p);
  if (code) {
    program_free(p);
    mem_free(p);
    return code;
  }
  *out = p;
  return TY_OK;
}

int exec_variant(ty_exec *e, int which, struct program **out)
{
  if (!e->variant[which]) {
    TRY(compile(e, which, NULL, &e->variant[which]));
    TRY(exec_resolve(e));
  }
  *out = e->variant[which];
  return TY_OK;
}

/* -- memory ------------------------------------------------------------------------------------ */

static int reserve(ty_exec *e, const struct program *p)
{
  for (int i = 0; i < p->ndevice; i++) {
    bool moved;
    TRY(pool_reserve_for(e->pool, e, p->device[i], (size_t)p->pool[i], &moved));
  }
  return TY_OK;
}

/* Reshape: an output in the place of the old executor's is the same storage, so that readers of
** either wait for both. */
static struct storage *former_storage(
    const ty_exec *e, const ty_exec *old, const struct value *r, int h)
{
  const struct program *from = old && !(e->flags & TY_DRY_RUN) && h < old->nhead
      ? old->variant[FUSED]
      : NULL;
  if (!from || !old->output_storage[h]) return NULL;
  const struct value *x = &from->value[from->value[value_of(old->g, old->head[h])].root];
  return x->kind == V_POOL && x->offset == r->offset && x->device == r->device
      ? old->output_storage[h]
      : NULL;
}

static int make_output(ty_exec *e, const struct program *p, const ty_exec *before, int h)
{
  int v = value_of(e->g, e->head[h]);
  const struct value *r = &p->value[p->value[v].root];
  ty_desc d = e->desc[v];
  d.device = r->kind == V_BOUND && e->bound[r->bound] ? e->bound[r->bound]->d.device : r->device;
  if (r->kind == V_BOUND)
    return e->bound[r->bound] ? ty_tensor_view(e->bound[r->bound], &d, 0, &e->output[h]) : TY_OK;
  struct storage *former = former_storage(e, before, r, h);
  if (former && former->bytes >= desc_bytes(&d))
    e->output_storage[h] = storage_keep(former);
  else if (e->flags & TY_DRY_RUN)
    TRY(storage_wrap(d.device, NULL, desc_bytes(&d), NULL, NULL, &e->output_storage[h]));
  else
    TRY(pool_storage(e->pool, r->device, (size_t)r->offset, desc_bytes(&d), &e->output_storage[h]));
  return tensor_on(&d, e->output_storage[h], 0, &e->output[h]);
}

int exec_resolve(ty_exec *e)
{
  if (e->flags & TY_DRY_RUN) return TY_OK;
  exec_wait_runs(e);                                    /* they read the pointers */
  for (int w = 0; w < VARIANTS; w++)
    if (e->variant[w]) TRY(reserve(e, e->variant[w]));
  for (int i = 0; i < e->nbound; i++) e->bound_at[i] = tensor_at(e->bound[i]);
  for (int w = 0; w < VARIANTS; w++) {
    struct program *p = e->variant[w];
    if (!p) continue;
    struct bases b = { .bound = e->bound_at };
    for (int i = 0; i < p->ndevice; i++)
      b.pool[i] = pool_base(e->pool, p->device[i]), b.version[i] = e->version[i];
    program_resolve(p, &b);
  }
  e->generation = pool_generation(e->pool);
  return TY_OK;
}

static int make_arrays(ty_exec *e, const ty_exec *before)
{
  e->bound_at = NEWS(void *, e->nbound);
  e->output = NEWS(ty_tensor *, e->nhead);
  e->output_storage = NEWS(struct storage *, e->nhead);
  NEED(e->bound_at && e->output && e->output_storage, TY_EMEMORY, "out of memory: executor");
  struct program *p = e->variant[FUSED];
  for (int i = 0; i < p->ndevice; i++) {
    e->version[i] = NEWS(uint64_t, e->nbound);
    NEED(e->version[i], TY_EMEMORY, "out of memory: executor");
    TRY(storage_wrap(p->device[i], NULL, 0, NULL, NULL, &e->token[i]));
  }
  if (!(e->flags & TY_DRY_RUN)) TRY(reserve(e, p));
  for (int h = 0; h < e->nhead; h++) TRY(make_output(e, p, before, h));
  return exec_resolve(e);
}

/* -- the whole --------------------------------------------------------------------------------- */

static int copy_placement(ty_exec *e, const struct exec_source *s)
{
  e->place = arena_new(&e->arena, sizeof *e->place * (size_t)(s->nplace + 1));
  NEED(e->place, TY_EMEMORY, "out of memory: executor");
  e->nplace = s->nplace;
  for (int i = 0; i < s->nplace; i++) {
    e->place[i] = s->place[i];
    e->place[i].group = arena_text(&e->arena, s->place[i].group);
    NEED(e->place[i].group, TY_EMEMORY, "out of memory: executor");
  }
  return TY_OK;
}

static int take_graph(ty_exec *e, const struct exec_source *s)
{
  e->nhead = s->nhead;
  e->head = NEWS(ty_entry, s->nhead);
  e->user_head = NEWS(ty_entry, s->nhead);
  NEED(e->head && e->user_head, TY_EMEMORY, "out of memory: executor");
  memcpy(e->user_head, s->head, sizeof *s->head * (size_t)s->nhead);
  e->user = s->g;
  ty_graph_keep(s->g);
  TRY(graph_extract(s->g, s->head, s->nhead, env_number("TYCHO_CSE", 1), &e->g, e->head));
  e->forward = e->g->n;
  return TY_OK;
}

static int differentiate(ty_exec *e, const uint8_t *mirror)
{
  struct gradient grad = { NEWS(ty_entry, e->g->n), NEWS(ty_entry, e->nhead) };
  e->grad_entry = NEWS(ty_entry, e->narg);
  int code = grad.of && grad.head && e->grad_entry ? append_gradients(e, mirror, &grad)
                                                   : fail(TY_EMEMORY, "out of memory: executor");
  for (int i = 0; !code && i < e->narg; i++)
    e->grad_entry[i] = e->arg[i].req ? grad.of[e->arg[i].node] : (ty_entry){ -1, 0 };
  if (!code) code = assign_all_devices(e, &grad);
  if (!code) code = exec_route_gradients(e, &grad);
  mem_free(grad.of);
  mem_free(grad.head);
  return code;
}

/* Outputs whose number of rows only a run knows have no readers but their own gradients. */
static int check_rows(const ty_exec *e)
{
  for (int i = 0; i < e->forward; i++)
    for (int k = 0; k < e->g->node[i].nin; k++) {
      const struct node *n = &e->g->node[i], *from = &e->g->node[n->in[k].node];
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

static int build(ty_exec *e, const struct exec_source *s)
{
  uint8_t *mirror;
  TRY(copy_placement(e, s));
  TRY(take_graph(e, s));
  TRY(match_all(e, s));
  TRY(infer_all(e, s));
  TRY(expand_bodies(e));
  TRY(check_rows(e));
  exec_note_draws(e);
  TRY(mark_mirrors(e, &mirror));
  int code = differentiate(e, mirror);
  mem_free(mirror);
  TRY(code);
  if (s->pool) {
    e->pool = s->pool;
    pool_keep(s->pool);
  }
  else
    TRY(ty_pool_new(&e->pool));
  TRY(compile(e, FUSED, s->before, &e->variant[FUSED]));
  return make_arrays(e, s->before);
}

int exec_make(const struct exec_source *s, ty_exec **out)
{
  ty_exec *e = NEW(ty_exec);
  NEED(e, TY_EMEMORY, "out of memory: executor");
  e->refs = 1;
  e->ran = -1;
  e->flags = s->flags;
  e->default_device = s->device;
  e->level = s->level;
  e->check = s->flags & TY_CHECK || env_number("TYCHO_CHECK_NUMERICS", 0);
  live_add(LIVE_EXEC, 1);
  int code = build(e, s);
  if (code) return ty_exec_free(e), code;
  *out = e;
  return TY_OK;
}

int ty_exec_bind(ty_graph *g, const ty_bind_spec *spec, ty_exec **out)
{
  NEED(g && spec && out, TY_ETYPE, "bind: null argument");
  NEED(spec->nhead > 0, TY_EVALUE, "bind: the symbol has no outputs");
  struct exec_source s = { .g = g,
    .head = spec->head,
    .nhead = spec->nhead,
    .arg = spec->arg,
    .narg = spec->narg,
    .aux = spec->aux,
    .naux = spec->naux,
    .place = spec->place,
    .nplace = spec->nplace,
    .device = spec->device,
    .flags = spec->flags,
    .budget = spec->budget,
    .pool = spec->pool ? spec->pool
        : spec->shared ? spec->shared->pool
                       : NULL };
  return exec_within(&s, out);
}
