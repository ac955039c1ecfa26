/* dense.cc - cusolverDn: handles, and factors of dense matrices as work of the handle's stream. The
** sizes of workspaces depend on the matrices, so that one that is too short is found. Workspaces
** are filled with NaNs. */
#include <algorithm>
#include <mutex>
#include <set>
#include "../library/library.h"
#include "abi.h"
#include "loops.h"
using namespace cudasim;

#define API extern "C" __attribute__((visibility("default"))) cusolverStatus_t
enum { INVALID = CUSOLVER_STATUS_INVALID_VALUE };

struct cusolverDnContext { int device; CUstream stream; };
static std::mutex &guard = *new std::mutex;
static auto &handles = *new std::set<cusolverDnHandle_t>;

template <class... A>
static cusolverStatus_t report_wrong(int code, const char *function, const char *format, A... a)
{
  return (cusolverStatus_t)report_misuse(code, function, format, a...);
}

/* Begins a function: checks the handle, and that this thread uses its device. */
static cusolverStatus_t begin_call(const char *name, cusolverDnHandle_t h)
{
  if (int r = enter_call(name, CUSOLVER_STATUS_ALLOC_FAILED, CUSOLVER_STATUS_EXECUTION_FAILED))
    return (cusolverStatus_t)r;
  std::lock_guard<std::mutex> l(guard);
  if (!handles.count(h))
    return report_wrong(CUSOLVER_STATUS_NOT_INITIALIZED, name, "not a handle, or destroyed before");
  if (h->device != current_device())
    return report_wrong(INVALID, name, "a handle of device %d, a context of device %d", h->device,
        current_device());
  return CUSOLVER_STATUS_SUCCESS;
}
#define BEGIN(h) \
  if (cusolverStatus_t r = begin_call(__func__, h)) return r

struct Given { const char *name; const void *p; };
static cusolverStatus_t check_arrays(const char *function, std::initializer_list<Given> all)
{
  for (const Given &g : all)
    if (!is_device_memory(g.p))
      return report_wrong(INVALID, function, "%s is not memory of a device: %p", g.name, g.p);
  return CUSOLVER_STATUS_SUCCESS;
}
#define CHECK(...) \
  if (cusolverStatus_t r = check_arrays(__func__, { __VA_ARGS__ })) return r
#define RULE(x, ...)                                               \
  do {                                                             \
    if (!(x)) return report_wrong(INVALID, __func__, __VA_ARGS__); \
  } while (0)

static cusolverStatus_t submit_job(
    cusolverDnHandle_t h, const char *name, std::vector<Region> regions, Job job)
{
  return give_work(h->stream, name, std::move(regions), std::move(job))
      ? CUSOLVER_STATUS_EXECUTION_FAILED
      : CUSOLVER_STATUS_SUCCESS;
}

static Region make_region(
    const char *name, const void *p, int m, int n, int ld, size_t size, Use use)
{
  return { name, p, (size_t)m * size, use, (size_t)n, (size_t)ld * size };
}

API cusolverDnCreate(cusolverDnHandle_t *out)
{
  if (int r = enter_call(__func__, CUSOLVER_STATUS_ALLOC_FAILED, CUSOLVER_STATUS_NOT_INITIALIZED))
    return (cusolverStatus_t)r;
  *out = new cusolverDnContext{ current_device(), nullptr };
  count_object("handles of cuSOLVER", 1);
  std::lock_guard<std::mutex> l(guard);
  handles.insert(*out);
  return CUSOLVER_STATUS_SUCCESS;
}

API cusolverDnDestroy(cusolverDnHandle_t h)
{
  std::lock_guard<std::mutex> l(guard);
  if (!handles.erase(h))
    return report_wrong(
        CUSOLVER_STATUS_NOT_INITIALIZED, __func__, "not a handle, or destroyed before");
  count_object("handles of cuSOLVER", -1);
  delete h;
  return CUSOLVER_STATUS_SUCCESS;
}

API cusolverDnSetStream(cusolverDnHandle_t h, cudaStream_t stream)
{
  BEGIN(h);
  RULE(device_of((CUstream)stream) == h->device, "a stream of device %d, a handle of device %d",
      device_of((CUstream)stream), h->device);
  h->stream = (CUstream)stream;
  return CUSOLVER_STATUS_SUCCESS;
}

/* -- LU ---------------------------------------------------------------------------------------- */

