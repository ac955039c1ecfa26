/* backward.c - gradients of recorded calls.
**
** The calls that heads were made of become a graph, in the order in which they were made; what they
** have given is there already (exec_source.known). An executor without arrays of its own for the
** forward part computes the gradients. Functions of the front end are not part of it: their outputs
** are leaves, and whoever calls ty_backward goes on beyond them (runtime/lua/tycho/autograd).
*/
#include "exec/exec.h"
#include "lazy/history.h"
#include "lazy/recording.h"

/* An array that the graph begins with: a plain one, a variable, or an output of a function. */
struct leaf {
  struct history *from;                               /* NULL: a plain array */
  int out;                                            /* of a function */
  ty_entry entry;
  ty_tensor *value;                                   /* one reference */
  ty_tensor *grad;                                    /* NULL: no gradient is asked for */
  int req;
  char name[24];
};

struct backward_graph {
  /* calls, by serial number */
  struct history **call;
  int n, cap;
  struct history **function;
  int nfunction, function_cap;
  struct leaf *leaf;
  int nleaf, leaf_cap;
  ty_graph *g;
  ty_entry *head;
  int nhead;
  /* outputs of all calls, and their arrays */
  ty_entry *known;
  ty_tensor **known_array;
  int nknown, known_cap, array_cap;
  struct run *own;
  int nown, own_cap;
  int nvariable;                                      /* with a gradient */
  struct { int device; char name[16]; } group[MAX_DEVICES]; /* a ctx group per device */
  int ngroup;
};

static int out_of_memory(void) { return fail(TY_EMEMORY, "out of memory: backward"); }

/* -- which calls ------------------------------------------------------------------------------- */

static int graph_was_freed(const struct history *h)
{
  int code = fail(TY_ESTATE,
      "the graph of this array was freed by the backward%s%s; retain_graph = true there keeps it",
      h->freed_at ? " at " : "", h->freed_at ? h->freed_at : " before");
  fail_node(NULL, NULL, h->where);
  return code;
}

static int visit(struct backward_graph *b, struct history *h, uint64_t now)
{
  if (!h || h->kind == HISTORY_VARIABLE || h->seen == now) return TY_OK;
  if (h->freed) return graph_was_freed(h);
  h->seen = now;
  if (h->kind == HISTORY_FUNCTION) {
    if (!GROW(b->function, b->nfunction, b->function_cap)) return out_of_memory();
    b->function[b->nfunction++] = h;
    return TY_OK;
  }
  if (!GROW(b->call, b->n, b->cap)) return out_of_memory();
  b->call[b->n++] = h;
  return TY_OK;
}

static int by_serial(const void *a_, const void *b_)
{
  const struct history *a = *(struct history *const *)a_, *b = *(struct history *const *)b_;
  return a->serial < b->serial ? -1 : a->serial > b->serial;
}

/* Lists the calls that heads were made of, and the functions at which these begin. */
static int collect(struct backward_graph *b, ty_tensor *const *head, int nhead)
{
  const uint64_t now = history_new_walk();
  for (int i = 0; i < nhead; i++) TRY(visit(b, head[i]->history, now));
  for (int i = 0; i < b->n; i++)
    for (int k = 0; k < b->call[i]->nin; k++) TRY(visit(b, b->call[i]->in[k].from, now));
  if (b->n) qsort(b->call, (size_t)b->n, sizeof *b->call, by_serial);
  return TY_OK;
}

/* -- devices ----------------------------------------------------------------------------------- */

/* Returns the ctx group of a device; groups are used where there are several devices. */
static const char *find_group(struct backward_graph *b, int device)
{
  int i = 0;
  while (i < b->ngroup && b->group[i].device != device) i++;
  if (i == MAX_DEVICES) return b->group[0].name; /* no more devices than that exist */
  if (i == b->ngroup) {
    b->group[i].device = device;
    snprintf(b->group[i].name, sizeof b->group[i].name, "%d", device);
    b->ngroup++;
  }
  return b->group[i].name;
}

