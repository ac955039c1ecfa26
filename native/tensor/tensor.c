/* tensor.c - typed arrays: descriptors, and the public calls on one tensor.
**
** A tensor is a descriptor and an offset in a storage; views share the storage, and with it tickets
** and failure marks. write and read are synchronous: they wait for the storage's tasks and then
** move bytes in the caller's thread. copy is a task. A copy into a part of a storage also lists it
** among its reads: otherwise the rest of a failed storage would become valid.
*/
#include "tensor/tensor.h"
#include "device/queue.h"

/* -- descriptors ------------------------------------------------------------------------------- */

int64_t desc_count(const ty_desc *d)
{
  if (!desc_known(d)) return 0;
  int64_t n = 1;
  for (int i = 0; i < d->ndim; i++)
    if (__builtin_mul_overflow(n, d->dim[i], &n)) return INT64_MAX;
  return n;
}

bool desc_countable(const ty_desc *d)
{
  int64_t n = 1;
  for (int i = 0; i < d->ndim; i++)
    if (d->dim[i] > 0 && __builtin_mul_overflow(n, d->dim[i], &n)) return false;
  return true;
}

size_t desc_bytes(const ty_desc *d)
{
  size_t n;
  return __builtin_mul_overflow((size_t)desc_count(d), dtype_size(d->dtype), &n) ? SIZE_MAX : n;
}

int desc_check_size(const ty_desc *d)
{
  char shape[200];
  NEED(desc_bytes(d) <= (size_t)TENSOR_BYTES_MAX, TY_ESHAPE, "a tensor of shape %s is too large",
      text_shape(d, shape, sizeof shape));
  return TY_OK;
}

bool desc_known(const ty_desc *d)
{
  if (d->ndim <= 0) return false;
  for (int i = 0; i < d->ndim; i++)
    if (d->dim[i] <= 0) return false;
  return true;
}

bool desc_same_shape(const ty_desc *a, const ty_desc *b)
{
  return a->ndim == b->ndim &&
      (a->ndim <= 0 || !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->ndim));
}

int tensor_check_desc(const ty_desc *d)
{
  char shape[200];
  NEED(dtype_size(d->dtype), TY_EDTYPE, "a tensor cannot have dtype %d", d->dtype);
  NEED(d->ndim <= TY_MAXDIM, TY_ESHAPE, "a tensor has at most %d dimensions, not %d", TY_MAXDIM,
      d->ndim);
  NEED(desc_known(d), TY_ESHAPE,
      "a tensor cannot have shape %s: every dimension must be known and positive",
      text_shape(d, shape, sizeof shape));
  return desc_check_size(d);
}

/* -- making and freeing ------------------------------------------------------------------------ */

void (*tensor_drop_history)(struct history *h);

void tensor_init(ty_tensor *t, const ty_desc *d, struct storage *s, int64_t offset)
{
  *t = (ty_tensor){
    .d = *d, .offset = offset, .bytes = desc_bytes(d), .storage = storage_keep(s), .refs = 1
  };
  for (int i = d->ndim; i < TY_MAXDIM; i++) t->d.dim[i] = 0;
  t->d.device = s->device;
  t->d.pad_ = 0;
}

int tensor_on(const ty_desc *d, struct storage *s, int64_t offset, ty_tensor **out)
{
  ty_tensor *t = mem_block(sizeof *t);
  NEED(t, TY_EMEMORY, "out of memory");
  tensor_init(t, d, s, offset);
  live_add(LIVE_TENSOR, 1);
  *out = t;
  return TY_OK;
}

void tensor_move(ty_tensor *t, struct storage *s, int64_t offset)
{
  struct storage *old = t->storage;
  t->storage = s ? storage_keep(s) : NULL;
  t->offset = offset;
  storage_free(old);
}

static int tensor_in(const ty_desc *d, int (*make)(int, size_t, struct storage **), ty_tensor **out)
{
  TRY(tensor_check_desc(d));
  struct storage *s;
  TRY(make(d->device, desc_bytes(d), &s));
  int code = tensor_on(d, s, 0, out);
  storage_free(s);
  return code;
}

int ty_tensor_new(const ty_desc *d, ty_tensor **out)
{
  NEED(d && out, TY_ETYPE, "ty_tensor_new: the descriptor or the result's place is missing");
  return tensor_in(d, storage_new, out);
}

