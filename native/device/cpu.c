/* cpu.c - the device operations of the CPU: memory, copies, growing ranges.
**
** Blocks of 1 MB and more are mapped, so that their pages are zeros when first touched. A range
** reserves address space for twice the machine's memory and makes pages usable as it grows, so it
** stays where it is. Where address space is limited (ulimit -v), nothing is reserved and a growing
** range moves. Blocks of 32 MB and ranges of 256 MB ask for huge pages, which cause fewer TLB
** misses (BatchNorm over 40 MB was faster by a sixth, ResNet-50's training by 3 %). Smaller ones
** gain nothing, and in a virtual machine whose host reclaims free memory the first touch of a huge
** page is slow: 3 ms per MB, against 0.6 ms with small pages.
*/
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/stream_copy.h"
#include "base/system.h"
#include "device/device.h"
#include "base/parallel.h"
#include "base/convert.h"

#if defined(__SANITIZE_ADDRESS__)
static const size_t MAPPED = SIZE_MAX; /* the sanitizer checks heap blocks only */
#else
static const size_t MAPPED = 1 << 20;
#endif
/* Bytes; the sizes that get huge pages are measured, see above. */
enum {
  HUGE_PAGE   = 2 << 20,
  LARGE_BLOCK = 32 << 20,  /* blocks of this size ask for huge pages */
  LARGE_RANGE = 256 << 20, /* ranges of this size do */
  COPY_GRAIN  = 1 << 17    /* copied by one chunk of a parallel region */
};

/* Returns the machine's memory in bytes; 0: unknown. Asks the system only once: this is needed for
** each freed block. */
static int64_t cpu_memory_bytes(int device)
{
  static _Atomic int64_t known;
  if (!known) {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    known = pages > 0 && size > 0 ? (int64_t)pages * size : 0;
  }
  return known;
}

static int cpu_count_cores(void)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) ? 1 : MIN(MAX(CPU_COUNT(&set), 1), 64);
}

static int cpu_open_device(int device) { return TY_OK; }

/* -- memory ------------------------------------------------------------------------------------ */

/* Maps pages aligned to 2 MB; unmaps what the alignment leaves over. */
static char *cpu_map_aligned(size_t bytes, int access)
{
  char *p = sys_map(bytes + HUGE_PAGE, access);
  if (!p) return NULL;
  char *base = (char *)align_up((uintptr_t)p, HUGE_PAGE);
  if (base > p) munmap(p, (size_t)(base - p));
  munmap(base + bytes, (size_t)(p + HUGE_PAGE - base));
  return base;
}

/* Returns whether blocks of this size are mapped rather than taken from the heap. */
static bool cpu_is_mapped(size_t bytes) { return bytes >= MAPPED; }

/* Allocates a block. Returns NULL if the system has no memory. */
static void *cpu_alloc_block(int device, size_t bytes)
{
  size_t align = bytes >= 16 * PAGE ? PAGE : ALIGN, whole = align_up(bytes, PAGE);
  if (!cpu_is_mapped(bytes)) return sys_aligned(align, bytes);
  if (bytes < LARGE_BLOCK) return sys_map(whole, PROT_READ | PROT_WRITE);
  void *p = cpu_map_aligned(whole, PROT_READ | PROT_WRITE);
  if (p) madvise(p, whole / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
  return p;
}

static void cpu_release_block(int device, void *data, size_t bytes)
{
  if (cpu_is_mapped(bytes))
    munmap(data, align_up(bytes, PAGE));
  else
    free(data);
}

/* Zeros a block. Pages of a mapped one are dropped: they come back as zeros when they are
** touched. */
static void cpu_clear_block(void *data, size_t bytes)
{
  size_t pages = cpu_is_mapped(bytes) ? bytes / PAGE * PAGE : 0;
  if (pages && madvise(data, pages, MADV_DONTNEED)) pages = 0;
  memset((char *)data + pages, 0, bytes - pages);
}

/* -- copies ------------------------------------------------------------------------------------ */

struct cpu_copy {
  char *dst;
  const char *src;
  bool streams; /* copy by stream_copy */
};

static void cpu_copy_range(int64_t begin, int64_t end, void *context)
{
  const struct cpu_copy *b = context;
  if (b->streams)
    stream_copy(b->dst + begin, b->src + begin, (size_t)(end - begin));
  else
    memcpy(b->dst + begin, b->src + begin, (size_t)(end - begin));
}

static int cpu_copy_bytes(int dst_device, void *dst, int src_device, const void *src, size_t bytes)
{
  struct cpu_copy b = { dst, src, stream_copy_profitable(bytes) };
  uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;
  int64_t n = (int64_t)bytes, parts = n / COPY_GRAIN + 1, each = n / parts + PAGE;
  if (d < s + bytes && s < d + bytes)
    memmove(dst, src, bytes);
  else
    parallel_chunks(n, each - each % PAGE, cpu_copy_range, &b);
  return TY_OK;
}

static int cpu_fill_bytes(int device, void *data, int value, size_t bytes)
{
  memset(data, value, bytes);
  return TY_OK;
}

static int cpu_convert_elements(
    int device, void *dst, int dst_type, const void *src, int src_type, int64_t n)
{
  dtype_convert(dst, dst_type, src, src_type, n);
  return TY_OK;
}

/* -- ranges ------------------------------------------------------------------------------------ */

/* Returns how much address space to reserve for a range: at least twice the machine's memory; 0
** where address space is limited. */
static size_t range_address_space(size_t bytes)
{
  struct rlimit limit;
  if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY) return 0;
#if defined(__SANITIZE_THREAD__)
  /* the sanitizer needs shadow memory for it */
  return MAX(align_up(bytes, HUGE_PAGE), (size_t)64 << 20);
#else
  size_t all = (size_t)4 << 30;
  while (all < 2 * (size_t)cpu_memory_bytes(0)) all *= 2;
  return MAX(all, align_up(bytes, HUGE_PAGE));
#endif
}

