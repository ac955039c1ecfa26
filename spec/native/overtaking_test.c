/* overtaking_test.c - tasks that overtake others: a message that is chosen between two parts of
** another, and CPU tasks that pass one that waits for a message. queue_test.c checks the results
** of random programs. */
#include <pthread.h>
#include <unistd.h>
#include "floats.h"
#include "device/device.h"
#include "tensor/tensor.h"

/* Names of tasks in the order in which they ran. */
static char ran[16];
static int nran, begun, may_end; /* atomic */

static int note_run(char name)
{
  ran[__atomic_fetch_add(&nran, 1, __ATOMIC_SEQ_CST)] = name;
  return TY_OK;
}
static int write_name(void *context) { return note_run(*(char *)context); }
static int wait_and_write(void *context)
{
  __atomic_store_n(&begun, 1, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&may_end, __ATOMIC_SEQ_CST)) usleep(100);
  return note_run(*(char *)context);
}
/* Runs in three parts, the first of which takes until may_end. */
static int go_on(void *context)
{
  static int parts;
  wait_and_write(context);
  return ++parts < 3 ? TASK_GOES_ON : TY_OK;
}
/* Chooses the task with the last letter. */
static int choose_last(void *const *context, int n)
{
  int best = 0;
  for (int i = 1; i < n; i++)
    if (*(char *)context[i] > *(char *)context[best]) best = i;
  return best;
}

static void submit_task(
    int device, int (*run)(void *), char *name, ty_tensor *read, ty_tensor *write)
{
  struct access r = { 0 }, w = { 0 };
  if (read) r = tensor_access(read);
  if (write) w = tensor_access(write);
  struct task t = { .run = run,
    .context = name,
    .read = &r,
    .write = &w,
    .nread = read != NULL,
    .nwrite = write != NULL,
    .choose = device == COMM_QUEUE ? choose_last : NULL };
  RUN(device_submit(device, &t, NULL));
}

static void check_order(const char *want)
{
  RUN(ty_wait(-1));
  ran[nran] = 0;
  CHECK(!strcmp(ran, want), "%s, not %s", ran, want);
  nran = begun = may_end = 0;
}

static void wait_until(int *count, int least)
{
  while (__atomic_load_n(count, __ATOMIC_SEQ_CST) < least) usleep(100);
}

static void let_end(void) { __atomic_store_n(&may_end, 1, __ATOMIC_SEQ_CST); }

/* Checks the order: z is chosen, then c, and d, which reads what c writes; then a goes on. */
static void test_messages(void)
{
  ty_tensor *x = new_floats(TY_CPU, 1, 0);
  submit_task(COMM_QUEUE, go_on, "a", NULL, NULL);
  wait_until(&begun, 1);
  submit_task(COMM_QUEUE, write_name, "c", NULL, x);
  submit_task(COMM_QUEUE, write_name, "z", NULL, NULL);
  submit_task(COMM_QUEUE, write_name, "d", x, NULL);
  let_end();
  check_order("azcdaa");
  ty_tensor_free(x);
}

static void test_passing_a_message(void)
{
  ty_tensor *sum = new_floats(TY_CPU, 1, 0), *weight = new_floats(TY_CPU, 1, 0),
            *other = new_floats(TY_CPU, 1, 0);
  submit_task(COMM_QUEUE, wait_and_write, "m", NULL, sum);
  submit_task(TY_CPU, write_name, "u", sum, weight);
  submit_task(TY_CPU, write_name, "f", weight, NULL);
  submit_task(TY_CPU, write_name, "o", NULL, other);
  submit_task(TY_CPU, write_name, "s", NULL, sum); /* over what u reads */
  wait_until(&nran, 1);
  RUN(ty_tensor_wait(other, 1)); /* though u has not passed */
  submit_task(TY_CPU, write_name, "p", other, NULL);
  wait_until(&nran, 2);
  let_end();
  check_order("opmufs");
  ty_tensor_free(sum);
  ty_tensor_free(weight);
  ty_tensor_free(other);
}

int main(void)
{
  if (device_sync()) return check_end();
  test_messages();
  test_passing_a_message();
  return check_end();
}
