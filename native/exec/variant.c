/* variant.c - the programs of an executor: compiles them, reserves their pool, makes the outputs,
** resolves pointers.
*/
#include "exec/inner.h"

int exec_compile(ty_exec *e, int which, const ty_exec *before, struct program **out)
{
  struct program *p = NEW(struct program);
  const struct program *other = e->variant[!which];
  int flags = e->flags | (which == UNFUSED ? TY_NOFUSE | TY_KEEP : 0);
  NEED(p, TY_EMEMORY, "out of memory: program");
  if (!exec_fuses(e)) flags |= TY_NOFUSE;
  p->s = exec_make_source(e, which, flags);
  if (other)
    p->like = (struct outputs_of){ other, e->graph.head, e->graph.nhead };
  else if (before)
    p->like = (struct outputs_of){ before->variant[before->variant[FUSED] ? FUSED : UNFUSED],
      before->graph.head, before->graph.nhead };
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
    TRY(exec_compile(e, which, NULL, &e->variant[which]));
    TRY(exec_resolve(e));
  }
  *out = e->variant[which];
  return TY_OK;
}

/* Makes the pool large enough for a program. */
static int variant_reserve_pool(ty_exec *e, const struct program *p)
{
  for (int i = 0; i < p->ndevice; i++) {
    bool moved;
    TRY(pool_reserve_for(e->pool, e, p->device[i], (size_t)p->pool[i], &moved));
  }
  return TY_OK;
}

/* Makes the array of output h: a view of a bound array, or of its bytes in the pool. */
static int variant_make_output(ty_exec *e, const struct program *p, const ty_exec *before, int h)
{
  int v = value_of(e->graph.g, e->graph.head[h]);
  const struct value *r = &p->value[p->value[v].root];
  ty_desc d = e->graph.desc[v];
  ty_tensor *bound = r->kind == V_BOUND ? e->bind.bound[r->bound] : NULL;
  d.device = bound ? bound->d.device : r->device;
  if (r->kind == V_BOUND) return bound ? ty_tensor_view(bound, &d, 0, &e->output[h]) : TY_OK;
  /* in a reshape, an output at the offset of the old one has its storage, so that readers of either
  ** wait for both */
  struct storage *former = NULL;
  const struct program *from = before && h < before->graph.nhead ? before->variant[FUSED] : NULL;
  if (from && !(e->flags & TY_DRY_RUN)) {
    const int u = value_of(before->graph.g, before->graph.head[h]);
    const struct value *x = &from->value[from->value[u].root];
    if (x->kind == V_POOL && x->offset == r->offset && x->device == r->device)
      former = before->output_storage[h];
  }
  if (former && former->bytes >= desc_bytes(&d))
    e->output_storage[h] = storage_keep(former);
  else if (e->flags & TY_DRY_RUN)
    TRY(storage_wrap(d.device, NULL, desc_bytes(&d), NULL, NULL, &e->output_storage[h]));
  else
    TRY(pool_storage(e->pool, r->device, (size_t)r->offset, desc_bytes(&d), &e->output_storage[h]));
  return tensor_on(&d, e->output_storage[h], 0, &e->output[h]);
}

void exec_place_arrays(ty_exec *e, struct program *p, void *const *address, uint64_t serial)
{
  struct bases b = { .bound = address };
  for (int i = 0; i < p->ndevice; i++)
    b.pool[i] = pool_base(e->pool, p->device[i]), b.version[i] = e->bind.version[i];
  program_resolve(p, &b);
  p->serial = serial;
}

int exec_resolve(ty_exec *e)
{
  if (e->flags & TY_DRY_RUN) return TY_OK;
  exec_wait_runs(e);                                    /* they read the pointers */
  for (int w = 0; w < VARIANTS; w++)
    if (e->variant[w]) TRY(variant_reserve_pool(e, e->variant[w]));
  for (int i = 0; i < e->bind.nbound; i++)
    e->bind.address[i] = e->bind.bound[i] ? tensor_at(e->bind.bound[i]) : NULL;
  e->bind.serial++;
  for (int w = 0; w < VARIANTS; w++)
    if (e->variant[w]) exec_place_arrays(e, e->variant[w], e->bind.address, e->bind.serial);
  e->generation = pool_generation(e->pool);
  return TY_OK;
}

int exec_make_arrays(ty_exec *e, const ty_exec *before)
{
  e->bind.address = NEWS(void *, e->bind.nbound);
  e->bind.moves = NEWS(uint8_t, e->bind.nbound);
  e->output = NEWS(ty_tensor *, e->graph.nhead);
  e->output_storage = NEWS(struct storage *, e->graph.nhead);
  NEED(e->bind.address && e->bind.moves && e->output && e->output_storage, TY_EMEMORY,
      "out of memory: executor");
  struct program *p = e->variant[FUSED];
  for (int i = 0; i < p->ndevice; i++) {
    e->bind.version[i] = NEWS(uint64_t, e->bind.nbound);
    NEED(e->bind.version[i], TY_EMEMORY, "out of memory: executor");
    TRY(storage_wrap(p->device[i], NULL, 0, NULL, NULL, &e->submit.failure_link[i]));
  }
  if (!(e->flags & TY_DRY_RUN)) TRY(variant_reserve_pool(e, p));
  for (int h = 0; h < e->graph.nhead; h++) TRY(variant_make_output(e, p, before, h));
  return exec_resolve(e);
}

int ty_exec_buckets(ty_exec *e, const int *bucket)
{
  TRY(exec_need_memory(e, "buckets"));
  int *list = NEWS(int, e->bind.nbound + 1), most = -1;
  NEED(list, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->bind.nbound; i++) list[i] = -1;
  for (int i = 0; i < e->bind.narg; i++) {
    const struct bound *a = &e->bind.arg[i];
    if (a->grad_bound >= 0) list[a->grad_bound] = list[a->value_bound] = bucket[i];
    most = MAX(most, bucket[i]);
  }
  exec_wait_runs(e);
  mem_free(e->bind.bucket);
  e->bind.bucket = list;
  e->bind.nbucket = most + 1;
  for (int w = 0; w < VARIANTS; w++) {
    struct program *p = e->variant[w];
    if (!p) continue;
    exec_forget_records(p);
    p->ready = false;
    TRY(program_cut(p, e->bind.bucket, e->bind.nbucket));
  }
  return TY_OK;
}
