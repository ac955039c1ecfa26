/* storage.c - bytes on devices: storages, the allocator's cache of free blocks, ranges, and the
** accounts of both.
**
** A freed block is kept for the next storage of its size class (eight classes per doubling):
** making and dropping equal arrays then does not map and unmap memory each time. Kept blocks are
** given back when they exceed a share of the machine, when an allocation fails, and when
** TYCHO_MEM_LIMIT would be passed. They count for that limit, but are no live bytes. Under
** AddressSanitizer nothing is kept and sizes are exact, so that it sees every overrun.
*/
#include <pthread.h>
#include "device/profile.h"
#include "device/queue.h"

#if defined(__SANITIZE_ADDRESS__)
enum { EXACT = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { EXACT = 1 };
#else
enum { EXACT = 0 };
#endif
#else
enum { EXACT = 0 };
#endif

/* -- size classes ------------------------------------------------------------------------------ */

enum { CLASSES = 8 * 48 };

/* Sizes are 1, 2, ... 16 times 64 bytes, then 9/8, 10/8, ... 16/8 of each power of two. */
static int class_of(size_t bytes, size_t *size)
{
  size_t units = (MAX(bytes, 1) + ALIGN - 1) / ALIGN;
  int shift = 0;
  while (units > 16) {
    units = (units + 1) / 2;
    shift++;
  }
  *size = (units * ALIGN) << shift;
  return MIN(shift * 8 + (int)units - 1, CLASSES - 1);
}

/* -- accounts and free blocks ------------------------------------------------------------------ */

struct block { void *data; size_t size; };
struct account {
  pthread_mutex_t lock;
  /* bytes: of storages, of kept blocks, of ranges */
  int64_t used, cached, pool;
  struct block *kept[CLASSES];
  int nkept[CLASSES], cap[CLASSES];
};
static struct account *accounts[SLOTS];               /* made on first use, never freed */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static struct account *account_of(int device)
{
  struct account **at = &accounts[device_slot(device)], *a = __atomic_load_n(at, __ATOMIC_ACQUIRE);
  if (a) return a;
  pthread_mutex_lock(&making);
  a = *at;
  if (!a && (a = NEW(struct account))) {
    pthread_mutex_init(&a->lock, NULL);
    __atomic_store_n(at, a, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&making);
  return a;
}

void memory_in_use(int device, int64_t *tensors, int64_t *pools)
{
  struct account *a = account_of(device);
  *tensors = *pools = 0;
  if (!a) return;
  pthread_mutex_lock(&a->lock);
  *tensors = a->used;
  *pools = a->pool;
  pthread_mutex_unlock(&a->lock);
}

/* Under the lock. */
static void tell_profiler(const struct account *a, int device)
{
  char name[48];
  if (!profiling(TY_PROFILE_MEMORY)) return;
  memcpy(name, "Memory: ", 8);
  device_name(device, name + 8, sizeof name - 8);
  profile_counter("memory", name, device, a->used + a->pool);
}

static void give_all_back(struct account *a, int device)
{
  const struct device_ops *ops = device_ops(device);
  for (int c = 0; c < CLASSES; c++) {
    for (int i = 0; i < a->nkept[c]; i++)
      ops->release(device, a->kept[c][i].data, a->kept[c][i].size);
    a->nkept[c] = 0;
  }
  a->cached = 0;
}

static int refused(struct account *a, int device, size_t bytes)
{
  const struct device_ops *ops = device_ops(device);
  char name[32], request[96];
  int64_t left = ops->available ? ops->available(device) : -1;
  int n = snprintf(request, sizeof request, "%s with %lld bytes",
      device_name(device, name, sizeof name), (long long)ops->memory(device));
  if (left >= 0) /* other processes have some, too */
    snprintf(request + n, sizeof request - (size_t)n, ", %lld free", (long long)left);
  return fail_memory(request, bytes, a->used + a->pool, a->cached);
}

/* Nothing can be had of a device that was lost, however much there is. */
static int no_block(struct account *a, int device, size_t bytes)
{
  const struct device_ops *ops = device_ops(device);
  char name[32];
  if (!ops->lost || !ops->lost(device)) return refused(a, device, bytes);
  return fail(TY_EDEVICE, "%s was lost by an earlier failure; nothing runs there until the program "
      "is started again", device_name(device, name, sizeof name));
}

/* Under the lock: may `bytes` more be in use? Kept blocks go first. The system itself would
** promise any address, and end the process at first use: more than the device has is refused
** here, unless TYCHO_MEM_LIMIT says otherwise. */
static int admit(struct account *a, int device, size_t bytes)
{
  int64_t limit = mem_limit() ? mem_limit() : device_ops(device)->memory(device);
  if (bytes > (size_t)1 << 46) return refused(a, device, bytes);
  if (limit && a->used + a->pool + a->cached + (int64_t)bytes > limit) give_all_back(a, device);
  if (limit && a->used + a->pool + (int64_t)bytes > limit) return refused(a, device, bytes);
  return TY_OK;
}

static int64_t most_kept(int device)
{
  int64_t share = device_ops(device)->memory(device) / 16;
  return EXACT ? -1 : MAX(MIN(share, (int64_t)1 << 30), (int64_t)64 << 20);
}

static void *take_kept(struct account *a, int class, size_t size)
{
  for (int i = a->nkept[class] - 1; i >= 0; i--) {
    struct block b = a->kept[class][i];
    if (b.size != size) continue; /* only the last class holds several sizes */
    a->kept[class][i] = a->kept[class][--a->nkept[class]];
    a->cached -= (int64_t)size;
    return b.data;
  }
  return NULL;
}

/* blank: the bytes are zeros. */
static int block_new(int device, size_t bytes, void **out, bool *blank)
{
  size_t size;
  int class = class_of(bytes, &size);
  if (EXACT) size = MAX(bytes, 1);
  struct account *a = account_of(device);
  NEED(a, TY_EMEMORY, "out of memory");
  pthread_mutex_lock(&a->lock);
  const struct device_ops *ops = device_ops(device);
  void *p = take_kept(a, class, size);
  *blank = !p && ops->blank && size >= ops->blank;
  int code = p ? TY_OK : admit(a, device, size);
  if (!p && !code) p = ops->alloc(device, size);
  if (!p && !code) {
    give_all_back(a, device);
    p = ops->alloc(device, size);
    if (!p) code = no_block(a, device, size);
  }
  if (!code) {
    a->used += (int64_t)size;
    live_bytes((int64_t)bytes);
    tell_profiler(a, device);
    *out = p;
  }
  pthread_mutex_unlock(&a->lock);
  return code;
}

static bool keep_block(struct account *a, int class, void *p, size_t size, int64_t most)
{
  if (a->cached + (int64_t)size > most) return false;
  if (!GROW(a->kept[class], a->nkept[class], a->cap[class])) return false;
  a->kept[class][a->nkept[class]++] = (struct block){ p, size };
  a->cached += (int64_t)size;
  return true;
}

static void block_free(int device, void *p, size_t bytes)
{
  size_t size;
  int class = class_of(bytes, &size);
  if (EXACT) size = MAX(bytes, 1);
  struct account *a = account_of(device); /* exists: it has given the block */
  int64_t most = most_kept(device);
  pthread_mutex_lock(&a->lock);
  a->used -= (int64_t)size;
  live_bytes(-(int64_t)bytes);
  tell_profiler(a, device);
  bool kept = keep_block(a, class, p, size, most);
  pthread_mutex_unlock(&a->lock);
  if (!kept) device_ops(device)->release(device, p, size);
}

/* -- storages ---------------------------------------------------------------------------------- */

static void give_back(void *owner, void *data)
{
  (void)owner;
  (void)data;
} /* marks blocks of this file */

/* 2^64 divided by the golden ratio, odd: the first n multiples are at least 2^64 / (3 n) apart
** modulo 2^64 (Knuth, The Art of Computer Programming, vol. 3, 6.4). */
#define VERSION_STRIDE 0x9E3779B97F4A7C15u

/* Returns the version of a new storage. Counting from it reaches no other storage's before 2^30
** writes of one of 2^31 storages. */
static uint64_t first_version(void)
{
  static uint64_t storages;
  return __atomic_add_fetch(&storages, 1, __ATOMIC_RELAXED) * VERSION_STRIDE;
}

int storage_wrap(int device, void *data, size_t bytes, void (*release)(void *, void *), void *owner,
    struct storage **out)
{
  struct storage *s = NEW(struct storage);
  NEED(s, TY_EMEMORY, "out of memory");
  *s = (struct storage){ data, bytes, device, .refs = 1, .version = first_version(),
    .release = release, .owner = owner };
  live_add(LIVE_STORAGE, 1);
  *out = s;
  return TY_OK;
}

/* Where memory is short, what pools hold beyond their needs may do. */
static int block_new_trimmed(int device, size_t bytes, void **out, bool *blank)
{
  int code = block_new(device, bytes, out, blank);
  if (code != TY_EMEMORY) return code;
  ty_pool_trim(NULL);
  return block_new(device, bytes, out, blank);
}

static int storage_make(int device, size_t bytes, struct storage **out, bool *blank)
{
  void *p = NULL;
  TRY(device_open(device));
  TRY(block_new_trimmed(device, bytes, &p, blank));
  int code = storage_wrap(device, p, bytes, give_back, NULL, out);
  if (code) block_free(device, p, bytes);
  return code;
}

int storage_new(int device, size_t bytes, struct storage **out)
{
  bool blank;
  return storage_make(device, bytes, out, &blank);
}

int storage_zeros(int device, size_t bytes, struct storage **out)
{
  bool blank;
  TRY(storage_make(device, bytes, out, &blank));
  if (!blank) device_ops(device)->clear((*out)->data, bytes);
  return TY_OK;
}

int storage_lazy(int device, size_t bytes, struct storage_source source, struct storage **out)
{
  struct storage_source *own = NEW(struct storage_source);
  NEED(own, TY_EMEMORY, "out of memory");
  *own = source;
  int code = storage_wrap(device, NULL, bytes, NULL, NULL, out);
  if (code) return mem_free(own), code;
  (*out)->source = own;
  return TY_OK;
}

struct storage_source storage_promise;
int (*storage_settle)(struct storage *s);

int storage_promised(int device, size_t bytes, struct storage **out)
{
  TRY(storage_wrap(device, NULL, bytes, NULL, NULL, out));
  (*out)->source = &storage_promise;
  return TY_OK;
}

int storage_fulfil(struct storage *s)
{
  void *p = NULL;
  bool blank;
  if (!s->data) {
    TRY(device_open(s->device));
    TRY(block_new_trimmed(s->device, s->bytes, &p, &blank));
    s->data = p;
    s->release = give_back;
  }
  __atomic_store_n(&s->source, NULL, __ATOMIC_RELEASE);
  return TY_OK;
}

void storage_unfulfil(struct storage *s)
{
  if (s->release == give_back) block_free(s->device, s->data, s->bytes);
  s->data = NULL;
  s->release = NULL;
  __atomic_store_n(&s->source, &storage_promise, __ATOMIC_RELEASE);
}

static void drop_source(struct storage *s)
{
  struct storage_source *source = s->source;
  __atomic_store_n(&s->source, NULL, __ATOMIC_RELEASE);
  if (source == &storage_promise) return;
  if (source && source->drop) source->drop(source->context);
  mem_free(source);
}

/* Under the lock. */
static int load_bytes(struct storage *s)
{
  void *p = NULL;
  bool blank;
  TRY(block_new_trimmed(s->device, s->bytes, &p, &blank));
  int code = s->source->load(s->source->context, p, s->bytes);
  if (code) return block_free(s->device, p, s->bytes), code;
  s->data = p;
  s->release = give_back;
  drop_source(s);
  return TY_OK;
}

int storage_load_now(struct storage *s)
{
  static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
  if (__atomic_load_n(&s->source, __ATOMIC_ACQUIRE) == &storage_promise) return storage_settle(s);
  pthread_mutex_lock(&loading);
  int code = s->source ? load_bytes(s) : TY_OK;
  pthread_mutex_unlock(&loading);
  return code;
}

struct storage *storage_keep(struct storage *s)
{
  __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
  return s;
}

void storage_free(struct storage *s)
{
  if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL)) return;
  failure_drop(s->failed);
  if (s->source) drop_source(s);
  if (s->release == give_back && s->data)
    block_free(s->device, s->data, s->bytes);
  else if (s->release)
    s->release(s->owner, s->data);
  mem_free(s);
  live_add(LIVE_STORAGE, -1);
}

