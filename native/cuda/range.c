/* range.c - growing ranges, and access of GPUs to each other's memory.
**
** A range is reserved address space into which memory is mapped as it grows. When the reserved
** space is full, more is reserved elsewhere and the same memory is mapped there, so nothing is
** copied.
**
** Two GPUs copy to each other without the host if the hardware connects them and each has access to
** the other's memory: to blocks of cuMemAlloc by its context, to mapped memory part by part. Access
** takes page tables on both sides, so it is requested at the first copy between them, or when a
** group of GPUs is made. */
#include <pthread.h>
#include "cuda/cuda.h"

/* A part of the memory that is mapped into a range, in order. */
struct mapped_part { cu_memory memory; size_t bytes; };
struct mapping { int id; char *base; struct mapped_part *part; int n, cap; struct mapping *next; };
static struct mapping *mappings;
/* bit k of peers[i]: gpu(k) has access to memory of gpu(i) */
static uint32_t peers[CUDA_DEVICES];
/* guards the mappings and `peers` */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct mapping *find_mapping(const char *base)
{
  struct mapping *m = mappings;
  while (m && m->base != base) m = m->next;
  return m;
}

/* Gives access to gpu(id), which owns the memory, and to its peers. */
static bool give_access(int id, const char *at, size_t bytes)
{
  struct cu_access access[CUDA_DEVICES];
  size_t n = 0;
  for (int k = 0; k < CUDA_DEVICES; k++)
    if (k == id || peers[id] >> k & 1)
      access[n++] = (struct cu_access){ { CU_LOCATION_DEVICE, k }, CU_ACCESS_READ_WRITE };
  return !cu_api.MemSetAccess((cu_pointer)(uintptr_t)at, bytes, access, n);
}

static bool map_part(int id, char *at, struct mapped_part part)
{
  cu_pointer p = (cu_pointer)(uintptr_t)at;
  if (cu_api.MemMap(p, part.bytes, 0, part.memory, 0)) return false;
  if (give_access(id, at, part.bytes)) return true;
  cu_api.MemUnmap(p, part.bytes);
  return false;
}

static void unmap_part(char *at, struct mapped_part part)
{
  cu_api.MemUnmap((cu_pointer)(uintptr_t)at, part.bytes);
}

/* Returns how much address space to reserve for a range of `bytes`: at least twice as much, in
** steps that keep moves rare. */
static size_t reservation_bytes(size_t bytes)
{
  size_t n = (size_t)256 << 20;
  while (n < 2 * bytes) n *= 2;
  return n;
}

/* Maps the same memory under new addresses. */
static bool remap_range(struct range *r, struct mapping *m, size_t bytes, bool *moved)
{
  cu_pointer base = 0;
  size_t reserved = reservation_bytes(bytes), done = 0;
  if (cu_api.MemAddressReserve(&base, reserved, 0, 0, 0)) return false;
  char *to = (char *)(uintptr_t)base, *from = r->base;
  size_t at = 0;
  for (int i = 0; i < m->n; i++) {
    unmap_part(from + at, m->part[i]);
    done += map_part(m->id, to + at, m->part[i]);
    at += m->part[i].bytes;
  }
  if (from) cu_api.MemAddressFree((cu_pointer)(uintptr_t)from, r->reserved);
  *moved = from != NULL;
  r->base = m->base = to;
  r->reserved = reserved;
  return done == (size_t)m->n;
}

static bool add_part(struct range *r, struct mapping *m, size_t bytes)
{
  struct cu_allocation how = { .type = CU_ALLOCATION_PINNED,
    .location = { CU_LOCATION_DEVICE, m->id } };
  struct mapped_part part = { 0, bytes };
  if (!GROW(m->part, m->n, m->cap) || cu_api.MemCreate(&part.memory, bytes, &how, 0)) return false;
  if (!map_part(m->id, r->base + r->bytes, part)) {
    cu_api.MemRelease(part.memory);
    return false;
  }
  m->part[m->n++] = part;
  r->bytes += bytes;
  return true;
}

