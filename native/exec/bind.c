/* bind.c - binds graphs: to given arrays, to arrays of their own (simple_bind), to those of another
** executor (reshape, as_written).
**
** simple_bind infers from what is given, finds or allocates an array for every variable, and binds.
** reshape infers again and takes prefixes of the old arrays where they are large enough.
*/
#include "exec/inner.h"
#include "pass/extract.h"

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
  return exec_make_within_budget(&s, out);
}

/* -- simple_bind ------------------------------------------------------------------------------- */

struct simple {
  ty_graph *g;                                        /* what the heads reach */
  ty_entry *head;
  ty_desc *desc;
  int *arg, *aux, narg, naux;                         /* nodes of variables, in list order */
  /* arguments, then auxiliary states; each array one reference */
  ty_bind *bind;
  ty_desc *want;                                      /* their descriptors */
  struct names given;                                 /* of what the user asked for */
};

/* Extracts the graph and lists its variables; simple_close frees them, after a failure too. */
static int simple_open(struct simple *s, ty_graph *g, const ty_entry *head, int nhead,
    const ty_want *given, int ngiven)
{
  TRY(names_index(&s->given, given, sizeof *given, ngiven));
  s->head = NEWS(ty_entry, nhead);
  NEED(s->head, TY_EMEMORY, "out of memory: simple_bind");
  TRY(graph_extract(g, head, nhead, false, &s->g, s->head));
  s->desc = NEWS(ty_desc, s->g->nvalue);
  s->arg = NEWS(int, s->g->n);
  s->aux = NEWS(int, s->g->n);
  s->bind = NEWS(ty_bind, s->g->n);
  s->want = NEWS(ty_desc, s->g->n);
  NEED(s->desc && s->arg && s->aux && s->bind && s->want, TY_EMEMORY, "out of memory: simple_bind");
  return exec_variables(s->g, s->arg, &s->narg, s->aux, &s->naux);
}

static void simple_close(struct simple *s)
{
  for (int i = 0; s->bind && i < s->narg + s->naux; i++) {
    ty_tensor_free(s->bind[i].value);
    ty_tensor_free(s->bind[i].grad);
  }
  mem_free(s->head);
  mem_free(s->desc);
  mem_free(s->arg);
  mem_free(s->aux);
  mem_free(s->bind);
  mem_free(s->want);
  names_done(&s->given);
  ty_graph_free(s->g);
}

static int simple_node_at(const struct simple *s, int i)
{
  return i < s->narg ? s->arg[i] : s->aux[i - s->narg];
}

/* Infers all shapes and types. all_float: arguments of unknown type are float32. */
static int simple_infer(struct simple *s, const ty_want *want, int n, bool all_float)
{
  TRY(infer_seed(s->g, want, n, s->desc));
  for (int i = 0; all_float && i < s->narg; i++) {
    ty_desc *d = &s->desc[s->g->node[s->arg[i]].first];
    if (d->dtype == TY_NODTYPE) d->dtype = TY_F32;
  }
  TRY(infer_run(s->g, INFER_SHAPES, s->desc));
  TRY(infer_run(s->g, INFER_TYPES, s->desc));
  TRY(infer_undecided(s->g, s->desc, INFER_SHAPES));
  TRY(infer_undecided(s->g, s->desc, INFER_TYPES));
  for (int i = 0; i < s->narg + s->naux; i++)
    s->want[i] = s->desc[s->g->node[simple_node_at(s, i)].first];
  return TY_OK;
}

/* Makes an array of zeros on any device. */
static int simple_make_zeros(const ty_desc *d, ty_tensor **out)
{
  if (device_kind(d->device) != TY_GPU) return tensor_new_zeros(d, out);
  TRY(ty_tensor_new(d, out));
  void *zero = mem_new(desc_bytes(d));
  int code = zero ? ty_tensor_write(*out, zero, desc_bytes(d)) : TY_EMEMORY;
  mem_free(zero);
  if (code) ty_tensor_free(*out), *out = NULL;
  return code;
}

