/* trace.c - see trace.h. Collects calls, describes their structure, and runs it.
**
** Order: trace_collect, trace_describe, (gradients are assigned), trace_run. trace_run looks the
** structure up in the cache (kept.c); a new one becomes a graph and an executor (build.c).
*/
#include "lazy/ahead.h"
#include "lazy/build.h"
#include "lazy/numbers.h"
#include "lazy/recording.h"

bool trace_submitting;

static int fail_no_memory(void) { return fail(TY_EMEMORY, "out of memory: recording"); }

/* -- which calls ------------------------------------------------------------------------------- */

/* Fails for a node whose graph is freed. is_head: it made the head itself, not what that is made
** of. */
static int fail_graph_freed(const struct history *h, bool is_head)
{
  const char *line = h->freed_at ? h->freed_at : "", *at = h->freed_at ? " at " : " before";
  int code = fail(TY_ESTATE, is_head
      ? "the graph of this array was freed by the backward%s%s; retain_graph = true there keeps it"
      : "the graph of an array that this one is made of was freed by the backward%s%s; a state "
        "that is carried from step to step is cut by x:detach(), and retain_graph = true there "
        "keeps it",
      at, line);
  fail_node(NULL, NULL, h->where);
  return code;
}

static int add_call(struct trace *t, struct history *h)
{
  if (!GROW(t->call, t->n, t->cap)) return fail_no_memory();
  t->call[t->n++] = history_keep(h);
  return TY_OK;
}

/* Visits a node on the way from the heads: adds a call to *list, a function to t. */
static int visit_node(struct trace *t, struct history *h, bool is_head, struct history ***list,
    int *n, int *cap)
{
  if (!h || h->kind == HISTORY_VARIABLE || h->seen == t->walk) return TY_OK;
  if (h->freed) return fail_graph_freed(h, is_head);
  h->seen = t->walk;
  if (h->kind == HISTORY_FUNCTION) {
    if (!GROW(t->function, t->nfunction, t->function_cap)) return fail_no_memory();
    t->function[t->nfunction++] = history_keep(h);
    return TY_OK;
  }
  if (!GROW(*list, *n, *cap)) return fail_no_memory();
  (*list)[(*n)++] = h;
  return TY_OK;
}

/* Compares two nodes for qsort. */
static int compare_serials(const void *a_, const void *b_)
{
  const struct history *a = *(struct history *const *)a_, *b = *(struct history *const *)b_;
  return a->serial < b->serial ? -1 : a->serial > b->serial;
}

/* Appends the pending calls of a backlog to the calls that t has, which are done. */
static int add_backlog(struct trace *t, const struct backlog *backlog)
{
  t->ndone = t->n;
  for (struct history *h = backlog->first; h; h = h->after) TRY(add_call(t, h));
  return TY_OK;
}

int trace_collect(struct trace *t, ty_tensor *const *head, int nhead)
{
  struct backlog *backlog = backlog_own();
  struct history **list = NULL;
  int n = 0, cap = 0, code = TY_OK;
  if (!backlog) return fail_no_memory();
  t->walk = history_new_walk();
  t->head = head;
  t->nhead = nhead;
  for (int i = 0; i < nhead && !code; i++)
    code = visit_node(t, head[i]->history, true, &list, &n, &cap);
  for (int i = 0; i < n && !code; i++)
    for (int k = 0; k < list[i]->nin && !code; k++)
      code = visit_node(t, list[i]->in[k].from, false, &list, &n, &cap);
  for (int i = 0; i < n && !code; i++)
    if (!list[i]->backlog) code = add_call(t, list[i]);
  mem_free(list);
  TRY(code);
  if (t->n) qsort(t->call, (size_t)t->n, sizeof *t->call, compare_serials);
  return add_backlog(t, backlog);
}

struct history *trace_other_product(const struct trace *t, int precision)
{
  for (int i = 0; i < t->n; i++) {
    struct history *h = t->call[i];
    const struct kernel *k = h->call->v.kernel;
    const bool other = k && k->flags & K_PRECISION && h->call->precision != precision;
    if (other && !h->backlog && !history_has_value(h, 0)) return h;
  }
  return NULL;
}

