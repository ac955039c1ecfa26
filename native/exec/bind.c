/* bind.c - makes an executor: its own graph, gradients, devices, programs, bound tensors,
** outputs.
**
** Order: extract the graph (merging equal nodes), match arrays to variables, rewrite the graph
** (pass/rewrites.c), decide where each gradient is written, compile the first program, reserve the
** pool, resolve pointers.
*/
#include "exec/inner.h"
#include "pass/extract.h"

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

/* Binds the given arrays to a variable; a NULL: none was given. */
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

/* Binds all given arrays, and indexes the variables by name. */
static int bind_match_arrays(ty_exec *e, const struct exec_source *s, const ty_graph *g)
{
  int *arg = NEWS(int, g->n), *aux = NEWS(int, g->n);
  int code = arg && aux ? exec_variables(g, arg, &e->narg, aux, &e->naux)
                        : fail(TY_EMEMORY, "out of memory: executor");
  e->arg = NEWS(struct bound, e->narg);
  e->aux = NEWS(struct bound, e->naux);
  if (!code && (!e->arg || !e->aux)) code = fail(TY_EMEMORY, "out of memory: executor");
  if (!code) code = bind_match_list(e, g, arg, e->narg, s->arg, s->narg, "argument", e->arg);
  if (!code) code = bind_match_list(e, g, aux, e->naux, s->aux, s->naux, "auxiliary state", e->aux);
  if (!code) code = names_index(&e->arg_names, e->arg, sizeof *e->arg, e->narg);
  if (!code) code = names_index(&e->aux_names, e->aux, sizeof *e->aux, e->naux);
  mem_free(arg);
  mem_free(aux);
  return code;
}

/* -- the graph --------------------------------------------------------------------------------- */

/* Extracts what the heads, ends and known values reach into a graph of the executor's own. */
static int bind_take_graph(ty_exec *e, const struct exec_source *s, struct typed_graph *x)
{
  const int nextra = s->nend + s->nknown, n = s->nhead + nextra;
  x->nhead = e->nhead = s->nhead;
  x->nextra = nextra;
  x->head = NEWS(ty_entry, n + 1);
  x->extra = NEWS(ty_entry, nextra + 1);
  e->user_head = NEWS(ty_entry, n + 1);
  NEED(x->head && x->extra && e->user_head, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < s->nhead; i++) e->user_head[i] = s->head[i];
  for (int i = 0; i < s->nend; i++) e->user_head[s->nhead + i] = s->end[i];
  for (int i = 0; i < s->nknown; i++) e->user_head[s->nhead + s->nend + i] = s->known[i];
  e->user = s->g;
  ty_graph_keep(s->g);
  const bool merge = !nextra && env_number("TYCHO_CSE", 1);
  TRY(graph_extract(s->g, e->user_head, n, merge, &x->g, x->head));
  for (int i = 0; i < nextra; i++) x->extra[i] = x->head[s->nhead + i];
  return TY_OK;
}

/* Returns the i-th variable: arguments, then auxiliary states. */
static struct bound *bind_variable_at(ty_exec *e, int i)
{
  return i < e->narg ? &e->arg[i] : &e->aux[i - e->narg];
}

/* what is known of each variable */
struct variables_known {
  ty_desc *desc;
  bool *with_grad;
  int *device;                                        /* of its array, -1: there is none */
  int *grad_device;                                   /* of its gradient's array, -1: none */
};

/* Fills in variables from .. from + n - 1. desc: of the given ones, where there are no arrays. */
static int bind_describe_variables(
    ty_exec *e, const ty_bind *given, int ngiven, const ty_desc *desc, int from, int n,
    struct variables_known *k)
{
  struct names names;
  TRY(names_index(&names, given, sizeof *given, ngiven));
  for (int i = from; i < from + n; i++) {
    const struct bound *b = bind_variable_at(e, i);
    const int at = names_first(&names, b->name);
    const bool seeded = !b->value && desc && at >= 0;
    k->desc[i] = b->value ? b->value->d : seeded ? desc[at] : (ty_desc){ .dtype = TY_NODTYPE };
    k->with_grad[i] = b->req != TY_NULL;
    k->device[i] = b->value ? b->value->d.device : -1;
    k->grad_device[i] = b->grad ? b->grad->d.device : -1;
  }
  names_done(&names);
  return TY_OK;
}

/* Marks the nodes that backward computes again (struct rewrite_request). */
static void bind_mark_mirrors(const struct typed_graph *x, void *context, uint8_t *mark)
{
  ty_exec *e = context;
  exec_mark_mirrors(e, x, e->flags & TY_MIRROR || env_number("TYCHO_MIRROR", 0), mark);
  for (int i = 0; i < x->g->n; i++) e->mirror |= mark[i];
}

