/* nccl_test.cc - collectives: values of all types, ranks that come late, and findings about
** programs that break a rule. */
#include "../nccl/abi.h"
#include "test.h"
#ifndef CUDASIM_REAL_HEADERS
extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(
    const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclBroadcast(
    const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
}
#endif

enum { RANKS = 3 };
static CUcontext contexts[RANKS];
static CUstream streams[RANKS];

/* A group of one communicator per device, and a buffer of n numbers on each. */
struct Group {
  ncclComm_t comm[RANKS];
  CUdeviceptr x[RANKS];
  size_t n;
  explicit Group(size_t n) : n(n)
  {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
      OK(cuCtxSetCurrent(contexts[r]));
      OK(ncclCommInitRank(&comm[r], RANKS, id, r));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
      std::vector<float> values(n, (float)(r + 1));
      OK(cuCtxSetCurrent(contexts[r]));
      OK(cuMemAlloc_v2(&x[r], n * 4));
      OK(cuMemcpyHtoDAsync_v2(x[r], values.data(), n * 4, streams[r]));
    }
  }
  ncclResult_t sum(int r, size_t count, ncclRedOp_t op = ncclSum, ncclDataType_t type = ncclFloat32)
  {
    OK(cuCtxSetCurrent(contexts[r]));
    return ncclAllReduce((void *)x[r], (void *)x[r], count, type, op, comm[r], streams[r]);
  }
  float first(int r)
  {
    float v = 0;
    OK(cuCtxSetCurrent(contexts[r]));
    OK(cuMemcpyDtoHAsync_v2(&v, x[r], 4, streams[r]));
    OK(cuStreamSynchronize(streams[r]));
    return v;
  }
  ncclResult_t late(int r)
  {
    ncclResult_t e;
    OK(ncclCommGetAsyncError(comm[r], &e));
    return e;
  }
  ~Group()
  {
    for (int r = 0; r < RANKS; r++) {
      OK(cuCtxSetCurrent(contexts[r]));
      if (comm[r]) OK(ncclCommAbort(comm[r]));
      OK(cuStreamSynchronize(streams[r]));
      OK(cuMemFree_v2(x[r]));
    }
  }
};

static void test_values()
{
  Group g(70000);
  for (int r = 0; r < RANKS; r++) OK(g.sum(r, g.n));  /* ranks may come one after the other */
  for (int r = 0; r < RANKS; r++) CHECK(g.first(r) == 6);
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) OK(g.sum(r, 1, ncclMax, ncclInt8));
  for (int r = 0; r < RANKS; r++)
    OK(ncclBroadcast((void *)(g.x[r] + 4), (void *)g.x[r], 1, ncclFloat32, 1, g.comm[r], streams[r]));
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) CHECK(g.first(r) == 6);
  for (int r = 0; r < RANKS; r++) OK(g.late(r));
  for (int r = 0; r < RANKS; r++) OK(ncclCommDestroy(g.comm[r]));
  CHECK(cudasim_findings() == 0);
  CHECK_CODE(g.sum(0, 1), ncclInvalidArgument);
  FOUND("ended before");
  for (ncclComm_t &c : g.comm) c = nullptr;
}

/* Checks that the stream of a rank waits until the others have come. */
static void test_waiting()
{
  Group g(4);
  OK(g.sum(0, 4));
  OK(g.sum(1, 4));
  for (int i = 0; i < 50; i++) CHECK_CODE(cuStreamQuery(streams[1]), CUDA_ERROR_NOT_READY);
  OK(g.sum(2, 4));
  CHECK(g.first(1) == 6);
}

static void test_parted(size_t count, ncclRedOp_t op, ncclDataType_t type, const char *words)
{
  Group g(8);
  OK(g.sum(0, 4));
  OK(g.sum(1, 4));
  OK(g.sum(2, count, op, type));
  for (CUstream s : streams) OK(cuStreamSynchronize(s));
  CHECK_CODE(g.late(0), ncclInvalidUsage);
  FOUND(words);
}

