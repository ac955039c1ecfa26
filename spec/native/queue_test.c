/* queue_test.c - the runtime below graphs: queues, tickets, failures, storages, pools.
**
** Linked with the core's objects, since it calls what the shared library does not export. It
** must pass under ThreadSanitizer and AddressSanitizer, and runs itself a second time with
** TYCHO_SYNC=1.
*/
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "floats.h"
#include "base/parallel.h"
#include "device/order.h"
#include "device/pool.h"
#include "device/queue.h"
#include "tensor/tensor.h"

enum { LARGE, SMALL, MIXED };
static int kind;                                      /* of the tasks that submit_task makes */

/* Chooses another task every time. */
static int choose_task(void *const *context, int n)
{
  static unsigned count;
  (void)context;
  return (int)(__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) * 7 % (unsigned)n);
}

static int submit_task(int device, int (*run)(void *), void *context, ty_tensor *const *read,
    int nread, ty_tensor *const *write, int nwrite)
{
  struct access r[8], w[8];
  for (int i = 0; i < nread; i++) r[i] = tensor_access(read[i]);
  for (int i = 0; i < nwrite; i++) {
    w[i] = tensor_access(write[i]);
    for (int k = 0; k < nread; k++) w[i].in_place |= read[k]->storage == write[i]->storage;
  }
  struct task t = {
    .run = run, .context = context, .read = r, .write = w, .nread = nread, .nwrite = nwrite
  };
  static int count;
  t.small = kind == SMALL ||
      (kind == MIXED && __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) * 7 % 3 == 0);
  if (device_kind(device) == COMM_QUEUE) t.choose = choose_task;
  t.in_order = nread == 1;
  return device_submit(device, &t, NULL);
}

/* -- order ------------------------------------------------------------------------------------- */

static int add_one(void *context)
{
  float *x = tensor_at(context);
  x[0] += 1;
  return TY_OK;
}

static void test_one_tensor_on_three_devices(void)
{
  ty_tensor *t = new_floats(TY_CPU, 1, 0);
  for (int i = 0; i < 3000; i++) RUN(submit_task(TY_CPU + i * 7 % 3, add_one, t, &t, 1, &t, 1));
  SURE(read_first(t) == 3000);
  SURE(storage_version(t->storage) >= 3000);
  ty_tensor_free(t);
}

/* Random programs over a few numbers: in whatever order the queues run the tasks, the results are
** those of the program run in order. Tasks of the queues of messages take some time and let others
** overtake. */
enum { NUMBERS = 16, DEVICES = 4, MESSAGES = 2 };
struct step { int device, a, b, to; ty_tensor **all; };
static int mix_numbers(void *context)
{
  struct step *s = context;
  uint32_t a, b, c;
  if (s->device >= COMM_QUEUE) usleep(50);
  memcpy(&a, tensor_at(s->all[s->a]), 4);
  memcpy(&b, tensor_at(s->all[s->b]), 4);
  c = a * 31u + b + 7u;
  memcpy(tensor_at(s->all[s->to]), &c, 4);
  return TY_OK;
}

static void random_program(unsigned seed)
{
  enum { STEPS = 400 };
  struct step *step = calloc(STEPS, sizeof *step);
  ty_tensor *t[NUMBERS];
  uint32_t want[NUMBERS] = { 0 };
  for (int i = 0; i < NUMBERS; i++) t[i] = new_floats(TY_CPU + i % DEVICES, 1, 0);
  for (int i = 0; i < STEPS; i++) {
    seed = seed * 1664525u + 1013904223u;
    struct step *s = &step[i];
    int device = (int)(seed >> 20) % (DEVICES + MESSAGES);
    device = device < DEVICES ? TY_CPU + device : COMM_QUEUE + device - DEVICES;
    *s = (struct step){ device, (int)(seed >> 8) % NUMBERS, (int)(seed >> 12) % NUMBERS,
      (int)(seed >> 16) % NUMBERS, t };
    ty_tensor *read[] = { t[s->a], t[s->b] };
    RUN(submit_task(device, mix_numbers, s, read, s->a == s->b ? 1 : 2, &t[s->to], 1));
    want[s->to] = want[s->a] * 31u + want[s->b] + 7u;
  }
  for (int i = 0; i < NUMBERS; i++) {
    uint32_t got;
    RUN(ty_tensor_read(t[i], &got, 4));
    SURE(got == want[i]);
  }
  RUN(ty_wait(-1));
  for (int i = 0; i < NUMBERS; i++) ty_tensor_free(t[i]);
  free(step);
}