void trace_done(struct trace *t)
{
  for (int i = 0; i < t->n; i++) history_drop(t->call[i]);
  for (int i = 0; i < t->nfunction; i++) history_drop(t->function[i]);
  for (int i = 0; i < t->nleaf; i++) ty_tensor_free(t->leaf[i].value);
  mem_free(t->call);
  mem_free(t->function);
  mem_free(t->leaf);
  mem_free(t->key);
  mem_free(t->input);
  mem_free(t->reached);
  mem_free(t->number);
  mem_free(t->own);
}

/* -- structure --------------------------------------------------------------------------------- */

/* Appends a word to the key. */
static int put_key(struct trace *t, uint64_t word)
{
  if (!GROW(t->key, t->nkey, t->key_cap)) return fail_no_memory();
  t->key[t->nkey++] = word;
  return TY_OK;
}

/* Appends to the key which earlier array shares its storage with array number `index`, and if there
** is one, the array's offset. *same: the number of the last such one, -1: none. Stores index + 1 in
** storage.index. */
static int put_storage(struct trace *t, const ty_tensor *x, int index, int *same)
{
  struct storage *s = x->storage;
  *same = s->seen == t->walk ? s->index - 1 : -1;
  s->seen = t->walk;
  s->index = index + 1;
  TRY(put_key(t, (uint64_t)(uint32_t)(*same + 1) << 32 | (uint32_t)x->d.device));
  return *same >= 0 ? put_key(t, (uint64_t)x->offset) : TY_OK;
}

/* Returns whether a leaf is output `out` of node `from`, or, where from is NULL, an array with the
** elements of x. */
static bool leaf_matches(
    const struct leaf *l, const struct history *from, int out, const ty_tensor *x)
{
  if (from || l->from) return l->from == from && l->out == out;
  return l->value == x ||
      (l->value->offset == x->offset && l->value->d.dtype == x->d.dtype &&
          desc_same_shape(&l->value->d, &x->d));
}

/* Finds the leaf of array x, or adds it; *at: its index. from: the variable or function of x, NULL:
** neither. Takes over the caller's reference to x, also if it fails. */
static int intern_leaf(struct trace *t, struct history *from, int out, ty_tensor *x, int *at)
{
  const struct storage *s = x->storage;
  for (int i = s->seen == t->walk ? s->index - 1 : -1; i >= 0; i = t->leaf[i].same_storage) {
    if (!leaf_matches(&t->leaf[i], from, out, x)) continue;
    ty_tensor_free(x);
    *at = i;
    return TY_OK;
  }
  if (!GROW(t->leaf, t->nleaf, t->leaf_cap)) return ty_tensor_free(x), fail_no_memory();
  struct leaf *l = &t->leaf[t->nleaf];
  *l = (struct leaf){ .from = from, .out = out, .value = x };
  *at = t->nleaf++;
  TRY(put_storage(t, x, *at, &l->same_storage));
  return put_key(t, from ? from->kind : 0);
}

/* Finds where the value of an input comes from: a call of the trace, or a leaf, which it adds if it
** is new. array: the input itself; NULL: it is output `out` of `from`. */
static int resolve_input(struct trace *t, struct history *from, int out, ty_tensor *array,
    struct trace_input *x)
{
  const bool call = from && from->kind == HISTORY_CALL;
  if (call && from->index < t->n && t->call[from->index] == from) {
    *x = (struct trace_input){ from->index, out, false };
    return TY_OK;
  }
  ty_tensor *value = array;
  if (value) ty_tensor_keep(value);
  else TRY(history_output_tensor(from, out, &value));
  *x = (struct trace_input){ .is_leaf = true };
  return intern_leaf(t, call ? NULL : from, call ? 0 : out, value, &x->at);
}

/* Appends an input to the list of inputs and to the key. */
static int put_input(struct trace *t, struct trace_input x)
{
  if (!GROW(t->input, t->ninput, t->input_cap)) return fail_no_memory();
  t->input[t->ninput++] = input_code(x);
  return put_key(t, input_code(x));
}

