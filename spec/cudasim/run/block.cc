/* block.cc - the threads of one block as fibres. A thread runs until it ends or has to wait. If it
** ends, the next thread that has not begun takes its stack, so that a kernel without barriers never
** changes stacks. launch.cc chooses the order of threads; results of a correct kernel do not depend
** on it. */
#include "block.h"
#include <stdlib.h>
#include "check.h"

Block block;
struct cudasim_thread *cudasim_self;

static Thread *this_thread() { return (Thread *)cudasim_self; }
static int thread_number(const Thread *t) { return (int)(t - block.thread); }

/* -- who is next ------------------------------------------------------------------------------- */

static void make_ready(Thread *t)
{
  t->state = READY;
  block.ready[(block.head + block.nready++) % MAX_THREADS] = thread_number(t);
}

/* Takes the next thread that can run; NULL: there is none, or the launch has failed. */
static Thread *take_thread()
{
  if (launch_broken() || !block.nready) return nullptr;
  Thread *t = &block.thread[block.ready[block.head]];
  block.head = (block.head + 1) % MAX_THREADS;
  block.nready--;
  return t;
}

/* Switches to a fibre; NULL: back to block_run. */
static void switch_fibre(Fibre *to, void **save)
{
  block.current = to;
  fibre_switch(save, to ? to->sp : block.main);
}

static void run_threads();

static Fibre *spare_fibre()
{
  Fibre *f = block.spare;
  if (f)
    block.spare = f->next;
  else
    f = fibre_new(run_threads);
  return f;
}

/* Suspends the running thread and switches to another one; returns when this one goes on. */
static void wait_turn()
{
  Thread *me = this_thread(), *next = take_thread();
  Fibre *to = nullptr;
  if (next) {
    if (!next->on) next->on = spare_fibre();
    to = next->on;
    cudasim_self = &next->me;
  }
  switch_fibre(to, &me->on->sp);
  cudasim_self = &me->me;
}

/* -- barriers ---------------------------------------------------------------------------------- */

static bool barrier_is_full() { return block.at_barrier && block.at_barrier + block.done == block.n; }

/* Ends the barrier: waiting threads go on in order, from a random one. */
static void open_barrier()
{
  block.barrier_result = block.barrier_sum;
  block.at_barrier = block.barrier_sum = 0;
  block.epoch++;
  int first = (int)(launch_random() % (uint64_t)block.n);
  for (int i = 0; i < block.n; i++) {
    Thread *t = &block.thread[(first + i) % block.n];
    if (t->state != AT_BARRIER) continue;
    t->warp_epoch = 0;
    if (t == this_thread())
      t->state = READY;
    else
      make_ready(t);
  }
}

extern "C" int cudasim_barrier(int line, int add)
{
  Thread *me = this_thread();
  if (block.at_barrier && block.barrier_line != line)
    run_report("threads of a block meet at two barriers, lines %d and %d (thread %d)",
        block.barrier_line, line, thread_number(me));
  block.barrier_line = line;
  block.at_barrier++;
  block.barrier_sum += add;
  me->state = AT_BARRIER;
  me->line = line;
  if (barrier_is_full())
    open_barrier();
  else
    wait_turn();
  return block.barrier_result;
}

/* -- warps ------------------------------------------------------------------------------------- */

static unsigned lanes_of(unsigned warp)
{
  int left = block.n - (int)warp * 32;
  return left >= 32 ? ~0u : (1u << left) - 1;
}

static unsigned ended_lanes(unsigned warp)
{
  unsigned bits = 0;
  for (unsigned i = 0; i < 32 && (int)(warp * 32 + i) < block.n; i++)
    if (block.thread[warp * 32 + i].state == DONE) bits |= 1u << i;
  return bits;
}

extern "C" unsigned cudasim_active(void)
{
  unsigned warp = cudasim_self->warp;
  return lanes_of(warp) & ~ended_lanes(warp);
}

static void join_meeting(Meeting *m, unsigned mask, int line)
{
  if (!m->arrived) {
    m->mask = mask;
    m->line = line;
  }
  if (m->mask != mask)
    run_report("line %d: lanes of a warp operation name two masks, %x and %x", line, m->mask, mask);
  if (m->line != line)
    run_report("lanes of a warp meet at two operations, lines %d and %d", m->line, line);
}