static int read_slowly(void *context)
{
  float *x = tensor_at(context);
  usleep(200);
  return x[0] == x[1] ? TY_OK : fail(TY_ERUN, "torn read");
}

static int write_both(void *context)
{
  float *x = tensor_at(context);
  x[0] += 1;
  usleep(100);
  x[1] += 1;
  return TY_OK;
}

/* Checks six devices that read, then one that writes: a storage has places for fewer readers. */
static void test_many_readers(void)
{
  ty_tensor *t = new_floats(TY_CPU, 2, 0);
  for (int round = 0; round < 20; round++) {
    for (int d = 0; d < 6; d++) RUN(submit_task(TY_CPU + d, read_slowly, t, &t, 1, NULL, 0));
    RUN(submit_task(TY_CPU + round % 6, write_both, t, NULL, 0, &t, 1));
  }
  RUN(ty_wait(-1));
  SURE(read_first(t) == 20);
  ty_tensor_free(t);
}

/* -- callbacks, lifetimes, back-pressure ------------------------------------------------------- */

static int callbacks;
static void count_call(void *context)
{
  (void)context;
  __atomic_add_fetch(&callbacks, 1, __ATOMIC_RELAXED);
}
static int do_nothing(void *context)
{
  (void)context;
  return TY_OK;
}
static int run_nap(void *context)
{
  (void)context;
  usleep(2000);
  return TY_OK;
}

static void test_back_pressure(void)
{
  callbacks = 0;
  struct task slow = { .run = run_nap, .done = count_call },
              quick = { .run = do_nothing, .done = count_call }, heavy = quick;
  heavy.held = 40 << 20;
  RUN(device_submit(TY_CPU, &slow, NULL));
  for (int i = 0; i < 5000; i++) RUN(device_submit(TY_CPU, &quick, NULL));
  for (int i = 0; i < 10; i++) RUN(device_submit(TY_CPU, &heavy, NULL));
  struct ticket t;
  RUN(device_submit(TY_CPU, &slow, &t));
  ticket_wait(t);
  SURE(ticket_past(t));
  SURE(callbacks == 5012);
}

static void test_free_while_queued(void)
{
  for (int i = 0; i < 300; i++) {
    ty_tensor *a = new_floats(TY_CPU, 1000, 1), *b = new_floats(TY_CPU + 1, 1000, 2);
    RUN(ty_tensor_copy(b, a));
    RUN(ty_tensor_copy(a, b));
    ty_tensor_free(a);
    ty_tensor_free(b);
  }
  RUN(ty_wait(-1));
}

static void *submit_many(void *context)
{
  ty_tensor *t = context;
  for (int i = 0; i < 2000; i++)
    if (submit_task(TY_CPU + i % 2, add_one, t, &t, 1, &t, 1)) return NULL;
  return t;
}

static void test_two_hosts(void)
{
  pthread_t a, b;
  ty_tensor *t = new_floats(TY_CPU, 1, 0);
  pthread_create(&a, NULL, submit_many, t);
  pthread_create(&b, NULL, submit_many, t);
  void *done[2];
  pthread_join(a, &done[0]);
  pthread_join(b, &done[1]);
  SURE(done[0] == t && done[1] == t);
  SURE(read_first(t) == 4000);
  ty_tensor_free(t);
}

/* -- failures ---------------------------------------------------------------------------------- */

static int break_down(void *context)
{
  int code = fail(TY_ERUN, "it broke");
  fail_node("Broken", "node1", "script.lua:1");
  (void)context;
  return code;
}

