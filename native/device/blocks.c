/* blocks.c - memory of devices: a cache of free blocks, ranges, and the bytes that both use.
**
** A freed block is kept for the next storage of its size class (eight classes per doubling), so
** that making and dropping equal arrays does not map and unmap memory each time. Kept blocks and
** those in use together never exceed the most that was in use at once, so sizes that change from
** step to step do not accumulate. The oldest kept blocks are released first; all are when an
** allocation fails or would exceed TYCHO_MEM_LIMIT. Kept blocks count for that limit, but not as
** live bytes. Under AddressSanitizer nothing is kept and sizes are exact, so that it sees every
** overrun.
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

enum { CLASSES = 8 * 48 }; /* eight per doubling */

/* A device keeps blocks of at most 1 / KEPT_SHARE of its memory, within bounds. */
enum { KEPT_SHARE = 16 };
static const int64_t KEPT_MIN = 64 << 20, KEPT_MAX = 1 << 30;
/* bytes that may always be kept */
enum { KEPT_ALWAYS = 4 << 20 };

/* Returns the size class of a block and sets *size to its bytes: 1, 2, ... 16 times 64 bytes, then
** 9/8, 10/8, ... 16/8 of each power of two. */
static int block_find_class(size_t bytes, size_t *size)
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

struct block { void *data; size_t size; uint64_t since; };
/* What is counted for a device, in bytes. */
struct account {
  pthread_mutex_t lock;
  int64_t used;                                       /* used by storages */
  int64_t most;                                       /* the maximum of `used` so far */
  int64_t cached;                                     /* in kept blocks */
  int64_t pool;                                       /* in ranges */
  struct block *kept[CLASSES];
  int nkept[CLASSES], cap[CLASSES];
  uint64_t frees;                                     /* number of blocks kept so far */
};
static struct account *accounts[SLOTS];               /* made on first use, never freed */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* Returns the account of a device; NULL: out of memory. */
static struct account *account_get(int device)
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
  struct account *a = account_get(device);
  *tensors = *pools = 0;
  if (!a) return;
  pthread_mutex_lock(&a->lock);
  *tensors = a->used;
  *pools = a->pool;
  pthread_mutex_unlock(&a->lock);
}

/* Passes the bytes in use to the profiler. Call under the lock. */
static void account_report_use(const struct account *a, int device)
{
  char name[48];
  if (!profile_is_on(TY_PROFILE_MEMORY)) return;
  memcpy(name, "Memory: ", 8);
  device_name(device, name + 8, sizeof name - 8);
  profile_counter("memory", name, device, a->used + a->pool);
}

/* Releases all kept blocks to the device. Call under the lock. */
static void account_release_kept(struct account *a, int device)
{
  const struct device_ops *ops = device_ops(device);
  for (int c = 0; c < CLASSES; c++) {
    for (int i = 0; i < a->nkept[c]; i++)
      ops->release(device, a->kept[c][i].data, a->kept[c][i].size);
    a->nkept[c] = 0;
  }
  a->cached = 0;
}

/* Fails with TY_EMEMORY, and a report of the device's memory. */
static int account_refuse(struct account *a, int device, size_t bytes)
{
  const struct device_ops *ops = device_ops(device);
  char name[32], request[96];
  int64_t left = ops->available ? ops->available(device) : -1;
  int n = snprintf(request, sizeof request, "%s with %lld bytes",
      device_name(device, name, sizeof name), (long long)ops->memory(device));
  if (left >= 0) /* other processes use memory, too */
    snprintf(request + n, sizeof request - (size_t)n, ", %lld free", (long long)left);
  return fail_memory(request, bytes, a->used + a->pool, a->cached);
}

/* Checks that `bytes` more may be used, releasing kept blocks if necessary. Call under the lock.
** The system overcommits and would kill the process when it first touches too much memory, so more
** than the device has is refused here, unless TYCHO_MEM_LIMIT allows it. */
static int account_admit(struct account *a, int device, size_t bytes)
{
  int64_t limit = mem_limit() ? mem_limit() : device_ops(device)->memory(device);
  if (bytes > (size_t)1 << 46) return account_refuse(a, device, bytes);
  if (limit && a->used + a->pool + a->cached + (int64_t)bytes > limit)
    account_release_kept(a, device);
  if (limit && a->used + a->pool + (int64_t)bytes > limit) return account_refuse(a, device, bytes);
  return TY_OK;
}

/* Returns a kept block of exactly this size; NULL: there is none. Call under the lock. */
static void *account_take_kept(struct account *a, int class, size_t size)
{
  for (int i = a->nkept[class] - 1; i >= 0; i--) {
    struct block b = a->kept[class][i];
    if (b.size != size) continue; /* only the last class has blocks of several sizes */
    a->kept[class][i] = a->kept[class][--a->nkept[class]];
    a->cached -= (int64_t)size;
    return b.data;
  }
  return NULL;
}

