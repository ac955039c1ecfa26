/* driver.h - what the files of the driver's stand-in share.
**
** One lock guards all state. Work that is submitted to a stream becomes an Op in the stream's
** queue. A thread that waits runs Ops of all streams, in a random order among those that are
** allowed (queue.cc), so the host is always far ahead, and work without an order runs in any
** order. */
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>
#include "abi.h"

#define API extern "C" __attribute__((visibility("default"))) CUresult
enum { DEVICES = 16 };
typedef std::unique_lock<std::mutex> Lock;

/* -- entering a function of the interface (call.cc) -------------------------------------------- */

enum Needs {
  NOTHING = 0,
  CONTEXT = 1,                              /* a current context, on which nothing failed */
  UNSAFE  = 2,                              /* not while a stream of this thread captures */
  ENDING  = 4                               /* releases something: works after failures */
};

/* Begins every function of the interface: takes the lock and checks what the function needs. If
** code is not 0, the function returns it. */
struct Call {
  Lock lock;
  CUresult code;
  const char *name;
  Call(const char *name, int needs);
  ~Call();                                            /* eager: runs the submitted work */
};
#define ENTER(needs) \
  Call call(__func__, needs); \
  if (call.code) return call.code
#define NEED(x, code) \
  do { \
    if (!(x)) return code; \
  } while (0)
/* like NEED, for conditions that a correct program never breaks: reports on stderr and counts */
#define RULE(x, code, ...)                                       \
  do {                                                           \
    if (!(x)) return report_misuse(code, __func__, __VA_ARGS__); \
  } while (0)
