/* device_test.cc - the device language: kernels whose results are known. */
#include "test.h"

static const char SOURCE[] = R"(
#include <cuda_fp16.h>
#include <cuda_bf16.h>
// a comment with "quotes" and __global__ void nothing(
struct args { long long n; const float *x; float *y; };
#define TILE 16

extern "C" __global__ void __launch_bounds__(256) add_one(const struct args __grid_constant__ a)
{
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < a.n; i += gridDim.x * blockDim.x)
    a.y[i] = a.x[i] + 1;
}

extern "C" __global__ void sum(const float *x, float *y, int n)
{
  extern __shared__ __align__(16) float part[];
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  part[threadIdx.x] = s;
  __syncthreads();
  for (unsigned m = blockDim.x / 2; m >= 32; m /= 2) {
    if (threadIdx.x < m) part[threadIdx.x] += part[threadIdx.x + m];
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    s = part[threadIdx.x];
    for (int d = 16; d; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (threadIdx.x == 0) atomicAdd(y, s);
  }
}

extern "C" __global__ void transpose(const float *x, float *y, int rows, int cols)
{
  __shared__ float tile[TILE][TILE + 1];
  int r = blockIdx.y * TILE + threadIdx.y, c = blockIdx.x * TILE + threadIdx.x;
  if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
  __syncthreads();
  r = blockIdx.x * TILE + threadIdx.y, c = blockIdx.y * TILE + threadIdx.x;
  if (r < cols && c < rows) y[r * rows + c] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void votes(unsigned *y)
{
  unsigned t = threadIdx.x;
  y[t] = __ballot_sync(~0u, t % 3 == 0);
  y[t + 32] = (unsigned)__any_sync(~0u, t == 5) * 2 + (unsigned)__all_sync(~0u, t < 31);
  y[t + 64] = __shfl_up_sync(~0u, t, 1);
  y[t + 96] = __shfl_down_sync(~0u, t, 2, 8);
  y[t + 128] = __shfl_sync(~0u, t, 3, 8);
  y[t + 160] = (unsigned)__syncthreads_count(t & 1);
  if (t >= 8) return;
  y[t + 192] = __reduce_add_sync(~0u, t);
  y[t + 200] = __popc(__activemask());
}

extern "C" __global__ void halves(const __half *x, const __nv_bfloat16 *b, float *y)
{
  half2 two = __floats2half2_rn(0.5f, 3.f);
  y[0] = __half2float(x[0]) + __bfloat162float(b[0]);
  y[1] = (float)(x[1] * __float2half(2.f));
  y[2] = __low2float(two * two) + __high2float(two);
  y[3] = __half2float(__ushort_as_half(0x3c01));
}

// a (16 x 16) times b (16 x 8) plus 1, as fragments of mma.sync.m16n8k16
extern "C" __global__ void tile_product(const unsigned short *a, const unsigned short *b, float *y,
    int brain)
{
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned left[4], right[2];
  for (int i = 0; i < 4; i++) {
    const unsigned short *of = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    left[i] = of[0] | (unsigned)of[1] << 16;
  }
  for (int i = 0; i < 2; i++) {
    const unsigned short *of = b + (2 * t + i * 8) * 8 + g;
    right[i] = of[0] | (unsigned)of[8] << 16;
  }
  float sums[4] = { 1, 1, 1, 1 };
  cudasim_multiply_tile(sums, left, right[0], right[1], brain);
  for (int i = 0; i < 4; i++) y[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

extern "C" __global__ void numbers(double *y)
{
  y[0] = rsqrt(4.0) + rsqrtf(4.f);
  y[1] = __uint_as_float(0x40490fdbu);
  y[2] = __clz(1) + __popc(255) + __ffs(8) + (double)(__brev(1u) >> 31);
  y[3] = __funnelshift_l(0x80000000u, 1, 1);
  y[4] = fmaf(2, 3, 4) + __fdividef(1, 4) + __expf(0);
  y[5] = erfinv(0.5);
  y[6] = max(1, 2u) + min(3.f, 2.) + max(-1LL, 5);
  y[7] = __float2int_rz(1e20f) + __double2int_rn(2.5);
  y[8] = __umulhi(0x80000000u, 6);
  y[9] = lgamma(5.0) + tgammaf(4.f) + erff(0.f);
  y[10] = __dp4a(0x01020304, 0x01010101, 5);
  y[11] = fminf(__int_as_float(0x7fc00000), 2.f);
  y[12] = normcdfinv(0.975);
}

__constant__ float weights[2];
__device__ int counter;
extern "C" __global__ void globals(float *y)
{
  atomicAdd(&counter, 1);
  if (threadIdx.x == 0) y[0] = weights[0] * weights[1];
}

extern "C" __global__ void atomics(int *i, unsigned long long *u, double *d, float *f)
{
  atomicMax(i, (int)threadIdx.x);
  atomicMin(i + 1, -(int)threadIdx.x);
  atomicAdd(u, 2);
  atomicAdd(d, 0.5);
  atomicCAS(i + 2, 7, 9);
  float old = *f, next;
  int *bits = (int *)f;
  do next = old, old = __int_as_float(atomicCAS(bits, __float_as_int(next), __float_as_int(next + 1)));
  while (old != next);
}
template <class T> __global__ void fill(T *y, T v) { y[threadIdx.x] = v; }
)";

static CUmodule module;

static CUfunction find_function(const char *name)
{
  CUfunction f = nullptr;
  OK(cuModuleGetFunction(&f, module, name));
  return f;
}

static void test_parameters()
{
  std::vector<float> x(1000);
  for (size_t i = 0; i < x.size(); i++) x[i] = (float)i;
  CUdeviceptr dx = copy_up(x), dy = new_memory(4000);
  struct { long long n; CUdeviceptr x, y; } a = { 1000, dx, dy };
  OK(launch_kernel(find_function("add_one"), 3, 256, 0, { &a }));
  a.n = 0;                              /* parameters are copied at the call */
  auto y = copy_down<float>(dy, 1000);
  CHECK(y[0] == 1 && y[999] == 1000);
  CHECK_CODE(launch_kernel(find_function("add_one"), 3, 512, 0, { &a }), CUDA_ERROR_INVALID_VALUE);
  FOUND("__launch_bounds__ are 256");
}

static void test_reduction()
{
  std::vector<float> x(10000, 0.25f);
  CUdeviceptr dx = copy_up(x), dy = copy_up(std::vector<float>{ 0 });
  int n = 10000;
  OK(launch_kernel(find_function("sum"), 5, 256, 1024, { &dx, &dy, &n }));
  CHECK(copy_down<float>(dy, 1)[0] == 2500);
}

static void test_transpose()
{
  int rows = 37, cols = 21;
  std::vector<float> x((size_t)(rows * cols));
  for (size_t i = 0; i < x.size(); i++) x[i] = (float)i;
  CUdeviceptr dx = copy_up(x), dy = new_memory(x.size() * 4);
  void *p[] = { &dx, &dy, &rows, &cols };
  OK(cuLaunchKernel(find_function("transpose"), 2, 3, 1, 16, 16, 1, 0, stream, p, nullptr));
  auto y = copy_down<float>(dy, x.size());
  bool same = true;
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < cols; c++) same &= y[(size_t)(c * rows + r)] == x[(size_t)(r * cols + c)];
  CHECK(same);
}

static void test_votes()
{
  CUdeviceptr dy = new_memory(208 * 4);
  OK(launch_kernel(find_function("votes"), 1, 32, 0, { &dy }));
  auto y = copy_down<unsigned>(dy, 208);
  CHECK(y[7] == 0x49249249 && y[32] == 2);
  CHECK(y[64] == 0 && y[64 + 9] == 8);
  CHECK(y[96] == 2 && y[96 + 6] == 6);
  CHECK(y[128 + 13] == 11 && y[160] == 16);
  CHECK(y[192] == 28 && y[200] >= 8);
}

static void test_numbers()
{
  CUdeviceptr dy = new_memory(13 * 8);
  OK(launch_kernel(find_function("numbers"), 1, 1, 0, { &dy }));
  auto y = copy_down<double>(dy, 13);
  const double want[13] = { 1, 3.1415927410125732, 31 + 8 + 4 + 1, 3, 11.25, 0.47693627620446987,
    2 + 2 + 5, 2147483647. + 2, 3, log(24.) + 6, 15, 2, 1.959963984540054 };
  for (int i = 0; i < 13; i++) {
    if (i == 7) continue;               /* int overflow: any number is right */
    CHECK(fabs(y[(size_t)i] - want[i]) < 1e-12);
  }
}

static void test_halves()
{
  CUdeviceptr dx = copy_up(std::vector<unsigned short>{ 0x3c00, 0x4200 });
  CUdeviceptr db = copy_up(std::vector<unsigned short>{ 0x4040 }), dy = new_memory(16);
  OK(launch_kernel(find_function("halves"), 1, 1, 0, { &dx, &db, &dy }));
  auto y = copy_down<float>(dy, 4);
  CHECK(y[0] == 4 && y[1] == 6 && y[2] == 3.25 && y[3] == 1.0009765625f);
}

/* Returns the bits of a number that float16 and bfloat16 hold exactly. */
static unsigned short half_bits(float v, bool brain)
{
  uint32_t u;
  memcpy(&u, &v, sizeof u);
  if (brain || v == 0) return (unsigned short)(u >> 16);
  return (unsigned short)((u >> 16 & 0x8000) | ((u >> 23 & 255) - 112) << 10 | (u >> 13 & 0x3ff));
}

/* Checks products of whole numbers that fit the 8 significant bits of bfloat16: sums are exact. */
static void test_tile_product()
{
  for (int brain = 0; brain < 2; brain++) {
    int left[16][16], right[16][8];
    std::vector<unsigned short> a, b;
    for (int i = 0; i < 16; i++)
      for (int k = 0; k < 16; k++) {
        left[i][k] = (i * 7 + k * 5) % 23 - 11;
        a.push_back(half_bits((float)left[i][k], brain));
      }
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++) {
        right[k][j] = (k * 11 + j * 3) % 19 - 9;
        b.push_back(half_bits((float)right[k][j], brain));
      }
    CUdeviceptr da = copy_up(a), db = copy_up(b), dy = new_memory(16 * 8 * 4);
    OK(launch_kernel(find_function("tile_product"), 1, 32, 0, { &da, &db, &dy, &brain }));
    auto y = copy_down<float>(dy, 16 * 8);
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 8; j++) {
        int sum = 1;
        for (int k = 0; k < 16; k++) sum += left[i][k] * right[k][j];
        CHECK(y[i * 8 + j] == (float)sum);
      }
  }
}