static void find_groups(struct backward_graph *b)
{
  for (int i = 0; i < b->n; i++) {
    find_group(b, b->call[i]->call->device);
    for (int k = 0; k < b->call[i]->nin; k++)
      if (b->call[i]->in[k].array) find_group(b, b->call[i]->in[k].array->d.device);
  }
}

/* -- the graph --------------------------------------------------------------------------------- */

/* Returns the leaf of an array, made if it is new. A variable is one leaf, whatever tensor it was
** read through. array: NULL: output `out` of a function. */
static int find_leaf(
    struct backward_graph *b, ty_tensor *array, struct history *from, int out, ty_entry *entry)
{
  for (int i = b->nleaf - 1; i >= 0; i--) {
    const struct leaf *l = &b->leaf[i];
    if (from ? l->from != from || l->out != out : l->value != array) continue;
    *entry = l->entry;
    return TY_OK;
  }
  if (!GROW(b->leaf, b->nleaf, b->leaf_cap)) return out_of_memory();
  struct leaf *l = &b->leaf[b->nleaf];
  *l = (struct leaf){ .from = from, .out = out };
  snprintf(l->name, sizeof l->name, "var%d", b->nleaf);
  TRY(graph_var(b->g, l->name, NULL, 0, &l->entry));
  if (array)
    ty_tensor_keep(l->value = array);
  else
    TRY(history_output_tensor(from, out, &l->value));
  b->nleaf++;
  *entry = l->entry;
  return TY_OK;
}

static int find_entry(
    struct backward_graph *b, ty_tensor *array, struct history *from, int out, ty_entry *entry)
{
  if (!from) return find_leaf(b, array, NULL, 0, entry);
  if (from->kind == HISTORY_VARIABLE) return find_leaf(b, array, from, 0, entry);
  if (from->kind == HISTORY_FUNCTION) return find_leaf(b, NULL, from, out, entry);
  *entry = (ty_entry){ from->index, out };
  return TY_OK;
}

static int add_known(struct backward_graph *b, const struct history *h, ty_entry made)
{
  for (int k = 0; k < h->nout; k++) {
    if (!GROW(b->known, b->nknown, b->known_cap)) return out_of_memory();
    if (!GROW(b->known_array, b->nknown, b->array_cap)) return out_of_memory();
    b->known_array[b->nknown] = NULL;
    b->known[b->nknown++] = (ty_entry){ made.node, k };
    TRY(history_output_tensor(h, k, &b->known_array[b->nknown - 1]));
  }
  return TY_OK;
}

static int add_node(struct backward_graph *b, const struct history *h, const ty_entry *in,
    ty_entry *made)
{
  const struct cached_call *c = h->call;
  const struct op *op = c->v.call.op;
  char name[64];
  ty_attr *attr = NEWS(ty_attr, c->nattr + 1);
  if (!attr) return out_of_memory();
  int nattr = c->nattr;
  for (int i = 0; i < nattr; i++) attr[i] = c->attr[i];
  if (b->ngroup > 1) attr[nattr++] = (ty_attr){ "__ctx_group__", find_group(b, c->device) };
  snprintf(name, sizeof name, "%.40s%d", op->name, b->nknown);
  int code = ty_graph_origin(b->g, h->where);
  if (!code) code = graph_node(b->g, op, name, attr, nattr, in, h->nin, made);
  mem_free(attr);
  return code;
}

static int add_call(struct backward_graph *b, struct history *h)
{
  ty_entry made, *in = NEWS(ty_entry, h->nin + 1);
  if (!in) return out_of_memory();
  int code = TY_OK;
  for (int k = 0; k < h->nin && !code; k++)
    code = find_entry(b, h->in[k].array, h->in[k].from, h->in[k].out, &in[k]);
  if (!code) code = add_node(b, h, in, &made);
  mem_free(in);
  TRY(code);
  h->index = made.node;
  if (h->call->v.call.op->flags & OP_RANDOM) {
    if (!GROW(b->own, b->nown, b->own_cap)) return out_of_memory();
    b->own[b->nown++] = h->run;
    b->g->node[made.node].draw = b->nown;
  }
  return add_known(b, h, made);
}