static void test_failure_travels_and_stays(void)
{
  ty_tensor *t[5];
  float x;
  for (int i = 0; i < 5; i++) t[i] = new_floats(TY_CPU + i % 2, 1, (float)i);
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &t[0], 1));
  RUN(ty_tensor_copy(t[1], t[0]));
  RUN(ty_tensor_copy(t[2], t[1]));
  RUN(ty_tensor_copy(t[3], t[4]));
  SURE(read_first(t[3]) == 4); /* unrelated work goes on */
  SURE(ty_tensor_failed(t[2]) == 1);
  SURE(ty_tensor_read(t[2], &x, sizeof x) == TY_ERUN);
  ty_failure f;
  RUN(ty_error_detail(&f));
  SURE(f.node && !strcmp(f.node, "node1") && f.op && !strcmp(f.op, "Broken") && !f.argument);
  SURE(!strcmp(f.message, "it broke") && f.code == TY_ERUN);
  for (int i = 0; i < 3; i++)
    for (int times = 0; times < 2; times++)
      SURE(ty_tensor_read(t[i], &x, sizeof x) == TY_ERUN && !strcmp(ty_error(), "it broke"));
  SURE(ty_tensor_wait(t[2], 0) == TY_ERUN);
  RUN(ty_wait(-1)); /* a read has reported it */
  RUN(ty_tensor_copy(t[1], t[4]));
  RUN(ty_tensor_copy(t[2], t[1]));
  SURE(read_first(t[2]) == 4);
  for (int i = 0; i < 5; i++) ty_tensor_free(t[i]);
}

static void test_failure_comes_out_at_a_wait(void)
{
  ty_tensor *t = new_floats(TY_CPU, 1, 0), *u = new_floats(TY_CPU + 1, 1, 0);
  callbacks = 0;
  const struct access w = tensor_access(t);
  struct task broken = { .run = break_down, .done = count_call, .write = &w, .nwrite = 1 };
  struct task reader = { .run = do_nothing, .done = count_call, .read = &w, .nread = 1 };
  RUN(device_submit(TY_CPU, &broken, NULL));
  RUN(device_submit(TY_CPU + 1, &reader, NULL));
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &u, 1));
  SURE(ty_wait(-1) == TY_ERUN);
  RUN(ty_wait(-1));
  SURE(callbacks == 2);
  SURE(ty_tensor_failed(t) && ty_tensor_failed(u));
  ty_tensor_free(t);
  ty_tensor_free(u);
}

static void test_overwriting_clears(void)
{
  ty_tensor *t = new_floats(TY_CPU, 2, 0), *one = new_floats(TY_CPU, 2, 5), *part,
            *small = new_floats(TY_CPU, 1, 6);
  float x[2] = { 8, 9 };
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &t, 1));
  RUN(ty_tensor_copy(t, one));
  SURE(read_first(t) == 5);
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &t, 1));
  RUN(ty_tensor_write(t, x, sizeof x));
  SURE(read_first(t) == 8);
  SURE(ty_wait(TY_CPU) == TY_ERUN); /* no read has reported it */
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &t, 1));
  RUN(ty_tensor_view(t, &small->d, 4, &part));
  RUN(ty_tensor_copy(part, small)); /* a part does not make the rest good */
  SURE(ty_tensor_read(t, x, sizeof x) == TY_ERUN);
  RUN(ty_wait(-1));
  SURE(read_first(part) == 6);
  ty_tensor_free(part);
  ty_tensor_free(small);
  ty_tensor_free(one);
  ty_tensor_free(t);
}

static bool is_broken(ty_tensor *t, int64_t first, int64_t n)
{
  const ty_desc d = { .dtype = TY_F32, .device = TY_CPU, .ndim = 1, .dim = { n } };
  ty_tensor *part;
  RUN(ty_tensor_view(t, &d, 4 * first, &part));
  bool broken = ty_tensor_failed(part);
  ty_tensor_free(part);
  return broken;
}

/* Checks arrays side by side in one storage. */
static void test_parts(void)
{
  ty_tensor *t = new_floats(TY_CPU, 8, 0), *two = new_floats(TY_CPU, 2, 5), *part[4];
  for (int i = 0; i < 4; i++) RUN(ty_tensor_view(t, &two->d, 8 * i, &part[i]));
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &part[1], 1));
  SURE(!is_broken(t, 0, 2) && is_broken(t, 2, 2) && is_broken(t, 3, 1) && !is_broken(t, 4, 4));
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &part[2], 1));
  SURE(!is_broken(t, 0, 2) && is_broken(t, 2, 1) && is_broken(t, 5, 1) && !is_broken(t, 6, 2));
  RUN(ty_tensor_copy(part[0], two));
  SURE(is_broken(t, 2, 2) && is_broken(t, 4, 2));
  RUN(ty_tensor_copy(part[2], two));
  SURE(is_broken(t, 2, 2) && !is_broken(t, 4, 2));
  RUN(ty_tensor_copy(part[1], two));
  SURE(!is_broken(t, 0, 8));
  while (ty_wait(-1)) {
  }
  for (int i = 0; i < 4; i++) ty_tensor_free(part[i]);
  ty_tensor_free(two);
  ty_tensor_free(t);
}