/* Takes a reference; t may be NULL. */
static int simple_take_array(ty_tensor *t, ty_tensor **out)
{
  *out = t;
  return t ? ty_tensor_keep(t) : TY_OK;
}

static int simple_fail_shared(
    const char *name, const char *why, int code, const char *want, const char *got)
{
  fail(code, "simple_bind: '%s' cannot be shared with shared_exec: %s", name, why);
  fail_argument(name, want, got);
  return code;
}

/* Returns an array of shared_exec, which must have the descriptor d. */
static int simple_share_array(const char *name, ty_tensor *t, const ty_desc *d, ty_tensor **out)
{
  char a[160], b[160];
  if (!t) return simple_fail_shared(name, "it has no such array", TY_ENAME, NULL, NULL);
  if (t->d.dtype != d->dtype)
    return simple_fail_shared(
        name, "the dtypes differ", TY_EDTYPE, dtype_name(d->dtype), dtype_name(t->d.dtype));
  if (!desc_same_shape(&t->d, d))
    return simple_fail_shared(name, "the shapes differ", TY_ESHAPE, text_shape(d, a, sizeof a),
        text_shape(&t->d, b, sizeof b));
  return simple_take_array(t, out);
}

/* Finds or allocates the array of an argument, or of its gradient. */
static int simple_make_argument(const ty_simple_spec *spec, const ty_want *w, const char *name,
    const ty_desc *d, bool grad, ty_tensor **out)
{
  char key[600];
  ty_tensor *t = NULL;
  snprintf(key, sizeof key, "%s%s", grad ? "grad of " : "", name);
  if (!spec->buffer) return simple_make_zeros(d, out);
  if (!w || !w->shared) {
    /* the first elements of the buffer's array, else a new one, which replaces it there */
    const bool found = ty_bag_get(spec->buffer, key, &t) == TY_OK && t;
    if (!found || t->d.device != d->device || desc_count(&t->d) < desc_count(d)) {
      TRY(simple_make_zeros(d, out));
      return ty_bag_put(spec->buffer, key, *out);
    }
    if (t->d.dtype != d->dtype) {
      int code = fail(TY_EDTYPE, "simple_bind: shared_buffer holds '%s' as %s, but %s is needed",
          key, dtype_name(t->d.dtype), dtype_name(d->dtype));
      fail_argument(key, dtype_name(d->dtype), dtype_name(t->d.dtype));
      return code;
    }
    return desc_same_shape(&t->d, d) ? simple_take_array(t, out) : ty_tensor_view(t, d, 0, out);
  }
  if (!spec->shared) return simple_make_zeros(d, out);
  TRY(grad ? ty_exec_grad(spec->shared, name, &t) : ty_exec_arg(spec->shared, name, &t));
  return simple_share_array(key, t, d, out);
}

/* Finds or allocates the arrays of all variables. A dry run has none. */
static int simple_make_arrays(struct simple *s, const ty_simple_spec *spec)
{
  for (int i = 0; i < s->narg + s->naux; i++) {
    const struct node *n = &s->g->node[simple_node_at(s, i)];
    const int given = names_first(&s->given, n->name);
    const ty_want *w = given < 0 ? NULL : &spec->want[given];
    ty_bind *b = &s->bind[i];
    ty_desc d = s->want[i];
    b->name = n->name;
    b->req = i < s->narg ? (w ? w->req : spec->req) : TY_NULL;
    NEED(b->req == TY_NULL || b->req == TY_WRITE || b->req == TY_ADD, TY_EVALUE,
        "simple_bind: grad_req of '%s' is %d; expected null (0), write (1) or add (3)", n->name,
        b->req);
    if (spec->flags & TY_DRY_RUN) continue;
    const bool asked = w && w->device >= 0;
    const char *group = asked ? NULL : node_attr(n, "__ctx_group__");
    d.device = asked ? w->device : spec->device;
    for (int k = 0; group && k < spec->nplace; k++)
      if (!strcmp(spec->place[k].group, group)) d.device = spec->place[k].device;
    TRY(device_open(d.device));
    if (i >= s->narg && spec->buffer && spec->shared) {
      ty_tensor *t = NULL;
      TRY(ty_exec_aux(spec->shared, n->name, &t));
      TRY(simple_share_array(n->name, t, &d, &b->value));
    }
    else if (i >= s->narg)
      TRY(simple_make_zeros(&d, &b->value));
    if (i >= s->narg) continue;
    TRY(simple_make_argument(spec, w, n->name, &d, false, &b->value));
    if (!b->req) continue;
    if (w && w->grad_device >= 0) d.device = w->grad_device;
    TRY(simple_make_argument(spec, w, n->name, &d, true, &b->grad));
  }
  return TY_OK;
}