int block_new(int device, size_t bytes, void **out, bool *blank)
{
  size_t size;
  int class = block_find_class(bytes, &size);
  if (EXACT) size = MAX(bytes, 1);
  struct account *a = account_get(device);
  NEED(a, TY_EMEMORY, "out of memory");
  pthread_mutex_lock(&a->lock);
  const struct device_ops *ops = device_ops(device);
  void *p = account_take_kept(a, class, size);
  *blank = !p && ops->blank && size >= ops->blank;
  int code = p ? TY_OK : account_admit(a, device, size);
  if (!p && !code) p = ops->alloc(device, size);
  if (!p && !code) {
    account_release_kept(a, device);
    p = ops->alloc(device, size);
    if (!p && ops->lost && ops->lost(device)) {
      char name[32];
      code = fail(TY_EDEVICE, "%s was lost by an earlier failure; nothing runs there until the "
          "program is started again", device_name(device, name, sizeof name));
    }
    else if (!p)
      code = account_refuse(a, device, size);
  }
  if (!code) {
    a->used += (int64_t)size;
    a->most = MAX(a->most, a->used);
    live_bytes((int64_t)bytes);
    account_report_use(a, device);
    *out = p;
  }
  pthread_mutex_unlock(&a->lock);
  return code;
}

/* Releases kept blocks until at most `bytes` are kept, each time from the size class with the
** oldest block. Call under the lock. */
static void account_shrink_kept(struct account *a, int device, int64_t bytes)
{
  while (a->cached > bytes) {
    int n = 0, oldest = -1;
    for (int c = 0; c < CLASSES; c++)
      if (a->nkept[c] && (oldest < 0 || a->kept[c]->since < a->kept[oldest]->since)) oldest = c;
    struct block *list = a->kept[oldest];
    for (; n < a->nkept[oldest] && a->cached > bytes; n++) {
      a->cached -= (int64_t)list[n].size;
      device_ops(device)->release(device, list[n].data, list[n].size);
    }
    memmove(list, list + n, sizeof *list * (size_t)(a->nkept[oldest] -= n));
  }
}

void block_free(int device, void *p, size_t bytes)
{
  size_t size;
  int class = block_find_class(bytes, &size);
  if (EXACT) size = MAX(bytes, 1);
  struct account *a = account_get(device); /* exists: the block came from it */
  pthread_mutex_lock(&a->lock);
  a->used -= (int64_t)size;
  live_bytes(-(int64_t)bytes);
  account_report_use(a, device);
  const int64_t share = device_ops(device)->memory(device) / KEPT_SHARE;
  const int64_t limit = MAX(MIN(share, KEPT_MAX), KEPT_MIN);
  const int64_t most = EXACT ? -1 : MIN(MAX(a->most - a->used, KEPT_ALWAYS), limit);
  const bool kept = (int64_t)size <= most && GROW(a->kept[class], a->nkept[class], a->cap[class]);
  if (kept) {
    account_shrink_kept(a, device, most - (int64_t)size);
    a->kept[class][a->nkept[class]++] = (struct block){ p, size, a->frees++ };
    a->cached += (int64_t)size;
  }
  pthread_mutex_unlock(&a->lock);
  if (!kept) device_ops(device)->release(device, p, size);
}

/* -- ranges ------------------------------------------------------------------------------------ */

int range_new(int device, struct range *out)
{
  TRY(device_open(device));
  *out = (struct range){ .device = device };
  return TY_OK;
}

/* Counts bytes that a range has gained or lost. Call under the lock. */
static void account_count_range(struct account *a, int device, int64_t by)
{
  a->pool += by;
  live_bytes(by);
  account_report_use(a, device);
}

int range_grow(struct range *r, size_t bytes, bool *moved)
{
  struct account *a = account_get(r->device);
  NEED(a, TY_EMEMORY, "out of memory");
  *moved = false;
  if (bytes <= r->bytes) return TY_OK;
  const struct device_ops *ops = device_ops(r->device);
  size_t old = r->bytes;
  pthread_mutex_lock(&a->lock);
  int code = account_admit(a, r->device, bytes - old);
  if (!code && !ops->range_grow(r, bytes, moved)) {
    account_release_kept(a, r->device);
    if (!ops->range_grow(r, bytes, moved)) code = account_refuse(a, r->device, bytes - old);
  }
  account_count_range(a, r->device, (int64_t)r->bytes - (int64_t)old);
  pthread_mutex_unlock(&a->lock);
  return code;
}

void range_trim(struct range *r, size_t bytes)
{
  struct account *a = account_get(r->device);
  size_t old = r->bytes;
  if (!a || bytes >= old) return;
  pthread_mutex_lock(&a->lock);
  device_ops(r->device)->range_trim(r, bytes);
  account_count_range(a, r->device, (int64_t)r->bytes - (int64_t)old);
  pthread_mutex_unlock(&a->lock);
}

void range_free(struct range *r)
{
  struct account *a = account_get(r->device);
  if (a && r->bytes) {
    pthread_mutex_lock(&a->lock);
    account_count_range(a, r->device, -(int64_t)r->bytes);
    pthread_mutex_unlock(&a->lock);
  }
  if (r->base) device_ops(r->device)->range_free(r);
  *r = (struct range){ .device = r->device };
}
