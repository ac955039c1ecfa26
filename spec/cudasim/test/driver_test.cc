/* driver_test.cc - streams, events, graphs, memory: guarantees for correct programs, and findings
** about others. */
#include <pthread.h>
#include <unistd.h>
#include "test.h"

static const char SOURCE[] = R"(
extern "C" __global__ void axpy(float *y, const float *x, float a, int n)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void big(float *y)
{
  extern __shared__ float s[];
  s[20000] = 5;
  y[0] = s[20000];
}
__global__ void not_extern_c(float *y) { y[0] = 1; }
)";
static CUfunction axpy;
static std::string image;

static CUstream new_stream()
{
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  return s;
}

static CUevent new_event(unsigned flags = CU_EVENT_DISABLE_TIMING)
{
  CUevent e;
  OK(cuEventCreate(&e, flags));
  return e;
}

static CUresult launch_add(CUdeviceptr y, CUdeviceptr x, float a, int n, CUstream s)
{
  return launch_kernel(axpy, (unsigned)(n + 127) / 128, 128, 0, { &y, &x, &a, &n }, s);
}

/* -- order ------------------------------------------------------------------------------------- */

/* Checks that two streams without a wait between them run in both orders in many tries. */
static void test_interleaving()
{
  CUstream other = new_stream();
  int first = 0, second = 0;
  for (int i = 0; i < 40; i++) {
    CUdeviceptr d = new_memory(4);
    OK(cuMemsetD32Async(d, 1, 1, other));
    OK(cuMemsetD32Async(d, 2, 1, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamSynchronize(other));
    int v = copy_down<int>(d, 1)[0];
    first += v == 1;
    second += v == 2;
    OK(cuMemFree_v2(d));
  }
  CHECK(first > 3 && second > 3);
  OK(cuStreamDestroy_v2(other));
}

static void test_waits()
{
  CUstream other = new_stream();
  CUevent e = new_event();
  CUdeviceptr d = new_memory(4);
  for (int i = 0; i < 20; i++) {
    OK(cuMemsetD32Async(d, 1, 1, other));
    OK(cuEventRecord(e, other));
    OK(cuStreamWaitEvent(stream, e, 0));
    OK(cuMemsetD32Async(d, 2, 1, stream));
    CHECK(copy_down<int>(d, 1)[0] == 2);
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
  }
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(other));
}

/* Checks that nothing happens before a wait. */
static void test_lateness()
{
  int *p;
  OK(cuMemHostAlloc((void **)&p, 4, 0));
  *p = 1;
  CUdeviceptr d = new_memory(4);
  OK(cuMemcpyHtoDAsync_v2(d, p, 4, stream));
  *p = 2;                               /* too early: the copy has not begun */
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY || copy_down<int>(d, 1)[0] == 2);
  CHECK(copy_down<int>(d, 1)[0] == 2);
  OK(cuMemFreeHost(p));
}

static void set_flag(void *p) { __atomic_store_n((int *)p, 1, __ATOMIC_SEQ_CST); }

/* Checks that a host function runs without a wait for its stream. */
static void test_host_function()
{
  int flag = 0;
  OK(cuLaunchHostFunc(stream, set_flag, &flag));
  for (int i = 0; i < 1000 && !__atomic_load_n(&flag, __ATOMIC_SEQ_CST); i++) usleep(1000);
  CHECK(flag == 1);
}