/* Reserves address space for a range, less if the system refuses that much. */
static bool range_reserve(struct range *r, size_t bytes)
{
  for (size_t n = range_address_space(bytes); n >= bytes && n >= (size_t)64 << 20; n /= 2) {
    char *base = cpu_map_aligned(n, PROT_NONE);
    if (!base) continue;
    madvise(base, n, MADV_DONTDUMP);
    r->base = base;
    r->reserved = n;
    return true;
  }
  return false;
}

/* Makes the pages of a range usable up to `bytes`. */
static bool range_commit(struct range *r, size_t bytes)
{
  if (sys_protect(r->base + r->bytes, bytes - r->bytes, PROT_READ | PROT_WRITE)) return false;
  madvise(r->base + r->bytes, bytes - r->bytes, MADV_DODUMP);
  if (bytes >= LARGE_RANGE) madvise(r->base, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
  r->bytes = bytes;
  return true;
}

/* Moves a range that cannot grow in place to other pages. */
static bool range_move(struct range *r, size_t bytes, bool *moved)
{
  struct range to = { r->device, NULL, 0, 0 };
  if (range_reserve(&to, bytes)) {
    if (!range_commit(&to, bytes)) {
      munmap(to.base, to.reserved);
      return false;
    }
  }
  else {
    to.base = sys_map(bytes, PROT_READ | PROT_WRITE);
    if (!to.base) return false;
    to.bytes = to.reserved = bytes;
  }
  if (r->bytes) memcpy(to.base, r->base, r->bytes);
  if (r->base) munmap(r->base, r->reserved);
  *moved = r->base != NULL;
  *r = to;
  return true;
}

static bool cpu_range_grow(struct range *r, size_t bytes, bool *moved)
{
  bytes = align_up(bytes, PAGE);
  if (bytes <= r->bytes) return true;
  if (bytes <= r->reserved) return range_commit(r, bytes);
  return range_move(r, bytes, moved);
}

/* Returns the pages after `bytes` to the system; the address space stays reserved. */
static void cpu_range_trim(struct range *r, size_t bytes)
{
  bytes = align_up(bytes, PAGE);
  if (bytes >= r->bytes) return;
  madvise(r->base + bytes, r->bytes - bytes, MADV_DONTNEED);
  sys_protect(r->base + bytes, r->bytes - bytes, PROT_NONE);
  r->bytes = bytes;
}

static void cpu_range_free(struct range *r)
{
  if (r->base) munmap(r->base, r->reserved);
}

const struct device_ops cpu_ops = {
  .name       = "cpu",
  .count      = cpu_count_cores,
  .open       = cpu_open_device,
  .alloc      = cpu_alloc_block,
  .blank      = MAPPED,
  .clear      = cpu_clear_block,
  .release    = cpu_release_block,
  .copy       = cpu_copy_bytes,
  .fill       = cpu_fill_bytes,
  .convert    = cpu_convert_elements,
  .range_grow = cpu_range_grow,
  .range_trim = cpu_range_trim,
  .range_free = cpu_range_free,
  .memory     = cpu_memory_bytes,
};
