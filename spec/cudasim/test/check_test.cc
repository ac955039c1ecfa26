/* check_test.cc - kernels with faults, which the checker must find and name, and similar correct
** ones, which must leave no finding. Runs with CUDASIM_CHECK=1. */
#include "test.h"

static const char SOURCE[] = R"(
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
extern "C" __global__ void race_shared(float *y)
{
  __shared__ float s[128];
  s[threadIdx.x] = threadIdx.x;
  y[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void good_shared(float *y)
{
  __shared__ float s[128];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[blockIdx.x * 128 + threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void race_warp(float *y)
{
  __shared__ float s[32];
  s[threadIdx.x] = threadIdx.x;
  y[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
}
extern "C" __global__ void good_warp(float *y)
{
  __shared__ float s[32];
  s[threadIdx.x] = threadIdx.x;
  __syncwarp();
  y[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
}
extern "C" __global__ void race_reuse(float *y)
{
  __shared__ float s[64];
  for (int i = 0; i < 2; i++) {
    s[threadIdx.x] = i;
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
  }
}
extern "C" __global__ void race_blocks(float *y) { y[0] = blockIdx.x; }
extern "C" __global__ void good_atomic(float *y) { atomicAdd(y, 1.f); }
extern "C" __global__ void good_atomic_after(float *y)
{
  __shared__ float s[32];
  s[threadIdx.x] = 0;
  __syncthreads();
  y[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
  __syncthreads();
  atomicAdd(&s[0], 1.f);
}
extern "C" __global__ void race_atomic(float *y) { if (threadIdx.x) atomicAdd(y, 1.f); else y[0] = 1; }
extern "C" __global__ void race_readers(float *y)
{
  float v = y[0];
  y[threadIdx.x + 1] = v;
  if (threadIdx.x == 31) y[0] = v + 1;
}
extern "C" __global__ void good_readers(float *y)
{
  float v = y[0];
  __syncthreads();
  if (threadIdx.x == 31) y[0] = v + 1;
}
extern "C" __global__ void good_bytes(unsigned char *y) { y[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void good_own_bytes(unsigned char *y) { y[threadIdx.x] += 1; }
extern "C" __global__ void race_words(unsigned short *y)
{
  if (threadIdx.x == 0) ((unsigned *)y)[0] = 1; else y[1] = 1;
}
extern "C" __global__ void bounds(float *y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = 1; }
extern "C" __global__ void good_bounds(float *y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 1; }
extern "C" __global__ void host(const float *x, float *y) { y[0] = x[0]; }
extern "C" __global__ void unwritten(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void unwritten_shared(float *y)
{
  __shared__ float s[32];
  if (threadIdx.x) s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void dynamic_bounds(float *y)
{
  extern __shared__ float s[];
  s[8] = 1;
}
extern "C" __global__ void two_barriers(float *y)
{
  if (threadIdx.x & 1) __syncthreads();
  else
    __syncthreads();
}
extern "C" __global__ void missing_barrier(float *y) { if (threadIdx.x < 16) __shfl_sync(~0u, 1, 0); else __syncthreads(); }
extern "C" __global__ void misaligned(char *y) { *(float *)(y + 1) = 1; }
extern "C" __global__ void constants(float *y)
{
  const float table[4] = { 1, 2, 3, 4 };
  float own[4];
  for (int i = 0; i < 4; i++) own[i] = table[(i + threadIdx.x) % 4];
  y[threadIdx.x] = own[threadIdx.x % 4];
}
)";

static CUmodule module;

struct Case { const char *name; unsigned blocks, threads; const char *words; };
static const Case cases[] = {
  { "race_shared", 1, 128, "" }, { "good_shared", 3, 128, nullptr },
  { "race_warp", 1, 32, "" }, { "good_warp", 1, 32, nullptr },
  { "race_reuse", 1, 64, "a race" },
  { "race_blocks", 4, 1, "a race of two writes" }, { "good_atomic", 4, 64, nullptr },
  { "good_atomic_after", 2, 32, nullptr },
  { "race_atomic", 1, 2, "a race" }, { "race_readers", 1, 32, "a race" }, { "good_readers", 1, 32, nullptr },
  { "good_bytes", 1, 256, nullptr }, { "good_own_bytes", 1, 256, nullptr },
  { "race_words", 1, 64, "a race" },
  { "unwritten_shared", 1, 32, "was never written" }, { "dynamic_bounds", 1, 1, "outside" },
  { "two_barriers", 1, 32, "two barriers" }, { "missing_barrier", 1, 32, "deadlock" },
  { "misaligned", 1, 1, "misaligned" }, { "constants", 1, 64, nullptr },
};

static CUfunction find_function(const char *name)
{
  CUfunction f = nullptr;
  OK(cuModuleGetFunction(&f, module, name));
  return f;
}

static void judge_launch(const char *name, CUresult launched, const char *words)
{
  CUresult r = launched ? launched : finish_stream();
  bool right = words ? r && strstr(cudasim_why(), words) && strstr(cudasim_why(), name) : !r;
  if (!right) printf("%s: %d, %s\n", name, (int)r, cudasim_why());
  CHECK(right);
  cudasim_forget();
}

static void test_cases()
{
  for (const Case &c : cases) {
    CUdeviceptr y = new_memory(4096);
    OK(cuMemsetD8Async(y, 0, 4096, stream));
    judge_launch(
        c.name, launch_kernel(find_function(c.name), c.blocks, c.threads, 32, { &y }), c.words);
    OK(cuMemFree_v2(y));
  }
}

static void test_addresses()
{
  int n = 250;
  static float here[4];
  CUdeviceptr y = new_memory(1000), x = new_memory(256), outside = (CUdeviceptr)(uintptr_t)here;
  judge_launch(
      "good_bounds", launch_kernel(find_function("good_bounds"), 2, 128, 0, { &y, &n }), nullptr);
  judge_launch("bounds", launch_kernel(find_function("bounds"), 2, 128, 0, { &y, &n }),
      "after the end of an allocation of 1000");
  judge_launch("host", launch_kernel(find_function("host"), 1, 1, 0, { &outside, &y }),
      "outside of device memory");
  judge_launch("unwritten", launch_kernel(find_function("unwritten"), 1, 64, 0, { &x, &y }),
      "was never written");
  OK(cuMemcpyDtoDAsync_v2(y, x, 256, stream));
  judge_launch("unwritten", launch_kernel(find_function("unwritten"), 1, 64, 0, { &y, &x }),
      "was never written");
  OK(cuMemsetD8Async(x, 0, 256, stream));
  judge_launch(
      "unwritten", launch_kernel(find_function("unwritten"), 1, 64, 0, { &x, &y }), nullptr);
  float *pinned;
  OK(cuMemHostAlloc((void **)&pinned, 4, 0));
  judge_launch("host", launch_kernel(find_function("host"), 1, 1, 0, { &pinned, &y }), nullptr);
}

static void test_lines()
{
  CUdeviceptr y = copy_up(std::vector<float>(1));
  OK(launch_kernel(find_function("race_blocks"), 4, 1, 0, { &y }));
  CHECK_CODE(finish_stream(), CUDA_ERROR_LAUNCH_FAILED);
  FOUND("race_blocks: test.cu:38: a race of two writes, 4 bytes by block");
}

void run_all()
{
  if (!getenv("CUDASIM_CHECK")) {
    printf("CUDASIM_CHECK is not set\n");
    exit(1);
  }
  std::string image = compile_image(SOURCE);
  OK(cuModuleLoadData(&module, image.data()));
  test_cases();
  test_addresses();
  test_lines();
}