int tensor_new_zeros(const ty_desc *d, ty_tensor **out) { return tensor_in(d, storage_zeros, out); }

int ty_tensor_blank(const ty_desc *d, ty_tensor **out, int *zeros)
{
  NEED(d && out && zeros, TY_ETYPE,
      "ty_tensor_blank: the descriptor or a result's place is missing");
  TRY(tensor_check_desc(d));
  const struct device_ops *ops = device_ops(
      d->device); /* NULL: no such device; making the storage fails with that */
  *zeros = ops && ops->blank && desc_bytes(d) >= ops->blank;
  return *zeros ? tensor_new_zeros(d, out) : ty_tensor_new(d, out);
}

int ty_tensor_wrap(const ty_desc *d, void *data, ty_tensor **out)
{
  NEED(d && data && out, TY_ETYPE,
      "ty_tensor_wrap: the descriptor, the data or the result's place is missing");
  TRY(tensor_check_desc(d));
  char name[32];
  NEED(device_kind(d->device) != TY_GPU, TY_EDEVICE,
      "memory can be wrapped on a CPU only, not on %s", device_name(d->device, name, sizeof name));
  NEED((uintptr_t)data % dtype_size(d->dtype) == 0, TY_EVALUE,
      "wrapped memory must be aligned to an element of %s", dtype_name(d->dtype));
  TRY(device_open(d->device));
  struct storage *s;
  TRY(storage_wrap(d->device, data, desc_bytes(d), NULL, NULL, &s));
  s->exposed = true;
  int code = tensor_on(d, s, 0, out);
  storage_free(s);
  return code;
}

int ty_tensor_view(ty_tensor *t, const ty_desc *d, int64_t offset, ty_tensor **out)
{
  NEED(t && d && out, TY_ETYPE,
      "ty_tensor_view: the tensor, the descriptor or the result's place is missing");
  TRY(tensor_check_desc(d));
  size_t have = desc_bytes(&t->d), want = desc_bytes(d);
  NEED(offset >= 0 && (size_t)offset <= have && want <= have - (size_t)offset, TY_EINDEX,
      "a view of %zu bytes at byte %lld does not fit into a tensor of %zu bytes", want,
      (long long)offset, have);
  NEED(((uintptr_t)t->storage->data + (uintptr_t)(t->offset + offset)) % dtype_size(d->dtype) == 0,
      TY_EINDEX, "a view at byte %lld is not aligned to an element of %s", (long long)offset,
      dtype_name(d->dtype));
  TRY(tensor_on(d, t->storage, t->offset + offset, out));
  (*out)->readonly = t->readonly;
  return TY_OK;
}

int ty_tensor_keep(ty_tensor *t)
{
  NEED(t, TY_ETYPE, "ty_tensor_keep: the tensor is missing");
  __atomic_add_fetch(&t->refs, 1, __ATOMIC_RELAXED);
  return TY_OK;
}

void ty_tensor_free(ty_tensor *t)
{
  if (!t || mem_kept() || __atomic_sub_fetch(&t->refs, 1, __ATOMIC_ACQ_REL)) return;
  /* before the history: a recorded call whose outputs no array holds is not run */
  storage_free(t->storage);
  if (t->history) tensor_drop_history(t->history);
  mem_block_free(t, sizeof *t);
  live_add(LIVE_TENSOR, -1);
}

/* How many arrays before its turn a tensor, and then its storage, are prefetched in
** ty_tensors_free. */
enum { AHEAD_TENSOR = 8, AHEAD_STORAGE = 4 };

/* Prefetches an object into the caches. */
static void fetch_object(const void *p, size_t bytes)
{
  for (size_t at = 0; at < bytes; at += ALIGN) __builtin_prefetch((const char *)p + at, 1);
}

void ty_tensors_free(ty_tensor *const *t, const int32_t *which, int n)
{
  if (!t || !which) return;
  for (int i = 0; i < n; i++) {
    const ty_tensor *later = i + AHEAD_TENSOR < n ? t[which[i + AHEAD_TENSOR]] : NULL;
    const ty_tensor *next = i + AHEAD_STORAGE < n ? t[which[i + AHEAD_STORAGE]] : NULL;
    if (later) fetch_object(later, sizeof *later);
    if (next) fetch_object(next->storage, sizeof *next->storage);
    ty_tensor_free(t[which[i]]);
  }
}

