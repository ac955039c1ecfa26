/* build.c - see build.h. A trace becomes a graph, its ends are chosen, an executor is made. */
#include "lazy/build.h"
#include "lazy/numbers.h"

/* The state of building a program from a trace; owns all but t and k. */
struct building {
  const struct trace *t;
  struct kept *k;                                     /* the program */
  ty_graph *g;
  ty_entry *leaf;                                     /* per leaf: its variable */
  struct leaf_name { char text[24]; } *leaf_name;     /* per leaf */
  ty_entry *head;                                     /* per head */
  int *node;                                          /* per call: its node */
  /* per element of kept.known_array: the output in g, and the element's address */
  ty_entry *known;
  ty_tensor **known_array;
  /* the same for kept.end_array */
  ty_entry *end;
  ty_tensor **end_array;
  int nown;                                           /* calls that draw random numbers */
  struct { int device; char name[16]; } group[MAX_DEVICES]; /* a ctx group per device */
  int ngroup;
};

static int fail_no_memory(void) { return fail(TY_EMEMORY, "out of memory: recorded calls"); }

int tensor_fill_ones(ty_tensor *x)
{
  const ty_attr one = { "src", "1" };
  const struct call_key fill = { op_find("_set_value"), &one, 1, NULL, 0, &x, 1, NULL };
  return imperative_call(&fill, false, &x, NULL, NULL);
}

/* -- devices ----------------------------------------------------------------------------------- */

/* Returns the name of a device's ctx group, which it adds if it is new. Nodes get groups only where
** there are several devices. */
static const char *intern_group(struct building *b, int device)
{
  int i = 0;
  while (i < b->ngroup && b->group[i].device != device) i++;
  if (i == MAX_DEVICES) return b->group[0].name; /* not reached: there are no more devices */
  if (i == b->ngroup) {
    b->group[i].device = device;
    snprintf(b->group[i].name, sizeof b->group[i].name, "%d", device);
    b->ngroup++;
  }
  return b->group[i].name;
}

/* -- the graph --------------------------------------------------------------------------------- */

static ty_entry find_entry(const struct building *b, uint64_t code)
{
  const struct trace_input x = decode_input(code);
  return x.is_leaf ? b->leaf[x.at] : (ty_entry){ b->node[x.at], x.out };
}

/* Adds the node of call i, whose number is an argument. input: codes of its inputs (input_code). */
static int add_with_number(
    struct building *b, const struct history *h, int i, const uint64_t *input)
{
  bool first;
  const struct op *op = number_operator(h->call, &first);
  const ty_attr group = { "__ctx_group__", intern_group(b, h->call->device) };
  ty_entry made, in[2];
  char name[64];
  in[first] = find_entry(b, input[0]);
  in[!first] = b->leaf[b->t->number[i]];
  snprintf(name, sizeof name, "%.40s_%d", op->name, i);
  TRY(ty_graph_origin(b->g, h->where));
  TRY(graph_node(b->g, op, name, &group, b->ngroup > 1, in, 2, &made));
  b->node[i] = made.node;
  return TY_OK;
}

/* Adds the node of call i, named by its operator and i (mark_steps reads the number). */
static int add_node(struct building *b, const struct history *h, int i, const uint64_t *input)
{
  if (b->t->number[i] >= 0) return add_with_number(b, h, i, input);
  const struct cached_call *c = h->call;
  const struct op *op = c->v.call.op;
  char name[64];
  ty_attr *attr = NEWS(ty_attr, c->nattr + 1);
  ty_entry made, *in = NEWS(ty_entry, h->nin + 1);
  int nattr = 0, code = attr && in ? TY_OK : fail_no_memory();
  for (; !code && nattr < c->nattr; nattr++) attr[nattr] = c->attr[nattr];
  if (!code && b->ngroup > 1)
    attr[nattr++] = (ty_attr){ "__ctx_group__", intern_group(b, c->device) };
  for (int k = 0; !code && k < h->nin; k++) in[k] = find_entry(b, input[k]);
  snprintf(name, sizeof name, "%.40s_%d", op->name, i);
  if (!code) code = ty_graph_origin(b->g, h->where);
  if (!code) code = graph_node(b->g, op, name, attr, nattr, in, h->nin, &made);
  mem_free(attr);
  mem_free(in);
  TRY(code);
  b->node[i] = made.node;
  if (op->flags & OP_RANDOM) b->g->node[made.node].draw = ++b->nown;
  return TY_OK;
}

