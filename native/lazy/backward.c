/* backward.c - gradients of recorded calls.
**
** The calls that heads were made of become a graph, in the order in which they were made; what they
** have given is there already (exec_source.known). An executor without arrays of its own for the
** forward part computes the gradients.
*/
#include "exec/exec.h"
#include "lazy/history.h"
#include "lazy/recording.h"

/* An array that the graph begins with. */
struct leaf {
  const ty_tensor *array;
  struct history *variable;                           /* NULL: no gradient is asked for */
  ty_entry entry;
  ty_tensor *value, *grad;
  char name[24];
};

struct backward_graph {
  /* calls, by serial number */
  struct history **call;
  int n, cap;
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
  const char *where;                                  /* line of the call of backward */
};

static int out_of_memory(void) { return fail(TY_EMEMORY, "out of memory: backward"); }

/* -- which calls ------------------------------------------------------------------------------- */

static uint64_t epoch;                                /* of history.seen; atomic */

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
  if (!h || h->kind != HISTORY_CALL || h->seen == now) return TY_OK;
  if (h->freed) return graph_was_freed(h);
  h->seen = now;
  if (!GROW(b->call, b->n, b->cap)) return out_of_memory();
  b->call[b->n++] = h;
  return TY_OK;
}

static int by_serial(const void *a_, const void *b_)
{
  const struct history *a = *(struct history *const *)a_, *b = *(struct history *const *)b_;
  return a->serial < b->serial ? -1 : a->serial > b->serial;
}

/* Lists the calls that heads were made of. */
static int collect(struct backward_graph *b, ty_tensor *const *head, int nhead)
{
  const uint64_t now = __atomic_add_fetch(&epoch, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < nhead; i++) TRY(visit(b, head[i]->history, now));
  for (int i = 0; i < b->n; i++)
    for (int k = 0; k < b->call[i]->nin; k++) TRY(visit(b, b->call[i]->in[k].from, now));
  qsort(b->call, (size_t)b->n, sizeof *b->call, by_serial);
  return TY_OK;
}

/* -- the graph --------------------------------------------------------------------------------- */

/* Returns the leaf of an array, made if it is new. A variable is one leaf, whatever tensor it was
** read through. */
static int find_leaf(
    struct backward_graph *b, ty_tensor *array, struct history *variable, ty_entry *out)
{
  for (int i = b->nleaf - 1; i >= 0; i--) {
    const struct leaf *l = &b->leaf[i];
    if (variable ? l->variable != variable : l->array != array) continue;
    *out = l->entry;
    return TY_OK;
  }
  if (!GROW(b->leaf, b->nleaf, b->leaf_cap)) return out_of_memory();
  struct leaf *l = &b->leaf[b->nleaf++];
  *l = (struct leaf){ .array = array, .variable = variable, .value = array };
  snprintf(l->name, sizeof l->name, "var%d", b->nleaf - 1);
  TRY(graph_var(b->g, l->name, NULL, 0, &l->entry));
  *out = l->entry;
  return TY_OK;
}