/* Checks that a weight keeps its old value, valid as soon as the failure of its step is reported,
** and that an array that a script changes in place does not. */
static void test_changes_in_place(void)
{
  ty_tensor *weight = new_floats(TY_CPU, 1, 3), *x = new_floats(TY_CPU, 1, 4),
            *bad = new_floats(TY_CPU, 1, 0);
  ty_tensor *to_weight[] = { weight, bad }, *to_x[] = { x, bad };
  float got;
  storage_set_lasting(weight->storage);
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &bad, 1));
  RUN(submit_task(TY_CPU, add_one, weight, to_weight, 2, &weight, 1));
  RUN(submit_task(TY_CPU, add_one, x, to_x, 2, &x, 1));
  SURE(ty_tensor_read(weight, &got, sizeof got) == TY_ERUN);
  SURE(read_first(weight) == 3);
  RUN(submit_task(TY_CPU, add_one, weight, &weight, 1, &weight, 1));
  SURE(read_first(weight) == 4);
  SURE(ty_tensor_read(x, &got, sizeof got) == TY_ERUN);
  SURE(ty_tensor_read(x, &got, sizeof got) == TY_ERUN);
  RUN(ty_wait(-1));
  /* the next step by the same gradient, whose failure has been reported */
  for (int i = 0; i < 2; i++) {
    RUN(submit_task(TY_CPU, add_one, weight, to_weight, 2, &weight, 1));
    RUN(submit_task(TY_CPU, add_one, weight, to_weight, 2, &weight, 1));
    SURE(ty_tensor_read(weight, &got, sizeof got) == TY_ERUN);
    SURE(read_first(weight) == 4);
  }
  RUN(submit_task(TY_CPU, add_one, weight, to_weight, 2, &weight, 1));
  SURE(ty_wait(-1) == TY_ERUN);
  RUN(ty_wait(-1));
  SURE(read_first(weight) == 4);
  ty_tensor_free(weight);
  ty_tensor_free(x);
  ty_tensor_free(bad);
}

static int stop_when_asked(void *context)
{
  (void)context;
  while (!interrupt_pending()) usleep(100);
  return fail(TY_EINTERRUPTED, "interrupted");
}

static void test_interruption(void)
{
  ty_tensor *t = new_floats(TY_CPU, 1, 3);
  RUN(ty_interrupt_watch(1));
  RUN(ty_interrupt_watch(1));
  RUN(submit_task(TY_CPU, stop_when_asked, NULL, NULL, 0, &t, 1));
  raise(SIGINT);
  SURE(interrupt_pending());
  SURE(ty_tensor_wait(t, 0) == TY_EINTERRUPTED);
  RUN(submit_task(TY_CPU, stop_when_asked, NULL, NULL, 0, &t, 1));
  storage_wait_quiet(t->storage, 0);
  RUN(ty_interrupt(0)); /* handled: the result of the task has no value */
  SURE(ty_tensor_wait(t, 0) == TY_ESTATE && strstr(ty_error(), "interrupted"));
  RUN(ty_wait(-1));
  ty_tensor_free(t);
  t = new_floats(TY_CPU, 1, 3); /* an interrupted change in place keeps the old value */
  RUN(submit_task(TY_CPU, stop_when_asked, NULL, &t, 1, &t, 1));
  raise(SIGINT);
  storage_wait_quiet(t->storage, 0);
  RUN(ty_interrupt(0));
  SURE(read_first(t) == 3);
  RUN(ty_wait(-1));
  RUN(ty_interrupt_watch(0));
  RUN(ty_interrupt_watch(0));
  ty_tensor_free(t);
}

/* -- a device that finishes late --------------------------------------------------------------- */