static void test_globals()
{
  CUdeviceptr weights, counter, dy = new_memory(4);
  size_t bytes;
  float w[2] = { 3, 4 };
  OK(cuModuleGetGlobal_v2(&weights, &bytes, module, "weights"));
  CHECK(bytes == 8);
  OK(cuModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
  OK(cuMemcpyHtoDAsync_v2(weights, w, 8, stream));
  OK(launch_kernel(find_function("globals"), 1, 7, 0, { &dy }));
  OK(launch_kernel(find_function("globals"), 1, 7, 0, { &dy }));
  CHECK(copy_down<float>(dy, 1)[0] == 12);
  CHECK(copy_down<int>(counter, 1)[0] == 14);
}

static void test_atomics()
{
  CUdeviceptr di = copy_up(std::vector<int>{ 0, 0, 7 }),
              du = copy_up(std::vector<unsigned long long>{ 1 });
  CUdeviceptr dd = copy_up(std::vector<double>{ 0 }), df = copy_up(std::vector<float>{ 0 });
  OK(launch_kernel(find_function("atomics"), 2, 100, 0, { &di, &du, &dd, &df }));
  auto i = copy_down<int>(di, 3);
  CHECK(i[0] == 99 && i[1] == -99 && i[2] == 9);
  CHECK(copy_down<unsigned long long>(du, 1)[0] == 401);
  CHECK(copy_down<double>(dd, 1)[0] == 100 && copy_down<float>(df, 1)[0] == 200);
}

static void test_expressions()
{
  nvrtcProgram p;
  const char *lowered = nullptr;
  size_t n;
  OK(nvrtcCreateProgram(&p, SOURCE, "test.cu", 0, nullptr, nullptr));
  OK(nvrtcAddNameExpression(p, "fill<double>"));
  OK(nvrtcCompileProgram(p, 0, nullptr));
  OK(nvrtcGetLoweredName(p, "fill<double>", &lowered));
  OK(nvrtcGetCUBINSize(p, &n));
  std::string image(n, 0);
  OK(nvrtcGetCUBIN(p, &image[0]));
  CUmodule m;
  CUfunction f;
  OK(cuModuleLoadData(&m, image.data()));
  OK(cuModuleGetFunction(&f, m, lowered));
  CHECK_CODE(cuModuleGetFunction(&f, m, "nothing"), CUDA_ERROR_NOT_FOUND);
  OK(cuModuleGetFunction(&f, m, lowered));
  CUdeviceptr dy = new_memory(40);
  double v = 2.5;
  OK(launch_kernel(f, 1, 5, 0, { &dy, &v }));
  CHECK(copy_down<double>(dy, 5)[4] == 2.5);
  OK(nvrtcDestroyProgram(&p));
  OK(cuModuleUnload(m));
}

static void test_errors_of_compilation()
{
  std::string log;
  CHECK(compile_image("extern \"C\" __global__ void k() {\n  unknown(1);\n}", &log).empty());
  CHECK(log.find("test.cu:2") != std::string::npos);
  CUmodule m;
  CHECK_CODE(cuModuleLoadData(&m, "no image"), CUDA_ERROR_INVALID_IMAGE);
}

void run_all()
{
  std::string image = compile_image(SOURCE);
  OK(cuModuleLoadData(&module, image.data()));
  test_parameters();
  test_reduction();
  test_transpose();
  test_votes();
  test_numbers();
  test_halves();
  test_tile_product();
  test_globals();
  test_atomics();
  test_expressions();
  test_errors_of_compilation();
}
