/* memory.c - host allocation, counted and limited; arenas; counts of live objects.
**
** The bytes of tensors are not counted here, but by device/blocks.c.
*/
#include <malloc.h>
#include "base/base.h"
#include "base/gate.h"
#include "base/small.h"
#include "base/system.h"

/* bytes: the limit applies to blocks of this size and more */
enum { SMALL = 65536 };

int64_t mem_bytes(void) { return small_counted(); }

int64_t mem_limit(void)
{
  static int64_t limit = -1; /* 0: none */
  int64_t n = __atomic_load_n(&limit, __ATOMIC_RELAXED);
  if (n >= 0) return n;
  n = MAX(env_number("TYCHO_MEM_LIMIT", 0), 0);
  __atomic_store_n(&limit, n, __ATOMIC_RELAXED);
  return n;
}

int fail_memory(const char *request, size_t bytes, int64_t used, int64_t cached)
{
  char report[256], limit[32] = "none";
  if (mem_limit()) snprintf(limit, sizeof limit, "%lld", (long long)mem_limit());
  snprintf(report, sizeof report,
      "%s: %zu bytes wanted, %lld in use, %lld kept for reuse, limit %s, %lld live tensors, "
      "%lld executors",
      request, bytes, (long long)used, (long long)cached, limit, (long long)ty_live("tensor"),
      (long long)ty_live("exec"));
  error_memory_report(report);
  return fail(TY_EMEMORY, "out of memory");
}

/* Returns whether `bytes` more may be allocated under the limit. */
static bool is_within_limit(size_t bytes)
{
  int64_t limit = mem_limit();
  return bytes < SIZE_MAX / 2 && (bytes < SMALL || !limit || mem_bytes() + (int64_t)bytes <= limit);
}

/* Returns zeroed memory: a kept block (small.h), or a new one from the system. */
static void *take_zeroed(size_t bytes)
{
  void *p = small_take(bytes);
  if (!p) p = calloc(1, small_size(bytes));
  if (!p && small_release()) p = calloc(1, small_size(bytes));
  return p;
}

void *mem_block(size_t bytes)
{
  void *p = is_within_limit(bytes) && !gate_fault(GATE_MEMORY) ? take_zeroed(bytes) : NULL;
  if (!p) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  small_count((int64_t)small_size(bytes));
  return p;
}

void mem_block_free(void *p, size_t bytes)
{
  if (!p) return;
  const size_t size = small_size(bytes);
  small_count(-(int64_t)size);
  if (!small_keep(p, size)) free(p);
}

void *mem_new(size_t bytes)
{
  void *p = is_within_limit(bytes) && !gate_fault(GATE_MEMORY) ? take_zeroed(bytes) : NULL;
  if (!p) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  small_count((int64_t)malloc_usable_size(p));
  return p;
}

/* None is taken from what is kept, so none may be kept: each would stay for ever. */
void *mem_lines(size_t bytes)
{
  void *p = is_within_limit(bytes) ? sys_aligned(ALIGN, small_beyond(bytes ? bytes : 1)) : NULL;
  if (!p) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  small_count((int64_t)malloc_usable_size(p));
  return memset(p, 0, bytes);
}

/* Moves a block of `old` usable bytes to a larger one, which may be a kept block. With realloc each
** larger block would come from the system, and the kept ones would only become more. */
static void *move_small(void *p, size_t old, size_t bytes)
{
  if (bytes <= old) return p;
  void *q = mem_new(bytes);
  if (!q) return NULL;
  memcpy(q, p, old);
  mem_free(p);
  return q;
}

void *mem_grow(void *p, size_t bytes)
{
  if (!p) return mem_new(bytes);
  const size_t usable = malloc_usable_size(p);
  if (small_fits(bytes) && small_fits(usable)) return move_small(p, usable, bytes);
  if (!is_within_limit(bytes) || gate_fault(GATE_MEMORY))
    return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  void *q = realloc(p, bytes ? bytes : 1);
  if (!q) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  small_count((int64_t)malloc_usable_size(q) - (int64_t)usable);
  return q;
}

void mem_free(void *p)
{
  if (!p) return;
  const size_t usable = malloc_usable_size(p);
  small_count(-(int64_t)usable);
  if (!small_keep(p, usable)) free(p);
}