static struct mapping *new_mapping(int id)
{
  struct mapping *m = NEW(struct mapping);
  if (!m) return NULL;
  m->id = id;
  m->next = mappings;
  return mappings = m;
}

static void drop_mapping(struct mapping *m)
{
  struct mapping **at = &mappings;
  while (*at && *at != m) at = &(*at)->next;
  if (*at) *at = m->next;
  mem_free(m->part);
  mem_free(m);
}

static bool grow_range(struct range *r, size_t bytes, bool *moved)
{
  bytes = align_up(bytes, cuda_device(r->device)->granularity);
  if (bytes <= r->bytes) return true;
  struct mapping *m = r->base ? find_mapping(r->base) : new_mapping(device_id(r->device));
  if (!m) return false;
  if (bytes > r->reserved && !remap_range(r, m, bytes, moved)) {
    if (!m->base) drop_mapping(m);
    return false;
  }
  return add_part(r, m, bytes - r->bytes);
}

bool cuda_range_grow(struct range *r, size_t bytes, bool *moved)
{
  if (cuda_enter(r->device)) return false;
  pthread_mutex_lock(&lock);
  bool good = grow_range(r, bytes, moved);
  pthread_mutex_unlock(&lock);
  return good;
}

/* Frees the parts that begin after `bytes`. */
static void trim_range(struct range *r, size_t bytes)
{
  struct mapping *m = find_mapping(r->base);
  while (m && m->n && r->bytes - m->part[m->n - 1].bytes >= bytes) {
    struct mapped_part last = m->part[--m->n];
    r->bytes -= last.bytes;
    unmap_part(r->base + r->bytes, last);
    cu_api.MemRelease(last.memory);
  }
}

void cuda_range_trim(struct range *r, size_t bytes)
{
  if (!r->base || cuda_enter(r->device)) return;
  pthread_mutex_lock(&lock);
  trim_range(r, bytes);
  pthread_mutex_unlock(&lock);
}

void cuda_range_free(struct range *r)
{
  if (!r->base || cuda_enter(r->device)) return;
  pthread_mutex_lock(&lock);
  trim_range(r, 0);
  struct mapping *m = find_mapping(r->base);
  if (m) drop_mapping(m);
  pthread_mutex_unlock(&lock);
  cu_api.MemAddressFree((cu_pointer)(uintptr_t)r->base, r->reserved);
}

/* -- peers ------------------------------------------------------------------------------------- */

enum { PEERS_ALREADY = 704 };

/* Gives gpu(peer) access to present and later memory of gpu(owner). Returns false if that is
** impossible; copies then go through the host. */
static bool admit_peer(int owner, int peer)
{
  int can = 0;
  bool good = !cu_api.DeviceCanAccessPeer(&can, peer, owner) && can;
  if (!good || cuda_enter(TY_GPU + peer)) return false;
  peers[owner] |= 1u << peer;
  for (const struct mapping *m = mappings; m && good; m = m->next) {
    size_t at = 0;
    for (int i = 0; i < m->n && m->id == owner && good; at += m->part[i++].bytes)
      good = give_access(owner, m->base + at, m->part[i].bytes);
  }
  int code = good ? cu_api.CtxEnablePeerAccess(cuda_device(TY_GPU + owner)->context, 0) : 0;
  good = good && (!code || code == PEERS_ALREADY);
  if (!good) peers[owner] &= ~(1u << peer);
  return good;
}

void cuda_connect(int a, int b)
{
  static uint32_t asked[CUDA_DEVICES];
  const int i = device_id(a), k = device_id(b);
  if (i == k || __atomic_load_n(&asked[i], __ATOMIC_ACQUIRE) >> k & 1) return;
  pthread_mutex_lock(&lock);
  if (!(asked[i] >> k & 1) && admit_peer(i, k)) admit_peer(k, i);
  __atomic_or_fetch(&asked[i], 1u << k, __ATOMIC_RELEASE);
  __atomic_or_fetch(&asked[k], 1u << i, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
}
