/* threads_test.c - many threads of a host: executors that read the same parameters, random programs
** in which tasks fail, and tasks that read what failed. It must pass under ThreadSanitizer.
*/
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "floats.h"

enum { PATIENCE = 300 };                              /* s until a deadlock ends the program */

/* -- executors --------------------------------------------------------------------------------- */

enum { THREADS = 8, RUNS = 60, BATCH = 4, IN = 6, OUT = 3 };

static const char graph_text[] =
  "{\"nodes\": ["
  "{\"op\": \"null\", \"name\": \"data\", \"inputs\": []},"
  "{\"op\": \"null\", \"name\": \"fc_weight\", \"inputs\": []},"
  "{\"op\": \"null\", \"name\": \"fc_bias\", \"inputs\": []},"
  "{\"op\": \"FullyConnected\", \"name\": \"fc\", \"attrs\": {\"num_hidden\": \"3\"},"
  " \"inputs\": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]},"
  "{\"op\": \"Activation\", \"name\": \"act\", \"attrs\": {\"act_type\": \"relu\"},"
  " \"inputs\": [[3, 0, 0]]}],"
  "\"arg_nodes\": [0, 1, 2], \"node_row_ptr\": [0, 1, 2, 3, 4, 5], \"heads\": [[4, 0, 0]],"
  "\"attrs\": {\"mxnet_version\": [\"int\", 10901]}}";

static ty_tensor *weight, *bias;

static ty_tensor *make_array(int ndim, int64_t n, int64_t m, float scale)
{
  ty_desc d = { .dtype = TY_F32, .ndim = ndim, .dim = { n, m } };
  ty_tensor *t = NULL;
  float x[64];
  const int64_t count = ndim > 1 ? n * m : n;
  for (int64_t i = 0; i < count; i++) x[i] = scale * (float)(i % 7 - 3);
  RUN(ty_tensor_new(&d, &t));
  RUN(ty_tensor_write(t, x, sizeof *x * (size_t)count));
  return t;
}

static bool is_equal(const float *got, float scale)
{
  for (int i = 0; i < BATCH; i++)
    for (int k = 0; k < OUT; k++) {
      float sum = (float)(k % 7 - 3) * 0.5f;
      for (int j = 0; j < IN; j++)
        sum += scale * (float)((i * IN + j) % 7 - 3) * 0.25f * (float)((k * IN + j) % 7 - 3);
      if (fabsf(got[i * OUT + k] - fmaxf(sum, 0)) > 1e-4f) return false;
    }
  return true;
}

/* CHECK counts without locks, so each thread counts its own errors here. */
struct inference { ty_tensor *data; float scale; int wrong; };

/* Binds a new executor to the same parameters again and again. */
static void *run_inference(void *context)
{
  struct inference *own = context;
  int *wrong = &own->wrong;
  const float scale = own->scale;
  ty_graph *g = NULL;
  ty_tensor *data = own->data, *out;
  const ty_entry *head = NULL;
  int nhead = 0;
  *wrong += ty_graph_parse(graph_text, &g) || ty_graph_heads(g, &head, &nhead);
  const ty_bind arg[] = { { "data", data }, { "fc_weight", weight }, { "fc_bias", bias } };
  const ty_bind_spec spec = { .head = head, .nhead = nhead, .arg = arg, .narg = 3 };
  for (int run = 0; run < RUNS && !*wrong; run++) {
    ty_exec *e = NULL;
    float got[BATCH * OUT];
    *wrong += ty_exec_bind(g, &spec, &e) != TY_OK;
    for (int i = 0; i < 3 && !*wrong; i++)
      *wrong += ty_exec_forward(e, 0) || ty_exec_output(e, 0, &out) ||
          ty_tensor_read(out, got, sizeof got) || !is_equal(got, scale);
    ty_exec_free(e);
  }
  ty_graph_free(g);
  return NULL;
}

static void test_executors_share_parameters(void)
{
  pthread_t thread[THREADS];
  struct inference own[THREADS];
  weight = make_array(2, OUT, IN, 0.25f);
  bias = make_array(1, OUT, 0, 0.5f);
  for (int i = 0; i < THREADS; i++) {
    const float scale = (float)(1 + i % 3);
    own[i] = (struct inference){ make_array(2, BATCH, IN, scale), scale, 0 };
  }
  for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, run_inference, &own[i]);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(thread[i], NULL);
    CHECK(!own[i].wrong, "thread %d", i);
    ty_tensor_free(own[i].data);
  }
  ty_tensor_free(weight);
  ty_tensor_free(bias);
  SURE(ty_live("exec") == 0 && ty_live("graph") == 0);
}