char *mem_text(const char *s)
{
  size_t n = strlen(s) + 1;
  char *copy = mem_new(n);
  return copy ? memcpy(copy, s, n) : NULL;
}

bool grow_array(void **p, int n, int *cap, size_t size)
{
  if (n < *cap) return true;
  int more = *cap ? *cap * 2 : 8;
  if (*cap > 1 << 29) return fail(TY_EMEMORY, "out of memory: array of %d elements", *cap), false;
  void *q = mem_grow(*p, (size_t)more * size);
  if (!q) return false;
  *p = q;
  *cap = more;
  return true;
}

/* bytes of an arena's largest blocks: on average half of the last one is unused */
enum { ARENA_BLOCK = 16384 };

/* Blocks double in size up to ARENA_BLOCK, so that a small graph costs one kilobyte and a large one
** few blocks. Memory larger than the next block gets a block of its own, put after the one that is
** being filled. Texts need no alignment: they fill a block from its end, without padding. */
struct arena_block {
  struct arena_block *next;
  size_t used, end, size;
  _Alignas(16) char bytes[];
};

static struct arena_block *block_with(struct arena *a, size_t bytes)
{
  struct arena_block *b = a->head;
  if (b && b->end - b->used >= bytes) return b;
  size_t size = b ? MIN(b->size * 2, ARENA_BLOCK - sizeof *b) : 1024 - sizeof *b;
  struct arena_block *more = mem_new(sizeof *more + MAX(size, bytes)),
                     **at = b && bytes > size ? &b->next : &a->head;
  if (!more) return NULL;
  a->bytes += sizeof *more + MAX(size, bytes);
  more->size = more->end = MAX(size, bytes);
  more->next = *at;
  return *at = more;
}

void *arena_new(struct arena *a, size_t bytes)
{
  if (bytes > SIZE_MAX / 4) return fail_memory("host", bytes, mem_bytes(), 0), NULL;
  const size_t align = bytes > 8 ? 16 : 8;
  bytes = align_up(bytes ? bytes : 1, align);
  struct arena_block *b = block_with(a, bytes + align - 8); /* `used` is a multiple of 8 */
  if (!b) return NULL;
  char *p = b->bytes + align_up(b->used, align);
  b->used = (size_t)(p - b->bytes) + bytes;
  return p;
}

char *arena_chars(struct arena *a, size_t n)
{
  struct arena_block *b = block_with(a, n);
  return b ? b->bytes + (b->end -= n) : NULL;
}

char *arena_text(struct arena *a, const char *s)
{
  size_t n = strlen(s) + 1;
  char *copy = arena_chars(a, n);
  return copy ? memcpy(copy, s, n) : NULL;
}

void arena_done(struct arena *a)
{
  for (struct arena_block *b = a->head, *next; b; b = next) {
    next = b->next;
    mem_free(b);
  }
  *a = (struct arena){ 0 };
}

/* -- live objects ------------------------------------------------------------------------------ */

static const char *const kinds[LIVE_KINDS] = { "tensor", "graph", "exec", "pool", "iter", "bag",
  "storage", "history", "recorded" };
static int64_t counts[LIVE_KINDS], native_bytes;

static int left;
bool mem_kept(void) { return __atomic_load_n(&left, __ATOMIC_RELAXED); }
void ty_leave(void) { __atomic_store_n(&left, 1, __ATOMIC_RELAXED); }

void live_add(int kind, int by) { __atomic_add_fetch(&counts[kind], by, __ATOMIC_RELAXED); }
void live_bytes(int64_t by) { __atomic_add_fetch(&native_bytes, by, __ATOMIC_RELAXED); }

const int64_t *ty_live_at(const char *kind)
{
  if (kind && !strcmp(kind, "bytes")) return &native_bytes;
  for (int i = 0; kind && i < LIVE_KINDS; i++)
    if (!strcmp(kind, kinds[i])) return &counts[i];
  return NULL;
}

int64_t ty_live(const char *kind)
{
  const int64_t *count = ty_live_at(kind);
  return count ? __atomic_load_n(count, __ATOMIC_RELAXED) : -1;
}