/* -- ranges ------------------------------------------------------------------------------------ */

int range_new(int device, struct range *out)
{
  TRY(device_open(device));
  *out = (struct range){ .device = device };
  return TY_OK;
}

static void count_range(struct account *a, int device, int64_t by)
{
  a->pool += by;
  live_bytes(by);
  tell_profiler(a, device);
}

int range_grow(struct range *r, size_t bytes, bool *moved)
{
  struct account *a = account_of(r->device);
  NEED(a, TY_EMEMORY, "out of memory");
  *moved = false;
  if (bytes <= r->bytes) return TY_OK;
  const struct device_ops *ops = device_ops(r->device);
  size_t old = r->bytes;
  pthread_mutex_lock(&a->lock);
  int code = admit(a, r->device, bytes - old);
  if (!code && !ops->range_grow(r, bytes, moved)) {
    give_all_back(a, r->device);
    if (!ops->range_grow(r, bytes, moved)) code = refused(a, r->device, bytes - old);
  }
  count_range(a, r->device, (int64_t)r->bytes - (int64_t)old);
  pthread_mutex_unlock(&a->lock);
  return code;
}

void range_trim(struct range *r, size_t bytes)
{
  struct account *a = account_of(r->device);
  size_t old = r->bytes;
  if (!a || bytes >= old) return;
  pthread_mutex_lock(&a->lock);
  device_ops(r->device)->range_trim(r, bytes);
  count_range(a, r->device, (int64_t)r->bytes - (int64_t)old);
  pthread_mutex_unlock(&a->lock);
}

void range_free(struct range *r)
{
  struct account *a = account_of(r->device);
  if (a && r->bytes) {
    pthread_mutex_lock(&a->lock);
    count_range(a, r->device, -(int64_t)r->bytes);
    pthread_mutex_unlock(&a->lock);
  }
  if (r->base) device_ops(r->device)->range_free(r);
  *r = (struct range){ .device = r->device };
}
