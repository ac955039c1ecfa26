/* guard_test.cc - errors that are found without the checker: faults at guard pages, and a host that
** touches device memory (in a child process, which this ends). */
#include <sys/wait.h>
#include <unistd.h>
#include "test.h"

static const char SOURCE[] = R"(
extern "C" __global__ void far(float *y) { y[threadIdx.x * 100000] = 1; }
extern "C" __global__ void fine(float *y) { y[threadIdx.x] = 1; }
extern "C" __global__ void nothing(float *y) { float *p = 0; *p = 1; }
extern "C" __global__ void order(int *y) { y[0] = threadIdx.x; }
extern "C" __global__ void order_of_blocks(int *y) { y[0] = blockIdx.x; }
extern "C" __global__ void unwritten(const float *x, float *y) { y[0] = x[0]; }
extern "C" __global__ void stop(float *y) { assert(y == 0); }
)";

/* Returns the exit status of a child process that calls f. */
template <class F> static int run_child(F f)
{
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_faults()
{
  CUdeviceptr y = new_memory(400);
  OK(launch_kernel(compile_kernel(SOURCE, "far"), 1, 2, 0, { &y }));
  CHECK_CODE(finish_stream(), CUDA_ERROR_ILLEGAL_ADDRESS);
  FOUND("after the end of an allocation of 400");
  OK(launch_kernel(compile_kernel(SOURCE, "nothing"), 1, 2, 0, { &y }));
  CHECK_CODE(finish_stream(), CUDA_ERROR_ILLEGAL_ADDRESS);
  FOUND("not device memory");
  OK(launch_kernel(compile_kernel(SOURCE, "stop"), 1, 2, 0, { &y }));
  CHECK_CODE(finish_stream(), CUDA_ERROR_LAUNCH_FAILED);
  FOUND("assertion failed: y == 0");
  OK(launch_kernel(compile_kernel(SOURCE, "fine"), 1, 100, 0, { &y }));
  CHECK(copy_down<float>(y, 100)[99] == 1);
}

static void test_sticky()
{
  CUdeviceptr y = new_memory(400);
  CUfunction bad = compile_kernel(SOURCE, "far"), good = compile_kernel(SOURCE, "fine");
  OK(launch_kernel(bad, 1, 2, 0, { &y }));
  CHECK_CODE(finish_stream(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_CODE(launch_kernel(good, 1, 1, 0, { &y }), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_CODE(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  FOUND("an access at");
}

static void test_host()
{
  CUdeviceptr y = new_memory(400);
  OK(cuMemsetD8Async(y, 0, 400, stream));
  OK(finish_stream());
  CHECK(run_child([=] { *(volatile float *)y = 1; }) == 97);
  CHECK(run_child([=] { printf("%f\n", *(volatile float *)y); }) == 97);
  CHECK(run_child([] {}) == 0);
}

/* Returns how often the last thread of the grid was another one than the time before. */
static int changes_of_last(const char *name, unsigned blocks, unsigned threads)
{
  CUfunction f = compile_kernel(SOURCE, name);
  int last = -1, changes = 0;
  for (int i = 0; i < 20; i++) {
    CUdeviceptr y = new_memory(4);
    OK(launch_kernel(f, blocks, threads, 0, { &y }));
    int v = copy_down<int>(y, 1)[0];
    changes += v != last;
    last = v;
  }
  return changes;
}

/* Checks that threads and blocks run in any order, and that fresh memory is NaNs. */
static void test_chance()
{
  CHECK(changes_of_last("order", 1, 64) > 5);
  CHECK(changes_of_last("order_of_blocks", 64, 1) > 5);
  CUdeviceptr x = new_memory(4), y = new_memory(4);
  OK(launch_kernel(compile_kernel(SOURCE, "unwritten"), 1, 1, 0, { &x, &y }));
  float v = copy_down<float>(y, 1)[0];
  CHECK(v != v);
}

/* Checks that objects are counted, and reported at the end of a strict process. */
static void test_leaks()
{
  long before = cudasim_live("events");
  CUevent e;
  OK(cuEventCreate(&e, 0));
  CHECK(cudasim_live("events") == before + 1);
  setenv("CUDASIM_STRICT", "1", 1);
  CHECK(run_child([] { exit(0); }) == 0);
  setenv("CUDASIM_LEAKS", "1", 1);
  CHECK(run_child([] { exit(0); }) == 97);
  unsetenv("CUDASIM_LEAKS");
  CHECK(run_child([=] { cuEventDestroy_v2(e), cuEventDestroy_v2(e), exit(0); }) == 97);
  unsetenv("CUDASIM_STRICT");
  OK(cuEventDestroy_v2(e));
  CHECK(cudasim_live("events") == before);
}

void run_all()
{
  test_leaks();
  test_faults();
  test_sticky();
  test_host();
  test_chance();
}
