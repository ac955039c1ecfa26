/* nccl.h - the part of NCCL's interface that is used here, declared by hand as in driver.h. All
** return ncclResult_t. */
#pragma once
#include "cuda/driver.h"

typedef struct nccl_comm *nccl_comm;
struct nccl_id { char bytes[128]; };

/* ncclDataType_t, ncclRedOp_t */
enum { NCCL_I8 = 0, NCCL_U8 = 1, NCCL_I32 = 2, NCCL_I64 = 4, NCCL_F16 = 6, NCCL_F32 = 7,
       NCCL_F64 = 8, NCCL_BF16 = 9 };
enum { NCCL_SUM = 0, NCCL_MAX = 2 };
enum { NCCL_IN_PROGRESS = 7 };

#define NCCL_FUNCTIONS(_) \
  _(GetVersion,        "ncclGetVersion", (int *)) \
  _(GetUniqueId,       "ncclGetUniqueId", (struct nccl_id *)) \
  _(CommInitRank,      "ncclCommInitRank", (nccl_comm *, int, struct nccl_id, int)) \
  _(CommDestroy,       "ncclCommDestroy", (nccl_comm)) \
  _(CommAbort,         "ncclCommAbort", (nccl_comm)) \
  _(CommGetAsyncError, "ncclCommGetAsyncError", (nccl_comm, int *)) \
  _(GroupStart,        "ncclGroupStart", (void)) \
  _(GroupEnd,          "ncclGroupEnd", (void)) \
  _(AllReduce,         "ncclAllReduce", \
    (const void *, void *, size_t, int, int, nccl_comm, cu_stream)) \
  _(Broadcast,         "ncclBroadcast", \
    (const void *, void *, size_t, int, int, nccl_comm, cu_stream))

#define DECLARE(name, symbol, arguments) int (*name) arguments;
struct nccl_functions {
  NCCL_FUNCTIONS(DECLARE)
  const char *(*GetErrorString)(int);
  const char *(*GetLastError)(nccl_comm);             /* since 2.13; NULL: not there */
};
#undef DECLARE
