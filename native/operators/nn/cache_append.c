/* cache_append.c - _contrib_cache_append: writes keys and values of new positions into a cache, in
** place, after those that it has. A network that reads its caches with contrib.attention, with the
** output as valid_length, generates one position at a time without copying earlier ones. */
#include "kernel/vec/vec.h"
#include "op/op.h"

enum { NEW_KEY, NEW_VALUE, LENGTH, KEY_CACHE, VALUE_CACHE };   /* inputs */

/* Infers (N, T, width), which goes into (N, capacity, width). */
static int append_shape(struct infer *s)
{
  for (int i = 0; i < 2; i++) {
    ty_desc *x = &s->in[NEW_KEY + i], *cache = &s->in[KEY_CACHE + i];
    for (int k = 0; k < 2; k++) {
      const ty_desc *d = k ? cache : x;
      if (d->ndim && d->ndim != 3)
        return infer_fail(s, TY_ESHAPE, d, "expected (batch, length, width), got %d dimensions",
            d->ndim);
    }
    if (x->ndim) TRY(shape_is(s, cache, 3, (int64_t[]){ x->dim[0], 0, x->dim[2] }));
    if (cache->ndim) TRY(shape_is(s, x, 3, (int64_t[]){ cache->dim[0], 0, cache->dim[2] }));
    if (x->ndim && cache->ndim && cache->dim[1] && x->dim[1] > cache->dim[1])
      return infer_fail(s, TY_ESHAPE, x, "%lld positions do not fit into a cache of %lld",
          (long long)x->dim[1], (long long)cache->dim[1]);
    if (x->ndim) TRY(shape_is(s, &s->in[LENGTH], 1, &x->dim[0]));
  }
  const ty_desc *k = &s->in[NEW_KEY], *kc = &s->in[KEY_CACHE];
  if (k->ndim) TRY(shape_is(s, &s->in[NEW_VALUE], 3, (int64_t[]){ k->dim[0], k->dim[1], 0 }));
  if (kc->ndim) TRY(shape_is(s, &s->in[VALUE_CACHE], 3, (int64_t[]){ kc->dim[0], kc->dim[1], 0 }));
  return shape_both(s, &s->in[LENGTH], &s->out[0]);
}

static int append_type(struct infer *s)
{
  TRY(type_both(s, &s->in[NEW_KEY], &s->in[KEY_CACHE]));
  TRY(type_both(s, &s->in[NEW_VALUE], &s->in[VALUE_CACHE]));
  ty_desc *length = &s->in[LENGTH];
  TRY(type_both(s, length, &s->out[0]));
  if (length->dtype == TY_NODTYPE) TRY(type_is(s, length, TY_F32));
  if (length->dtype != TY_F32 && length->dtype != TY_F64 && length->dtype != TY_I32 &&
      length->dtype != TY_I64)
    return infer_fail(s, TY_EDTYPE, length, "expected float32, float64, int32 or int64, got %s",
        dtype_name(length->dtype));
  return type_both(s, length, &s->out[0]);
}

static void set_length(const struct operand *x, int64_t i, int64_t n)
{
  switch (x->d.dtype) {
    case TY_F32: ((float *)x->p)[i] = (float)n; break;
    case TY_F64: ((double *)x->p)[i] = (double)n; break;
    case TY_I32: ((int32_t *)x->p)[i] = (int32_t)n; break;
    case TY_I64: ((int64_t *)x->p)[i] = n; break;
  }
}

/* Appends rows; checks every length before anything is written. */
static int cache_append_run(struct call *c)
{
  const int64_t batch = c->in[NEW_KEY].d.dim[0], more = c->in[NEW_KEY].d.dim[1],
                capacity = c->in[KEY_CACHE].d.dim[1];
  for (int64_t i = 0; i < batch; i++) {
    const int64_t n = whole_at(&c->in[LENGTH], i);
    NEED(n >= 0 && n <= capacity - more, TY_ERUN,
        "length %lld of sample %lld: a cache of %lld positions has no place for %lld more",
        (long long)n, (long long)i, (long long)capacity, (long long)more);
  }
  for (int k = 0; k < 2; k++) {
    const struct operand *from = &c->in[NEW_KEY + k], *to = &c->in[KEY_CACHE + k];
    const size_t row = (size_t)from->d.dim[2] * dtype_size(from->d.dtype);
    for (int64_t i = 0; i < batch; i++)
      memcpy((char *)to->p + (size_t)(i * capacity + whole_at(&c->in[LENGTH], i)) * row,
          (const char *)from->p + (size_t)(i * more) * row, (size_t)more * row);
  }
  for (int64_t i = 0; c->out[0].p && i < batch; i++)
    set_length(&c->out[0], i, whole_at(&c->in[LENGTH], i) + more);
  return TY_OK;
}

static const struct kernel append_cpu[] = { { "rows", cache_append_run, T_ANY }, { 0 } };

const struct op op_cache_append[] = {
  { .name = "_contrib_cache_append",
    .doc = "Writes key and value (N, T, width) into key_cache and value_cache (N, capacity, width) from position length (N,) of each "
           "sample on, in place; output (N,) is length + T. A length that leaves no place is an error. There is no gradient.",
    .in = "key value length key_cache! value_cache!", .out = "output", .shape = append_shape, .type = append_type,
    .flags = OP_MAY_FAIL, .cpu = append_cpu },
  { 0 }
};
