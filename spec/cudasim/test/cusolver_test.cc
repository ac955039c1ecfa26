/* cusolver_test.cc - factors of matrices, whose product is the matrix, and findings about programs
** that break a rule. */
#include "../cusolver/abi.h"
#include "test.h"
#ifndef CUDASIM_REAL_HEADERS
extern "C" {
cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *);
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t, cudaStream_t);
cusolverStatus_t cusolverDnDgetrf_bufferSize(cusolverDnHandle_t, int, int, double *, int, int *);
cusolverStatus_t cusolverDnDgetrf(
    cusolverDnHandle_t, int, int, double *, int, double *, int *, int *);
cusolverStatus_t cusolverDnDgetrs(cusolverDnHandle_t, cublasOperation_t, int, int, const double *,
    int, const int *, double *, int, int *);
cusolverStatus_t cusolverDnDgeqrf_bufferSize(cusolverDnHandle_t, int, int, double *, int, int *);
cusolverStatus_t cusolverDnDgeqrf(
    cusolverDnHandle_t, int, int, double *, int, double *, double *, int, int *);
cusolverStatus_t cusolverDnDorgqr(
    cusolverDnHandle_t, int, int, int, double *, int, const double *, double *, int, int *);
cusolverStatus_t cusolverDnDsyevd_bufferSize(cusolverDnHandle_t, cusolverEigMode_t,
    cublasFillMode_t, int, const double *, int, const double *, int *);
cusolverStatus_t cusolverDnDsyevd(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int,
    double *, int, double *, double *, int, int *);
}
#endif

enum { M = 6, N = 4 };
static cusolverDnHandle_t handle;
static CUdeviceptr work, tau, pivot, info;

static std::vector<double> make_numbers(int m, int n)
{
  std::vector<double> x((size_t)m * n);
  for (size_t i = 0; i < x.size(); i++) x[i] = sin(3.0 * (double)i + 1) + (i % (m + 1) == 0);
  return x;
}

static bool is_near(double a, double b) { return fabs(a - b) < 1e-9; }

static void test_lu()
{
  auto a = make_numbers(M, M), b = make_numbers(M, 2);
  CUdeviceptr da = copy_up(a), db = copy_up(b);
  int size;
  for (bool turned : { false, true }) {
    OK(cuMemcpyHtoDAsync_v2(da, a.data(), a.size() * 8, stream));
    OK(cuMemcpyHtoDAsync_v2(db, b.data(), b.size() * 8, stream));
    OK(cusolverDnDgetrf_bufferSize(handle, M, M, (double *)da, M, &size));
    OK(cusolverDnDgetrf(handle, M, M, (double *)da, M, (double *)work, (int *)pivot, (int *)info));
    OK(cusolverDnDgetrs(handle, turned ? CUBLAS_OP_T : CUBLAS_OP_N, M, 2, (double *)da, M,
        (int *)pivot, (double *)db, M, (int *)info));
    auto x = copy_down<double>(db, b.size());
    for (int c = 0; c < 2; c++)
      for (int i = 0; i < M; i++) {
        double sum = 0;
        for (int k = 0; k < M; k++) sum += (turned ? a[i * M + k] : a[k * M + i]) * x[c * M + k];
        CHECK(is_near(sum, b[c * M + i]));
      }
  }
  std::vector<double> zeros(M * M);
  OK(cuMemcpyHtoDAsync_v2(da, zeros.data(), zeros.size() * 8, stream));
  OK(cusolverDnDgetrf(handle, M, M, (double *)da, M, (double *)work, (int *)pivot, (int *)info));
  CHECK(copy_down<int>(info, 1)[0] == 1);
  OK(cuMemFree_v2(da));
  OK(cuMemFree_v2(db));
}

static void test_qr()
{
  auto a = make_numbers(M, N);
  CUdeviceptr da = copy_up(a);
  int size;
  OK(cusolverDnDgeqrf_bufferSize(handle, M, N, (double *)da, M, &size));
  OK(cusolverDnDgeqrf(handle, M, N, (double *)da, M, (double *)tau, (double *)work, size, (int *)info));
  auto r = copy_down<double>(da, a.size());
  OK(cusolverDnDorgqr(
      handle, M, N, N, (double *)da, M, (double *)tau, (double *)work, size, (int *)info));
  auto q = copy_down<double>(da, a.size());
  CHECK(r[0] * a[0] < 0);                             /* LAPACK's sign */
  for (int j = 0; j < N; j++)
    for (int i = 0; i < M; i++) {
      double sum = 0;
      for (int k = 0; k <= j; k++) sum += q[k * M + i] * r[j * M + k];
      CHECK(is_near(sum, a[j * M + i]));
    }
  CHECK_CODE(cusolverDnDgeqrf(handle, M, N, (double *)da, M, (double *)tau, (double *)work, 3,
      (int *)info), CUSOLVER_STATUS_INVALID_VALUE);
  FOUND("a workspace of 3");
  CHECK_CODE(cusolverDnDgeqrf(handle, M, N, (double *)da, N, (double *)tau, (double *)work, size,
      (int *)info), CUSOLVER_STATUS_INVALID_VALUE);
  FOUND("a matrix of 6 x 4 with 4 a column");
  CHECK_CODE(cusolverDnDgeqrf(handle, M, N, a.data(), M, (double *)tau, (double *)work, size,
      (int *)info), CUSOLVER_STATUS_INVALID_VALUE);
  FOUND("A is not memory of a device");
  OK(cuMemFree_v2(da));
}

static void test_eigen()
{
  auto a = make_numbers(M, M);
  for (int j = 0; j < M; j++)
    for (int i = j + 1; i < M; i++) a[j * M + i] = -77; /* the lower triangle is not read */
  CUdeviceptr da = copy_up(a), w = new_memory(M * 8);
  int size;
  OK(cusolverDnDsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, M,
      (double *)da, M, (double *)w, &size));
  OK(cusolverDnDsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, M, (double *)da, M,
      (double *)w, (double *)work, size, (int *)info));
  auto v = copy_down<double>(da, a.size()), l = copy_down<double>(w, M);
  CHECK(copy_down<int>(info, 1)[0] == 0);
  for (int e = 0; e < M; e++) {
    if (e) CHECK(l[e] >= l[e - 1]);
    for (int i = 0; i < M; i++) {
      double sum = 0;
      for (int k = 0; k < M; k++) sum += (i <= k ? a[k * M + i] : a[i * M + k]) * v[e * M + k];
      CHECK(is_near(sum, l[e] * v[e * M + i]));
    }
  }
  OK(cuMemFree_v2(da));
  OK(cuMemFree_v2(w));
}

void run_all()
{
  work = new_memory(1 << 14);
  tau = new_memory(M * 8);
  pivot = new_memory(M * 4);
  info = new_memory(4);
  OK(cusolverDnCreate(&handle));
  OK(cusolverDnSetStream(handle, (cudaStream_t)stream));
  test_lu();
  test_qr();
  test_eigen();
  OK(cusolverDnDestroy(handle));
  CHECK_CODE(cusolverDnDestroy(handle), CUSOLVER_STATUS_NOT_INITIALIZED);
  FOUND("destroyed before");
  CHECK(cudasim_live("handles of cuSOLVER") == 0);
}