/* Computes again the values that pending calls read and that were not kept. Each of these runs is a
** walk of its own, which overwrites `seen` and `index` of nodes that t has too. */
static int complete_inputs(const struct trace *t)
{
  for (int i = t->ndone; i < t->n; i++)
    for (int k = 0; k < t->call[i]->nin; k++) {
      const struct history_input *in = &t->call[i]->in[k];
      if (in->array || in->from->kind != HISTORY_CALL || in->from->backlog) continue;
      if (history_has_value(in->from, in->out)) continue;
      TRY(trace_run_again(in->from->out[in->out].storage));
    }
  return TY_OK;
}

/* Makes the leaf of a call's number, an array of one element of the type of the call's input, and
** writes the number there. *at: its index. */
static int intern_number(struct trace *t, const struct cached_call *c, int *at)
{
  const ty_desc *d = &c->v.call.in[0].d;
  const ty_desc one = { .dtype = d->dtype, .ndim = 1, .dim = { 1 }, .device = c->device };
  const float narrow = (float)c->number;
  const void *bytes = d->dtype == TY_F64 ? (const void *)&c->number : &narrow;
  ty_tensor *x;
  TRY(ty_tensor_new(&one, &x));
  int code = ty_tensor_write(x, bytes, dtype_size(d->dtype));
  if (code) return ty_tensor_free(x), code;
  return intern_leaf(t, NULL, 0, x, at);
}

/* Appends call i to the key: its form if its number is an argument, else the hash of its key;
** whether it is done, whether heads depend on it, whether it is a view, whether it has values (all
** of its outputs have them, or none). */
static int put_call(struct trace *t, const struct history *h, int i)
{
  bool argument;
  const uint64_t form = number_form(h->call, &argument), done = i < t->ndone;
  const uint64_t valued = done && history_has_value(h, 0);
  t->number[i] = -1;
  TRY(put_key(t, argument ? form : h->call->hash));
  if (argument) TRY(intern_number(t, h->call, &t->number[i]));
  return put_key(t, done | (uint64_t)t->reached[i] << 1 | (uint64_t)h->view << 2 | valued << 3);
}

int trace_describe(struct trace *t)
{
  t->reached = NEWS(uint8_t, t->n + 1);
  t->number = NEWS(int, t->n + 1);
  if (!t->reached || !t->number) return fail_no_memory();
  for (int i = 0; i < t->n; i++) t->reached[i] = t->call[i]->seen == t->walk;
  TRY(complete_inputs(t));
  TRY(put_key(t, (uint64_t)precision_now()));
  for (int i = 0; i < t->n; i++) t->call[i]->index = i;
  for (int i = 0; i < t->n; i++) {
    struct history *h = t->call[i];
    struct trace_input x;
    TRY(put_call(t, h, i));
    for (int k = 0; k < h->nin; k++) {
      TRY(resolve_input(t, h->in[k].from, h->in[k].out, h->in[k].array, &x));
      TRY(put_input(t, x));
      if (x.is_leaf) t->leaf[x.at].reached |= t->reached[i];
    }
  }
  for (int i = 0; i < t->nhead; i++) {
    ty_tensor *head = t->head[i];
    struct trace_input x;
    TRY(resolve_input(t, head->history, head->history_out, head, &x));
    TRY(put_input(t, x));
    if (x.is_leaf) t->leaf[x.at].reached = true;
    TRY(put_key(t, (uint64_t)head->d.dtype << 32 | (uint32_t)head->d.ndim));
    for (int k = 0; k < head->d.ndim; k++) TRY(put_key(t, (uint64_t)head->d.dim[k]));
  }
  return TY_OK;
}

struct leaf *trace_leaf(struct trace *t, const ty_tensor *x)
{
  const int out = history_is_recorded(x) ? x->history_out : 0;
  for (int i = 0; x->history && i < t->nleaf; i++) {
    struct leaf *l = &t->leaf[i];
    if (l->reached && l->from == x->history && l->out == out) return l;
  }
  return NULL;
}

/* Appends to the key which leaves have gradients, and how they are written. */
static int put_gradients(struct trace *t)
{
  for (int i = 0; i < t->nleaf; i++) {
    const struct leaf *l = &t->leaf[i];
    int same;
    if (!l->grad) continue;
    TRY(put_key(t, (uint64_t)i << 8 | (uint64_t)l->req));
    TRY(put_storage(t, l->grad, t->nleaf + i, &same));
  }
  return put_key(t, (uint64_t)t->train | (uint64_t)t->retain << 1 | (uint64_t)t->nhead << 2);
}