static int add_graph(struct building *b)
{
  const struct trace *t = b->t;
  const uint64_t *input = t->input;
  TRY(ty_graph_new(&b->g));
  for (int i = 0; i < t->n; i++) intern_group(b, t->call[i]->call->device);
  for (int i = 0; i < t->nleaf; i++) {
    intern_group(b, t->leaf[i].value->d.device);
    snprintf(b->leaf_name[i].text, sizeof b->leaf_name[i].text, "var%d", i);
    TRY(graph_var(b->g, b->leaf_name[i].text, NULL, 0, &b->leaf[i]));
  }
  for (int i = 0; i < t->n; i++) {
    const struct history *h = t->call[i];
    TRY(add_node(b, h, i, input));
    input += h->nin;
    for (int k = 0; i < t->ndone && k < h->nout; k++) {
      if (!history_has_value(h, k)) continue;
      const int known = b->k->nknown++;
      b->known[known] = (ty_entry){ b->node[i], k };
      b->known_array[known] = &b->k->known_array[known];
      history_init_output(h, k, b->known_array[known]);
    }
  }
  for (int i = 0; i < t->nhead; i++) b->head[i] = find_entry(b, *input++);
  return TY_OK;
}

/* -- ends -------------------------------------------------------------------------------------- */

/* Returns whether a later backward may ask for the gradient of call i. */
static bool gradient_may_follow(const struct trace *t, int i)
{
  return t->retain || !t->nhead || !t->reached[i];
}

/* Finds the output that owns the storage of output `out` of a call: of a view, that of its input.
** Returns its index among the outputs of the calls that run; -1: no call that runs makes the
** storage. first: per call, the index of its first output; input_at: per call, the index of its
** first input in t->input. */
static int find_storage_output(
    const struct trace *t, const int *first, const int *input_at, int call, int out)
{
  while (call >= t->ndone && t->call[call]->view) {
    const struct trace_input x = decode_input(t->input[input_at[call]]);
    if (x.is_leaf) return -1;
    call = x.at;
    out = x.out;
  }
  return call >= t->ndone ? first[call] + out : -1;
}

/* Marks the outputs of calls that run which the gradient of call i would read. first, input_at: see
** find_storage_output. */
static int mark_reads(const struct trace *t, const int *first, const int *input_at, int i,
    uint8_t *wanted)
{
  const struct history *h = t->call[i];
  const struct call *c = &h->call->v.call;
  const struct reads *reads;
  TRY(op_reads(c->op, c->param, &reads));
  if (!reads) return TY_OK;
  struct read_walk w = reads_walk(reads, h->nin, h->nout);
  while (reads_next(&w)) {
    int at = -1;
    if (w.kind == READ_OUT) at = find_storage_output(t, first, input_at, i, w.k);
    if (w.kind == READ_IN) {
      const struct trace_input x = decode_input(t->input[input_at[i] + w.k]);
      if (!x.is_leaf) at = find_storage_output(t, first, input_at, x.at, x.out);
    }
    if (at >= 0) wanted[at] = 1;
  }
  return TY_OK;
}

/* Adds the outputs that later gradients need to those that are marked. A call keeps all of its
** outputs or none, since put_call asks only about the first one. */
static int mark_wanted(const struct trace *t, uint8_t *wanted)
{
  int *first = NEWS(int, t->n + 1), *input_at = NEWS(int, t->n + 1);
  int code = first && input_at ? TY_OK : fail_no_memory();
  for (int i = 0, o = 0, in = 0; !code && i < t->n; i++) {
    first[i] = o;
    input_at[i] = in;
    o += i >= t->ndone ? t->call[i]->nout : 0;
    in += t->call[i]->nin;
  }
  for (int i = t->ndone; !code && i < t->n; i++) {
    if (gradient_may_follow(t, i)) code = mark_reads(t, first, input_at, i, wanted);
  }
  for (int i = t->ndone; !code && i < t->n; i++) {
    const struct history *h = t->call[i];
    const bool cannot_repeat = h->changes || h->call->v.call.op->flags & OP_RANDOM;
    bool any = cannot_repeat && gradient_may_follow(t, i);
    for (int k = 0; k < h->nout; k++) any |= wanted[first[i] + k];
    for (int k = 0; k < h->nout; k++) wanted[first[i] + k] = any && !h->view;
  }
  mem_free(first);
  mem_free(input_at);
  return code;
}