static int input_entry(struct backward_graph *b, const struct history_input *in, ty_entry *out)
{
  if (in->from && in->from->kind == HISTORY_CALL) {
    *out = (ty_entry){ in->from->index, in->out };
    return TY_OK;
  }
  return find_leaf(b, in->array, in->from, out);
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

static int add_call(struct backward_graph *b, struct history *h)
{
  const struct cached_call *c = h->call;
  const struct op *op = c->v.call.op;
  char name[64];
  ty_entry made, *in = NEWS(ty_entry, h->nin + 1);
  if (!in) return out_of_memory();
  int code = TY_OK;
  for (int k = 0; k < h->nin && !code; k++) code = input_entry(b, &h->in[k], &in[k]);
  snprintf(name, sizeof name, "%.40s%d", op->name, b->nknown);
  if (!code) code = ty_graph_origin(b->g, h->where);
  if (!code) code = graph_node(b->g, op, name, c->attr, c->nattr, in, h->nin, &made);
  mem_free(in);
  TRY(code);
  h->index = made.node;
  if (op->flags & OP_RANDOM) {
    if (!GROW(b->own, b->nown, b->own_cap)) return out_of_memory();
    b->own[b->nown++] = h->run;
    b->g->node[made.node].draw = b->nown;
  }
  return add_known(b, h, made);
}

static int head_entry(struct backward_graph *b, ty_tensor *t, ty_entry *out)
{
  if (t->history->kind == HISTORY_VARIABLE) return find_leaf(b, t, t->history, out);
  *out = (ty_entry){ t->history->index, t->history_out };
  return TY_OK;
}

static int build_graph(struct backward_graph *b, ty_tensor *const *head, int nhead)
{
  TRY(ty_graph_new(&b->g));
  b->head = NEWS(ty_entry, nhead + 1);
  if (!b->head) return out_of_memory();
  b->nhead = nhead;
  for (int i = 0; i < b->n; i++) TRY(add_call(b, b->call[i]));
  for (int i = 0; i < nhead; i++) TRY(head_entry(b, head[i], &b->head[i]));
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

/* The gradients that variables have, or those that were given for some. */
static int assign_gradients(
    struct backward_graph *b, ty_tensor *const *variable, ty_tensor *const *grad, int n)
{
  for (int i = 0; i < b->nleaf; i++) {
    struct history *v = b->leaf[i].variable;
    if (v && !n && v->req != TY_NULL) b->leaf[i].grad = v->grad, b->nvariable++;
  }
  for (int k = 0; k < n; k++) {
    bool found = false;
    for (int i = 0; i < b->nleaf && !found; i++) {
      if (!b->leaf[i].variable || b->leaf[i].variable != variable[k]->history) continue;
      b->leaf[i].grad = grad[k];
      found = true;
      b->nvariable++;
    }
    if (!found) return not_reached(k);
  }
  NEED(b->nvariable, TY_ESTATE,
      "backward: no gradient is asked for: the grad_req of all variables is null");
  return TY_OK;
}

/* -- values that have changed since ------------------------------------------------------------ */

static int value_changed(const struct history *h, const char *what)
{
  int code = fail(TY_ESTATE,
      "backward of %s needs its %s, which was written after it was recorded",
      h->call->v.call.op->name, what);
  fail_node(h->call->v.call.op->name, NULL, h->where);
  return code;
}

static bool is_changed(const struct storage *s, uint64_t version)
{
  return storage_version(s) != version;
}

/* Fails where backward reads a value of a call that is not what it was. needed: per node. */
static int check_versions(const struct backward_graph *b, const uint8_t *runs)
{
  for (int i = 0; i < b->n; i++) {
    const struct history *h = b->call[i];
    const struct node *n = &b->g->node[h->index];
    if (!runs[h->index] || !n->kind->reads) continue;
    struct read_walk w = reads_walk(n->kind->reads, h->nin, h->nout);
    while (reads_next(&w)) {
      if (w.changed) continue; /* its own state */
      if (w.kind == READ_OUT && is_changed(h->out[w.k].storage, h->out[w.k].version))
        return value_changed(h, "result");
      if (w.kind != READ_IN) continue;
      const struct history_input *in = &h->in[w.k];
      const struct storage *s = in->array ? in->array->storage : in->from->out[in->out].storage;
      if (is_changed(s, in->version)) return value_changed(h, n->kind->inport[w.k].name);
    }
  }
  return TY_OK;
}

/* -- running ----------------------------------------------------------------------------------- */

static int make_executor(struct backward_graph *b, int device, ty_exec **out)
{
  ty_bind *bind = NEWS(ty_bind, b->nleaf + 1);
  if (!bind) return out_of_memory();
  for (int i = 0; i < b->nleaf; i++) {
    const struct leaf *l = &b->leaf[i];
    const int req = !l->grad ? TY_NULL : l->grad == l->variable->grad ? l->variable->req : TY_WRITE;
    bind[i] = (ty_bind){ .name = l->name, .value = l->value, .grad = l->grad, .req = req };
  }
  const struct exec_source s = { .g = b->g,
    .head = b->head,
    .nhead = b->nhead,
    .arg = bind,
    .narg = b->nleaf,
    .aux = bind,
    .naux = b->nleaf,
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

/* Marks the calls whose gradient operators run. */
static int find_running(const struct backward_graph *b, const ty_exec *e, uint8_t *runs)
{
  const struct program *p = e->variant[FUSED];
  for (int i = e->forward; i < e->g->n; i++) {
    const struct node *n = &e->g->node[i];
    if (!n->backward || p->step_of[i] < 0) continue;
    for (int k = 0; k < b->n; k++) /* nodes keep their order, and names are their own */
      if (!strcmp(b->g->node[b->call[k]->index].name, e->g->node[n->forward].name))
        runs[b->call[k]->index] = 1;
  }
  return TY_OK;
}

static int make_ones(const ty_tensor *like, ty_tensor **out)
{
  const ty_attr one = { "src", "1" };
  TRY(ty_tensor_new(&like->d, out));
  const bool on = thread_recording()->on;
  ty_recording(0);
  int code = ty_call("_set_value", &one, 1, NULL, 0, out, 1);
  ty_recording(on);
  return code;
}

static int run(struct backward_graph *b, ty_exec *e, ty_tensor *const *head, ty_tensor *const *given,
    bool train)
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
  uint8_t *runs = NEWS(uint8_t, b->g->n + 1);
  int code = runs ? find_running(b, e, runs) : out_of_memory();
  if (!code) code = check_versions(b, runs);
  if (!code) code = run(b, e, head, given, train);
  mem_free(runs);
  ty_exec_free(e);
  return code;
}

static void backward_done(struct backward_graph *b)
{
  for (int i = 0; i < b->nknown; i++) ty_tensor_free(b->known_array[i]);
  mem_free(b->call);
  mem_free(b->leaf);
  mem_free(b->head);
  mem_free(b->known);
  mem_free(b->known_array);
  mem_free(b->own);
  ty_graph_free(b->g);
}

static int check_heads(ty_tensor *const *head, ty_tensor *const *grad, int n)
{
  char want[160], got[160];
  for (int i = 0; i < n; i++) {
    NEED(head[i], TY_ETYPE, "backward: head %d is missing", i + 1);
    NEED(head[i]->history, TY_ESTATE,
        "backward: this array was not recorded: it came of no variable while recording was on");
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

int ty_backward(ty_tensor *const *head, ty_tensor *const *head_grad, int nhead,
    ty_tensor *const *variable, ty_tensor *const *grad, int nvariable, int retain, int train)
{
  NEED(head && nhead > 0, TY_ETYPE, "backward: there are no heads");
  NEED(!nvariable || (variable && grad), TY_ETYPE, "backward: no place for gradients");
  TRY(check_heads(head, head_grad, nhead));
  struct backward_graph b = { 0 };
  int code = collect(&b, head, nhead);
  if (!code) code = build_graph(&b, head, nhead);
  if (!code) code = assign_gradients(&b, variable, grad, nvariable);
  if (!code) code = check_and_run(&b, head, head_grad, train);
  for (int i = 0; i < b.nleaf && !code; i++)
    if (b.leaf[i].grad && b.leaf[i].grad == b.leaf[i].variable->grad)
      b.leaf[i].variable->fresh = true;
  for (int i = b.n - 1; i >= 0 && !code && !retain; i--)
    history_free(b.call[i], thread_recording()->where);
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