/* -- asking ------------------------------------------------------------------------------------ */

int ty_tensor_desc(const ty_tensor *t, ty_desc *out)
{
  NEED(t && out, TY_ETYPE, "ty_tensor_desc: the tensor or the result's place is missing");
  *out = t->d;
  return TY_OK;
}

int ty_tensor_same(const ty_tensor *a, const ty_tensor *b)
{
  if (!a || !b || a->storage != b->storage || a->offset != b->offset) return 0;
  return a->d.dtype == b->d.dtype && desc_same_shape(&a->d, &b->d);
}

int ty_tensor_wait(ty_tensor *t, int for_write)
{
  NEED(t, TY_ETYPE, "ty_tensor_wait: the tensor is missing");
  const struct access a = tensor_access(t);
  return storage_wait(&a, for_write);
}

int ty_tensor_failed(ty_tensor *t)
{
  if (!t) return 0;
  storage_wait_quiet(t->storage, 0);
  const struct access a = tensor_access(t);
  return storage_failed(&a);
}

int ty_tensor_lasting(ty_tensor *t)
{
  NEED(t, TY_ETYPE, "ty_tensor_lasting: the tensor is missing");
  storage_set_lasting(t->storage);
  return TY_OK;
}

/* -- bytes in and out -------------------------------------------------------------------------- */

static int check_bytes(const ty_tensor *t, const char *what, size_t bytes)
{
  char shape[200];
  NEED(bytes == desc_bytes(&t->d), TY_ESHAPE, "%s of %zu bytes: a %s tensor of shape %s has %zu",
      what, bytes, dtype_name(t->d.dtype), text_shape(&t->d, shape, sizeof shape),
      desc_bytes(&t->d));
  return TY_OK;
}

int ty_tensor_const_data(ty_tensor *t, const void **out)
{
  NEED(t && out, TY_ETYPE, "ty_tensor_const_data: the tensor or the result's place is missing");
  char name[32];
  NEED(device_kind(t->d.device) != TY_GPU, TY_EDEVICE,
      "the memory of %s has no address on the host; read it or copy it to a CPU",
      device_name(t->d.device, name, sizeof name));
  const struct access a = tensor_access(t);
  TRY(storage_wait(&a, 1));
  *out = tensor_at(t);
  return TY_OK;
}

/* Returns a pointer to the elements in host memory, which the caller may read and write. The call
** itself counts as a write: call it again before each later write. */
int ty_tensor_data(ty_tensor *t, void **out)
{
  const void *unused;
  NEED(t && out, TY_ETYPE, "ty_tensor_data: the tensor or the result's place is missing");
  TRY(ty_tensor_const_data(t, &unused));
  if (!t->readonly) storage_written(t->storage);
  __atomic_store_n(&t->storage->exposed, true, __ATOMIC_RELAXED);
  *out = tensor_at(t);
  return TY_OK;
}

void mend_bools(uint8_t *p, size_t n)
{
  for (size_t i = 0; i < n; i++) p[i] = p[i] != 0;
}

/* Writes bools as 0 or 1, copied piece by piece, since `src` must not be changed. */
static int write_bools(ty_tensor *t, const char *src, size_t bytes)
{
  uint8_t piece[4096];
  const struct device_ops *ops = device_ops(t->d.device);
  for (size_t i = 0, n; i < bytes; i += n) {
    n = MIN(sizeof piece, bytes - i);
    memcpy(piece, src + i, n);
    mend_bools(piece, n);
    TRY(ops->copy(t->d.device, (char *)tensor_at(t) + i, TY_CPU, piece, n));
  }
  return TY_OK;
}

int ty_tensor_write(ty_tensor *t, const void *src, size_t bytes)
{
  NEED(t && src, TY_ETYPE, "ty_tensor_write: the tensor or the source is missing");
  NEED(!t->readonly, TY_ESTATE, "the tensor is read-only");
  TRY(check_bytes(t, "write", bytes));
  TRY(storage_load(t->storage));
  TRY(storage_before_write(t->storage));
  storage_wait_quiet(t->storage, 1);
  if (t->d.dtype == TY_BOOL)
    TRY(write_bools(t, src, bytes));
  else
    TRY(device_ops(t->d.device)->copy(t->d.device, tensor_at(t), TY_CPU, src, bytes));
  const struct access a = tensor_access(t);
  storage_mark(&a, NULL);
  storage_written(t->storage);
  return TY_OK;
}

