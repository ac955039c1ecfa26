/* check.cc - watches every access of sources compiled with -fsanitize=thread (CUDASIM_CHECK=1): the
** functions that the compiler calls are here instead of in ThreadSanitizer's library, which is not
** linked.
**
** It finds accesses outside of allocations, to the byte; accesses to host memory; misalignment;
** reads of memory that was never written; and races: two accesses to one place in one launch, one
** of them a plain write, by two blocks, or by two threads of a block without a barrier between them
** (in a warp: without a warp operation). Each word of memory has marks of its last writer and its
** last reader, which also say that there were several. */
#include "check.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <algorithm>
#include <list>
#include <mutex>
#include "run.h"

/* -- state of memory --------------------------------------------------------------------------- */

struct Mark {
  uint32_t launch, block, epoch;
  uint16_t step;                                      /* warp operations since the barrier */
  uint16_t thread : 10, atomic : 1, threads : 1, blocks : 1;  /* several threads, several blocks */
  uint8_t bytes;                                      /* of its word of four */
};
struct Cell { Mark written, read; };                  /* two of a word of four bytes */
enum State : uint8_t { NOWHERE, THERE, WRITTEN };

/* Cells of a piece of memory, and the state of each byte. shared: separate for each block. */
struct Area {
  const char *from; size_t bytes;
  Cell *cells; State *state;
  bool shared;
  bool has(const char *p) const { return (size_t)(p - from) < bytes; }
};

static bool watching;
/* of a word of four bytes: the last launches that read and wrote it, and masks of the bytes */
struct Touched { uint32_t reading, writing; uint8_t read, written; };
static Touched *touched;                              /* of the arena, per word */
static Moved moved;                                   /* by the launch that runs, or ran last */
static Area arena, dynamic;
/* Modules are loaded while kernels run: their lists are read and changed under a lock, and entries
** stay where they are. */
static std::mutex &modules = *new std::mutex;
typedef std::unique_lock<std::mutex> Lock;
static std::list<Area> &variables = *new std::list<Area>;       /* of modules */
struct Span { const char *from; size_t bytes; };
static std::list<Span> &constants = *new std::list<Span>;
static Span parameters, shared;                       /* of the launch */
static Place now;

static void *reserve_memory(size_t bytes)
{
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    perror("cudasim: the checker's memory");
    abort();
  }
  return p;
}

static Area new_area(const char *p, size_t bytes, bool is_shared)
{
  Area a = { p, bytes, (Cell *)reserve_memory((bytes / 2 + 4) * sizeof(Cell)),
    (State *)reserve_memory(bytes + 16), is_shared };
  return a;
}

static void drop_area(const Area &a)
{
  munmap(a.cells, (a.bytes / 2 + 4) * sizeof(Cell));
  munmap(a.state, a.bytes + 16);
}

/* -- notes of the host's side ------------------------------------------------------------------ */

void check_arena(const char *p, size_t bytes)
{
  const char *e = getenv("CUDASIM_CHECK");
  watching = e && atoi(e);
  if (!watching) return;
  arena = new_area(p, bytes, false);
  dynamic = new_area((const char *)cudasim_dynamic, MAX_DYNAMIC, true);
  touched = (Touched *)reserve_memory((bytes / 4 + 1) * sizeof(Touched));
}

static void set_state(const char *p, size_t bytes, State state)
{
  if (watching && arena.has(p)) memset(arena.state + (p - arena.from), state, bytes);
}

void check_memory(const char *p, size_t bytes, bool there)
{
  set_state(p, bytes, there ? THERE : NOWHERE);
}
void check_written(const void *p, size_t bytes) { set_state((const char *)p, bytes, WRITTEN); }

bool check_read(const void *p, size_t bytes)
{
  const char *from = (const char *)p;
  if (!watching || !arena.has(from)) return true;
  const State *s = arena.state + (from - arena.from);
  for (size_t i = 0; i < bytes; i++)
    if (s[i] != WRITTEN) return false;
  return true;
}

void check_copied(const void *to, const void *from, size_t bytes)
{
  const char *t = (const char *)to, *f = (const char *)from;
  if (!watching || !arena.has(t)) return;
  if (arena.has(f))
    memmove(arena.state + (t - arena.from), arena.state + (f - arena.from), bytes);
  else
    set_state(t, bytes, WRITTEN);
}

void check_module(const char *p, size_t bytes, bool writable)
{
  if (!watching) return;
  Lock own(modules);
  if (!writable) {
    constants.push_back({ p, bytes });
    return;
  }
  Area a = new_area(p, bytes, false);
  memset(a.state, WRITTEN, bytes);
  variables.push_back(a);
}

void check_unload(const char *base)
{
  Lock own(modules);
  variables.remove_if([base](const Area &a) {
    if (a.from == base) drop_area(a);
    return a.from == base;
  });
}