/* Checks the search for values that are not finite, whose program is made during a run. */
static void test_program_made_during_a_run(void)
{
  ty_graph *g = NULL;
  const ty_entry *head = NULL;
  int nhead = 0;
  SURE(!ty_graph_parse(graph_text, &g) && !ty_graph_heads(g, &head, &nhead));
  ty_tensor *data = make_array(2, BATCH, IN, 1);
  weight = make_array(2, OUT, IN, 0.25f);
  bias = make_array(1, OUT, 0, 0.5f);
  const ty_bind arg[] = { { "data", data }, { "fc_weight", weight }, { "fc_bias", bias } };
  ty_bind_spec spec = { .head = head, .nhead = nhead, .arg = arg, .narg = 3 };
  ty_exec *first = NULL, *e = NULL;
  RUN(ty_exec_bind(g, &spec, &first));
  RUN(ty_exec_check(first, 1));
  RUN(ty_exec_forward(first, 0)); /* the pool is large enough for both programs then */
  RUN(ty_exec_pool(first, &spec.pool));
  RUN(ty_exec_bind(g, &spec, &e));
  for (int i = 0; i < 10; i++) RUN(ty_exec_forward(e, 0));
  RUN(ty_exec_check(e, 1));
  RUN(ty_exec_forward(e, 0));
  RUN(device_sync());
  ty_exec_free(e);
  ty_exec_free(first);
  ty_graph_free(g);
  ty_tensor_free(data);
  ty_tensor_free(weight);
  ty_tensor_free(bias);
}

/* -- failures ---------------------------------------------------------------------------------- */

/* Each host has its own numbers, and all share the devices. A round is a random program, some
** tasks of which fail. Each read of a number gives its value, or the failure of the first node that
** failed among those it depends on. The next round writes all numbers first. */
enum {
  HOSTS = 4,
  ROUNDS = 50,
  TASKS = 50,                                         /* of a round */
  NUMBERS = 6,                                        /* of a host */
  DEVICES = 3,
  RARE = 16,                                          /* one task in RARE fails */
};
struct task_of { int a, b, to, breaks; ty_tensor **all; };
struct host {
  ty_tensor *number[NUMBERS];
  struct task_of task[TASKS];
  unsigned seed;
  int wrong;
  double longest;                                     /* s from the last submission to all values */
};

static int mix_numbers(void *context)
{
  const struct task_of *s = context;
  char name[32];
  uint32_t a, b, c;
  if (s->breaks) {
    snprintf(name, sizeof name, "node%d", s->breaks);
    int code = fail(TY_ERUN, "it broke");
    fail_node("Broken", name, NULL);
    return code;
  }
  memcpy(&a, tensor_at(s->all[s->a]), sizeof a);
  memcpy(&b, tensor_at(s->all[s->b]), sizeof b);
  c = a * 31u + b + 7u;
  memcpy(tensor_at(s->all[s->to]), &c, sizeof c);
  return TY_OK;
}

static unsigned draw_below(struct host *h, unsigned n)
{
  h->seed = h->seed * 1664525u + 1013904223u;
  return (h->seed >> 12) % n;
}

static bool reported_as(int node)
{
  char name[32];
  ty_failure f;
  snprintf(name, sizeof name, "node%d", node);
  return !ty_error_detail(&f) && f.code == TY_ERUN && f.node && !strcmp(f.node, name);
}

static void submit_round(struct host *h, int round, uint32_t *want, int *broken)
{
  for (int i = 0; i < TASKS; i++) {
    struct task_of *s = &h->task[i];
    *s = (struct task_of){ (int)draw_below(h, NUMBERS), (int)draw_below(h, NUMBERS),
      (int)draw_below(h, NUMBERS), draw_below(h, RARE) ? 0 : 1 + round * TASKS + i, h->number };
    const struct access read[] = { tensor_access(h->number[s->a]),
      tensor_access(h->number[s->b]) }, write = tensor_access(h->number[s->to]);
    struct task t = { .run = mix_numbers, .context = s, .read = read, .write = &write, .nread = 2,
      .nwrite = 1, .small = draw_below(h, 2) };
    h->wrong += device_submit(TY_CPU + (int)draw_below(h, DEVICES), &t, NULL) != TY_OK;
    broken[s->to] = broken[s->a] ? broken[s->a] : broken[s->b] ? broken[s->b] : s->breaks;
    want[s->to] = want[s->a] * 31u + want[s->b] + 7u;
  }
}