static int build_graph(struct backward_graph *b, ty_tensor *const *head, int nhead)
{
  TRY(ty_graph_new(&b->g));
  b->head = NEWS(ty_entry, nhead + 1);
  if (!b->head) return out_of_memory();
  b->nhead = nhead;
  find_groups(b);
  for (int i = 0; i < b->n; i++) TRY(add_call(b, b->call[i]));
  for (int i = 0; i < nhead; i++)
    TRY(find_entry(b, head[i], head[i]->history, head[i]->history_out, &b->head[i]));
  return TY_OK;
}

/* -- where gradients go ------------------------------------------------------------------------ */

static int not_reached(int i)
{
  char number[24];
  int code = fail(TY_EVALUE, "the heads do not depend on variable %d", i + 1);
  snprintf(number, sizeof number, "%d", i + 1);
  fail_argument(number, NULL, NULL);
  return code;
}

static struct leaf *leaf_of(struct backward_graph *b, const ty_tensor *t)
{
  const int out = history_is_recorded(t) ? t->history_out : 0;
  for (int i = 0; t->history && i < b->nleaf; i++)
    if (b->leaf[i].from == t->history && b->leaf[i].out == out) return &b->leaf[i];
  return NULL;
}

/* Says where gradients go: to the arrays that variables have, or to those that were given. */
static int assign_gradients(struct backward_graph *b, ty_tensor *const *variable,
    ty_tensor *const *grad, int n, int flags)
{
  for (int i = 0; i < b->nleaf && !n; i++) {
    struct leaf *l = &b->leaf[i];
    if (!l->from || l->from->kind != HISTORY_VARIABLE || l->from->req == TY_NULL) continue;
    l->grad = l->from->grad;
    l->req = l->from->req;
    b->nvariable++;
  }
  for (int k = 0; k < n; k++) {
    struct leaf *l = leaf_of(b, variable[k]);
    if (!l && (flags & TY_UNREACHED)) continue;
    if (!l) return not_reached(k);
    l->grad = grad[k];
    l->req = TY_WRITE;
    b->nvariable++;
  }
  NEED(b->nvariable || n || b->nfunction, TY_ESTATE,
      "backward: no gradient is asked for: the grad_req of all variables is null");
  return TY_OK;
}

/* -- values that have changed since ------------------------------------------------------------ */

static int value_changed(const struct history *h, const char *what, const struct storage *s)
{
  const char *at = __atomic_load_n(&s->written_at, __ATOMIC_RELAXED);
  int code = fail(TY_ESTATE,
      "backward of %s needs its %s, which was written after it was recorded%s%s", history_name(h),
      what, at ? ": at " : "", at ? at : "");
  fail_node(history_name(h), NULL, h->where);
  return code;
}

static bool is_changed(const struct storage *s, uint64_t version)
{
  return storage_version(s) != version;
}

/* Fails where the gradient of a call reads a value that is not what it was. */
static int check_versions(const struct history *h, const struct node *n)
{
  if (!n->kind->reads) return TY_OK;
  struct read_walk w = reads_walk(n->kind->reads, h->nin, h->nout);
  while (reads_next(&w)) {
    if (w.changed) continue; /* its own state */
    if (w.kind == READ_OUT && is_changed(h->out[w.k].storage, h->out[w.k].version))
      return value_changed(h, "result", h->out[w.k].storage);
    if (w.kind != READ_IN) continue;
    const struct history_input *in = &h->in[w.k];
    const struct storage *s = in->array ? in->array->storage : in->from->out[in->out].storage;
    if (is_changed(s, in->version)) return value_changed(h, n->kind->inport[w.k].name, s);
  }
  return TY_OK;
}