#define SHAPE(m, n, lda) \
  RULE((m) >= 0 && (n) >= 0 && (lda) >= ((m) > 1 ? (m) : 1), "a matrix of %d x %d with %d a column", \
      m, n, lda)

static int lu_size(int m, int n) { return m * n + 1; }

template <class T>
static cusolverStatus_t submit_lu(cusolverDnHandle_t h, const char *name, int m, int n, T *a,
    int lda, T *work, int *pivot, int *info)
{
  return submit_job(h, name,
      { make_region("A", a, m, n, lda, sizeof(T), UPDATES),
          { "devIpiv", pivot, sizeof(int) * (size_t)std::min(m, n), WRITES },
          { "devInfo", info, sizeof(int), WRITES },
          { "Workspace", work, sizeof(T) * (size_t)lu_size(m, n), SCRATCH } },
      [=] {
        Columns<T> x(a, m, n, lda);
        *info = factor_lu(x, pivot);
        x.give_back();
      });
}

template <class T>
static cusolverStatus_t submit_solve(cusolverDnHandle_t h, const char *name, bool turned, int n,
    int columns_of_b, const T *a, int lda, const int *pivot, T *b, int ldb, int *info)
{
  return submit_job(h, name,
      { make_region("A", a, n, n, lda, sizeof(T), READS),
          { "devIpiv", pivot, sizeof(int) * (size_t)n, READS },
          make_region("B", b, n, columns_of_b, ldb, sizeof(T), UPDATES),
          { "devInfo", info, sizeof(int), WRITES } },
      [=] {
        Columns<T> x((T *)a, n, n, lda), y(b, n, columns_of_b, ldb);
        lu_solve(x, pivot, y, turned);
        y.give_back();
        *info = 0;
      });
}

/* -- QR ---------------------------------------------------------------------------------------- */

static int qr_size(int m, int n) { return 32 * n + m; }

template <class T>
static cusolverStatus_t factorize_qr(cusolverDnHandle_t h, const char *name, int m, int n, T *a, int lda,
    T *tau, T *work, int lwork, int *info)
{
  return submit_job(h, name,
      { make_region("A", a, m, n, lda, sizeof(T), UPDATES),
          { "TAU", tau, sizeof(T) * (size_t)std::min(m, n), WRITES },
          { "devInfo", info, sizeof(int), WRITES },
          { "Workspace", work, sizeof(T) * (size_t)lwork, SCRATCH } },
      [=] {
        Columns<T> x(a, m, n, lda);
        factor_qr(x, tau);
        x.give_back();
        *info = 0;
      });
}

template <class T>
static cusolverStatus_t make_q(cusolverDnHandle_t h, const char *name, int m, int n, int k, T *a, int lda,
    const T *tau, T *work, int lwork, int *info)
{
  return submit_job(h, name,
      { make_region("A", a, m, n, lda, sizeof(T), UPDATES),
          { "tau", tau, sizeof(T) * (size_t)k, READS }, { "info", info, sizeof(int), WRITES },
          { "work", work, sizeof(T) * (size_t)lwork, SCRATCH } },
      [=] {
        Columns<T> x(a, m, n, lda);
        form_q(x, tau, k);
        x.give_back();
        *info = 0;
      });
}

/* -- eigenvalues ------------------------------------------------------------------------------- */

static int eigen_size(int n) { return 2 * n * n + 6 * n + 1; }

template <class T>
static cusolverStatus_t submit_eigen(cusolverDnHandle_t h, const char *name, bool upper, int n,
    T *a, int lda, T *w, T *work, int lwork, int *info)
{
  return submit_job(h, name,
      { make_region("A", a, n, n, lda, sizeof(T), UPDATES),
          { "W", w, sizeof(T) * (size_t)n, WRITES }, { "info", info, sizeof(int), WRITES },
          { "work", work, sizeof(T) * (size_t)lwork, SCRATCH } },
      [=] {
        Columns<T> x(a, n, n, lda);
        *info = compute_eigen(x, upper, w);
        x.give_back();
      });
}

/* -- the interface, by type -------------------------------------------------------------------- */

