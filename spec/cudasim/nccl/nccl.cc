/* nccl.cc - the functions of NCCL: making and freeing communicators, groups of calls, rules. */
#include <map>
#include <mutex>
#include "group.h"
using namespace cudasim;

#define API extern "C" __attribute__((visibility("default"))) ncclResult_t

static std::mutex &guard = *new std::mutex;
static auto &members = *new std::map<ncclComm_t, MemberPtr>;
static thread_local std::string last;

template <class... A>
static ncclResult_t report_wrong(
    ncclResult_t code, const char *function, const char *format, A... a)
{
  char text[256];
  snprintf(text, sizeof text, format, a...);
  last = text;
  return (ncclResult_t)report_misuse(code, function, "%s", text);
}

static MemberPtr find_member(ncclComm_t comm)
{
  std::lock_guard<std::mutex> l(guard);
  auto at = members.find(comm);
  return at == members.end() ? nullptr : at->second;
}

/* -- groups of calls --------------------------------------------------------------------------- */

typedef std::function<ncclResult_t()> Step;
struct Calls {
  int depth = 0;
  ncclResult_t failed = ncclSuccess;
  std::vector<Step> joins, waits, starts;
};
static thread_local Calls calls;

static ncclResult_t run_steps(const std::vector<Step> &steps)
{
  for (const Step &s : steps)
    if (ncclResult_t r = s()) return r;
  return ncclSuccess;
}

/* Runs the calls of a group. Joins all groups before it waits for other ranks. */
static ncclResult_t run_calls()
{
  Calls all = std::move(calls);
  calls = Calls();
  if (all.failed) return all.failed;
  if (ncclResult_t r = run_steps(all.joins)) return r;
  if (ncclResult_t r = run_steps(all.waits)) return r;
  return run_steps(all.starts);
}

API ncclGroupStart()
{
  if (int r = enter_anywhere(__func__, ncclSystemError)) return (ncclResult_t)r;
  calls.depth++;
  return ncclSuccess;
}

API ncclGroupEnd()
{
  int planned = enter_anywhere(__func__, ncclSystemError);
  if (!calls.depth) return report_wrong(ncclInvalidUsage, __func__, "no group was started");
  if (planned && !calls.failed) calls.failed = (ncclResult_t)planned;
  return --calls.depth ? ncclSuccess : run_calls();
}

static ncclResult_t refuse_call(ncclResult_t r)
{
  if (calls.depth && !calls.failed) calls.failed = r;
  return r;
}

static ncclResult_t now_or_later()
{
  return calls.depth ? ncclSuccess : run_calls();
}

/* -- communicators ----------------------------------------------------------------------------- */

API ncclGetVersion(int *version)
{
  const char *e = getenv("CUDASIM_NCCL");             /* 0: the call fails */
  *version = e ? atoi(e) : 22803;
  return *version ? ncclSuccess : ncclSystemError;
}

API ncclGetUniqueId(ncclUniqueId *id)
{
  if (int r = enter_anywhere(__func__, ncclSystemError)) return (ncclResult_t)r;
  return board_new(id->internal) ? ncclSuccess : ncclSystemError;
}

API ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
  if (int r = enter_call(__func__, ncclSystemError, ncclUnhandledCudaError))
    return refuse_call((ncclResult_t)r);
  MemberPtr m;
  if (ncclResult_t r = board_join(id.internal, size, rank, &m)) return refuse_call(r);
  *out = (ncclComm_t)m.get();
  std::lock_guard<std::mutex> l(guard);
  members[*out] = m;
  calls.waits.push_back([=] { return board_wait(*m); });
  return now_or_later();
}

static ncclResult_t leave_group(const char *name, ncclComm_t comm, bool aborts)
{
  MemberPtr m = find_member(comm);
  if (!m) return report_wrong(ncclInvalidArgument, name, "not a communicator, or ended before");
  Board::Rank &own = m->board->rank[m->rank];
  if (aborts) m->aborted = true;
  if (aborts) own.aborted = 1;
  if (!aborts && own.done != m->given && !m->board->failed)
    report_wrong(ncclInvalidUsage, name, "rank %d has collectives under way", m->rank);
  own.left = 1;
  std::lock_guard<std::mutex> l(guard);
  members.erase(comm);
  return ncclSuccess;
}