static void test_times()
{
  CUevent a = new_event(0), b = new_event(0), untimed = new_event();
  float ms = -1;
  OK(cuEventRecord(a, stream));
  OK(cuEventRecord(b, stream));
  OK(cuEventRecord(untimed, stream));
  OK(cuEventSynchronize(b));
  OK(cuEventElapsedTime_v2(&ms, a, b));
  CHECK(ms >= 0);
  CHECK_CODE(cuEventElapsedTime_v2(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
  FOUND("without time");
}

/* -- graphs ------------------------------------------------------------------------------------ */

static void test_graph()
{
  CUdeviceptr x = copy_up(std::vector<float>(100, 1)), y = copy_up(std::vector<float>(100, 0));
  CUgraph g;
  CUgraphExec exec;
  CUgraphNodeType type;
  CUgraphNode nodes[3];
  CUstreamCaptureStatus status;
  size_t n = 0;
  OK(finish_stream());
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuStreamIsCapturing(stream, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  float a = 2;
  int count = 100;
  OK(launch_kernel(axpy, 1, 128, 0, { &y, &x, &a, &count }));
  a = 100;                              /* too late: the node has its own copy */
  OK(cuMemsetD32Async(x, 0x40400000, 50, stream));
  OK(cuStreamEndCapture(stream, &g));
  OK(cuGraphGetNodes(g, nullptr, &n));
  CHECK(n == 2);
  OK(cuGraphGetNodes(g, nodes, &n));
  OK(cuGraphNodeGetType(nodes[1], &type));
  CHECK(type == CU_GRAPH_NODE_TYPE_MEMSET);
  OK(cuGraphInstantiateWithFlags(&exec, g, 0));
  OK(cuGraphDestroy(g));
  CHECK(copy_down<float>(y, 1)[0] == 0);
  for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, stream));
  auto v = copy_down<float>(y, 100);
  CHECK(v[0] == 2 + 6 + 6 && v[99] == 6);
  OK(cuGraphExecDestroy(exec));
}

/* Checks a second stream that joins a capture by an event and is joined by another. */
static void test_joined_streams()
{
  CUstream other = new_stream();
  CUevent fork = new_event(), join = new_event();
  CUdeviceptr x = copy_up(std::vector<float>(10, 1)), y = new_memory(40), z = new_memory(40);
  CUgraph g;
  CUgraphExec exec;
  OK(finish_stream());
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuEventRecord(fork, stream));
  OK(cuStreamWaitEvent(other, fork, 0));
  OK(cuMemsetD32Async(y, 0, 10, stream));
  OK(cuMemsetD32Async(z, 0, 10, other));
  OK(launch_add(z, x, 3, 10, other));
  OK(cuEventRecord(join, other));
  OK(cuStreamWaitEvent(stream, join, 0));
  OK(launch_add(y, z, 2, 10, stream));
  OK(cuStreamEndCapture(stream, &g));
  OK(cuGraphInstantiateWithFlags(&exec, g, 0));
  for (int i = 0; i < 20; i++) {
    OK(cuGraphLaunch(exec, stream));
    CHECK(copy_down<float>(y, 10)[9] == 6);
  }
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(g));
  OK(cuStreamDestroy_v2(other));
}