static int bind_run_rewrites(
    ty_exec *e, const struct exec_source *s, struct typed_graph *x, struct variables_known *k)
{
  TRY(bind_describe_variables(e, s->arg, s->narg, s->arg_desc, 0, e->narg, k));
  TRY(bind_describe_variables(e, s->aux, s->naux, s->aux_desc, e->narg, e->naux, k));
  const struct rewrite_request r = { .variable = k->desc,
    .with_grad = k->with_grad,
    .head_has_grad = s->head_has_grad,
    .mark_mirrors = bind_mark_mirrors,
    .context = e,
    .sum_cap = (int)env_number("TYCHO_GRAD_SUM_CAP", 8),
    .as_written = e->flags & TY_AS_WRITTEN || !exec_fuses(e),
    .default_device = e->default_device,
    .group = e->place,
    .ngroup = e->nplace,
    .array_device = k->device,
    .grad_device = k->grad_device };
  return rewrite_all(x, &r);
}

/* Lists the arrays of values that are known, and those that values are written into. */
static int bind_add_ends(ty_exec *e, const struct exec_source *s, const struct typed_graph *x)
{
  e->known_of = NEWS(int, x->g->nvalue + 1);
  e->end = NEWS(ty_entry, s->nend + 1);
  e->end_bound = NEWS(int, s->nend + 1);
  e->known_bound = NEWS(int, s->nknown + 1);
  NEED(e->known_of && e->end && e->end_bound && e->known_bound, TY_EMEMORY,
      "out of memory: executor");
  for (int v = 0; v < x->g->nvalue; v++) e->known_of[v] = -1;
  for (int i = 0; i < s->nknown; i++) {
    const int v = value_of(x->g, x->extra[s->nend + i]);
    if (x->g->node[x->extra[s->nend + i].node].op)
      TRY(exec_add_bound(e, s->known_array[i], &e->known_of[v]));
    e->known_bound[i] = e->known_of[v];
  }
  e->nknown = s->nknown;
  e->nend = s->nend;
  for (int i = 0; i < s->nend; i++) {
    e->end[i] = x->extra[i];
    TRY(exec_add_bound(e, s->end_array[i], &e->end_bound[i]));
  }
  return TY_OK;
}

/* Moves the graph after the rewrites into the executor. */
static void bind_adopt_graph(ty_exec *e, struct typed_graph *x)
{
  for (int i = 0; i < x->nvariable; i++) bind_variable_at(e, i)->node = x->variable[i];
  for (int i = 0; i < e->narg; i++) e->with_grad |= e->arg[i].req != TY_NULL;
  for (int i = 0; i < x->g->n; i++)
    e->with_grad |= x->g->node[i].op && x->g->node[i].op->flags & OP_FUSED_UPDATE;
  e->g = x->g;
  e->desc = x->desc;
  e->device = x->device;
  e->forward = x->forward;
  e->replaced = x->replaced;
  e->head = x->head;
  e->grad_entry = x->grad;
  e->head_grad_entry = x->head_grad;
  mem_free(x->variable);
  mem_free(x->extra);
  *x = (struct typed_graph){ 0 };
}

/* Rewrites the extracted graph and moves it into the executor. */
static int bind_rewrite_graph(ty_exec *e, const struct exec_source *s, struct typed_graph *x)
{
  const int n = e->narg + e->naux;
  struct variables_known k = { NEWS(ty_desc, n + 1), NEWS(bool, n + 1), NEWS(int, n + 1),
    NEWS(int, n + 1) };
  x->nvariable = n;
  x->variable = NEWS(int, n + 1);
  const bool enough = k.desc && k.with_grad && k.device && k.grad_device && x->variable;
  for (int i = 0; enough && i < n; i++) x->variable[i] = bind_variable_at(e, i)->node;
  int code = enough ? bind_run_rewrites(e, s, x, &k) : fail(TY_EMEMORY, "out of memory: executor");
  mem_free(k.desc);
  mem_free(k.with_grad);
  mem_free(k.device);
  mem_free(k.grad_device);
  if (!code) code = bind_add_ends(e, s, x);
  if (!code) bind_adopt_graph(e, x);
  return code;
}

/* -- devices ----------------------------------------------------------------------------------- */

static int bind_fail_device(const struct bound *b, int is, int expected, const char *what)
{
  char x[32], y[32];
  int code = fail(TY_EDEVICE,
      "bind: %s '%s' is on %s, but %s is needed here; use as_in_context or group2ctx", what,
      b->name, device_name(is, x, sizeof x), device_name(expected, y, sizeof y));
  fail_argument(b->name, y, x);
  return code;
}

/* Checks that bound arrays are on the devices that the graph was placed on. */
static int bind_check_devices(ty_exec *e)
{
  for (int i = 0; i < e->narg + e->naux; i++) {
    struct bound *b = bind_variable_at(e, i);
    if (!e->nplace && b->value && b->value->d.device != e->default_device)
      return bind_fail_device(b, b->value->d.device, e->default_device, "array of");
    if (!b->req || !b->grad) continue;
    int at = e->device[e->grad_entry[i].node];
    if (b->grad->d.device != at)
      return bind_fail_device(b, b->grad->d.device, at, "gradient array of");
  }
  return TY_OK;
}

/* -- programs ---------------------------------------------------------------------------------- */