void check_parameters(const void *p, size_t bytes) { parameters = { (const char *)p, bytes }; }

void check_launch(const Launch &l)
{
  if (!watching) return;
  moved = {};
  shared = { l.shared, l.shared_bytes };
  dynamic.bytes = l.dynamic;
}

void check_block(void)
{
  if (!watching) return;
  memset(dynamic.state, THERE, dynamic.bytes);
  Lock own(modules);
  for (const Area &a : variables)
    if (shared.bytes && a.has(shared.from))
      memset(a.state + (shared.from - a.from), THERE, shared.bytes);
}

/* -- reports ----------------------------------------------------------------------------------- */

/* Returns file:line of an address in compiled code. */
static std::string source_line(const void *pc)
{
  Dl_info i = {};
  char command[640], text[256] = "";
  if (!dladdr(pc, &i) || !i.dli_fname) return "?";
  snprintf(command, sizeof command, "addr2line -e '%s' 0x%lx 2>/dev/null", i.dli_fname,
      (unsigned long)((const char *)pc - (const char *)i.dli_fbase) - 1);
  FILE *f = popen(command, "r");
  if (f && !fgets(text, sizeof text, f)) text[0] = 0;
  if (f) pclose(f);
  std::string line(text, strcspn(text, "\n"));
  size_t slash = line.rfind('/');
  if (slash != std::string::npos) line = line.substr(slash + 1);
  return line.empty() || line[0] == '?' ? i.dli_sname ? i.dli_sname : "?" : line;
}

static void report_access(const char *what, const char *p, int n, const void *pc)
{
  if (launch_broken()) return;
  std::string where = arena.has(p) ? describe_address(p)
      : dynamic.has(p) || (size_t)(p - shared.from) < shared.bytes ? "shared memory"
                                                                   : "not device memory";
  run_report("%s: %s, %d bytes by block %u, thread %d (%s)", source_line(pc).c_str(), what, n,
      now.block, now.thread, where.c_str());
}

/* -- races ------------------------------------------------------------------------------------- */

/* Returns whether a marked access is ordered before the current one, or is of the same thread. */
static bool is_ordered(const Mark &m, bool is_shared)
{
  if (m.launch != now.launch) return true;
  if (m.block != now.block || m.blocks) return is_shared;
  if (m.epoch != now.epoch) return true;
  if (m.threads) return false;
  bool same_warp = m.thread / 32 == now.thread / 32;
  return m.thread == now.thread || (same_warp && m.step != now.warp_epoch);
}

struct Access { const char *p; int n; bool write, atomic; const void *pc; };

static void compare_access(const Cell &c, const Access &a, unsigned bytes, bool is_shared)
{
  const Mark &w = c.written, &r = c.read;
  if (w.bytes & bytes && !(a.atomic && w.atomic) && !is_ordered(w, is_shared))
    report_access(a.write ? "a race of two writes" : "a race: a read of what another thread writes",
        a.p, a.n, a.pc);
  if (a.write && r.bytes & bytes && !(a.atomic && r.atomic) && !is_ordered(r, is_shared))
    report_access("a race: a write of what another thread reads", a.p, a.n, a.pc);
}

/* Replaces a mark by one of this access, which notes other threads and blocks since a barrier. */
static void mark_access(Mark *m, const Access &a, unsigned bytes, bool is_shared)
{
  Mark me = { now.launch, now.block, now.epoch, (uint16_t)now.warp_epoch, 0, 0, 0, 0,
    (uint8_t)bytes };
  bool fresh = m->launch != now.launch || !(m->bytes & bytes);  /* keeps the last of two bytes */
  bool other_block = !fresh && m->block != now.block;
  /* before a barrier, or in shared memory of another block */
  bool past = fresh || (other_block ? is_shared : !m->blocks && m->epoch != now.epoch);
  me.thread = (unsigned)now.thread & 1023;
  me.atomic = a.atomic && (past || m->atomic || a.write);
  me.blocks = !fresh && (m->blocks || other_block);
  me.threads = !fresh && !other_block && m->epoch == now.epoch &&
      (m->threads || m->thread != me.thread);
  *m = me;
}

/* Checks an access to at most four bytes of one aligned word. */
static void check_word(const Area &area, const Access &a, bool is_shared)
{
  size_t at = (size_t)(a.p - area.from);
  Cell *first = &area.cells[at / 4 * 2], *own = first + (at >> 1 & 1);
  unsigned bytes = ((1u << a.n) - 1) << (at & 3);
  compare_access(first[0], a, bytes, is_shared);
  compare_access(first[1], a, bytes, is_shared);
  mark_access(a.write ? &own->written : &own->read, a, bytes, is_shared);
}

/* -- bytes ------------------------------------------------------------------------------------- */

Moved check_moved(void) { return moved; }

