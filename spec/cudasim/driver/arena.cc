/* arena.cc - address space of device memory, and access to it. Ranges have gaps between them, so
** that an access outside of one faults. While no device works the host has no access either: if it
** touches device memory, its call stack is printed and the process ends. Addresses are reused only
** after all others. */
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../run/check.h"
#include "../run/run.h"
#include "state.h"

/* bytes of a page and of a gap; ranges up to which new ones have gaps */
enum { PAGE = 4096, GAP = 64 << 10, APART = 8192 };
static char *arena, *fresh;
static size_t arena_bytes;
static std::deque<std::pair<char *, size_t>> &given_back = *new std::deque<std::pair<char *, size_t>>;
static std::map<const char *, Range> &ranges = *new std::map<const char *, Range>;
static bool is_open, is_gated;

/* Returns the first page of a range, which shares its pages with no other. */
static char *first_page(const char *p) { return (char *)((uintptr_t)p & ~(uintptr_t)(PAGE - 1)); }
static size_t count_pages(const char *p, size_t bytes)
{
  return (size_t)(first_page(p + bytes + PAGE - 1) - first_page(p));
}

/* -- address space ----------------------------------------------------------------------------- */

static bool arena_has(const void *p) { return (size_t)((const char *)p - arena) < arena_bytes; }

char *arena_take(size_t bytes)
{
  /* a range with a gap is two mappings, of which a process has some 65,000 */
  bool apart = ranges.size() < APART;
  size_t whole = apart ? (bytes + GAP - 1) / GAP * GAP + GAP : (bytes + PAGE - 1) / PAGE * PAGE;
  if (whole <= arena_bytes - (size_t)(fresh - arena)) {
    char *p = fresh;
    fresh += whole;
    return p;
  }
  auto best = given_back.end();
  for (auto i = given_back.begin(); i != given_back.end(); ++i)
    if (i->second >= bytes && (best == given_back.end() || i->second < best->second)) best = i;
  if (best == given_back.end()) return nullptr;
  char *p = best->first;
  if (best->second > 2 * whole) { /* splits a large one */
    *best = { p + whole, best->second - whole };
    return p;
  }
  given_back.erase(best);
  return p;
}

void arena_give(char *p, size_t bytes) { given_back.push_back({ p, bytes }); }

/* -- ranges ------------------------------------------------------------------------------------ */

static void protect_range(const char *p, const Range &r, bool open)
{
  if (r.fixed) return;
  mprotect(first_page(p), count_pages(p, r.bytes), open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void range_add(char *p, size_t bytes, int device, bool fixed)
{
  ranges[p] = { bytes, device, fixed };
  if (!fixed) check_memory(p, bytes, true);
  if (is_gated && !is_open) protect_range(p, ranges[p], false);
}

void range_remove(char *p)
{
  auto at = ranges.find(p);
  if (at == ranges.end()) return;
  Range r = at->second;
  ranges.erase(at);
  if (r.fixed) return;
  check_memory(p, r.bytes, false);
  mmap(first_page(p), count_pages(p, r.bytes), PROT_NONE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static std::map<const char *, Range>::iterator find_range(const void *p)
{
  auto at = ranges.upper_bound((const char *)p);
  if (at == ranges.begin()) return ranges.end();
  --at;
  return (const char *)p < at->first + at->second.bytes ? at : ranges.end();
}

int range_device(const void *p)
{
  auto at = find_range(p);
  return at == ranges.end() ? -1 : at->second.device;
}

bool is_device_address(const void *p) { return arena_has(p) || range_device(p) >= 0; }

bool ranges_hold(const void *p, size_t bytes)
{
  const char *from = (const char *)p, *end = from + bytes;
  while (from < end) {
    auto at = find_range(from);
    if (at == ranges.end()) return false;
    from = at->first + at->second.bytes;
  }
  return true;
}

std::string describe_address(const void *p)
{
  char text[160];
  auto next = ranges.upper_bound((const char *)p);
  if (next == ranges.begin()) return "no allocation is before it";
  auto at = std::prev(next);
  size_t offset = (size_t)((const char *)p - at->first);
  if (offset < at->second.bytes)
    snprintf(text, sizeof text, "byte %zu of an allocation of %zu on device %d", offset,
        at->second.bytes, at->second.device);
  else
    snprintf(text, sizeof text, "%zu bytes after the end of an allocation of %zu on device %d",
        offset - at->second.bytes, at->second.bytes, at->second.device);
  return text;
}

void spoil_memory(char *p, size_t bytes)
{
  static const size_t most = strtoull(find_setting("CUDASIM_SPOIL", "67108864"), nullptr, 0);
  memset(p, 0xff, bytes < most ? bytes : most);
}

/* -- the gate ---------------------------------------------------------------------------------- */

void set_gate(bool open)
{
  if (!is_gated || is_open == open) return;
  is_open = open;
  for (auto &r : ranges) protect_range(r.first, r.second, open);
}

/* Reports that the host touches device memory, and ends the process: on a GPU it could not read
** there. */
static void host_touched(const void *p)
{
  void *at[32];
  char text[256];
  int n = backtrace(at, 32);
  int len = snprintf(text, sizeof text, "cudasim: the host touches device memory at %p: %s\n", p,
      describe_address(p).c_str());
  if (write(2, text, (size_t)len) > 0) backtrace_symbols_fd(at + 2, n > 2 ? n - 2 : 0, 2);
  _exit(97);
}

static struct sigaction former;

static void handle_fault(int number, siginfo_t *info, void *context)
{
  const void *p = info->si_addr;
  char text[256];
  snprintf(text, sizeof text, "an access at %p (%s)", p,
      arena_has(p) ? describe_address(p).c_str() : "not device memory");
  run_fault(text);                                    /* does not return to here from a kernel */
  if (arena_has(p)) host_touched(p);
  if (former.sa_flags & SA_SIGINFO && former.sa_sigaction)
    former.sa_sigaction(number, info, context);
  else
    signal(SIGSEGV, SIG_DFL);
}

void start_memory()
{
  /* the checker reserves 24 more bytes per byte: 20 of cells, 1 of state, 3 of `touched` */
  int bits = atoi(find_setting("CUDASIM_CHECK", "0")) ? 37 : 40;
  for (arena_bytes = (size_t)1 << bits; arena_bytes >= (size_t)1 << 32; arena_bytes /= 2) {
    void *p = mmap(nullptr, arena_bytes, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    arena = fresh = p == MAP_FAILED ? nullptr : (char *)p;
    if (arena) break;
  }
  if (!arena) {
    fprintf(stderr, "cudasim: no address space\n");
    abort();
  }
  is_gated = atoi(find_setting("CUDASIM_GUARD", "1"));
  check_arena(arena, arena_bytes);
  struct sigaction a = {};
  a.sa_sigaction = handle_fault;
  a.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &a, &former);
}