/* Fails where a gradient operator that runs reads a value that has changed. */
static int check_all_versions(const struct backward_graph *b, const ty_exec *e)
{
  const struct program *p = e->variant[FUSED];
  int *call = NEWS(int, e->g->n + 1); /* per node of e->g: its call, counted from 1 */
  if (!call) return out_of_memory();
  int code = TY_OK;
  for (int i = 0, k = 0; i < e->g->n && k < b->n; i++) /* calls keep their order and names */
    if (!strcmp(b->g->node[b->call[k]->index].name, e->g->node[i].name)) call[i] = ++k;
  for (int i = e->forward; i < e->g->n && !code; i++) {
    const struct node *n = &e->g->node[i];
    if (!n->backward || p->step_of[i] < 0 || !call[n->forward]) continue;
    const struct history *h = b->call[call[n->forward] - 1];
    code = check_versions(h, &b->g->node[h->index]);
  }
  mem_free(call);
  return code;
}

/* -- running ----------------------------------------------------------------------------------- */

static int make_executor(struct backward_graph *b, int device, ty_exec **out)
{
  ty_place group[MAX_DEVICES];
  ty_bind *bind = NEWS(ty_bind, b->nleaf + 1);
  if (!bind) return out_of_memory();
  for (int i = 0; i < b->nleaf; i++) {
    const struct leaf *l = &b->leaf[i];
    bind[i] = (ty_bind){ .name = l->name, .value = l->value, .grad = l->grad, .req = l->req };
  }
  for (int i = 0; i < b->ngroup; i++)
    group[i] = (ty_place){ .group = b->group[i].name, .device = b->group[i].device };
  const struct exec_source s = { .g = b->g,
    .head = b->head,
    .nhead = b->nhead,
    .arg = bind,
    .narg = b->nleaf,
    .aux = bind,
    .naux = b->nleaf,
    .place = group,
    .nplace = b->ngroup > 1 ? b->ngroup : 0,
    .device = device,
    .flags = TY_NOFUSE | TY_NOSHARE,
    .known = b->known,
    .known_array = b->known_array,
    .nknown = b->nknown,
    .nown = b->nown };
  int code = exec_make(&s, out);
  mem_free(bind);
  return code;
}

static int make_ones(const ty_tensor *like, ty_tensor **out)
{
  const ty_attr one = { "src", "1" };
  struct recording before = *thread_recording();
  TRY(ty_tensor_new(&like->d, out));
  ty_recording(0);
  int code = ty_call("_set_value", &one, 1, NULL, 0, out, 1);
  *thread_recording() = before;
  return code;
}

static int run(struct backward_graph *b, ty_exec *e, ty_tensor *const *head,
    ty_tensor *const *given, bool train)
{
  ty_tensor **grad = NEWS(ty_tensor *, b->nhead + 1);
  int code = grad ? TY_OK : out_of_memory();
  for (int i = 0; i < b->nhead && !code; i++) {
    if (given && given[i]) ty_tensor_keep(grad[i] = given[i]);
    else code = make_ones(head[i], &grad[i]);
  }
  if (!code) code = exec_run_whole(e, grad, b->own, train);
  for (int i = 0; grad && i < b->nhead; i++) ty_tensor_free(grad[i]);
  mem_free(grad);
  return code;
}

static int check_and_run(struct backward_graph *b, ty_tensor *const *head, ty_tensor *const *given,
    bool train)
{
  ty_exec *e;
  TRY(make_executor(b, head[0]->d.device, &e));
  int code = check_all_versions(b, e);
  if (!code) code = run(b, e, head, given, train);
  ty_exec_free(e);
  return code;
}

static void backward_done(struct backward_graph *b)
{
  for (int i = 0; i < b->nknown; i++) ty_tensor_free(b->known_array[i]);
  for (int i = 0; i < b->nleaf; i++) ty_tensor_free(b->leaf[i].value);
  mem_free(b->call);
  mem_free(b->function);
  mem_free(b->leaf);
  mem_free(b->head);
  mem_free(b->known);
  mem_free(b->known_array);
  mem_free(b->own);
  ty_graph_free(b->g);
}