#define TYPED(S, T)                                                                                \
  API cusolverDn##S##getrf_bufferSize(cusolverDnHandle_t h, int m, int n, T *, int lda, int *size) \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(m, n, lda);                                                                              \
    *size = lu_size(m, n);                                                                         \
    return CUSOLVER_STATUS_SUCCESS;                                                                \
  }                                                                                                \
  API cusolverDn##S##getrf(                                                                        \
      cusolverDnHandle_t h, int m, int n, T *a, int lda, T *work, int *pivot, int *info)           \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(m, n, lda);                                                                              \
    CHECK({ "A", a }, { "Workspace", work }, { "devIpiv", pivot }, { "devInfo", info });           \
    return submit_lu(h, __func__, m, n, a, lda, work, pivot, info);                                \
  }                                                                                                \
  API cusolverDn##S##getrs(cusolverDnHandle_t h, cublasOperation_t op, int n, int nrhs,            \
      const T *a, int lda, const int *pivot, T *b, int ldb, int *info)                             \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(n, n, lda);                                                                              \
    SHAPE(n, nrhs, ldb);                                                                           \
    CHECK({ "A", a }, { "devIpiv", pivot }, { "B", b }, { "devInfo", info });                      \
    return submit_solve(h, __func__, op != CUBLAS_OP_N, n, nrhs, a, lda, pivot, b, ldb, info);     \
  }                                                                                                \
  API cusolverDn##S##geqrf_bufferSize(cusolverDnHandle_t h, int m, int n, T *, int lda, int *size) \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(m, n, lda);                                                                              \
    *size = qr_size(m, n);                                                                         \
    return CUSOLVER_STATUS_SUCCESS;                                                                \
  }                                                                                                \
  API cusolverDn##S##geqrf(                                                                        \
      cusolverDnHandle_t h, int m, int n, T *a, int lda, T *tau, T *work, int lwork, int *info)    \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(m, n, lda);                                                                              \
    CHECK({ "A", a }, { "TAU", tau }, { "Workspace", work }, { "devInfo", info });                 \
    RULE(lwork >= qr_size(m, n), "a workspace of %d, not of %d", lwork, qr_size(m, n));            \
    return factorize_qr(h, __func__, m, n, a, lda, tau, work, lwork, info);                        \
  }                                                                                                \
  API cusolverDn##S##orgqr_bufferSize(                                                             \
      cusolverDnHandle_t h, int m, int n, int k, const T *, int lda, const T *, int *size)         \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(m, n, lda);                                                                              \
    RULE(k <= n && n <= m, "%d reflections, %d columns, %d rows", k, n, m);                        \
    *size = qr_size(m, n);                                                                         \
    return CUSOLVER_STATUS_SUCCESS;                                                                \
  }                                                                                                \
  API cusolverDn##S##orgqr(cusolverDnHandle_t h, int m, int n, int k, T *a, int lda, const T *tau, \
      T *work, int lwork, int *info)                                                               \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(m, n, lda);                                                                              \
    RULE(k <= n && n <= m, "%d reflections, %d columns, %d rows", k, n, m);                        \
    CHECK({ "A", a }, { "tau", tau }, { "work", work }, { "info", info });                         \
    RULE(lwork >= qr_size(m, n), "a workspace of %d, not of %d", lwork, qr_size(m, n));            \
    return make_q(h, __func__, m, n, k, a, lda, tau, work, lwork, info);                           \
  }                                                                                                \
  API cusolverDn##S##syevd_bufferSize(cusolverDnHandle_t h, cusolverEigMode_t, cublasFillMode_t,   \
      int n, const T *, int lda, const T *, int *size)                                             \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(n, n, lda);                                                                              \
    *size = eigen_size(n);                                                                         \
    return CUSOLVER_STATUS_SUCCESS;                                                                \
  }                                                                                                \
  API cusolverDn##S##syevd(cusolverDnHandle_t h, cusolverEigMode_t mode, cublasFillMode_t fill,    \
      int n, T *a, int lda, T *w, T *work, int lwork, int *info)                                   \
  {                                                                                                \
    BEGIN(h);                                                                                      \
    SHAPE(n, n, lda);                                                                              \
    RULE(mode == CUSOLVER_EIG_MODE_VECTOR, "eigenvalues alone are not in the stand-in");           \
    CHECK({ "A", a }, { "W", w }, { "work", work }, { "info", info });                             \
    RULE(lwork >= eigen_size(n), "a workspace of %d, not of %d", lwork, eigen_size(n));            \
    return submit_eigen(                                                                           \
        h, __func__, fill == CUBLAS_FILL_MODE_UPPER, n, a, lda, w, work, lwork, info);             \
  }
TYPED(S, float)
TYPED(D, double)
