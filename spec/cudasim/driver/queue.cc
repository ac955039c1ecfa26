/* queue.cc - the work of all streams, and the threads that run it. Nothing runs before a wait; the
** waiting thread then runs what may run, in a random order, up to what it waits for. So the host is
** far ahead of its devices, and work without an order runs in any order. An extra thread runs work
** that has been queued for some milliseconds, since a program may also wait for a host function.
** CUDASIM_STREAMS=eager runs work when it is submitted: faster, but missing waits are not found. */
#include <chrono>
#include <thread>
#include <unistd.h>
#include "state.h"

static std::vector<std::shared_ptr<Queue>> &queues = *new std::vector<std::shared_ptr<Queue>>;
static bool eager, busy;                              /* busy: an Op runs, the lock is free */
static uint64_t steps, pending, given;

/* -- queues ------------------------------------------------------------------------------------ */

std::shared_ptr<Queue> queue_new(int device, bool blocking)
{
  auto q = std::make_shared<Queue>();
  q->device = device;
  q->blocking = blocking;
  queues.push_back(q);
  return q;
}

void queue_drop(const std::shared_ptr<Queue> &q)
{
  for (size_t i = 0; i < queues.size(); i++)
    if (queues[i] == q) {
      queues.erase(queues.begin() + (long)i);
      return;
    }
}

bool has_passed(const Mark &m) { return !m.queue || m.queue->done >= m.number; }
Mark end_of(const std::shared_ptr<Queue> &q) { return { q, q->given }; }

static bool is_next(const Queue &q)
{
  if (q.ops.empty()) return false;
  for (const Mark &m : q.ops.front().after)
    if (!has_passed(m)) return false;
  return true;
}

static bool can_run(const Queue &q)
{
  return is_next(q) && (!q.ops.front().ready || q.ops.front().ready());
}

/* Returns whether the next work of some queue waits for another thread or process. */
static bool others_may_come()
{
  for (auto &q : queues)
    if (is_next(*q) && q->ops.front().ready) return true;
  return false;
}

/* -- running ----------------------------------------------------------------------------------- */

/* Returns whether an Op that runs now overtakes kernels of its device that were submitted
** earlier. */
static bool may_overtake(const Op &op, int device)
{
  for (auto &q : queues)
    for (const Op &other : q->ops) {
      bool kernels = other.type == CU_GRAPH_NODE_TYPE_KERNEL || other.type == CU_GRAPH_NODE_TYPE_GRAPH;
      if (kernels && q->device == device && other.given < op.given) return true;
    }
  return false;
}

/* Runs one Op of a queue that can run; false: there is none. */
static bool run_op(Lock &lock)
{
  std::vector<std::shared_ptr<Queue>> able;
  for (auto &q : queues)
    if (can_run(*q)) able.push_back(q);
  if (able.empty()) return false;
  auto q = able[choose_below(able.size())];
  Op op = std::move(q->ops.front());
  q->ops.pop_front();
  counts.overtakes += op.type == CU_GRAPH_NODE_TYPE_MEMCPY && may_overtake(op, q->device);
  CUctx_st &c = context_of(q->device);
  busy = true;
  set_gate(true);
  lock.unlock();
  CUresult r = c.error || !op.work ? c.error : op.work();
  op.work = nullptr;                                  /* destructors in it may take the lock */
  op.ready = nullptr;
  lock.lock();
  if (r && !c.error) c.error = r;
  busy = false;
  steps++;
  pending--;
  q->done = op.number;
  state.changed.notify_all();
  return true;
}

/* Runs an Op, or waits for the thread that runs one; false: there is none. */
static bool advance_queues(Lock &lock)
{
  if (!busy) return run_op(lock);
  state.changed.wait(lock);
  return true;
}

static void close_gate()
{
  if (!busy) set_gate(false);
}

CUresult queue_wait(Lock &lock, const Mark &m)
{
  CUresult r = CUDA_SUCCESS;
  while (!has_passed(m) && !r)
    if (advance_queues(lock) || has_passed(m))
      continue;
    else if (others_may_come())
      state.changed.wait_for(lock, std::chrono::milliseconds(1));
    else
      r = report_misuse(
          CUDA_ERROR_LAUNCH_TIMEOUT, "waiting", "streams wait for each other for ever");
  close_gate();
  return r ? r : m.queue ? context_of(m.queue->device).error : r;
}

CUresult queue_wait_all(Lock &lock, int device)
{
  auto all = queues;                                  /* while the lock is free, others may come */
  for (auto &q : all)
    if (q->device == device) queue_wait(lock, end_of(q));
  return context_of(device).error;
}

void queue_poll(Lock &lock)
{
  if (!busy) run_op(lock);
  close_gate();
}

void queue_give(const std::shared_ptr<Queue> &q, Op op)
{
  op.number = ++q->given;
  op.given = ++given;
  q->ops.push_back(std::move(op));
  pending++;
  if (!eager && pending == 1) state.changed.notify_all();
}

CUresult submit_work(CUstream_st *s, CUgraphNodeType type, Work work)
{
  if (s->capture) return capture_node(s, type, std::move(work));
  Op op;
  op.type = type;
  op.work = std::move(work);
  return give_op(s, std::move(op));
}

/* Runs a host function without access to device memory. */
void run_host(CUhostFn f, void *data)
{
  {
    Lock lock(state.lock);
    set_gate(false);
  }
  in_host_function = true;
  f(data);
  in_host_function = false;
  Lock lock(state.lock);
  set_gate(true);
}

/* -- the thread that takes over ---------------------------------------------------------------- */

/* Runs pending work whenever no Op has run for 3 ms. Never returns. */
static void take_over()
{
  Lock lock(state.lock);
  for (;;) {
    while (!pending) state.changed.wait(lock);
    uint64_t before = steps;
    lock.unlock();
    usleep(3000);
    lock.lock();
    if (steps != before || busy) continue;
    while (pending && !busy && run_op(lock)) {}
    close_gate();
  }
}

void start_queues()
{
  eager = *find_setting("CUDASIM_STREAMS", "late") == 'e';
  std::thread(take_over).detach();
}

Call::~Call()
{
  if (!eager || !lock.owns_lock()) return;
  while (pending && !busy && run_op(lock)) {}
  close_gate();
}