static void read_round(struct host *h, const uint32_t *want, const int *broken)
{
  for (int i = 0; i < 2 * NUMBERS; i++) {
    const int k = i % NUMBERS;
    uint32_t got = 0;
    int code = ty_tensor_read(h->number[k], &got, sizeof got);
    if (broken[k])
      h->wrong += code != TY_ERUN || !reported_as(broken[k]);
    else
      h->wrong += code != TY_OK || got != want[k];
  }
}

static double read_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *break_often(void *context)
{
  struct host *h = context;
  for (int round = 0; round < ROUNDS && !h->wrong; round++) {
    uint32_t want[NUMBERS] = { 0 };
    int broken[NUMBERS] = { 0 };
    for (int i = 0; i < NUMBERS; i++)
      h->wrong += ty_tensor_write(h->number[i], &want[i], sizeof want[i]) != TY_OK;
    submit_round(h, round, want, broken);
    const double from = read_seconds();
    read_round(h, want, broken);
    h->longest = fmax(h->longest, read_seconds() - from);
  }
  return NULL;
}

static void test_failures_from_four_hosts(void)
{
  static struct host host[HOSTS];
  pthread_t thread[HOSTS];
  for (int i = 0; i < HOSTS; i++) {
    host[i].seed = (unsigned)i + 1;
    for (int k = 0; k < NUMBERS; k++) host[i].number[k] = new_floats(TY_CPU + k % DEVICES, 1, 0);
  }
  for (int i = 0; i < HOSTS; i++) pthread_create(&thread[i], NULL, break_often, &host[i]);
  for (int i = 0; i < HOSTS; i++) {
    pthread_join(thread[i], NULL);
    CHECK(!host[i].wrong, "host %d", i);
    if (getenv("TELL")) printf("host %d: reported after at most %.3f s\n", i, host[i].longest);
  }
  while (ty_wait(-1)) {
  }
  for (int i = 0; i < HOSTS; i++)
    for (int k = 0; k < NUMBERS; k++) ty_tensor_free(host[i].number[k]);
  ty_tensor *t = new_floats(TY_CPU, 1, 3);
  SURE(read_first(t) == 3);
  ty_tensor_free(t);
}

/* -- weights whose step failed ----------------------------------------------------------------- */

static int gate, ran;

static int break_down(void *context) { return fail(TY_ERUN, "it broke"); }

static int wait_for_gate(void *context)
{
  while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE)) usleep(100);
  return TY_OK;
}

static int count_run(void *context) { return ran++, TY_OK; }

static void submit_task(int device, int (*run)(void *), ty_tensor *read, ty_tensor *write)
{
  struct access w = tensor_access(write), r = { 0 };
  struct task t = { .run = run, .write = &w, .nwrite = 1 };
  if (read) r = tensor_access(read), t.read = &r, t.nread = 1;
  w.in_place = !read;
  RUN(device_submit(device, &t, NULL));
}

/* Checks that a weight is good again for tasks that come after the failure of its step was
** reported. */
static void test_reported_failure_holds_for_older_tasks(void)
{
  ty_tensor *a = new_floats(TY_CPU, 1, 0), *b = new_floats(TY_CPU + 1, 1, 0);
  float x;
  storage_set_lasting(a->storage);
  submit_task(TY_CPU, break_down, NULL, a);
  submit_task(TY_CPU + 1, wait_for_gate, NULL, b);
  submit_task(TY_CPU + 1, count_run, a, b);
  SURE(ty_tensor_read(a, &x, sizeof x) == TY_ERUN);
  __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
  SURE(ty_tensor_read(b, &x, sizeof x) == TY_ERUN);
  SURE(ran == 0);
  RUN(ty_tensor_read(a, &x, sizeof x));
  submit_task(TY_CPU + 1, count_run, a, b);
  RUN(ty_wait(-1));
  SURE(ran == 1);
  ty_tensor_free(a);
  ty_tensor_free(b);
}

int main(void)
{
  alarm(PATIENCE);
  test_executors_share_parameters();
  test_program_made_during_a_run();
  if (!device_sync()) {
    test_failures_from_four_hosts();
    test_reported_failure_holds_for_older_tasks();
  }
  return check_end();
}
