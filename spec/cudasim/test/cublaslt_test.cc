/* cublaslt_test.cc - products: values by plain formulas, epilogues and their gradients, batches,
** orders, types; refusals, and findings about programs that break a rule. */
#include "../cublaslt/abi.h"
#include "test.h"
#ifndef CUDASIM_REAL_HEADERS
extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t);
cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t);
cublasStatus_t cublasLtMatmulDescCreate(
    cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t);
cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t);
cublasStatus_t cublasLtMatmulDescGetAttribute(
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, void *, size_t, size_t *);
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *, int *);
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
    cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *, const void *,
    cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *,
    size_t, cudaStream_t);
}
#endif

static cublasLtHandle_t handle;

/* A product of m x k by k x n, column-major. Tests change its descriptors and pointers. */
struct Try {
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulHeuristicResult_t choice;
  CUdeviceptr workspace = 0;
  Try(int m, int n, int k, cudaDataType in = CUDA_R_32F, cudaDataType out = CUDA_R_32F,
      cublasComputeType_t compute = CUBLAS_COMPUTE_32F, cudaDataType scale = CUDA_R_32F,
      bool ta = false)
  {
    int32_t op = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    OK(cublasLtMatmulDescCreate(&product, compute, scale));
    OK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &op, 4));
    OK(cublasLtMatrixLayoutCreate(
        &a, in, (uint64_t)(ta ? k : m), (uint64_t)(ta ? m : k), ta ? k : m));
    OK(cublasLtMatrixLayoutCreate(&b, in, (uint64_t)k, (uint64_t)n, k));
    OK(cublasLtMatrixLayoutCreate(&c, out, (uint64_t)m, (uint64_t)n, m));
  }
  ~Try()
  {
    OK(cublasLtMatmulDescDestroy(product));
    for (auto l : { a, b, c }) OK(cublasLtMatrixLayoutDestroy(l));
    if (workspace) OK(cuMemFree_v2(workspace));
  }
  template <class T> void set(cublasLtMatmulDescAttributes_t which, T value)
  {
    OK(cublasLtMatmulDescSetAttribute(product, which, &value, sizeof value));
  }
  void batches(int32_t n, int64_t as, int64_t bs, int64_t cs)
  {
    int64_t strides[] = { as, bs, cs }, *s = strides;
    for (auto l : { a, b, c }) {
      OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, 4));
      OK(cublasLtMatrixLayoutSetAttribute(
          l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, s++, 8));
    }
  }
  cublasStatus_t choose(size_t workspace_limit = 0, uint32_t aligned = 16)
  {
    cublasLtMatmulPreference_t wish;
    int found = 0;
    OK(cublasLtMatmulPreferenceCreate(&wish));
    OK(cublasLtMatmulPreferenceSetAttribute(
        wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_limit, sizeof workspace_limit));
    OK(cublasLtMatmulPreferenceSetAttribute(
        wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &aligned, sizeof aligned));
    cublasStatus_t r = cublasLtMatmulAlgoGetHeuristic(
        handle, product, a, b, c, c, wish, 1, &choice, &found);
    CHECK(found == !r);
    OK(cublasLtMatmulPreferenceDestroy(wish));
    return r;
  }
  cublasStatus_t run(CUdeviceptr x, CUdeviceptr y, CUdeviceptr z, float alpha = 1, float beta = 0)
  {
    return cublasLtMatmul(handle, product, &alpha, (void *)x, a, (void *)y, b, &beta, (void *)z, c,
        (void *)z, c, &choice.algo, (void *)workspace, choice.workspaceSize, (cudaStream_t)stream);
  }
};

/* Returns small integers, whose products are exact in all types. */
template <class T> static std::vector<T> make_numbers(size_t n, int from)
{
  std::vector<T> x(n);
  for (size_t i = 0; i < n; i++) x[i] = (T)((int)((i * 7 + (size_t)from) % 5) - 2);
  return x;
}

/* Returns the column-major product of m x k by k x n. */
template <class T>
static std::vector<T> compute_product(
    const std::vector<T> &a, const std::vector<T> &b, int m, int n, int k)
{
  std::vector<T> c((size_t)(m * n));
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++)
      for (int l = 0; l < k; l++)
        c[(size_t)(i + j * m)] += a[(size_t)(i + l * m)] * b[(size_t)(l + j * k)];
  return c;
}