int ty_tensor_read(ty_tensor *t, void *dst, size_t bytes)
{
  NEED(t && dst, TY_ETYPE, "ty_tensor_read: the tensor or the destination is missing");
  TRY(check_bytes(t, "read", bytes));
  const struct access a = tensor_access(t);
  TRY(storage_wait(&a, 0));
  return device_ops(t->d.device)->copy(TY_CPU, dst, t->d.device, tensor_at(t), bytes);
}

/* -- copies ------------------------------------------------------------------------------------ */

struct copying { ty_tensor *dst, *src; };

static int run_copy(void *context)
{
  const struct copying *c = context;
  const ty_tensor *d = c->dst, *s = c->src;
  int device = device_kind(d->d.device) == TY_GPU ? d->d.device : s->d.device;
  const struct device_ops *ops = device_ops(device);
  void *to = tensor_at(d), *from = tensor_at(s);
  if (d->d.dtype == s->d.dtype)
    return ops->copy(d->d.device, to, s->d.device, from, desc_bytes(&d->d));
  return ops->convert(device, to, d->d.dtype, from, s->d.dtype, desc_count(&d->d));
}

static void drop_copy(void *context)
{
  struct copying *c = context;
  ty_tensor_free(c->dst);
  ty_tensor_free(c->src);
  mem_free(c);
}

static int submit_copy(ty_tensor *dst, ty_tensor *src)
{
  struct copying *c = NEW(struct copying);
  NEED(c, TY_EMEMORY, "out of memory");
  *c = (struct copying){ dst, src };
  ty_tensor_keep(dst);
  ty_tensor_keep(src);
  const struct access read = tensor_access(src);
  struct access write = tensor_access(dst);
  /* If a weight that `dst` copies fails to change, `dst` keeps its old value as well. */
  write.in_place = __atomic_load_n(&src->storage->lasting, __ATOMIC_RELAXED) &&
      __atomic_load_n(&dst->storage->lasting, __ATOMIC_RELAXED);
  struct task t = { run_copy, drop_copy, c, &read, &write, 1, 1, NULL, 0, 0,
    desc_bytes(&dst->d) + desc_bytes(&src->d) <= SMALL_TASK };
  return device_submit(
      device_kind(dst->d.device) == TY_GPU ? dst->d.device : src->d.device, &t, NULL);
}

static bool bytes_overlap(const ty_tensor *a, const ty_tensor *b)
{
  int64_t end_a = a->offset + (int64_t)desc_bytes(&a->d),
          end_b = b->offset + (int64_t)desc_bytes(&b->d);
  return a->storage == b->storage && a->offset < end_b && b->offset < end_a;
}

/* Copies through a temporary tensor: a conversion needs both sides on one device, not
** overlapping. */
static int copy_in_steps(ty_tensor *dst, ty_tensor *src)
{
  ty_tensor *middle;
  ty_desc d = dst->d;
  bool apart = dst->d.device != src->d.device;
  if (apart) d.dtype = src->d.dtype;
  TRY(ty_tensor_new(&d, &middle));
  int code = submit_copy(middle, src);
  if (!code) code = submit_copy(dst, middle);
  ty_tensor_free(middle);
  return code;
}

int ty_tensor_copy(ty_tensor *dst, ty_tensor *src)
{
  NEED(dst && src, TY_ETYPE, "ty_tensor_copy: a tensor is missing");
  NEED(!dst->readonly, TY_ESTATE, "the destination is read-only");
  if (!desc_same_shape(&dst->d, &src->d)) {
    char want[200], got[200];
    text_shape(&dst->d, want, sizeof want);
    text_shape(&src->d, got, sizeof got);
    fail(TY_ESHAPE, "copy into shape %s from shape %s", want, got);
    fail_argument("src", want, got);
    return TY_ESHAPE;
  }
  if (ty_tensor_same(dst, src)) return TY_OK;
  bool same = dst->d.dtype == src->d.dtype,
       gpu = device_kind(dst->d.device | src->d.device) & TY_GPU;
  if (!same && (bytes_overlap(dst, src) || (gpu && dst->d.device != src->d.device)))
    return copy_in_steps(dst, src);
  return submit_copy(dst, src);
}