static int started, finished, late_failure;
static int late_count(void) { return 1; }
static int late_open(int device)
{
  (void)device;
  return TY_OK;
}
static int late_finish(int device)
{
  (void)device;
  __atomic_store_n(&finished, __atomic_load_n(&started, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  return __atomic_exchange_n(&late_failure, 0, __ATOMIC_RELAXED) ? fail(TY_ERUN, "late") : TY_OK;
}
static int late_start(void *context)
{
  (void)context;
  __atomic_add_fetch(&started, 1, __ATOMIC_RELAXED);
  return TY_OK;
}

static void test_late_device(void)
{
  static struct device_ops late;
  late = cpu_ops;
  late.name = "late";
  late.count = late_count;
  late.open = late_open;
  late.finish = late_finish;
  SURE(device_open(TY_GPU) == TY_EDEVICE);
  device_register(TY_GPU, &late);
  order_register(TY_GPU, NULL); /* it leaves no marks */
  ty_tensor *t = new_floats(TY_GPU, 1, 0), *c = new_floats(TY_CPU, 1, 0);
  for (int i = 0; i < 500; i++) RUN(submit_task(TY_GPU, late_start, NULL, NULL, 0, &t, 1));
  RUN(submit_task(TY_CPU, do_nothing, NULL, &t, 1, &c, 1)); /* waits for all of them */
  RUN(ty_tensor_wait(c, 0));
  SURE(finished == 500);
  __atomic_store_n(&late_failure, 1, __ATOMIC_RELAXED);
  RUN(submit_task(TY_GPU, late_start, NULL, NULL, 0, &t, 1));
  SURE(ty_tensor_wait(t, 0) == TY_ERUN);
  RUN(ty_wait(-1));
  RUN(ty_tensor_copy(c, t));
  RUN(ty_wait(-1));
  ty_tensor_free(t);
  ty_tensor_free(c);
}

/* -- small tasks ------------------------------------------------------------------------------- */

static pthread_t runner;
static int members_seen;
static int note_thread(void *context)
{
  (void)context;
  runner = pthread_self();
  members_seen = parallel_threads();
  return TY_OK;
}

/* Checks that a small task runs in the caller's thread where nothing is queued before it, else
** after the others. */
static void test_small_tasks(void)
{
  ty_tensor *t = new_floats(TY_CPU, 2, 0), *u = new_floats(TY_CPU + 1, 2, 0);
  uint64_t version = storage_version(t->storage);
  RUN(ty_wait(-1));
  kind = SMALL;
  RUN(submit_task(TY_CPU, note_thread, NULL, NULL, 0, &t, 1));
  SURE(pthread_equal(runner, pthread_self()) && members_seen == 1 &&
      storage_version(t->storage) == version + 1);
  kind = LARGE;
  RUN(submit_task(TY_CPU + 1, write_both, u, NULL, 0, &u, 1));
  kind = SMALL;
  RUN(submit_task(TY_CPU, note_thread, NULL, &u, 1, &t, 1));
  RUN(ty_wait(-1));
  SURE(!pthread_equal(runner, pthread_self()));
  RUN(submit_task(TY_CPU, break_down, NULL, NULL, 0, &t, 1));
  SURE(ty_tensor_failed(t) == 1);
  RUN(submit_task(TY_CPU + 1, add_one, u, &t, 1, &u, 1)); /* skipped: what it reads is broken */
  SURE(ty_tensor_wait(u, 0) == TY_ERUN && !strcmp(ty_error(), "it broke"));
  RUN(ty_wait(-1));
  kind = LARGE;
  ty_tensor_free(t);
  ty_tensor_free(u);
}

/* -- memory ------------------------------------------------------------------------------------ */

static void test_pool(void)
{
  ty_pool *p;
  bool moved;
  int64_t bytes;
  struct storage *s;
  RUN(ty_pool_new(&p));
  SURE(pool_base(p, TY_CPU) == NULL);
  RUN(pool_reserve_for(p, &bytes, TY_CPU, 10000, &moved));
  char *base = pool_base(p, TY_CPU);
  SURE(base && !moved && (uintptr_t)base % PAGE == 0);
  memset(base, 7, 10000);
  RUN(pool_storage(p, TY_CPU, 4096, 100, &s));
  RUN(pool_reserve_for(p, &moved, TY_CPU, 3000000, &moved));
  base = pool_base(p, TY_CPU);
  SURE(base[9999] == 7 && s->data == base + 4096);
  base[2999999] = 1;
  RUN(ty_pool_bytes(p, TY_CPU, &bytes));
  SURE(bytes >= 3000000);
  pool_forget(p, &moved);
  RUN(ty_pool_trim(p));
  RUN(ty_pool_bytes(p, TY_CPU, &bytes));
  SURE(bytes == 12288 && base[9999] == 7);
  RUN(pool_reserve(p, TY_CPU, 100000, &moved));
  pool_base(p, TY_CPU)[99999] = 1;
  ty_pool_free(p); /* the storage still lives in it */
  RUN(ty_pool_trim(NULL));
  SURE(((char *)s->data)[99] == 7);
  storage_free(s);
  SURE(ty_live("pool") == 0);
}

/* Checks that ranges move when they grow where address space is limited: any limit, however large,
** forbids reserving it. */
static void test_pool_that_moves(void)
{
  struct rlimit old, finite;
  getrlimit(RLIMIT_AS, &old);
  finite = old;
  finite.rlim_cur = (rlim_t)1 << 50;
  if (old.rlim_cur != RLIM_INFINITY || setrlimit(RLIMIT_AS, &finite)) return;
  ty_pool *p;
  bool moved;
  struct storage *s;
  struct ticket t;
  struct task slow = { .run = run_nap };
  RUN(ty_pool_new(&p));
  RUN(pool_reserve(p, TY_CPU, 5000, &moved));
  memset(pool_base(p, TY_CPU), 9, 5000);
  RUN(pool_storage(p, TY_CPU, 64, 8, &s));
  RUN(device_submit(TY_CPU, &slow, &t));
  pool_ran(p, t);
  SURE(pool_last(p, &t, 1) == !device_sync());
  uint64_t generation = pool_generation(p);
  RUN(pool_reserve(p, TY_CPU, 900000, &moved));
  SURE(moved && pool_generation(p) != generation && ticket_past(t));
  SURE(pool_base(p, TY_CPU)[4999] == 9 && s->data == pool_base(p, TY_CPU) + 64 &&
      *(char *)s->data == 9);
  storage_free(s);
  ty_pool_free(p);
  setrlimit(RLIMIT_AS, &old);
}

/* Returns the bytes of blocks that the CPU keeps for reuse, as a refused request reports them. */
static int64_t find_kept_bytes(void)
{
  void *p = NULL;
  bool blank;
  SURE(block_new(TY_CPU, (size_t)1 << 47, &p, &blank) == TY_EMEMORY);
  const char *s = strstr(ty_error(), "in use, ");
  SURE(s != NULL);
  return s ? strtoll(s + strlen("in use, "), NULL, 10) : -1;
}

/* Checks that all blocks of one size are kept, and of changing sizes no more bytes than were in
** use at once. */
static void test_kept_blocks(void)
{
  enum { MANY = 16, MB = 1 << 20 };
  void *p[MANY];
  bool blank;
  for (int i = 0; i < MANY; i++) RUN(block_new(TY_CPU, 3 * MB, &p[i], &blank));
  for (int i = 0; i < MANY; i++) block_free(TY_CPU, p[i], 3 * MB);
  const int64_t kept = find_kept_bytes();
#if !defined(__SANITIZE_ADDRESS__)
  SURE(kept >= MANY * 3 * MB);
  RUN(block_new(TY_CPU, 3 * MB, &p[0], &blank));
  SURE(!blank);
  block_free(TY_CPU, p[0], 3 * MB);
#else
  SURE(kept == 0);
#endif
  for (int i = 0; i < 4 * MANY; i++) {
    RUN(block_new(TY_CPU, (size_t)(4 + i % MANY) * MB, &p[0], &blank));
    *(char *)p[0] = 1;
    block_free(TY_CPU, p[0], (size_t)(4 + i % MANY) * MB);
    SURE(find_kept_bytes() <= kept);
  }
}

/* Checks requests over the limit, which main sets to 1 GB. */
static void test_memory_limit(void)
{
  ty_desc d = { .dtype = TY_F32, .device = TY_CPU, .ndim = 1, .dim = { 200 << 20 } };
  ty_tensor *big = NULL, *t[8];
  ty_pool *p;
  bool moved;
  d.dim[0] = 300 << 20;
  SURE(ty_tensor_new(&d, &big) == TY_EMEMORY && !big);
  SURE(strstr(ty_error(), "wanted") && strstr(ty_error(), "limit 1073741824") &&
      strstr(ty_error(), "cpu(0)"));
  RUN(ty_pool_new(&p));
  SURE(pool_reserve(p, TY_CPU, (size_t)2 << 30, &moved) == TY_EMEMORY);
  ty_pool_free(p);
  d.dim[0] = 40 << 20;
  for (int i = 0; i < 20; i++) { /* kept blocks make way for another size */
    RUN(ty_tensor_new(&d, &t[0]));
    ty_tensor_free(t[0]);
    d.dim[0] += 10 << 20;
  }
  d.dim[0] = INT64_MAX / 8;
  SURE(ty_tensor_new(&d, &big) == TY_ESHAPE || ty_tensor_new(&d, &big) == TY_EMEMORY);
  d.dim[0] = 0;
  SURE(ty_tensor_new(&d, &big) == TY_ESHAPE);
  void *q = mem_new((size_t)2 << 30);
  SURE(!q);
}

/* -- random numbers, parallel loops ------------------------------------------------------------ */

static void test_random_states(void)
{
  uint64_t s0, s1, c0, c1;
  RUN(ty_seed(-1, 42));
  RUN(ty_rng(TY_CPU, 0, &s0, &c0));
  RUN(ty_rng(TY_CPU + 1, 0, &s1, &c1));
  SURE(s0 != s1 && c0 == 0 && c1 == 0);
  RUN(ty_seed(TY_CPU, 7));
  RUN(ty_seed(TY_CPU + 1, 7));
  struct rng_state a = device_next_rng(TY_CPU), b = device_next_rng(TY_CPU + 1),
                   next = device_next_rng(TY_CPU);
  SURE(a.seed == b.seed && a.counter == b.counter && next.counter == a.counter + 1);
}

struct sum { int64_t total; int members; };
static void add_part(int64_t begin, int64_t end, void *context)
{
  struct sum *s = context;
  for (int64_t i = begin; i < end; i++) __atomic_add_fetch(&s->total, i, __ATOMIC_RELAXED);
}
static int add_all(void *context)
{
  struct sum *s = context;
  s->members = parallel_threads();
  parallel_chunks(10000, 128, add_part, s);
  return TY_OK;
}

static void test_parallel(void)
{
  struct sum s = { 0 };
  struct task t = { .run = add_all, .context = &s };
  RUN(device_submit(TY_CPU, &t, NULL));
  RUN(ty_wait(TY_CPU));
  SURE(s.total == 49995000 && s.members >= 1);
  parallel_chunks(10000, 128, add_part, &s);
  SURE(s.total == 2 * 49995000);
}

/* -- TYCHO_SYNC=1 ------------------------------------------------------------------------------ */

static void test_inline(void)
{
  ty_tensor *t = new_floats(TY_CPU, 1, 0);
  SURE(submit_task(TY_CPU, break_down, NULL, NULL, 0, &t, 1) == TY_ERUN);
  SURE(!strcmp(ty_error(), "it broke"));
  SURE(ty_tensor_failed(t));
  SURE(submit_task(TY_CPU, add_one, t, &t, 1, &t, 1) == TY_ERUN && !strcmp(ty_error(), "it broke"));
  RUN(submit_task(TY_CPU, add_one, t, NULL, 0, &t, 1));
  SURE(read_first(t) == 1);
  RUN(ty_wait(-1));
  ty_tensor_free(t);
}

static int run_again_inline(void)
{
  char self[512];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n < 0) return 0;
  self[n] = 0;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    setenv("TYCHO_SYNC", "1", 1);
    execl(self, self, (char *)NULL);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(void)
{
  setenv("TYCHO_MEM_LIMIT", "1G", 1);
  bool sync = device_sync();
  if (!sync) SURE(run_again_inline() == 0); /* before any thread runs here */
  for (kind = MIXED; kind >= LARGE; kind--) {
    test_one_tensor_on_three_devices();
    for (unsigned i = 0; i < 20; i++) random_program(i);
    test_many_readers();
    test_two_hosts();
    if (sync) continue;
    test_failure_travels_and_stays();
    test_failure_comes_out_at_a_wait();
    test_parts();
    test_changes_in_place();
    test_overwriting_clears();
  }
  kind = LARGE;
  test_back_pressure();
  test_free_while_queued();
  if (!sync) {
    test_small_tasks();
    test_interruption();
    test_late_device();
  }
  else {
    test_inline();
  }
  test_pool();
  test_pool_that_moves();
  test_kept_blocks();
  test_memory_limit();
  test_random_states();
  test_parallel();
  SURE(ty_live("tensor") == 0 && ty_live("storage") == 0 && ty_live("bag") == 0 &&
      ty_live("bytes") == 0);
  return check_end();
}