/* -- values ------------------------------------------------------------------------------------ */

static void test_plain()
{
  const int m = 5, n = 3, k = 70;
  auto a = make_numbers<float>(m * k, 0), b = make_numbers<float>(k * n, 3),
       c = make_numbers<float>(m * n, 1);
  auto want = compute_product(a, b, m, n, k);
  Try t(m, n, k);
  OK(t.choose(1 << 20));
  CHECK(t.choice.workspaceSize > 0);                  /* a long sum is split */
  t.workspace = new_memory(t.choice.workspaceSize);
  CUdeviceptr x = copy_up(a), y = copy_up(b), z = new_memory(m * n * 4);
  OK(t.run(x, y, z));
  CHECK(copy_down<float>(z, m * n) == want);
  z = copy_up(c);
  OK(t.run(x, y, z, 2, 3));
  for (size_t i = 0; i < c.size(); i++) c[i] = 2 * want[i] + 3 * c[i];
  CHECK(copy_down<float>(z, m * n) == c);
}

static void test_batches()
{
  const int m = 4, n = 2, k = 3, sets = 3;
  auto a = make_numbers<float>(m * k, 0), b = make_numbers<float>(k * n * sets, 2);
  Try t(m, n, k);
  t.batches(sets, 0, k * n, m * n);                   /* one A for all */
  OK(t.choose());
  CUdeviceptr z = new_memory(m * n * sets * 4);
  OK(t.run(copy_up(a), copy_up(b), z));
  auto got = copy_down<float>(z, m * n * sets);
  for (int s = 0; s < sets; s++) {
    std::vector<float> part(b.begin() + s * k * n, b.begin() + (s + 1) * k * n);
    auto want = compute_product(a, part, m, n, k);
    CHECK(std::equal(want.begin(), want.end(), got.begin() + s * m * n));
  }
}

/* Checks row-major matrices, given by the order of the layouts. */
static void test_rows_first()
{
  const int m = 3, n = 4, k = 2;
  std::vector<float> a = { 1, 2, 3, 4, 5, 6 }, b = { 1, 0, 2, 0, 0, 1, 0, 3 };
  Try t(m, n, k);
  const std::pair<cublasLtMatrixLayout_t, int64_t> all[] = { { t.a, k }, { t.b, n }, { t.c, n } };
  for (auto &l : all) {
    int32_t order = CUBLASLT_ORDER_ROW;
    OK(cublasLtMatrixLayoutSetAttribute(l.first, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, 4));
    OK(cublasLtMatrixLayoutSetAttribute(l.first, CUBLASLT_MATRIX_LAYOUT_LD, &l.second, 8));
  }
  OK(t.choose());
  CUdeviceptr z = new_memory(m * n * 4);
  OK(t.run(copy_up(a), copy_up(b), z));
  CHECK(
      copy_down<float>(z, m * n) == std::vector<float>({ 1, 2, 2, 6, 3, 4, 6, 12, 5, 6, 10, 18 }));
}