static void test_capture_rules()
{
  CUstream other = new_stream();
  CUevent e = new_event();
  CUgraph g;
  CUdeviceptr d = new_memory(4);
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK_CODE(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK_CODE(cuMemsetD32Async(d, 0, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK_CODE(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  FOUND("cuStreamSynchronize: the stream captures");

  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK_CODE(cuMemAlloc_v2(&d, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK_CODE(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  FOUND("cuMemAlloc_v2: not allowed during a capture");

  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(e, stream));
  OK(cuStreamWaitEvent(other, e, 0));
  OK(cuMemsetD32Async(d, 0, 1, other));
  CHECK_CODE(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  FOUND("not joined");

  OK(cuEventRecord(e, other));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_CODE(cuStreamWaitEvent(stream, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CHECK_CODE(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  FOUND("outside of its capture");

  int pageable = 0;
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuMemcpyHtoDAsync_v2(d, &pageable, 4, stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  FOUND("pageable memory");
  OK(cuStreamDestroy_v2(other));
}

/* -- memory ------------------------------------------------------------------------------------ */

static const size_t GRANULE = 2 << 20;

static CUmemGenericAllocationHandle map_piece(size_t bytes, CUdeviceptr at)
{
  CUmemAllocationProp how = {};
  CUmemAccessDesc access = {};
  CUmemGenericAllocationHandle h = 0;
  how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  how.location = access.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemCreate(&h, bytes, &how, 0));
  OK(cuMemMap(at, bytes, 0, h, 0));
  OK(cuMemSetAccess(at, bytes, &access, 1));
  return h;
}

/* Checks that a pool grows in place, and keeps its contents when it moves. */
static void test_pools()
{
  CUdeviceptr base, other;
  size_t left, total, before;
  OK(cuMemGetInfo_v2(&before, &total));
  OK(cuMemAddressReserve(&base, 64 * GRANULE, 0, 0, 0));
  auto a = map_piece(GRANULE, base), b = map_piece(2 * GRANULE, base + GRANULE);
  OK(cuMemGetInfo_v2(&left, &total));
  CHECK(before - left == 3 * GRANULE);
  OK(cuMemsetD8Async(base + GRANULE - 8, 7, 16, stream));
  auto v = copy_down<unsigned char>(base + GRANULE - 9, 18);
  CHECK(v[1] == 7 && v[16] == 7 && v[17] == 255);
  CHECK_CODE(cuMemAddressFree(base, 64 * GRANULE), CUDA_ERROR_INVALID_VALUE);
  FOUND("still mapped");
  OK(cuMemUnmap(base, GRANULE));
  OK(cuMemAddressReserve(&other, 4 * GRANULE, 0, 0, 0));
  OK(cuMemMap(other, GRANULE, 0, a, 0));
  CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
  OK(cuMemSetAccess(other, GRANULE, &access, 1));
  access.location.id = 1;
  CHECK_CODE(cuMemSetAccess(other, GRANULE, &access, 1), CUDA_ERROR_INVALID_DEVICE);
  FOUND("access for no device");
  CHECK(copy_down<unsigned char>(other + GRANULE - 8, 8)[7] == 7);
  OK(cuMemUnmap(other, GRANULE));
  OK(cuMemUnmap(base + GRANULE, 2 * GRANULE));
  OK(cuMemRelease(a));
  OK(cuMemRelease(b));
  OK(cuMemAddressFree(base, 64 * GRANULE));
  OK(cuMemAddressFree(other, 4 * GRANULE));
  OK(cuMemGetInfo_v2(&left, &total));
  CHECK(before == left);
}

static void test_limits()
{
  CUdeviceptr d;
  CHECK_CODE(cuMemAlloc_v2(&d, (size_t)1 << 40), CUDA_ERROR_OUT_OF_MEMORY);
  d = new_memory(100);
  OK(cuMemFree_v2(d));
  CHECK_CODE(cuMemFree_v2(d), CUDA_ERROR_INVALID_VALUE);
  FOUND("is not what cuMemAlloc returned");
  CHECK_CODE(cuMemAlloc_v2(&d, 0), CUDA_ERROR_INVALID_VALUE);
  FOUND("0 bytes");
  int host = 0;
  CHECK_CODE(cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)&host, &host, 4, stream),
      CUDA_ERROR_INVALID_VALUE);
  FOUND("the destination is no device memory");
}

static void test_shared_memory()
{
  CUmodule m;
  CUfunction f;
  CUdeviceptr y = new_memory(4);
  OK(cuModuleLoadData(&m, image.data()));
  OK(cuModuleGetFunction(&f, m, "big"));
  CHECK_CODE(launch_kernel(f, 1, 1, 100000, { &y }), CUDA_ERROR_INVALID_VALUE);
  FOUND("dynamic shared memory, allowed are 49152");
  OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
  OK(launch_kernel(f, 1, 1, 100000, { &y }));
  CHECK(copy_down<float>(y, 1)[0] == 5);
  CHECK_CODE(cuModuleGetFunction(&f, m, "not_extern_c"), CUDA_ERROR_NOT_FOUND);
  OK(cuModuleUnload(m));
}

/* -- failures ---------------------------------------------------------------------------------- */

static void test_planned_failures()
{
  CUdeviceptr d;
  cudasim_fail("cuMemAlloc:2");
  OK(cuMemAlloc_v2(&d, 4));
  OK(cuMemFree_v2(d));
  CHECK_CODE(cuMemAlloc_v2(&d, 4), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc_v2(&d, 4));
  cudasim_fail("cuMemsetD8Async:1:719");
  CHECK_CODE(cuMemsetD8Async(d, 0, 4, stream), CUDA_ERROR_LAUNCH_FAILED);
  CHECK_CODE(cuMemsetD8Async(d, 0, 4, stream), CUDA_ERROR_LAUNCH_FAILED);
  OK(cuMemFree_v2(d));                  /* what releases still works */
  cudasim_forget();
  cudasim_fail("");
}

static void test_misuse()
{
  CUevent e = new_event();
  CUstream s = new_stream();
  OK(cuEventDestroy_v2(e));
  CHECK_CODE(cuEventRecord(e, stream), CUDA_ERROR_INVALID_HANDLE);
  FOUND("not an event, or destroyed before");
  OK(cuStreamDestroy_v2(s));
  CHECK_CODE(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
  FOUND("not a stream, or destroyed before");
  CHECK_CODE(launch_kernel(axpy, 0, 1, 0, {}), CUDA_ERROR_INVALID_VALUE);
  FOUND("a grid of no threads");
  OK(cuCtxSetCurrent(nullptr));
  CHECK_CODE(cuStreamCreate(&s, 0), CUDA_ERROR_INVALID_CONTEXT);
  FOUND("no current context");
  OK(cuCtxSetCurrent(context));
}

static void test_symbols()
{
  void *p = nullptr;
  CUdriverProcAddressQueryResult r;
  OK(cuGetProcAddress_v2("cuMemAlloc", &p, 13000, 0, &r));
  CHECK(p == (void *)cuMemAlloc_v2);
  CHECK_CODE(cuGetProcAddress_v2("cuNothing", &p, 13000, 0, &r), CUDA_ERROR_NOT_FOUND);
  CHECK(r == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND && !p);
}

void run_all()
{
  image = compile_image(SOURCE);
  axpy = compile_kernel(SOURCE, "axpy");
  test_interleaving();
  test_waits();
  test_lateness();
  test_host_function();
  test_times();
  test_graph();
  test_joined_streams();
  test_capture_rules();
  test_pools();
  test_limits();
  test_shared_memory();
  test_planned_failures();
  test_misuse();
  test_symbols();
}