static uint64_t hash_key(const struct trace *t)
{
  uint64_t h = (uint64_t)t->nkey;
  for (int i = 0; i < t->nkey; i++) {
    h = (h ^ t->key[i]) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  }
  return h;
}

/* -- values that were written since ------------------------------------------------------------ */

static int fail_changed(const struct history *h, const char *what, const struct storage *s)
{
  const char *at = __atomic_load_n(&s->written_at, __ATOMIC_RELAXED);
  int code = fail(TY_ESTATE,
      "backward of %s needs its %s, which was written%s%s after it was recorded; write to a copy, "
      "or after backward", history_name(h), what, at ? " at " : "", at ? at : "");
  fail_node(history_name(h), NULL, h->where);
  return code;
}

static bool is_changed(const struct storage *s, uint64_t version)
{
  return storage_version(s) != version;
}

/* Fails where the gradient of a call reads a value that was written since it was recorded. */
static int check_versions(const struct history *h)
{
  const struct call *c = &h->call->v.call;
  const struct reads *reads;
  TRY(op_reads(c->op, c->param, &reads));
  if (!reads) return TY_OK;
  struct read_walk w = reads_walk(reads, h->nin, h->nout);
  while (reads_next(&w)) {
    if (w.changed) continue; /* a state, which the call itself changes */
    if (w.kind == READ_OUT && is_changed(h->out[w.k].storage, h->out[w.k].version))
      return fail_changed(h, "result", h->out[w.k].storage);
    if (w.kind != READ_IN) continue;
    const struct history_input *in = &h->in[w.k];
    const struct storage *s = in->array ? in->array->storage : in->from->out[in->out].storage;
    if (is_changed(s, in->version)) return fail_changed(h, h->call->ports.in[w.k].name, s);
  }
  return TY_OK;
}

/* Fails where a call that has to run again reads an array that was written after it was
** recorded. */
static int check_inputs(const struct history *h)
{
  for (int k = 0; k < h->nin; k++) {
    const struct history_input *in = &h->in[k];
    if (in->array && is_changed(in->array->storage, in->version))
      return fail_changed(h, h->call->ports.in[k].name, in->array->storage);
  }
  return TY_OK;
}

/* -- running ----------------------------------------------------------------------------------- */

/* Makes output `out` of a call the program's bound array `at`. x: the program's tensor for it. */
static void set_output(struct kept *k, int at, ty_tensor *x, const struct history *h, int out)
{
  tensor_move(x, h->out[out].storage, h->out[out].offset);
  exec_set_array(k->e, at, x);
}

/* Unbinds array `at` and drops the storage of its tensor x. at -1: the array is not bound. */
static void release_output(struct kept *k, int at, ty_tensor *x)
{
  if (at >= 0) exec_set_array(k->e, at, NULL);
  tensor_move(x, NULL, 0);
}

/* Sets the arrays that a program reads: leaves with their gradients, outputs of done calls. */
static void set_known(const struct trace *t, struct kept *k)
{
  int at = 0;
  for (int i = 0; i < t->nleaf; i++) {
    if (k->leaf[i] >= 0) exec_set_array(k->e, k->leaf[i], t->leaf[i].value);
    if (k->leaf_grad[i] >= 0) exec_set_array(k->e, k->leaf_grad[i], t->leaf[i].grad);
  }
  for (int i = 0; i < t->ndone; i++) {
    const struct history *h = t->call[i];
    for (int o = 0; o < h->nout; o++) {
      if (!history_has_value(h, o)) continue;
      if (k->known[at] >= 0) set_output(k, k->known[at], &k->known_array[at], h, o);
      at++;
    }
  }
}

/* Allocates the storages of the ends and sets their arrays. */
static int set_ends(const struct trace *t, struct kept *k)
{
  for (int i = t->ndone, o = 0; i < t->n; i++)
    for (int out = 0; out < t->call[i]->nout; out++, o++) {
      const int end = k->end_of[o];
      if (end < 0) continue;
      TRY(storage_fulfil(t->call[i]->out[out].storage));
      set_output(k, k->end[end], &k->end_array[end], t->call[i], out);
    }
  return TY_OK;
}