/* Compiles a variant. Outputs keep the offsets that they have in the other variant, or in `before`,
** the executor that this one is a reshape of. */
static int variant_compile(ty_exec *e, int which, const ty_exec *before, struct program **out)
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
    TRY(variant_compile(e, which, NULL, &e->variant[which]));
    TRY(exec_resolve(e));
  }
  *out = e->variant[which];
  return TY_OK;
}

/* -- memory ------------------------------------------------------------------------------------ */

/* Makes the pool large enough for a program. */
static int variant_reserve_pool(ty_exec *e, const struct program *p)
{
  for (int i = 0; i < p->ndevice; i++) {
    bool moved;
    TRY(pool_reserve_for(e->pool, e, p->device[i], (size_t)p->pool[i], &moved));
  }
  return TY_OK;
}

/* Returns the storage of output h of `old`, the executor that this one is a reshape of, where
** output h of this one has its offset, else NULL. As one storage, readers of either wait for
** both. */
static struct storage *variant_find_former(
    const ty_exec *e, const ty_exec *old, const struct value *r, int h)
{
  const struct program *from = old && !(e->flags & TY_DRY_RUN) && h < old->nhead
      ? old->variant[FUSED]
      : NULL;
  if (!from || !old->output_storage[h]) return NULL;
  const struct value *x = &from->value[from->value[value_of(old->g, old->head[h])].root];
  const bool same = x->kind == V_POOL && x->offset == r->offset && x->device == r->device;
  return same ? old->output_storage[h] : NULL;
}

/* Makes the array of output h: a view of a bound array, or of its bytes in the pool. */
static int variant_make_output(ty_exec *e, const struct program *p, const ty_exec *before, int h)
{
  int v = value_of(e->g, e->head[h]);
  const struct value *r = &p->value[p->value[v].root];
  ty_desc d = e->desc[v];
  d.device = r->kind == V_BOUND && e->bound[r->bound] ? e->bound[r->bound]->d.device : r->device;
  if (r->kind == V_BOUND)
    return e->bound[r->bound] ? ty_tensor_view(e->bound[r->bound], &d, 0, &e->output[h]) : TY_OK;
  struct storage *former = variant_find_former(e, before, r, h);
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
    if (e->variant[w]) TRY(variant_reserve_pool(e, e->variant[w]));
  for (int i = 0; i < e->nbound; i++) e->bound_at[i] = e->bound[i] ? tensor_at(e->bound[i]) : NULL;
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

/* Makes outputs, tokens and lists of versions; then resolves pointers. */
static int variant_make_arrays(ty_exec *e, const ty_exec *before)
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
  if (!(e->flags & TY_DRY_RUN)) TRY(variant_reserve_pool(e, p));
  for (int h = 0; h < e->nhead; h++) TRY(variant_make_output(e, p, before, h));
  return exec_resolve(e);
}

/* -- the whole --------------------------------------------------------------------------------- */

/* Fills in a new executor; after a failure the caller frees it. */
static int bind_build(ty_exec *e, const struct exec_source *s)
{
  struct typed_graph x = { 0 };
  e->place = arena_new(&e->arena, sizeof *e->place * (size_t)(s->nplace + 1));
  NEED(e->place, TY_EMEMORY, "out of memory: executor");
  e->nplace = s->nplace;
  for (int i = 0; i < s->nplace; i++) {
    e->place[i] = s->place[i];
    e->place[i].group = arena_text(&e->arena, s->place[i].group);
    NEED(e->place[i].group, TY_EMEMORY, "out of memory: executor");
  }
  int code = bind_take_graph(e, s, &x);
  if (!code) code = bind_match_arrays(e, s, x.g);
  if (!code) code = bind_rewrite_graph(e, s, &x);
  typed_graph_done(&x);
  TRY(code);
  exec_note_draws(e);
  TRY(bind_check_devices(e));
  TRY(exec_route_gradients(e));
  if (s->pool) {
    e->pool = s->pool;
    pool_keep(s->pool);
  }
  else
    TRY(ty_pool_new(&e->pool));
  TRY(variant_compile(e, FUSED, s->before, &e->variant[FUSED]));
  return variant_make_arrays(e, s->before);
}

int exec_make(const struct exec_source *s, ty_exec **out)
{
  ty_exec *e = NEW(ty_exec);
  NEED(e, TY_EMEMORY, "out of memory: executor");
  e->refs = 1;
  e->ran = -1;
  e->flags = s->flags;
  if (!(e->flags & (TY_HIGHEST | TY_HIGH | TY_MEDIUM))) e->flags |= TY_HIGHEST << precision_now();
  e->default_device = s->device;
  e->level = s->level;
  e->nown = s->nown;
  e->movable = s->movable;
  e->own_run = NEWS(struct run, s->nown + 1);
  if (!e->own_run) return mem_free(e), fail(TY_EMEMORY, "out of memory: executor");
  e->check = s->flags & TY_CHECK || env_number("TYCHO_CHECK_NUMERICS", 0);
  live_add(LIVE_EXEC, 1);
  int code = bind_build(e, s);
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