/* Ends a warp operation and lets its lanes go on if all of them have arrived or ended. Returns
** whether it did. */
static bool end_meeting(Meeting *m, unsigned warp)
{
  if (!m->arrived || m->mask & ~(m->arrived | ended_lanes(warp))) return false;
  unsigned arrived = m->arrived;
  m->value[m->phase][32] = arrived;
  m->arrived = 0;
  m->phase ^= 1;
  for (unsigned i = 0; i < 32; i++) {
    Thread *t = &block.thread[warp * 32 + i];
    if (arrived >> i & 1 && t->state == AT_WARP) make_ready(t);
  }
  return true;
}

extern "C" const uint64_t *cudasim_warp(unsigned mask, uint64_t value, int line)
{
  Thread *me = this_thread();
  unsigned lane = me->me.lane, warp = me->me.warp;
  mask &= lanes_of(warp);               /* in the last, smaller warp a mask may be full */
  if (!(mask >> lane & 1)) cudasim_trap("a warp operation whose mask lacks the calling lane", line);
  Meeting *m = &block.meeting[warp * 32 + (unsigned)__builtin_ctz(mask)];
  join_meeting(m, mask, line);
  const uint64_t *all = m->value[m->phase];
  m->value[m->phase][lane] = value;
  m->arrived |= 1u << lane;
  if (!end_meeting(m, warp)) {
    me->state = AT_WARP;
    me->line = line;
    wait_turn();
  }
  me->warp_epoch++;
  return all;
}

/* Ends a thread: others may wait for it. */
static void end_thread(Thread *t)
{
  unsigned warp = t->me.warp;
  t->state = DONE;
  block.done++;
  cudasim_self = nullptr;
  if (barrier_is_full()) open_barrier();
  for (unsigned i = 0; i < 32; i++) end_meeting(&block.meeting[warp * 32 + i], warp);
}

/* -- beginning and end ------------------------------------------------------------------------- */

extern "C" void cudasim_trap(const char *what, int line)
{
  run_report("line %d: %s (block %u, thread %d)", line, what, cudasim_grid.block.x,
      thread_number(this_thread()));
  switch_fibre(nullptr, &block.current->sp);
  abort();
}

/* Runs threads, as the body of a fibre: after a thread's end, the next one that has not begun runs
** on the same stack. */
static void run_threads()
{
  for (;;) {
    block.launch->kernel->run(block.launch->parameters);
    end_thread(this_thread());
    Fibre *mine = block.current;
    Thread *next = take_thread();
    if (next) cudasim_self = &next->me;
    if (next && !next->on) {
      next->on = mine;
      continue;
    }
    mine->next = block.spare;
    block.spare = mine;
    switch_fibre(next ? next->on : nullptr, &mine->sp);
  }
}

static void report_deadlock()
{
  int at_barrier = 0, at_warp = 0, line = 0;
  for (int t = 0; t < block.n; t++) {
    const Thread *w = &block.thread[t];
    at_barrier += w->state == AT_BARRIER;
    at_warp += w->state == AT_WARP;
    if (w->state != DONE) line = w->line;
  }
  run_report("deadlock in block %u: %d threads wait at a barrier, %d in warp operations, %d have "
      "ended (line %d)", cudasim_grid.block.x, at_barrier, at_warp, block.done, line);
}

void block_run(void)
{
  block.done = block.at_barrier = block.barrier_sum = block.head = block.nready = 0;
  block.epoch = 0;
  for (int t = 0; t < block.n; t++) {
    block.thread[t].on = nullptr;
    block.thread[t].warp_epoch = 0;
    make_ready(&block.thread[block.order[t]]);
  }
  for (int m = 0; m < (block.n + 31) / 32 * 32; m++) block.meeting[m].arrived = 0;
  Thread *first = take_thread();
  first->on = spare_fibre();
  cudasim_self = &first->me;
  switch_fibre(first->on, &block.main);
  cudasim_self = nullptr;
  if (block.done != block.n) report_deadlock();
}

void block_forget(void) { block.spare = nullptr; }