/* Calls f with the storage of each end. */
static void for_each_end(const struct trace *t, const struct kept *k,
    void (*f)(struct storage *s, void *context), void *context)
{
  for (int i = t->ndone, o = 0; i < t->n; i++)
    for (int out = 0; out < t->call[i]->nout; out++, o++)
      if (k->end_of[o] >= 0) f(t->call[i]->out[out].storage, context);
}

/* Makes a storage a promise again. */
static void release_storage(struct storage *s, void *context)
{
  (void)context;
  storage_unfulfil(s);
}

/* Marks all bytes of a storage as broken by a failure, which reads of them then report. */
static void break_storage(struct storage *s, void *failure)
{
  const struct access all = access_all(s);
  storage_mark(&all, failure);
}

/* Sets the arrays of a run. After a failure all ends are promises, as before. */
static int set_arrays(const struct trace *t, struct kept *k)
{
  set_known(t, k);
  int code = set_ends(t, k);
  if (!code) code = exec_rebind(k->e);
  if (!code) code = exec_prepare_whole(k->e);
  if (code) for_each_end(t, k, release_storage, NULL);
  return code;
}

/* Releases the program's references to the arrays of a run. */
static void release_arrays(const struct trace *t, struct kept *k)
{
  for (int i = 0; i < t->nleaf; i++) {
    if (k->leaf[i] >= 0) exec_set_array(k->e, k->leaf[i], NULL);
    if (k->leaf_grad[i] >= 0) exec_set_array(k->e, k->leaf_grad[i], NULL);
  }
  for (int i = 0; i < k->nknown; i++) release_output(k, k->known[i], &k->known_array[i]);
  for (int i = 0; i < k->nend; i++) release_output(k, k->end[i], &k->end_array[i]);
}

/* Writes the head gradients: those given, or ones, which are filled in once and stay until others
** are given. */
static int write_head_gradients(const struct trace *t, struct kept *k, ty_tensor *const *given)
{
  for (int i = 0; i < t->nhead; i++) {
    if (k->e->bind.head_grad[i] < 0) continue;
    ty_tensor *to = k->e->bind.bound[k->e->bind.head_grad[i]];
    const bool is_ones = !given || !given[i];
    if (is_ones && k->ones[i]) continue;
    if (is_ones) TRY(tensor_fill_ones(to));
    else TRY(ty_tensor_copy(to, given[i]));
    ty_tensor_free(k->ones[i]);
    k->ones[i] = NULL;
    if (is_ones) ty_tensor_keep(k->ones[i] = to);
  }
  return TY_OK;
}

/* Submits a run. A failure breaks the ends and the gradients, so that each read of one fails. After
** TY_EMEMORY callers try again, but the calls cannot be submitted a second time: then it returns
** TY_OK, and only the reads fail. */
static int submit_run(struct trace *t, struct kept *k)
{
  trace_submitting = true;
  int code = exec_run_whole(k->e, t->own, t->train);
  trace_submitting = false;
  for (int i = t->ndone; i < t->n; i++) history_note_versions(t->call[i]);
  if (!code) return ahead_note(k->end_bytes, exec_last_ticket(k->e)), TY_OK;
  struct failure *f = failure_take(code);
  for_each_end(t, k, break_storage, f);
  for (int i = 0; i < t->nleaf; i++)
    if (t->leaf[i].grad) break_storage(t->leaf[i].grad->storage, f);
  code = code == TY_EMEMORY ? TY_OK : failure_report(f);
  failure_drop(f);
  return code;
}

/* Prepares a run: checks that recorded arrays have not been written since, writes the head
** gradients, sets the arrays. A failure leaves the calls pending. */
static int prepare_run(struct trace *t, struct kept *k, ty_tensor *const *given)
{
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  for (int i = 0; i < t->ndone; i++) {
    if (k->steps[i] & GRADIENT_RUNS) TRY(check_versions(t->call[i]));
    if (k->steps[i] & CALL_RUNS) TRY(check_inputs(t->call[i]));
  }
  if (k->e->nown) {                                   /* each random call has its own state */
    int n = 0;
    if (!(t->own = NEWS(struct run, t->n + 1))) return fail_no_memory();
    for (int i = 0; i < t->n; i++)
      if (t->call[i]->call->v.call.op->flags & OP_RANDOM) t->own[n++] = t->call[i]->run;
  }
  TRY(write_head_gradients(t, k, given));
  ahead_wait(k->end_bytes);
  return set_arrays(t, k);
}