/* Counts bytes of the arena that this launch has not read, or written, before. */
static void count_bytes(const Access &a)
{
  for (size_t at = (size_t)(a.p - arena.from), end = at + (size_t)a.n; at < end;) {
    Touched *t = &touched[at / 4];
    const size_t n = std::min(4 - at % 4, end - at);
    const unsigned bytes = ((1u << n) - 1) << at % 4;
    uint32_t *launch = a.write ? &t->writing : &t->reading;
    uint8_t *seen = a.write ? &t->written : &t->read;
    if (*launch != now.launch) *seen = 0;
    *launch = now.launch;
    (a.write ? moved.written : moved.read) += (unsigned)__builtin_popcount(bytes & ~*seen);
    *seen |= (uint8_t)bytes;
    at += n;
  }
}

/* -- accesses ---------------------------------------------------------------------------------- */

static const Area *find_area(const char *p)
{
  if (arena.has(p)) return &arena;
  if (dynamic.has(p)) return &dynamic;
  Lock own(modules);
  for (const Area &a : variables)
    if (a.has(p)) return &a;
  return nullptr;
}

static bool may_read(const char *p)
{
  if ((size_t)(p - parameters.from) < parameters.bytes) return true;
  Lock own(modules);
  for (const Span &s : constants)
    if ((size_t)(p - s.from) < s.bytes) return true;
  return false;
}

/* Reports bytes that are not allocated, or read and not written. Marks bytes as written. */
static bool is_there(const Area &area, const Access &a)
{
  State *s = area.state + (a.p - area.from);
  for (int i = 0; i < a.n; i++) {
    if (s[i] == NOWHERE) {
      report_access(a.write ? "a write out of bounds" : "a read out of bounds", a.p, a.n, a.pc);
      return false;
    }
    if (!a.write && s[i] == THERE) {
      report_access("a read of what was never written", a.p, a.n, a.pc);
      return false;
    }
  }
  if (a.write) memset(s, WRITTEN, (size_t)a.n);
  return true;
}

/* Checks an access of a kernel. Accesses to its stack and to the stand-in itself are allowed. */
static void check_access(const Access &a)
{
  if (run_owns(a.p)) return;
  now = run_place();
  if (now.thread < 0 || (size_t)(a.p - now.stack) < now.stack_bytes) return;
  if ((uintptr_t)a.p % (unsigned)a.n) report_access("a misaligned access", a.p, a.n, a.pc);
  const Area *area = find_area(a.p);
  if (!area) {
    if ((!a.write && may_read(a.p)) || is_pinned(a.p, (size_t)a.n)) return;
    report_access(a.write ? "a write outside of device memory" : "a read outside of device memory",
        a.p, a.n, a.pc);
    return;
  }
  bool is_shared = area->shared || (size_t)(a.p - shared.from) < shared.bytes;
  if (!is_there(*area, a)) return;
  if (area == &arena) count_bytes(a);
  for (int i = 0; i < a.n; i += 4)
    check_word(*area, { a.p + i, a.n < 4 ? a.n : 4, a.write, a.atomic, a.pc }, is_shared);
}

/* -- what the compiler calls ------------------------------------------------------------------- */

#define HOOK extern "C" __attribute__((visibility("default"))) void
#define HERE __builtin_return_address(0)

HOOK cudasim_atomic(const volatile void *p, int n)
{
  if (!watching) return;
  check_access({ (const char *)p, n, false, true, HERE });
  check_access({ (const char *)p, n, true, true, HERE });
}

#define ACCESS(n)                                                                              \
  HOOK __tsan_read##n(const char *p) { check_access({ p, n, false, false, HERE }); }           \
  HOOK __tsan_write##n(const char *p) { check_access({ p, n, true, false, HERE }); }           \
  HOOK __tsan_unaligned_read##n(const char *p) { check_access({ p, n, false, false, HERE }); } \
  HOOK __tsan_unaligned_write##n(const char *p) { check_access({ p, n, true, false, HERE }); } \
  HOOK __tsan_volatile_read##n(const char *p) { check_access({ p, n, false, false, HERE }); }  \
  HOOK __tsan_volatile_write##n(const char *p) { check_access({ p, n, true, false, HERE }); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

HOOK __tsan_read_range(const char *p, unsigned long n)
{
  for (unsigned long i = 0; i < n; i++) check_access({ p + i, 1, false, false, HERE });
}
HOOK __tsan_write_range(const char *p, unsigned long n)
{
  for (unsigned long i = 0; i < n; i++) check_access({ p + i, 1, true, false, HERE });
}
HOOK __tsan_init(void) {}
HOOK __tsan_func_entry(void *) {}
HOOK __tsan_func_exit(void) {}
HOOK __tsan_vptr_update(void **, void *) {}
HOOK __tsan_vptr_read(void **) {}
