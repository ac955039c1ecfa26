/* library.cc - see library/library.h: the driver's side of it. */
#include "../library/library.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../run/check.h"
#include "state.h"

namespace cudasim {

int enter_call(const char *name, int refused, int broken)
{
  Call call(name, CONTEXT);
  int code = call.code;
  if (code == CUDA_ERROR_OUT_OF_MEMORY) return refused;
  return code >= CUDA_ERROR_INVALID_CONTEXT && code <= CUDA_ERROR_UNKNOWN ? broken : code;
}

int enter_anywhere(const char *name, int refused)
{
  Call call(name, NOTHING);
  return call.code == CUDA_ERROR_OUT_OF_MEMORY ? refused : call.code;
}

int report_misuse(int code, const char *function, const char *format, ...)
{
  char text[512];
  va_list a;
  va_start(a, format);
  vsnprintf(text, sizeof text, format, a);
  va_end(a);
  Lock lock(state.lock);
  ::report_misuse(CUDA_SUCCESS, function, "%s", text);
  return code;
}

int current_device()
{
  Lock lock(state.lock);
  CUctx_st *c = current_context();
  return c ? c->device : -1;
}

int device_of(CUstream handle)
{
  Lock lock(state.lock);
  CUstream_st *s = find_stream(handle);
  return s ? s->device : -1;
}

bool is_device_memory(const void *p)
{
  Lock lock(state.lock);
  return is_device_address(p);
}

int find_architecture() { return atoi(find_setting("CUDASIM_ARCH", "90")); }

/* -- work -------------------------------------------------------------------------------------- */

static std::string find_fault(const Region &r, int device)
{
  for (size_t i = 0; i < r.rows; i++) {
    const char *p = (const char *)r.p + i * r.step;
    if (!ranges_hold(p, r.bytes))
      return std::string(r.name) + " leaves device memory: " + describe_address(p);
    if (!device_reaches(device, p))
      return std::string(r.name) + " is memory of another device: " + describe_address(p);
    if (r.use & READS && !check_read(p, r.bytes))
      return std::string(r.name) + " is read before it is written: " + describe_address(p);
  }
  return "";
}

static void mark_written(const Region &r)
{
  for (size_t i = 0; i < r.rows; i++) {
    const char *p = (const char *)r.p + i * r.step;
    if (r.use & WRITES) check_written(p, r.bytes);
    if (r.use & SCRATCH) check_memory(p, r.bytes, true);
  }
}

static CUresult run_job(const std::string &name, int device, const std::vector<Region> &all,
    const Job &job, int way = 0)
{
  static const int fastest = atoi(find_setting("CUDASIM_FASTEST", "0"));
  if (way != fastest) counts.slower++;
  if (runs_dry()) {
    counts.launches++;
    note_cost(name, 0, 0);
    return CUDA_SUCCESS;
  }
  for (const Region &r : all) {
    std::string why = find_fault(r, device);
    if (!why.empty()) return report_fault(CUDA_ERROR_ILLEGAL_ADDRESS, name + ": " + why);
    if (r.use & SCRATCH) memset((void *)r.p, 0xff, r.bytes);
  }
  counts.launches++;
  job();
  uint64_t read = 0, written = 0;
  for (const Region &r : all) {
    mark_written(r);
    if (r.use & READS) read += r.rows * r.bytes;
    if (r.use & WRITES) written += r.rows * r.bytes;
  }
  note_cost(name, read, written);
  return CUDA_SUCCESS;
}

CUresult give_work(CUstream handle, const char *name, std::vector<Region> regions, Job job, int way)
{
  Call call("a library", NOTHING);
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "%s: not a stream, or destroyed before", name);
  int device = s->device;
  const std::string noted = way ? std::string(name) + " way " + std::to_string(way) : name;
  return submit_work(
      s, CU_GRAPH_NODE_TYPE_KERNEL, [=] { return run_job(noted, device, regions, job, way); });
}

CUresult give_when(CUstream handle, const char *name, std::vector<Region> regions, Job job,
    std::function<bool()> ready)
{
  Call call("a library", NOTHING);
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "%s: not a stream, or destroyed before", name);
  RULE(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
      "%s: the stream captures, which the stand-in cannot", name);
  int device = s->device;
  Op op;
  op.type = CU_GRAPH_NODE_TYPE_KERNEL;
  op.work = [=] { return run_job(name, device, regions, job); };
  op.ready = std::move(ready);
  return give_op(s, std::move(op));
}

/* -- objects ----------------------------------------------------------------------------------- */

void count_object(const char *kind, int change)
{
  Lock lock(state.lock);
  library_objects()[kind] += change;
}

}

std::map<std::string, long> &library_objects()
{
  static auto &all = *new std::map<std::string, long>;
  return all;
}