/* Finds the program of a trace in the cache, or builds it and adds it there. It keeps at least the
** outputs that something other than the calls of this trace has a reference to. */
static int obtain_program(struct trace *t, struct kept **k)
{
  int noutput = 0, code = TY_OK;
  for (int i = t->ndone; i < t->n; i++) noutput += t->call[i]->nout;
  TRY(put_gradients(t));
  const uint64_t hash = hash_key(t);
  uint8_t *alive = NEWS(uint8_t, noutput + 1);
  if (!alive) return fail_no_memory();
  for (int i = t->ndone, o = 0; i < t->n; i++)
    for (int out = 0; out < t->call[i]->nout; out++, o++)
      alive[o] = !t->call[i]->view && t->call[i]->out[out].storage->refs > 1;
  *k = kept_find(t, hash, alive, noutput);
  bool found = *k != NULL;
  if (found && kept_is_large(*k, alive)) {
    int nend;
    code = trace_count_ends(t, alive, noutput, &nend);
    found = code || nend >= (*k)->nend;
  } else if (!found) {
    kept_mark(t, hash, alive, noutput);
  }
  if (found) kept_stats.hits++;
  if (!found) {
    kept_stats.misses++;
    code = trace_build(t, alive, noutput, k);
    if (!code) kept_add(*k, hash);
  }
  mem_free(alive);
  return code;
}

int trace_run(struct trace *t, ty_tensor *const *given)
{
  struct kept *k = NULL;
  struct backlog *backlog = NULL;
  if (!t->nhead && t->ndone == t->n) return TY_OK;
  for (int i = t->ndone; i < t->n; i++) { /* no longer pending: what they read may be written */
    if (!t->call[i]->backlog) continue;
    backlog = t->call[i]->backlog;
    backlog_remove(t->call[i]);
  }
  int code = obtain_program(t, &k);
  if (!code) code = prepare_run(t, k, given);
  if (code) {
    for (int i = t->ndone; backlog && i < t->n; i++) backlog_add(backlog, t->call[i]);
    if (k) release_arrays(t, k);
    return code;
  }
  if (backlog) { /* a later backlog that repeats this one takes its lines (backlog_line) */
    for (int i = t->ndone; i < t->n; i++) k->where[i] = t->call[i]->where;
    if (backlog->latest) backlog->latest->next = k;
    backlog->latest = k;
    backlog->guess = NULL;
    thread_recording()->line.wanted = 1;
  }
  kept_stats.flushes++;
  kept_stats.ops += t->n - t->ndone;
  code = submit_run(t, k);
  release_arrays(t, k);
  return code;
}

/* Submits the calls of t without gradients. Where a call of t reads a value that was not kept, t
** must list the call that makes it, too. */
static int run_forward(struct trace *t)
{
  int code = trace_describe(t);
  t->train = t->n && t->call[0]->run.is_train;
  t->retain = true;
  if (!code) code = trace_run(t, NULL);
  return code;
}

/* Parts of the pending calls. The first two run one after the other, as programs of their own. */
enum part {
  PART_INTACT,                                        /* neither of the others */
  PART_BROKEN,                                        /* history.broken */
  PART_WAITING,                                       /* history.waits: these do not run */
};

/* Which marks of calls (history.broken, history.waits) are valid. */
struct marked { bool broken, waiting; };

static enum part get_part(const struct history *h, struct marked marked)
{
  if (marked.waiting && h->waits) return PART_WAITING;
  return marked.broken && h->broken ? PART_BROKEN : PART_INTACT;
}

/* Submits the calls of a part as one program. */
static int run_part(struct backlog *backlog, struct marked marked, enum part part)
{
  struct trace t = { .walk = history_new_walk() };
  int code = TY_OK;
  for (struct history *h = backlog->first; h && !code; h = h->after)
    if (get_part(h, marked) == part) code = add_call(&t, h);
  if (!code && t.n) code = run_forward(&t);
  trace_done(&t);
  return code;
}