static void test_types()
{
  const int m = 4, n = 4, k = 8;
  auto a = make_numbers<double>(m * k, 0), b = make_numbers<double>(k * n, 1);
  auto want = compute_product(a, b, m, n, k);
  {
    Try t(m, n, k, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F);
    OK(t.choose());
    double alpha = 1, beta = 0;
    CUdeviceptr x = copy_up(a), y = copy_up(b), z = new_memory(m * n * 8);
    OK(cublasLtMatmul(handle, t.product, &alpha, (void *)x, t.a, (void *)y, t.b, &beta, nullptr,
        t.c, (void *)z, t.c, &t.choice.algo, nullptr, 0, (cudaStream_t)stream));
    CHECK(copy_down<double>(z, m * n) == want);
  }
  for (cudaDataType half : { CUDA_R_16F, CUDA_R_16BF }) {
    auto to = [&](double v) {                         /* small whole numbers, by their bits */
      float f = (float)v;
      uint32_t u;
      memcpy(&u, &f, 4);
      if (half == CUDA_R_16BF) return (uint16_t)(u >> 16);
      return (uint16_t)(v == 0
              ? 0
              : (u >> 16 & 0x8000) | (((u >> 23 & 255) - 112) << 10) | (u >> 13 & 1023));
    };
    std::vector<uint16_t> ha, hb;
    for (double v : a) ha.push_back(to(v));
    for (double v : b) hb.push_back(to(v));
    Try t(m, n, k, half, CUDA_R_32F);
    OK(t.choose());
    CUdeviceptr z = new_memory(m * n * 4);
    OK(t.run(copy_up(ha), copy_up(hb), z));
    CHECK(copy_down<float>(z, m * n) == std::vector<float>(want.begin(), want.end()));
  }
  {
    std::vector<int8_t> turned(m * k), b8(b.begin(), b.end());
    for (int i = 0; i < m; i++)
      for (int l = 0; l < k; l++) turned[(size_t)(l + i * k)] = (int8_t)a[(size_t)(i + l * m)];
    Try t(m, n, k, CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I, true);
    OK(t.choose());
    int32_t alpha = 1, beta = 0;
    CUdeviceptr x = copy_up(turned), y = copy_up(b8), z = new_memory(m * n * 4);
    OK(cublasLtMatmul(handle, t.product, &alpha, (void *)x, t.a, (void *)y, t.b, &beta, (void *)z,
        t.c, (void *)z, t.c, &t.choice.algo, nullptr, 0, (cudaStream_t)stream));
    CHECK(copy_down<int32_t>(z, m * n) == std::vector<int32_t>(want.begin(), want.end()));
  }
}

/* -- epilogues --------------------------------------------------------------------------------- */

static double compute_gelu(double x)
{
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void test_epilogues()
{
  const int m = 8, n = 3, k = 4;
  auto a = make_numbers<float>(m * k, 0), b = make_numbers<float>(k * n, 3),
       bias = make_numbers<float>(m, 2);
  auto plain = compute_product(a, b, m, n, k);
  CUdeviceptr x = copy_up(a), y = copy_up(b), z = new_memory(m * n * 4), v = copy_up(bias),
              aux = new_memory(128 / 8 * n + 64 * n);
  Try t(m, n, k);
  t.set<uint64_t>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, v);
  t.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS);
  OK(t.choose());
  OK(t.run(x, y, z));
  auto got = copy_down<float>(z, m * n);
  for (int i = 0; i < m * n; i++)
    CHECK(got[(size_t)i] == fmaxf(0, plain[(size_t)i] + bias[(size_t)(i % m)]));

  t.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
  t.set<uint64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  t.set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 128);
  OK(t.choose());
  OK(t.run(x, y, z));
  t.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU_BGRAD);
  OK(t.choose());
  OK(t.run(x, y, z));
  got = copy_down<float>(z, m * n);
  auto sums = copy_down<float>(v, m);
  int at_zero = 0;                                    /* results at 0 where a gradient passes */
  for (int i = 0; i < m; i++) {
    float sum = 0;
    for (int j = 0; j < n; j++) {
      float p = plain[(size_t)(i + j * m)], in = p + bias[(size_t)i], want = in >= 0 ? p : 0;
      CHECK(got[(size_t)(i + j * m)] == want);
      at_zero += in == 0 && p != 0;
      sum += want;
    }
    CHECK(sums[(size_t)i] == sum);
  }
  CHECK(at_zero > 0);

  t.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
  t.set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, m);
  OK(t.choose());
  OK(t.run(x, y, z));
  got = copy_down<float>(z, m * n);
  CHECK(copy_down<float>(aux, m * n) == plain);
  for (int i = 0; i < m * n; i++)
    CHECK(fabs(got[(size_t)i] - compute_gelu(plain[(size_t)i])) < 1e-6);
  t.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
  OK(t.choose());
  OK(t.run(x, y, z));
  got = copy_down<float>(z, m * n);
  for (int i = 0; i < m * n; i++) {
    double p = plain[(size_t)i], slope = (compute_gelu(p + 1e-5) - compute_gelu(p - 1e-5)) / 2e-5;
    CHECK(fabs(got[(size_t)i] - p * slope) < 1e-4);
  }

  t.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADA);
  OK(t.choose());
  OK(t.run(x, y, z));
  sums = copy_down<float>(v, m);
  for (int i = 0; i < m; i++)
    CHECK(sums[(size_t)i] ==
        a[(size_t)i] + a[(size_t)(i + m)] + a[(size_t)(i + 2 * m)] + a[(size_t)(i + 3 * m)]);
}

