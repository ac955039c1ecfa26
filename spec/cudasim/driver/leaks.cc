/* leaks.cc - objects that are left at exit. CUDASIM_LEAKS=1 reports them; CUDASIM_STRICT=1 gives a
** process with findings (or such leaks) the exit status 97. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "state.h"

size_t live_allocations();
size_t live_pinned();
size_t live_pieces();
size_t live_reservations();

struct Kind { std::string name; size_t live; };

static std::vector<Kind> list_kinds()
{
  std::vector<Kind> all = { { "allocations", live_allocations() },
    { "pinned allocations", live_pinned() }, { "pieces of memory", live_pieces() },
    { "reserved ranges", live_reservations() }, { "streams", list_streams().size() },
    { "events", events.live.size() }, { "modules", modules.live.size() },
    { "graphs", graphs.live.size() }, { "instantiated graphs", graph_execs.live.size() } };
  for (auto &k : library_objects()) all.push_back({ k.first, (size_t)k.second });
  return all;
}

/* Returns how many objects of a kind (a word of `kinds`) are alive; -1: no such kind. For tests. */
extern "C" __attribute__((visibility("default"))) long cudasim_live(const char *name)
{
  Lock lock(state.lock);
  for (const Kind &k : list_kinds())
    if (k.name == name) return (long)k.live;
  return -1;
}

static void at_exit()
{
  bool leaks = atoi(find_setting("CUDASIM_LEAKS", "0")), bad = counts.findings > 0;
  for (const Kind &k : list_kinds()) {
    if (!leaks || !k.live) continue;
    fprintf(stderr, "cudasim: at the end %zu %s are left\n", k.live,
        k.name.c_str());
    bad = true;
  }
  if (!bad || !atoi(find_setting("CUDASIM_STRICT", "0"))) return;
  fflush(nullptr);
  _exit(97);
}

void start_leaks() { atexit(at_exit); }
