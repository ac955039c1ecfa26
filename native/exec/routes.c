/* routes.c - decides where each gradient is written: by its producer into the bound array, or by a
** copy at the end of the program.
*/
#include "exec/inner.h"

/* a bound array and its index */
struct extent { const ty_tensor *array; int bound; };

/* Returns the offset after the last byte of an array in its storage. */
static int64_t route_end_offset(const ty_tensor *t)
{
  return t->offset + (int64_t)desc_bytes(&t->d);
}

static int route_compare_addresses(const void *a_, const void *b_)
{
  const ty_tensor *a = ((const struct extent *)a_)->array, *b = ((const struct extent *)b_)->array;
  if (a->storage != b->storage) return (uintptr_t)a->storage < (uintptr_t)b->storage ? -1 : 1;
  return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Sets shared[i] for each bound array that shares bytes with another one. */
static int route_find_shared(const ty_exec *e, uint8_t *shared)
{
  int n = 0;
  struct extent *x = NEWS(struct extent, e->bind.nbound);
  NEED(x, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->bind.nbound; i++)
    if (e->bind.bound[i] && desc_bytes(&e->bind.bound[i]->d))
      x[n++] = (struct extent){ e->bind.bound[i], i };
  qsort(x, (size_t)n, sizeof *x, route_compare_addresses);
  for (int i = 1, latest = 0; i < n; i++) {              /* latest: of those before i, ends last */
    const ty_tensor *a = x[latest].array, *b = x[i].array;
    if (a->storage == b->storage && b->offset < route_end_offset(a))
      shared[x[i].bound] = shared[x[latest].bound] = 1;
    if (a->storage != b->storage || route_end_offset(b) > route_end_offset(a)) latest = i;
  }
  mem_free(x);
  return TY_OK;
}

/* the readers of values; arrays per value */
struct value_readers {
  uint8_t *in_head;                                   /* it is a head, or a head is a view of it */
  int *reads;                                         /* count_reads */
  int *arrays;                                        /* arrays that it, or a view of it, goes to */
};

/* where a value is to be written */
struct value_target {
  int bound;                                          /* index of the array */
  int req;                                            /* TY_WRITE or TY_ADD */
  int dtype;
  bool early;                                         /* a node of forward may write it, too */
};

/* Returns whether a node reads a value or what it is a view of. */
static bool route_is_read(const struct source *s, const struct value_readers *u, ty_entry e)
{
  for (;;) {
    if (u->reads[value_of(s->g, e)]) return true;
    int in = view_of(s, e.node, e.out);
    if (in < 0) return false;
    e = s->g->node[e.node].in[in];
  }
}

/* Returns whether the producer of a value can write into (or add to) the bound array itself. */
static bool route_is_direct(const ty_exec *e, const struct source *s, const struct route *w,
    const struct value_readers *u, const struct value_target *to, ty_entry from)
{
  const ty_entry r = view_root(s, from);
  const int v = value_of(e->graph.g, r);
  const struct node *n = &e->graph.g->node[r.node];
  if (!n->op || is_known(s, r.node) || w->grad_of[v] >= 0 || u->in_head[v] || w->shared[to->bound])
    return false;
  if (r.node < e->graph.forward && !to->early) return false;
  if (e->graph.desc[v].dtype != to->dtype || w->into[v] >= 0) return false;
  if (to->req != TY_ADD) return true;
  /* other arrays and readers need the value without the sum */
  if (u->arrays[v] > 1 || route_is_read(s, u, from)) return false;
  if (n->op->formula) return n->backward && element_wise(s, r.node);
  return can_add_to(n, s->device[r.node], r.out);
}

/* Notes that the producer of `from` writes into `to`, or adds a copy at the end. */
static void route_value(const ty_exec *e, const struct source *s, struct route *w,
    const struct value_readers *u, ty_entry from, const struct value_target *to)
{
  const int v = value_of(e->graph.g, view_root(s, from));
  if (route_is_direct(e, s, w, u, to, from))
    w->grad_of[v] = to->bound, w->grad_req[v] = to->req;
  else {
    w->copy[w->ncopy++] = (struct grad_copy){ from, to->bound, to->req };
    w->copied[value_of(e->graph.g, from)] = 1;
  }
}

/* Returns whether an argument has a gradient that is to be written. */
static bool route_has_gradient(const ty_exec *e, const struct source *s, int arg)
{
  return e->bind.arg[arg].req && !is_label_end(s, e->graph.grad_entry[arg]);
}

/* Counts the arrays that each value goes to, by itself or as a view. */
static void route_count_arrays(const ty_exec *e, const struct source *s, int *arrays)
{
  memset(arrays, 0, sizeof *arrays * (size_t)s->g->nvalue);
  for (int i = 0; i < e->bind.narg; i++)
    if (route_has_gradient(e, s, i))
      arrays[value_of(s->g, view_root(s, e->graph.grad_entry[i]))]++;
  for (int i = 0; i < e->bind.nend; i++) arrays[value_of(s->g, view_root(s, e->bind.end[i]))]++;
}

/* Routes all gradients, and all values that are written into arrays. */
static void route_all(
    ty_exec *e, const struct source *s, struct route *w, const struct value_readers *u)
{
  for (int i = 0; i < e->bind.narg; i++) {
    const struct bound *b = &e->bind.arg[i];
    const struct value_target to = { .bound = b->grad_bound,
      .req = b->req,
      .dtype = e->graph.desc[e->graph.g->node[b->node].first].dtype };
    if (!route_has_gradient(e, s, i)) continue;
    route_value(e, s, w, u, e->graph.grad_entry[i], &to);
  }
  for (int i = 0; i < e->bind.nend; i++) {
    const struct value_target to = { .bound = e->bind.end_bound[i],
      .req = TY_WRITE,
      .dtype = e->graph.desc[value_of(e->graph.g, e->bind.end[i])].dtype,
      .early = true };
    const int before = w->ncopy, v = value_of(e->graph.g, e->bind.end[i]);
    route_value(e, s, w, u, e->bind.end[i], &to);
    if (w->ncopy > before) e->graph.is_head[v] = 1;     /* so that it has bytes to copy */
  }
}

struct source exec_make_source(const ty_exec *e, int which, int flags)
{
  const struct route *w = &e->bind.route[which];
  return (struct source){
    .g = e->graph.g,
    .desc = e->graph.desc,
    .device = e->graph.device,
    .forward = e->graph.forward,
    .head = e->graph.head,
    .nhead = e->graph.nhead,
    .is_head = e->graph.is_head,
    .bound = e->bind.of_node,
    .known = e->bind.known_of,
    .grad_of = w->grad_of,
    .grad_req = w->grad_req,
    .into = w->into,
    .summed = w->summed,
    .end = e->graph.grad_entry,
    .nend = e->bind.narg,
    .copy = w->copy,
    .ncopy = w->ncopy,
    .copied = w->copied,
    .bucket = e->bind.bucket,
    .nbucket = e->bind.nbucket,
    .flags = flags,
    .own_run = e->own_run,
  };
}

static int route_variant(ty_exec *e, int which)
{
  struct route *w = &e->bind.route[which];
  w->grad_of = NEWS(int, e->graph.g->nvalue);
  w->grad_req = NEWS(int, e->graph.g->nvalue);
  w->into = NEWS(int, e->graph.g->nvalue);
  w->summed = NEWS(uint8_t, e->graph.g->n);
  w->copy = NEWS(struct grad_copy, e->bind.narg + e->bind.nend);
  w->copied = NEWS(uint8_t, e->graph.g->nvalue);
  w->shared = NEWS(uint8_t, e->bind.nbound);
  bool enough = w->grad_of && w->grad_req && w->into && w->summed && w->copy && w->copied &&
      w->shared;
  NEED(enough, TY_EMEMORY, "out of memory: executor");
  for (int v = 0; v < e->graph.g->nvalue; v++) w->grad_of[v] = w->into[v] = -1;
  TRY(route_find_shared(e, w->shared));
  struct source s = exec_make_source(e, which, 0);
  struct value_readers u = { .in_head = NEWS(uint8_t, e->graph.g->nvalue),
    .arrays = NEWS(int, e->graph.g->nvalue) };
  int code = u.in_head && u.arrays ? TY_OK : fail(TY_EMEMORY, "out of memory: executor");
  if (!code) route_count_arrays(e, &s, u.arrays);
  if (!code && which == FUSED && !(e->flags & TY_NOSHARE))
    code = accumulate_sums(&s, u.arrays, w->into, w->summed);
  if (!code) route_count_arrays(e, &s, u.arrays);       /* sums are views of their parts by now */
  if (!code) u.reads = count_reads(&s);
  if (!code && !u.reads) code = fail(TY_EMEMORY, "out of memory: executor");
  for (int h = 0; !code && h < s.nhead; h++)
    u.in_head[value_of(s.g, view_root(&s, s.head[h]))] = 1;
  if (!code) route_all(e, &s, w, &u);
  mem_free(u.in_head);
  mem_free(u.reads);
  mem_free(u.arrays);
  return code;
}

void exec_free_routes(ty_exec *e)
{
  for (int i = 0; i < VARIANTS; i++) {
    struct route *w = &e->bind.route[i];
    mem_free(w->grad_of);
    mem_free(w->grad_req);
    mem_free(w->into);
    mem_free(w->summed);
    mem_free(w->copy);
    mem_free(w->copied);
    mem_free(w->shared);
  }
}

int exec_route_gradients(ty_exec *e)
{
  struct exec_graph *x = &e->graph;
  struct exec_bindings *b = &e->bind;
  b->of_node = NEWS(int, x->g->n);
  b->head_grad = NEWS(int, x->nhead);
  x->is_head = NEWS(uint8_t, x->g->nvalue);
  NEED(b->of_node && b->head_grad && x->is_head, TY_EMEMORY, "out of memory: executor");
  for (int h = 0; h < x->nhead; h++) x->is_head[value_of(x->g, x->head[h])] = 1;
  for (int i = 0; i < b->narg; i++) b->of_node[b->arg[i].node] = b->arg[i].value_bound;
  for (int i = 0; i < b->naux; i++) b->of_node[b->aux[i].node] = b->aux[i].value_bound;
  for (int h = 0; h < x->nhead; h++) {
    b->head_grad[h] = -1;
    if (x->head_grad_entry[h].node < 0) continue;
    ty_desc d = x->desc[value_of(x->g, x->head_grad_entry[h])];
    ty_tensor *t = NULL;
    d.device = x->device[x->head_grad_entry[h].node];
    if (!(e->flags & TY_DRY_RUN)) TRY(ty_tensor_new(&d, &t));
    int code = exec_add_bound(e, t, &b->head_grad[h]);
    ty_tensor_free(t);
    TRY(code);
    b->of_node[x->head_grad_entry[h].node] = b->head_grad[h];
  }
  for (int w = 0; w < VARIANTS; w++) TRY(route_variant(e, w));
  return TY_OK;
}