int trace_count_ends(const struct trace *t, const uint8_t *alive, int noutput, int *n)
{
  uint8_t *wanted = NEWS(uint8_t, noutput + 1);
  if (!wanted) return fail_no_memory();
  memcpy(wanted, alive, (size_t)noutput);
  int code = mark_wanted(t, wanted);
  *n = 0;
  for (int i = 0; i < noutput; i++) *n += wanted[i] != 0;
  mem_free(wanted);
  return code;
}

static void add_ends(struct building *b, const uint8_t *wanted)
{
  struct kept *k = b->k;
  for (int i = b->t->ndone, o = 0; i < b->t->n; i++)
    for (int out = 0; out < b->t->call[i]->nout; out++, o++) {
      k->end_of[o] = -1;
      if (!wanted[o]) continue;
      k->end_of[o] = k->nend++;
      b->end[k->end_of[o]] = (ty_entry){ b->node[i], out };
      b->end_array[k->end_of[o]] = &k->end_array[k->end_of[o]];
      history_init_output(b->t->call[i], out, &k->end_array[k->end_of[o]]);
    }
}

/* -- the executor ------------------------------------------------------------------------------ */

static int make_executor(struct building *b, ty_exec **out)
{
  const struct trace *t = b->t;
  ty_place group[MAX_DEVICES];
  ty_pool *pool;
  TRY(kept_pool(&pool));
  ty_bind *bind = NEWS(ty_bind, t->nleaf + 1);
  if (!bind) return fail_no_memory();
  for (int i = 0; i < t->nleaf; i++) {
    const struct leaf *l = &t->leaf[i];
    bind[i] = (ty_bind){
      .name = b->leaf_name[i].text, .value = l->value, .grad = l->grad, .req = l->req
    };
  }
  for (int i = 0; i < b->ngroup; i++)
    group[i] = (ty_place){ .group = b->group[i].name, .device = b->group[i].device };
  const struct exec_source s = { .g = b->g,
    .head = b->head,
    .nhead = t->nhead,
    .arg = bind,
    .narg = t->nleaf,
    .aux = bind,
    .naux = t->nleaf,
    .place = group,
    .nplace = b->ngroup > 1 ? b->ngroup : 0,
    .device = b->group[0].device,
    .pool = pool,
    .known = b->known,
    .known_array = b->known_array,
    .nknown = b->k->nknown,
    .end = b->end,
    .end_array = b->end_array,
    .nend = b->k->nend,
    .nown = b->nown,
    .movable = true };
  int code = exec_make(&s, out);
  mem_free(bind);
  return code;
}

/* Sets per call whether the program runs it, and whether its gradient (CALL_RUNS, GRADIENT_RUNS). A
** node's call is known by the number at the end of its name. */
static void mark_steps(const struct trace *t, const ty_exec *e, uint8_t *steps)
{
  const struct program *p = e->variant[FUSED];
  for (int i = 0; i < e->graph.g->n; i++) {
    const struct node *n = &e->graph.g->node[i];
    const bool forward = i < e->graph.forward && n->op;
    if (p->step_of[i] < 0 || !(forward || n->backward)) continue;
    const char *number = strrchr(forward ? n->name : e->graph.g->node[n->forward].name, '_');
    const int call = number ? atoi(number + 1) : t->n;
    if (call < t->n) steps[call] |= forward ? CALL_RUNS : GRADIENT_RUNS;
  }
}

