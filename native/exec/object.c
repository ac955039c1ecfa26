/* object.c - makes executors, counts references to them, frees them.
**
** Order: extract the graph (merging equal nodes), match arrays to variables, rewrite the graph
** (pass/rewrites.c), decide where each gradient is written, compile the first program, reserve the
** pool, resolve pointers.
*/
#include "exec/inner.h"

/* Fills in a new executor; after a failure the caller frees it. */
static int object_build(ty_exec *e, const struct exec_source *s)
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
  int code = exec_take_graph(e, s, &x);
  if (!code) code = exec_match_arrays(e, s, x.g);
  if (!code) code = exec_rewrite_graph(e, s, &x);
  typed_graph_done(&x);
  TRY(code);
  exec_note_draws(e);
  TRY(exec_check_devices(e));
  TRY(exec_route_gradients(e));
  if (s->pool) {
    e->pool = s->pool;
    pool_keep(s->pool);
  }
  else
    TRY(ty_pool_new(&e->pool));
  TRY(exec_compile(e, FUSED, s->before, &e->variant[FUSED]));
  return exec_make_arrays(e, s->before);
}

int exec_make(const struct exec_source *s, ty_exec **out)
{
  ty_exec *e = NEW(ty_exec);
  NEED(e, TY_EMEMORY, "out of memory: executor");
  e->refs = 1;
  e->run.variant = -1;
  e->run.phase = RUN_NONE;
  e->flags = s->flags;
  if (!(e->flags & (TY_HIGHEST | TY_HIGH | TY_MEDIUM))) e->flags |= TY_HIGHEST << precision_now();
  e->default_device = s->device;
  e->recompute_level = s->recompute_level;
  e->nown = s->nown;
  e->bind.movable = s->movable;
  e->own_run = NEWS(struct run, s->nown + 1);
  if (!e->own_run) return mem_free(e), fail(TY_EMEMORY, "out of memory: executor");
  e->check = s->flags & TY_CHECK || env_number("TYCHO_CHECK_NUMERICS", 0);
  live_add(LIVE_EXEC, 1);
  int code = object_build(e, s);
  if (code) return ty_exec_free(e), code;
  *out = e;
  return TY_OK;
}

int ty_exec_keep(ty_exec *e)
{
  NEED(e, TY_ETYPE, "exec_keep: null executor");
  __atomic_add_fetch(&e->refs, 1, __ATOMIC_RELAXED);
  return TY_OK;
}

void ty_exec_free(ty_exec *e)
{
  if (!e || mem_kept() || __atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL)) return;
  for (int w = 0; w < VARIANTS; w++) {
    exec_forget_records(e->variant[w]);
    program_free(e->variant[w]);
    mem_free(e->variant[w]);
  }
  for (int h = 0; e->output && h < e->graph.nhead; h++) ty_tensor_free(e->output[h]);
  for (int h = 0; e->output_storage && h < e->graph.nhead; h++)
    if (e->output_storage[h]) storage_free(e->output_storage[h]);
  for (int i = 0; i < e->bind.nbound; i++) ty_tensor_free(e->bind.bound[i]);
  for (int i = 0; i < MAX_DEVICES; i++) {
    if (e->submit.failure_link[i]) storage_free(e->submit.failure_link[i]);
    if (e->submit.rng[i]) storage_free(e->submit.rng[i]);
    mem_free(e->bind.version[i]);
  }
  ty_tensor_free(e->event_tensor);
  mem_free(e->output);
  mem_free(e->output_storage);
  mem_free(e->bind.bound);
  mem_free(e->bind.address);
  mem_free(e->bind.moves);
  mem_free(e->bind.known_bound);
  exec_free_ring(e);
  ty_graph_free(e->graph.g);
  ty_graph_free(e->graph.user);
  if (e->pool) pool_forget(e->pool, e), ty_pool_free(e->pool);
  mem_free(e->graph.user_head);
  mem_free(e->graph.desc);
  mem_free(e->graph.device);
  mem_free(e->graph.head);
  mem_free(e->graph.grad_entry);
  mem_free(e->graph.head_grad_entry);
  mem_free(e->bind.head_grad);
  mem_free(e->graph.is_head);
  names_done(&e->bind.arg_names);
  names_done(&e->bind.aux_names);
  mem_free(e->bind.arg);
  mem_free(e->bind.aux);
  mem_free(e->bind.of_node);
  mem_free(e->bind.known_of);
  mem_free(e->own_run);
  mem_free(e->bind.end);
  mem_free(e->bind.end_bound);
  mem_free(e->bind.bucket);
  exec_free_routes(e);
  text_done(&e->printed);
  arena_done(&e->arena);
  mem_free(e);
  live_add(LIVE_EXEC, -1);
}