/* Binds the arrays that were found. */
static int simple_bind(struct simple *s, const struct exec_source *from, ty_exec **out)
{
  struct exec_source e = *from;
  e.arg = s->bind;
  e.narg = s->narg;
  e.aux = s->bind + s->narg;
  e.naux = s->naux;
  e.arg_desc = s->want;
  e.aux_desc = s->want + s->narg;
  return exec_make_within_budget(&e, out);
}

int ty_exec_simple_bind(ty_graph *g, const ty_simple_spec *spec, ty_exec **out)
{
  NEED(g && spec && out, TY_ETYPE, "simple_bind: null argument");
  NEED(spec->nhead > 0, TY_EVALUE, "simple_bind: the symbol has no outputs");
  struct simple s = { 0 };
  bool types_given = false;
  for (int i = 0; i < spec->nwant; i++) types_given |= spec->want[i].desc.dtype != TY_NODTYPE;
  int code = simple_open(&s, g, spec->head, spec->nhead, spec->want, spec->nwant);
  if (!code) code = simple_infer(&s, spec->want, spec->nwant, !types_given);
  if (!code) code = simple_make_arrays(&s, spec);
  struct exec_source from = { .g = g,
    .head = spec->head,
    .nhead = spec->nhead,
    .place = spec->place,
    .nplace = spec->nplace,
    .device = spec->device,
    .flags = spec->flags,
    .budget = spec->budget,
    .pool = spec->pool ? spec->pool
        : spec->shared ? spec->shared->pool
                       : NULL };
  if (!code) code = simple_bind(&s, &from, out);
  simple_close(&s);
  return code;
}

/* -- reshape ----------------------------------------------------------------------------------- */

static int reshape_fail(
    const char *name, const ty_desc *was, const ty_desc *now, const char *option, const char *what)
{
  char a[160], b[160];
  int code = fail(TY_ESHAPE, "reshape: %s '%s' would change from %s to %s; %s = true allows that",
      what, name, text_shape(was, a, sizeof a), text_shape(now, b, sizeof b), option);
  fail_argument(name, a, b);
  return code;
}

/* Returns the new array of a variable: the old one, a view of its first elements, or a larger
** one. */
static int reshape_array(ty_tensor *old, const ty_desc *was, const ty_desc *now, ty_tensor **out)
{
  ty_desc d = *now;
  if (!old) {
    *out = NULL;
    return TY_OK;
  }
  d.dtype = old->d.dtype;
  d.device = old->d.device;
  if (desc_same_shape(was, now)) return simple_take_array(old, out);
  if (desc_count(now) <= desc_count(was)) return ty_tensor_view(old, &d, 0, out);
  return ty_tensor_new(&d, out);
}

/* Gives variable i its arrays, unless the options forbid its new shape. */
static int reshape_variable(struct simple *s, int i, const ty_exec *e, const ty_reshape_spec *spec)
{
  bool is_arg = i < s->narg;
  const struct bound *b = is_arg ? &e->bind.arg[i] : &e->bind.aux[i - s->narg];
  const ty_desc *was = &e->graph.desc[e->graph.g->node[b->node].first], *now = &s->want[i];
  bool given = is_arg && names_first(&s->given, b->name) >= 0;
  const char *what = is_arg ? "argument" : "auxiliary state";
  if (!given && !spec->partial_shaping && !desc_same_shape(was, now))
    return reshape_fail(b->name, was, now, "partial_shaping", what);
  if (desc_count(now) > desc_count(was) && !spec->allow_up_sizing)
    return reshape_fail(b->name, was, now, "allow_up_sizing", what);
  s->bind[i].name = b->name;
  s->bind[i].req = b->req;
  TRY(reshape_array(b->value, was, now, &s->bind[i].value));
  return reshape_array(b->grad, was, now, &s->bind[i].grad);
}