static void other_order()
{
  Group g(8);
  for (int r = 0; r < RANKS; r++) {
    OK(cuCtxSetCurrent(contexts[r]));
    void *x = (void *)g.x[r];
    if (r < 2) OK(g.sum(r, 4));
    OK(ncclBroadcast(x, x, 4, ncclFloat32, 0, g.comm[r], streams[r]));
    if (r == 2) OK(g.sum(r, 4));
  }
  for (CUstream s : streams) OK(cuStreamSynchronize(s));
  FOUND("broadcast from 0 of 4 float32");
}

static void test_misuse()
{
  Group g(8);
  std::vector<float> host(8);
  OK(cuCtxSetCurrent(contexts[0]));
  void *x = (void *)g.x[0], *y = (void *)(g.x[0] + 4);
  auto sum = [&](const void *from, void *to, CUstream s) {
    return ncclAllReduce(from, to, 4, ncclFloat32, ncclSum, g.comm[0], s);
  };
  CHECK_CODE(sum(host.data(), x, streams[0]), ncclInvalidArgument);
  FOUND("the send buffer is not memory of a device");
  CHECK_CODE(sum(x, host.data(), streams[0]), ncclInvalidArgument);
  FOUND("the receive buffer is not memory of a device");
  CHECK_CODE(sum(x, y, streams[0]), ncclInvalidArgument);
  FOUND("overlap");
  CHECK_CODE(sum(x, x, streams[1]), ncclInvalidUsage);
  FOUND("a stream of device 1, a communicator of device 0");
  CHECK_CODE(ncclGroupEnd(), ncclInvalidUsage);
  FOUND("no group was started");
  OK(ncclCommAbort(g.comm[0]));
  CHECK_CODE(ncclCommDestroy(g.comm[0]), ncclInvalidArgument);
  FOUND("ended before");
  g.comm[0] = nullptr;
  OK(g.sum(1, 4));
  CHECK_CODE(g.late(1), ncclRemoteError);
}

static void test_opening()
{
  ncclUniqueId id;
  ncclComm_t comm[2];
  OK(ncclGetUniqueId(&id));
  OK(cuCtxSetCurrent(contexts[0]));
  OK(ncclGroupStart());
  OK(ncclCommInitRank(&comm[0], 2, id, 0));
  CHECK_CODE(ncclCommInitRank(&comm[1], 2, id, 1), ncclInvalidUsage);
  FOUND("device 0 is in the group twice");
  CHECK_CODE(ncclGroupEnd(), ncclInvalidUsage);
  OK(ncclCommAbort(comm[0]));
  remove(id.internal);
  OK(ncclGetUniqueId(&id));
  CHECK_CODE(ncclCommInitRank(&comm[0], 2, id, 0), ncclSystemError);  /* without a group */
  FOUND("waits for ever");
  OK(ncclCommAbort(comm[0]));
  remove(id.internal);
}

static void test_alone()
{
  Group g(4);
  OK(g.sum(0, 4));
  OK(cuStreamSynchronize(streams[0]));
  FOUND("not all ranks have come to collective 0, a sum of 4 float32");
}

void run_all()
{
  setenv("CUDASIM_PATIENCE", "60", 1);
  for (int r = 0; r < RANKS; r++) {
    OK(cuDevicePrimaryCtxRetain(&contexts[r], r));
    OK(cuCtxSetCurrent(contexts[r]));
    OK(cuStreamCreate(&streams[r], CU_STREAM_NON_BLOCKING));
  }
  test_values();
  test_waiting();
  test_parted(3, ncclSum, ncclFloat32, "sum of 3 float32");
  test_parted(4, ncclMax, ncclFloat32, "maximum of 4 float32");
  test_parted(4, ncclSum, ncclInt32, "sum of 4 int32");
  other_order();
  test_misuse();
  setenv("CUDASIM_PATIENCE", "0.05", 1);
  test_opening();
  test_alone();
  CHECK(cudasim_live("NCCL communicators") == 0);
}