static int allocate_lists(struct building *b, int noutput)
{
  const struct trace *t = b->t;
  struct kept *k = b->k;
  int nknown = 0;
  for (int i = 0; i < t->ndone; i++) nknown += t->call[i]->nout;
  b->leaf = NEWS(ty_entry, t->nleaf + 1);
  b->leaf_name = NEWS(struct leaf_name, t->nleaf + 1);
  b->head = NEWS(ty_entry, t->nhead + 1);
  b->node = NEWS(int, t->n + 1);
  b->known = NEWS(ty_entry, nknown + 1);
  b->known_array = NEWS(ty_tensor *, nknown + 1);
  b->end = NEWS(ty_entry, noutput + 1);
  b->end_array = NEWS(ty_tensor *, noutput + 1);
  k->key = NEWS(uint64_t, t->nkey + 1);
  k->call = NEWS(struct cached_call *, t->n + 1);
  k->where = NEWS(const char *, t->n + 1);
  k->leaf = NEWS(int, t->nleaf + 1);
  k->leaf_grad = NEWS(int, t->nleaf + 1);
  k->known = NEWS(int, nknown + 1);
  k->known_array = NEWS(ty_tensor, nknown + 1);
  k->end_of = NEWS(int, noutput + 1);
  k->end = NEWS(int, noutput + 1);
  k->end_array = NEWS(ty_tensor, noutput + 1);
  k->steps = NEWS(uint8_t, t->n + 1);
  k->ones = NEWS(ty_tensor *, t->nhead + 1);
  k->alive = NEWS(uint8_t, noutput + 1);
  k->latest = NEWS(uint8_t, noutput + 1);
  k->nleaf = t->nleaf;
  k->noutput = noutput;
  const bool enough = b->leaf && b->leaf_name && b->head && b->node && b->known && b->known_array &&
      b->end && b->end_array && k->key && k->call && k->where && k->leaf && k->leaf_grad &&
      k->known && k->known_array && k->end_of && k->end && k->end_array && k->steps && k->ones &&
      k->alive && k->latest;
  return enough ? TY_OK : fail_no_memory();
}

static int build_program(struct building *b, const uint8_t *alive, int noutput)
{
  const struct trace *t = b->t;
  struct kept *k = b->k;
  TRY(allocate_lists(b, noutput));
  TRY(add_graph(b));
  uint8_t *wanted = NEWS(uint8_t, noutput + 1);
  if (!wanted) return fail_no_memory();
  memcpy(wanted, alive, (size_t)noutput);
  memcpy(k->alive, alive, (size_t)noutput);
  int code = mark_wanted(t, wanted);
  if (!code) add_ends(b, wanted);
  mem_free(wanted);
  TRY(code);
  TRY(make_executor(b, &k->e));
  for (int i = 0; i < k->nleaf; i++)
    exec_find_bound(k->e, b->leaf_name[i].text, &k->leaf[i], &k->leaf_grad[i]);
  for (int i = 0; i < k->nknown; i++) k->known[i] = k->e->bind.known_bound[i];
  for (int i = 0; i < k->nend; i++) k->end[i] = k->e->bind.end_bound[i];
  if (b->ngroup == 1 && device_kind(b->group[0].device) == TY_CPU)
    for (int i = 0; i < k->nend; i++) k->end_bytes += (int64_t)k->end_array[i].storage->bytes;
  for (int h = 0; h < k->e->graph.nhead; h++) { /* bound ones would hold the arrays of this run */
    ty_tensor_free(k->e->output[h]);
    k->e->output[h] = NULL;
  }
  mark_steps(t, k->e, k->steps);
  k->nkey = t->nkey;
  memcpy(k->key, t->key, sizeof *k->key * (size_t)t->nkey);
  k->ndone = t->ndone;
  for (int i = 0; i < t->n; i++) k->call[k->ncall++] = cached_call_keep(t->call[i]->call);
  return TY_OK;
}

int trace_build(const struct trace *t, const uint8_t *alive, int noutput, struct kept **out)
{
  struct kept *k = NEW(struct kept);
  struct building b = { .t = t, .k = k };
  if (!k) return fail_no_memory();
  int code = build_program(&b, alive, noutput);
  mem_free(b.leaf);
  mem_free(b.leaf_name);
  mem_free(b.head);
  mem_free(b.node);
  mem_free(b.known);
  mem_free(b.known_array);
  mem_free(b.end);
  mem_free(b.end_array);
  ty_graph_free(b.g);
  if (code) return kept_free(k), code;
  *out = k;
  return TY_OK;
}