/* Infers the new shapes; types stay those of the executor. */
static int reshape_infer(struct simple *s, const ty_exec *e, const ty_reshape_spec *spec)
{
  TRY(infer_seed(s->g, spec->want, spec->nwant, s->desc));
  for (int i = 0; i < s->narg + s->naux; i++) {
    const struct bound *b = i < s->narg ? &e->bind.arg[i] : &e->bind.aux[i - s->narg];
    const int v = s->g->node[simple_node_at(s, i)].first;
    s->desc[v].dtype = e->graph.desc[e->graph.g->node[b->node].first].dtype;
  }
  TRY(infer_run(s->g, INFER_SHAPES, s->desc));
  TRY(infer_undecided(s->g, s->desc, INFER_SHAPES));
  for (int i = 0; i < s->narg + s->naux; i++)
    s->want[i] = s->desc[s->g->node[simple_node_at(s, i)].first];
  return TY_OK;
}

int ty_exec_reshape(ty_exec *e, const ty_reshape_spec *spec, ty_exec **out)
{
  NEED(e && spec && out, TY_ETYPE, "reshape: null argument");
  bool same = spec->nplace == 0 || spec->nplace == e->nplace;
  for (int i = 0; same && i < spec->nplace; i++)
    same = !strcmp(spec->place[i].group, e->place[i].group) &&
        spec->place[i].device == e->place[i].device;
  NEED(same && (spec->device < 0 || spec->device == e->default_device), TY_EDEVICE,
      "reshape: the devices are those of the executor; bind again to change them");
  struct simple s = { 0 };
  int code = simple_open(
      &s, e->graph.user, e->graph.user_head, e->graph.nhead, spec->want, spec->nwant);
  if (!code) code = reshape_infer(&s, e, spec);
  for (int i = 0; !code && i < s.narg + s.naux; i++) code = reshape_variable(&s, i, e, spec);
  struct exec_source from = { .g = e->graph.user,
    .head = e->graph.user_head,
    .nhead = e->graph.nhead,
    .place = e->place,
    .nplace = e->nplace,
    .device = e->default_device,
    .flags = e->flags,
    .recompute_level = e->recompute_level,
    .pool = e->pool,
    .before = e };
  if (!code) code = simple_bind(&s, &from, out);
  if (!code) (*out)->monitor = e->monitor, (*out)->check = e->check;
  simple_close(&s);
  return code;
}

/* -- as written -------------------------------------------------------------------------------- */

int ty_exec_as_written(ty_exec *e, ty_exec **out)
{
  NEED(e && out, TY_ETYPE, "as_written: null argument");
  *out = NULL;
  if (!e->graph.replaced || e->flags & TY_DRY_RUN) return TY_OK;
  ty_bind *given = NEWS(ty_bind, e->bind.narg + e->bind.naux + 1);
  NEED(given, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->bind.narg + e->bind.naux; i++) {
    const struct bound *b = i < e->bind.narg ? &e->bind.arg[i] : &e->bind.aux[i - e->bind.narg];
    given[i] = (ty_bind){ .name = b->name, .value = b->value, .grad = b->grad, .req = b->req };
  }
  const struct exec_source from = { .g = e->graph.user,
    .head = e->graph.user_head,
    .nhead = e->graph.nhead,
    .arg = given,
    .narg = e->bind.narg,
    .aux = given + e->bind.narg,
    .naux = e->bind.naux,
    .place = e->place,
    .nplace = e->nplace,
    .device = e->default_device,
    .flags = e->flags | TY_AS_WRITTEN,
    .recompute_level = e->recompute_level,
    .pool = e->pool,
    .before = e };
  int code = exec_make(&from, out);
  if (!code) (*out)->monitor = e->monitor, (*out)->check = e->check;
  mem_free(given);
  return code;
}