/* -- refusals and findings --------------------------------------------------------------------- */

/* Checks that a product which the library lacks is refused and is no finding, since a program may
** ask. */
static void test_refusals()
{
  Try halves(4, 4, 4, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F, CUDA_R_16F);
  CHECK_CODE(halves.choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  Try mixed(4, 4, 4, CUDA_R_16F, CUDA_R_64F);
  CHECK_CODE(mixed.choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  Try odd(3, 4, 4, CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I, true);
  CHECK_CODE(odd.choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  Try turned(4, 4, 4, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F, true);
  for (auto e : { CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB }) {
    turned.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, e);
    CHECK_CODE(turned.choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  }
  Try shapes(4, 4, 4);
  uint64_t rows = 5;
  OK(cublasLtMatrixLayoutSetAttribute(shapes.b, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, 8));
  CHECK_CODE(shapes.choose(), CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cudasim_findings() == 0);
}

static void test_rules()
{
  const int m = 4, n = 4, k = 64;
  Try t(m, n, k), other(m, n, k);
  CUdeviceptr x = copy_up(make_numbers<float>(m * k + 1, 0)),
              y = copy_up(make_numbers<float>(k * n, 0)), z = new_memory(m * n * 4);
  int invalid = CUBLAS_STATUS_INVALID_VALUE;
  OK(t.choose());
  CHECK_CODE(t.run(x + 4, y, z), invalid);
  FOUND("bytes of alignment were promised");
  OK(t.choose(0, 4));
  OK(t.run(x + 4, y, z));
  OK(t.choose(1 << 20));
  CHECK_CODE(t.run(x, y, z), invalid);
  FOUND("a workspace of 0 bytes");
  other.choice = t.choice;
  other.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
  CHECK_CODE(other.run(x, y, z), invalid);
  FOUND("chosen for another product");
  int32_t narrow = 0;
  CHECK_CODE(
      cublasLtMatmulDescSetAttribute(t.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &narrow, 4),
      invalid);
  FOUND("has 8 bytes, not 4");
  t.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  OK(t.choose());
  CHECK_CODE(t.run(x, y, z), invalid);
  FOUND("bias is not set");
  OK(finish_stream());
}

/* Checks that memory is looked at when the work runs, and that an error sticks. */
static void test_memory()
{
  const int m = 4, n = 4, k = 4;
  Try t(m, n, k);
  CUdeviceptr x = copy_up(make_numbers<float>(m * k, 0)), small = new_memory(m * n * 4 - 4);
  OK(t.choose());
  OK(t.run(x, x, small));
  CHECK_CODE(finish_stream(), CUDA_ERROR_ILLEGAL_ADDRESS);
  FOUND("D leaves device memory");
}

static void test_failures()
{
  Try t(4, 4, 4);
  CUdeviceptr x = copy_up(make_numbers<float>(16, 0)), z = new_memory(64);
  OK(t.choose());
  cudasim_fail("cublasLtMatmul:2");
  OK(t.run(x, x, z));
  CHECK_CODE(t.run(x, x, z), CUBLAS_STATUS_EXECUTION_FAILED);
  OK(t.run(x, x, z));
  OK(finish_stream());
}

/* Checks that a captured product runs at each replay. */
static void test_capture()
{
  Try t(4, 4, 4);
  std::vector<float> one(16, 1);
  CUdeviceptr x = copy_up(one), z = copy_up(one);
  CUgraph graph;
  CUgraphExec run;
  OK(t.choose());
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(t.run(x, x, z, 1, 1));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&run, graph, 0));
  for (int i = 0; i < 3; i++) OK(cuGraphLaunch(run, stream));
  CHECK(copy_down<float>(z, 1)[0] == 13);
  OK(cuGraphExecDestroy(run));
  OK(cuGraphDestroy(graph));
}

void run_all()
{
  OK(cublasLtCreate(&handle));
  test_plain();
  test_batches();
  test_rows_first();
  test_types();
  test_epilogues();
  test_refusals();
  test_rules();
  test_memory();
  test_failures();
  test_capture();
  CHECK(cudasim_live("descriptors of cublasLt") == 0);
  OK(cublasLtDestroy(handle));
  CHECK(cudasim_live("handles of cublasLt") == 0);
}