CUresult report_misuse(CUresult code, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reports a fault of a device's work on stderr and keeps it for cuGetErrorString. It is sticky.
** Returns code. */
CUresult report_fault(CUresult code, const std::string &why);
/* Returns a random number in 0 .. n - 1, by CUDASIM_SEED. */
size_t choose_below(size_t n);
const char *find_setting(const char *name, const char *otherwise);
/* Returns whether kernels and calls of libraries are counted and not done (CUDASIM_DRY). */
bool runs_dry();

/* -- devices and contexts (device.cc) ---------------------------------------------------------- */

struct CUctx_st {
  int device, retained;
  CUresult error;                                     /* sticky */
  size_t used, total;
  std::set<int> peers;                                /* devices whose memory it may touch */
};
CUctx_st &context_of(int device);
CUctx_st *current_context();                          /* of this thread; or NULL */
int device_count();
bool devices_are_peers();                             /* CUDASIM_PEERS */

/* -- memory (arena.cc, memory.cc, physical.cc) ------------------------------------------------- */

/* existing device memory, by address; one access may span adjacent ranges */
struct Range { size_t bytes; int device; bool fixed; };
/* Takes address space that was never used before, or long ago, with a gap after it. */
char *arena_take(size_t bytes);
/* Gives address space back; none of it is used again soon. */
void arena_give(char *p, size_t bytes);
/* Returns whether an address is in the arena, allocated or not, or in a variable of a module. */
bool is_device_address(const void *p);
/* Adds a range of device memory. fixed: variables of a module, which neither move nor change
** owner. */
void range_add(char *p, size_t bytes, int device, bool fixed = false);
void range_remove(char *p);
bool ranges_hold(const void *p, size_t bytes);
/* Returns the device that owns the byte; -1: none. */
int range_device(const void *p);
/* Returns whether a device has access to a byte, which may be another device's. */
bool device_reaches(int device, const void *p);
/* Allows accesses to device memory by this process, or forbids all of them. */
void set_gate(bool open);
/* Fills fresh memory with NaNs. */
void spoil_memory(char *p, size_t bytes);
bool is_pinned(const void *p, size_t bytes);
std::string describe_address(const void *p);

/* -- work (queue.cc) --------------------------------------------------------------------------- */

struct Queue;
/* a point of a queue: passed when its work up to there is done */
struct Mark { std::shared_ptr<Queue> queue; uint64_t number = 0; };
typedef std::function<CUresult()> Work;
struct Op {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Work work;
  std::vector<Mark> after;
  std::function<bool()> ready;                        /* set by work that waits for other ranks */
  uint64_t number = 0;                                /* in its queue */
  uint64_t given = 0;                                 /* in the process */
};
struct Queue {
  int device;
  bool blocking;                                      /* in order with the default stream */
  uint64_t given = 0, done = 0;
  std::deque<Op> ops;
};
std::shared_ptr<Queue> queue_new(int device, bool blocking);
void queue_drop(const std::shared_ptr<Queue> &q);
bool has_passed(const Mark &m);
Mark end_of(const std::shared_ptr<Queue> &q);
void queue_give(const std::shared_ptr<Queue> &q, Op op);
/* Runs work until the mark is passed. Releases the lock meanwhile. */
CUresult queue_wait(Lock &lock, const Mark &m);
CUresult queue_wait_all(Lock &lock, int device);
/* Runs one Op, so that a host that polls makes progress. */
void queue_poll(Lock &lock);
/* Runs a host function as part of an Op. */
void run_host(CUhostFn f, void *data);

/* -- streams, events, graphs ------------------------------------------------------------------- */

struct Capture;
struct CUstream_st {
  int device;
  std::shared_ptr<Queue> queue;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> last;                           /* nodes that the next one follows */
};
struct CUevent_st {
  int device;
  bool timed;
  Mark mark;
  std::shared_ptr<double> time;                       /* of the last record, in ms */
  std::weak_ptr<Capture> capture;                     /* recorded while capturing: */
  bool captured = false;
  std::vector<size_t> nodes;
};
/* Returns the stream of a handle (0, 1 and 2 are default streams); NULL: it is freed or was never
** made. */
CUstream_st *find_stream(CUstream s);
/* Queues an Op on a stream that does not capture. */
CUresult give_op(CUstream_st *s, Op op);
/* Queues work on the stream, or adds it as a node to the graph that the stream captures. */
CUresult submit_work(CUstream_st *s, CUgraphNodeType type, Work work);
std::set<CUstream_st *> &list_streams();

/* capture.cc */
CUresult capture_node(CUstream_st *s, CUgraphNodeType type, Work work);
CUresult capture_wait(CUstream_st *s, CUevent_st *e);
/* Invalidates the captures that do not allow this call of an unsafe function. Returns 0, or the
** error for the call. */
CUresult capture_check_unsafe(const char *function);
CUresult capture_refuse(CUstream_st *s, const char *function);
bool any_capture(int device);

/* -- modules (module.cc) ----------------------------------------------------------------------- */

struct cudasim_kernel;
struct CUmod_st;
struct CUfunc_st {
  CUmod_st *module;
  const cudasim_kernel *kernel;
  std::string name;
  int max_dynamic;
};
struct CUmod_st {
  void *so;                                           /* NULL: nothing of it runs */
  int device;
  char *base, *variables;                             /* its address; that of its writable part */
  char *shared;
  size_t shared_bytes;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};
bool function_lives(const CUfunc_st *f);

/* -- what tests ask ---------------------------------------------------------------------------- */

struct Counts {
  uint64_t launches, copies, fills, graphs, allocations, findings, waits, overtakes, staged, slower;
};
extern Counts counts;
/* Notes what was done and the bytes of device memory that it read and wrote (CUDASIM_COSTS). */
void note_cost(const std::string &name, uint64_t read, uint64_t written);

/* live objects of each kind, for checks of handles and for the report of leaks */
template <class T> struct Registry {
  std::set<T *> live;
  T *add(T *p)
  {
    live.insert(p);
    return p;
  }
  bool has(const T *p) const { return live.count((T *)p) != 0; }
};
extern Registry<CUevent_st> events;
extern Registry<CUgraph_st> graphs;
extern Registry<CUgraphExec_st> graph_execs;
extern Registry<CUmod_st> modules;