/* What to say of a head that has no history. */
static const char *not_recorded(const ty_tensor *t)
{
  switch (t->made) {
  case MADE_NOT_RECORDING: return "it was made while recording was off: use autograd.record";
  case MADE_WHILE_PAUSED: return "it was made while recording was paused";
  case MADE_OF_PLAIN_ARRAYS: return "no variable is among what it was made of: use attach_grad";
  case MADE_DETACHED: return "it is detached from what made it";
  default: return "it came of no variable while recording was on";
  }
}

static int check_heads(ty_tensor *const *head, ty_tensor *const *grad, int n)
{
  char want[160], got[160];
  for (int i = 0; i < n; i++) {
    NEED(head[i], TY_ETYPE, "backward: head %d is missing", i + 1);
    NEED(head[i]->history, TY_ESTATE, "backward: this array was not recorded: %s",
        not_recorded(head[i]));
    if (!grad || !grad[i]) continue;
    const ty_desc *d = &grad[i]->d;
    if (!desc_same_shape(d, &head[i]->d)) {
      text_shape(&head[i]->d, want, sizeof want);
      text_shape(d, got, sizeof got);
      int code = fail(TY_ESHAPE, "backward: the head has shape %s, its gradient %s", want, got);
      fail_argument("head_grads", want, got);
      return code;
    }
    NEED(d->dtype == head[i]->d.dtype, TY_EDTYPE, "backward: the head is %s, its gradient %s",
        dtype_name(head[i]->d.dtype), dtype_name(d->dtype));
  }
  return TY_OK;
}

/* Frees what calls hold. Those that others still hold come first. */
static void free_graph(struct backward_graph *b)
{
  const char *where = thread_recording()->where;
  for (int i = 0; i < b->nfunction; i++) history_free(b->function[i], where);
  for (int i = 0; i < b->n; i++) history_free(b->call[i], where);
}

int ty_backward(ty_tensor *const *head, ty_tensor *const *head_grad, int nhead,
    ty_tensor *const *variable, ty_tensor *const *grad, int nvariable, int flags)
{
  NEED(head && nhead > 0, TY_ETYPE, "backward: there are no heads");
  NEED(!nvariable || (variable && grad), TY_ETYPE, "backward: no place for gradients");
  TRY(check_heads(head, head_grad, nhead));
  struct backward_graph b = { 0 };
  int code = collect(&b, head, nhead);
  if (!code) code = build_graph(&b, head, nhead);
  if (!code) code = assign_gradients(&b, variable, grad, nvariable, flags);
  if (!code && b.nvariable) code = check_and_run(&b, head, head_grad, flags & TY_TRAIN);
  for (int i = 0; i < b.nleaf && !code && !nvariable; i++)
    if (b.leaf[i].grad) b.leaf[i].from->fresh = true;
  if (!code && !(flags & TY_RETAIN)) free_graph(&b);
  backward_done(&b);
  return code;
}

/* -- variables --------------------------------------------------------------------------------- */

int ty_variable(ty_tensor *x, ty_tensor *grad, int req)
{
  NEED(x && (grad || req == TY_NULL), TY_ETYPE, "variable: an array is missing");
  NEED(req == TY_NULL || req == TY_WRITE || req == TY_ADD, TY_EVALUE, "variable: grad_req %d", req);
  struct history *h;
  TRY(history_variable(req == TY_NULL ? NULL : grad, req, &h));
  history_attach(x, h, 0);
  history_drop(h);
  return TY_OK;
}

int ty_detach(ty_tensor *x)
{
  NEED(x, TY_ETYPE, "detach: the array is missing");
  history_attach(x, NULL, 0);
  x->made = MADE_DETACHED;
  return TY_OK;
}

int ty_history(ty_tensor *x, int clear, int *kind, int *fresh)
{
  NEED(x && kind && fresh, TY_ETYPE, "history: the array or a result's place is missing");
  struct history *h = x->history;
  *kind = !h ? TY_PLAIN : h->kind == HISTORY_VARIABLE ? TY_VARIABLE : h->freed ? TY_FREED
                                                                              : TY_RECORDED;
  *fresh = h && h->fresh;
  if (h && clear) h->fresh = false;
  return TY_OK;
}