API ncclCommDestroy(ncclComm_t comm) { return leave_group(__func__, comm, false); }
API ncclCommAbort(ncclComm_t comm) { return leave_group(__func__, comm, true); }

/* Returns whether the current collective waits for a rank that has aborted. */
static bool misses_somebody(const Member &m)
{
  for (int r = 0; r < m.size; r++)
    if (m.board->rank[r].aborted && m.board->rank[r].arrived < m.given) return true;
  return false;
}

API ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
  MemberPtr m = find_member(comm);
  if (!m) return report_wrong(ncclInvalidArgument, __func__, "not a communicator, or ended before");
  *out = (ncclResult_t)m->board->failed.load();
  if (!*out && m->board->rank[m->rank].done < m->given && misses_somebody(*m))
    *out = ncclRemoteError;
  return ncclSuccess;
}

extern "C" __attribute__((visibility("default"))) const char *ncclGetErrorString(ncclResult_t code)
{
  static const char *const texts[] = { "no error", "unhandled cuda error", "unhandled system error",
    "internal error", "invalid argument", "invalid usage", "remote process exited or network error",
    "NCCL operation in progress" };
  return code >= 0 && code < 8 ? texts[code] : "unknown result code";
}

extern "C" __attribute__((visibility("default"))) const char *ncclGetLastError(ncclComm_t)
{
  return last.c_str();
}

/* -- collectives ------------------------------------------------------------------------------- */

static ncclResult_t check_buffer(const char *name, const char *what, const void *p)
{
  if (is_device_memory(p)) return ncclSuccess;
  return report_wrong(
      ncclInvalidArgument, name, "the %s buffer is not memory of a device: %p", what, p);
}

static ncclResult_t check_call(const char *name, const MemberPtr &m, const Collective &c,
    const void *from, void *to, CUstream stream)
{
  Number t = F32;
  if (!m) return report_wrong(ncclInvalidArgument, name, "not a communicator, or ended before");
  if (!find_number(c.type, &t))
    return report_wrong(ncclInvalidArgument, name, "no type %d", c.type);
  if (c.op < ncclSum || c.op > ncclMin)
    return report_wrong(ncclInvalidArgument, name, "no sum %d", c.op);
  if (c.root < 0 || c.root >= m->size)
    return report_wrong(ncclInvalidArgument, name, "no rank %d", c.root);
  if (device_of(stream) != m->device)
    return report_wrong(ncclInvalidUsage, name,
        "a stream of device %d, a communicator of device %d", device_of(stream), m->device);
  bool sends = c.kind == SUM || c.root == m->rank;
  if (sends)
    if (ncclResult_t r = check_buffer(name, "send", from)) return r;
  if (ncclResult_t r = check_buffer(name, "receive", to)) return r;
  size_t bytes = c.count * size_of(t);
  const char *a = (const char *)from, *b = (const char *)to;
  if (sends && a != b && a < b + bytes && b < a + bytes)
    return report_wrong(ncclInvalidArgument, name, "the buffers overlap without being the same");
  return ncclSuccess;
}

static ncclResult_t submit_collective(const char *name, ncclComm_t comm, const Collective &c,
    const void *from, void *to, CUstream stream)
{
  if (int r = enter_call(name, ncclSystemError, ncclUnhandledCudaError))
    return refuse_call((ncclResult_t)r);
  MemberPtr m = find_member(comm);
  if (ncclResult_t r = check_call(name, m, c, from, to, stream)) return refuse_call(r);
  calls.starts.push_back([=] { return start_collective(m, c, from, to, stream); });
  return now_or_later();
}

API ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
    ncclComm_t comm, cudaStream_t stream)
{
  return submit_collective(__func__, comm, { SUM, type, op, 0, count }, from, to, (CUstream)stream);
}

API ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
    ncclComm_t comm, cudaStream_t stream)
{
  return submit_collective(
      __func__, comm, { SPREAD, type, ncclSum, root, count }, from, to, (CUstream)stream);
}
