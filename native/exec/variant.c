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

int exec_make_arrays(ty_exec *e, const ty_exec *before)
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

int ty_exec_buckets(ty_exec *e, const int *bucket)
{
  TRY(exec_need_memory(e, "buckets"));
  int *list = NEWS(int, e->nbound + 1), most = -1;
  NEED(list, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < e->nbound; i++) list[i] = -1;
  for (int i = 0; i < e->narg; i++) {
    const struct bound *a = &e->arg[i];
    if (a->grad_bound >= 0) list[a->grad_bound] = list[a->value_bound] = bucket[i];
    most = MAX(most, bucket[i]);
  }
  exec_wait_runs(e);
  mem_free(e->bucket);
  e->bucket = list;
  e->nbucket = most + 1;
  for (int w = 0; w < VARIANTS; w++) {
    struct program *p = e->variant[w];
    if (!p) continue;
    exec_forget_records(p);
    p->ready = false;
    TRY(program_cut(p, e->bucket, e->nbucket));
  }
  return TY_OK;
}