/* Moves the calls of a part to the end of the backlog, in their order. */
static void move_part(struct backlog *backlog, struct marked marked, enum part part)
{
  struct history *last = backlog->last, *h = backlog->first, *after;
  for (bool more = h != NULL; more; h = after) {
    after = h->after;
    more = h != last;
    if (get_part(h, marked) != part) continue;
    history_keep(h);
    backlog_remove(h);
    backlog_add(backlog, h);
    history_drop(h);
  }
}

/* Submits the intact calls, then the broken ones, as programs of their own. A value that a later
** part reads must be written by the earlier program: the reference to its storage that is held here
** makes it an end. */
static int run_in_parts(struct backlog *backlog, struct marked marked)
{
  struct storage **held = NULL;
  int n = 0, cap = 0, code = TY_OK;
  for (const struct history *h = backlog->first; h && !code; h = h->after)
    for (int i = 0; i < h->nin && !code; i++) {
      const struct history_input *in = &h->in[i];
      if (in->array || !in->from->backlog) continue;
      if (get_part(in->from, marked) >= get_part(h, marked)) continue;
      if (GROW(held, n, cap)) held[n++] = storage_keep(in->from->out[in->out].storage);
      else code = fail_no_memory();
    }
  if (!code) code = run_part(backlog, marked, PART_INTACT);
  if (!code) code = run_part(backlog, marked, PART_BROKEN);
  if (code) { /* failed calls were added at the end, after those that wait */
    move_part(backlog, marked, PART_BROKEN);
    move_part(backlog, marked, PART_WAITING);
  }
  for (int i = 0; i < n; i++) storage_free(held[i]);
  mem_free(held);
  return code;
}

/* Submits all calls of a backlog as one program. */
static int run_all(struct backlog *backlog)
{
  struct trace t = { .walk = history_new_walk() };
  int code = add_backlog(&t, backlog);
  if (!code) code = run_forward(&t);
  trace_done(&t);
  return code;
}

int trace_run_backlog(struct backlog *backlog)
{
  const bool waiting = backlog_mark_waiting(backlog), broken = backlog_mark_broken(backlog);
  const int before = ty_precision(backlog->precision);
  const int code = waiting || broken ? run_in_parts(backlog, (struct marked){ broken, waiting })
                                     : run_all(backlog);
  ty_precision(before);
  return code;
}

/* Lists a call and, before it, the calls that it depends on whose values were not kept. */
static int add_with_inputs(struct trace *t, struct history *h)
{
  if (h->late) return backlog_fail_waiting("reading an array");
  TRY(add_call(t, h));
  h->seen = t->walk;
  for (int i = 0; i < t->n; i++)
    for (int k = 0; k < t->call[i]->nin; k++) {
      const struct history_input *in = &t->call[i]->in[k];
      if (in->array || in->from->seen == t->walk) continue;
      if (in->from->freed) return fail_graph_freed(in->from, false);
      if (history_has_value(in->from, in->out)) continue;
      if (in->from->late) return backlog_fail_waiting("reading an array");
      in->from->seen = t->walk;
      TRY(add_call(t, in->from));
    }
  qsort(t->call, (size_t)t->n, sizeof *t->call, compare_serials);
  return TY_OK;
}

/* Computes a call again, with the values that it depends on, in its own precision. Products of
** another precision among these run first, each in its own. */
static int run_call_again(struct history *h)
{
  struct history *other = NULL;
  int code = TY_OK;
  do {
    struct trace t = { .walk = history_new_walk() };
    code = add_with_inputs(&t, h);
    other = code ? NULL : trace_other_product(&t, h->call->precision);
    if (other) history_keep(other);
    else if (!code) code = run_forward(&t);
    trace_done(&t);
    if (other) code = trace_run_again(other->out[0].storage);
    if (other) history_drop(other);
  } while (other && !code);
  return code;
}

int trace_run_again(struct storage *s)
{
  struct history *h = s->owner;
  NEED(h && !h->freed, TY_ESTATE, "the value of this array was not kept");
  const int before = ty_precision(h->call->precision);
  const int code = run_call_again(h);
  ty_precision(before);
  NEED(code || s->source != &storage_promise, TY_EINTERNAL, "a value could not be computed again");
  return code;
}
