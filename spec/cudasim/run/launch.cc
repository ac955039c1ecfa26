/* launch.cc - runs a grid block by block, in an order that a correct kernel does not depend on:
** CUDASIM_ORDER=random (the default, by CUDASIM_SEED), forward or backward. Shared memory is filled
** with NaNs before each block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "block.h"
#include "check.h"

struct cudasim_grid cudasim_grid;
unsigned char cudasim_dynamic[MAX_DYNAMIC];

static struct {
  bool broken;
  char why[1024];
  uint32_t number;
  uint64_t random;
  sigjmp_buf out;
} launch;
/* the OS thread runs a kernel */
static thread_local bool running;

bool launch_broken(void) { return launch.broken; }

void run_report(const char *format, ...)
{
  va_list a;
  if (launch.broken) return;
  va_start(a, format);
  vsnprintf(launch.why, sizeof launch.why, format, a);
  va_end(a);
  launch.broken = true;
}

void run_fault(const char *what)
{
  if (!running) return;
  const Thread *t = (const Thread *)cudasim_self;
  run_report("%s by block %u, thread %d", what, cudasim_grid.block.x,
      t ? (int)(t - block.thread) : -1);
  siglongjmp(launch.out, 1);
}

Place run_place(void)
{
  Place p = {};
  const Thread *t = (const Thread *)cudasim_self;
  p.thread = running && t ? (int)(t - block.thread) : -1;
  if (p.thread < 0) return p;
  p.launch = launch.number;
  p.block = cudasim_grid.block.x +
      cudasim_grid.grid_dim.x * (cudasim_grid.block.y + cudasim_grid.grid_dim.y * cudasim_grid.block.z);
  p.epoch = block.epoch;
  p.warp_epoch = t->warp_epoch;
  p.stack = block.current->stack;
  p.stack_bytes = FIBRE_STACK;
  return p;
}

bool run_owns(const void *p)
{
  const char *c = (const char *)p;
  return (size_t)(c - (const char *)&block) < sizeof block ||
      (size_t)(c - (const char *)&cudasim_self) < sizeof cudasim_self ||
      (size_t)(c - (const char *)&cudasim_grid) < sizeof cudasim_grid;
}

extern "C" long long cudasim_clock(void)
{
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* -- order ------------------------------------------------------------------------------------- */

enum Order { RANDOM, FORWARD, BACKWARD };

static Order order_of_environment()
{
  const char *e = getenv("CUDASIM_ORDER");
  return !e || *e == 'r' ? RANDOM : *e == 'b' ? BACKWARD : FORWARD;
}

uint64_t launch_random(void)
{
  if (!launch.random) {
    const char *e = getenv("CUDASIM_SEED");
    launch.random = (e ? strtoull(e, nullptr, 0) : 1) * 2 + 1;
  }
  launch.random = launch.random * 6364136223846793005u + 1442695040888963407u;
  return launch.random >> 33;
}

static void order_threads(Order order)
{
  for (int t = 0; t < block.n; t++) block.order[t] = order == BACKWARD ? block.n - 1 - t : t;
  for (int i = block.n - 1; order == RANDOM && i > 0; i--) {
    int j = (int)(launch_random() % (uint64_t)(i + 1)), x = block.order[i];
    block.order[i] = block.order[j];
    block.order[j] = x;
  }
}

static uint64_t find_divisor(uint64_t a, uint64_t b) { return b ? find_divisor(b, a % b) : a; }

/* Chooses an order of the blocks: number i is block (i * step + first) % n of the grid. */
static void order_blocks(Order order, uint64_t n, uint64_t *first, uint64_t *step)
{
  *first = order == FORWARD ? 0 : n - 1;
  *step = order == FORWARD ? 1 : n - 1;
  if (order != RANDOM || n == 1) return;
  *first = launch_random() % n;
  do *step = 1 + launch_random() % (n - 1 ? n - 1 : 1);
  while (find_divisor(*step, n) != 1);
}

/* -- launching --------------------------------------------------------------------------------- */

static void begin_launch(const Launch &l)
{
  launch.broken = false;
  launch.why[0] = 0;
  launch.number++;
  block.launch = &l;
  block.n = (int)(l.block[0] * l.block[1] * l.block[2]);
  cudasim_grid.block_dim = { l.block[0], l.block[1], l.block[2] };
  cudasim_grid.grid_dim = { l.grid[0], l.grid[1], l.grid[2] };
  for (int t = 0; t < block.n; t++) {
    unsigned u = (unsigned)t;
    cudasim_thread *me = &block.thread[t].me;
    me->index = { u % l.block[0], u / l.block[0] % l.block[1], u / l.block[0] / l.block[1] };
    me->lane = u % 32;
    me->warp = u / 32;
  }
}

static void run_blocks(const Launch &l, Order order)
{
  uint64_t n = (uint64_t)l.grid[0] * l.grid[1] * l.grid[2], first, step;
  order_threads(order);
  order_blocks(order, n, &first, &step);
  uint64_t at = first;
  for (uint64_t i = 0; i < n && !launch.broken; i++) {
    cudasim_grid.block.x = (unsigned)(at % l.grid[0]);
    cudasim_grid.block.y = (unsigned)(at / l.grid[0] % l.grid[1]);
    cudasim_grid.block.z = (unsigned)(at / l.grid[0] / l.grid[1]);
    check_block();
    memset(cudasim_dynamic, 0xff, l.dynamic);
    memset(l.shared, 0xff, l.shared_bytes);
    block_run();
    at = at + step >= n ? at + step - n : at + step;
  }
}

const char *run_launch(const Launch &l)
{
  static const Order order = order_of_environment();
  begin_launch(l);
  check_launch(l);
  running = true;
  if (!sigsetjmp(launch.out, 1)) run_blocks(l, order);
  running = false;
  if (!launch.broken) return nullptr;
  block_forget();
  return launch.why;
}
