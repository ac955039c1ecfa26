/* copy.cc - copies and fills. Between device and pinned memory they run late, as other work of the
** stream; pageable memory is read and written before the call returns. */
#include <string.h>
#include "../run/check.h"
#include "state.h"

struct Copy { char *to; const char *from; size_t bytes; };

/* Checks that one side of a copy is device memory (is_device) or host memory when the copy runs. */
static CUresult check_side(const void *p, size_t bytes, bool is_device, const char *which)
{
  if (is_device ? ranges_hold(p, bytes) : !is_device_address(p)) return CUDA_SUCCESS;
  std::string why = std::string("a copy of ") + std::to_string(bytes) + " bytes: its " + which;
  why += is_device ? " leaves device memory: " + describe_address(p) : " is device memory";
  return report_fault(CUDA_ERROR_ILLEGAL_ADDRESS, why);
}

enum Sides { TO_DEVICE = 1, FROM_DEVICE = 2 };

static CUresult copy_now(const Copy &c, int sides)
{
  if (CUresult r = check_side(c.to, c.bytes, sides & TO_DEVICE, "destination")) return r;
  if (CUresult r = check_side(c.from, c.bytes, sides & FROM_DEVICE, "source")) return r;
  memmove(c.to, c.from, c.bytes);
  check_copied(c.to, c.from, c.bytes);
  counts.copies++;
  note_cost("copy", sides & FROM_DEVICE ? c.bytes : 0, sides & TO_DEVICE ? c.bytes : 0);
  return CUDA_SUCCESS;
}

static Work stage_copy(Copy c, int sides)
{
  auto kept = std::make_shared<std::string>(c.from, c.bytes);
  return [=] { return copy_now({ c.to, kept->data(), c.bytes }, sides); };
}

static CUresult submit_copy(Call &call, Copy c, int sides, CUstream handle, bool wait)
{
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "%s: not a stream", call.name);
  RULE(c.to && c.from, CUDA_ERROR_INVALID_VALUE, "%s: a null pointer", call.name);
  if (!c.bytes) return CUDA_SUCCESS;
  bool reads = !(sides & FROM_DEVICE) && !is_pinned(c.from, c.bytes);
  bool writes = !(sides & TO_DEVICE) && !is_pinned(c.to, c.bytes);
  if (s->capture && (reads || writes || wait))
    return capture_refuse(s, wait ? call.name : "a copy with pageable memory");
  Work work = [=] { return copy_now(c, sides); };
  CUresult r = submit_work(
      s, CU_GRAPH_NODE_TYPE_MEMCPY, reads && !wait ? stage_copy(c, sides) : work);
  if (r || !(writes || wait)) return r;
  return queue_wait(call.lock, end_of(s->queue));
}

static CUresult wrong_kind(const char *name, const char *which)
{
  return report_misuse(CUDA_ERROR_INVALID_VALUE, name, "the %s is no device memory", which);
}

/* At the call a device pointer must at least be in the arena. */
#define DEVICE_SIDE(p, which) \
  if (!is_device_address((void *)(p))) return wrong_kind(call.name, which)

API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
  ENTER(CONTEXT);
  DEVICE_SIDE(to, "destination");
  return submit_copy(call, { (char *)to, (const char *)from, bytes }, TO_DEVICE, s, false);
}

API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
  ENTER(CONTEXT);
  DEVICE_SIDE(from, "source");
  return submit_copy(call, { (char *)to, (const char *)from, bytes }, FROM_DEVICE, s, false);
}

API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
  ENTER(CONTEXT);
  DEVICE_SIDE(to, "destination");
  DEVICE_SIDE(from, "source");
  return submit_copy(
      call, { (char *)to, (const char *)from, bytes }, TO_DEVICE | FROM_DEVICE, s, false);
}

/* Copies over the host where neither device has access to the other's side. */
API cuMemcpyPeerAsync(
    CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream handle)
{
  ENTER(CONTEXT);
  DEVICE_SIDE(to, "destination");
  DEVICE_SIDE(from, "source");
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "not a stream");
  RULE(there && here, CUDA_ERROR_INVALID_CONTEXT, "a context is missing");
  Copy c = { (char *)to, (const char *)from, bytes };
  int to_device = there->device, from_device = here->device;
  return submit_work(s, CU_GRAPH_NODE_TYPE_MEMCPY, [=] {
    bool direct = device_reaches(to_device, c.from) || device_reaches(from_device, c.to);
    counts.staged += !direct;
    return copy_now(c, TO_DEVICE | FROM_DEVICE);
  });
}

API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
  ENTER(CONTEXT);
  int sides = (is_device_address((void *)to) ? TO_DEVICE : 0) | (is_device_address((void *)from) ? FROM_DEVICE : 0);
  return submit_copy(call, { (char *)to, (const char *)from, bytes }, sides, s, false);
}

API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
  ENTER(CONTEXT | UNSAFE);
  DEVICE_SIDE(to, "destination");
  return submit_copy(call, { (char *)to, (const char *)from, bytes }, TO_DEVICE, nullptr, true);
}

API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
  ENTER(CONTEXT | UNSAFE);
  DEVICE_SIDE(from, "source");
  return submit_copy(call, { (char *)to, (const char *)from, bytes }, FROM_DEVICE, nullptr, true);
}

API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
  ENTER(CONTEXT | UNSAFE);
  DEVICE_SIDE(to, "destination");
  DEVICE_SIDE(from, "source");
  return submit_copy(
      call, { (char *)to, (const char *)from, bytes }, TO_DEVICE | FROM_DEVICE, nullptr, true);
}

/* -- fills ------------------------------------------------------------------------------------- */

template <class T> static CUresult fill_now(T *to, T value, size_t n)
{
  if (!ranges_hold(to, n * sizeof(T)))
    return report_fault(CUDA_ERROR_ILLEGAL_ADDRESS,
        "a fill of " + std::to_string(n * sizeof(T)) +
            " bytes leaves device memory: " + describe_address(to));
  for (size_t i = 0; i < n; i++) to[i] = value;
  check_written(to, n * sizeof(T));
  counts.fills++;
  note_cost("fill", 0, n * sizeof(T));
  return CUDA_SUCCESS;
}

template <class T>
static CUresult submit_fill(Call &call, CUdeviceptr d, T value, size_t n, CUstream handle)
{
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "%s: not a stream", call.name);
  DEVICE_SIDE(d, "destination");
  RULE(d % sizeof(T) == 0, CUDA_ERROR_INVALID_VALUE, "%s: not aligned", call.name);
  if (!n) return CUDA_SUCCESS;
  return submit_work(s, CU_GRAPH_NODE_TYPE_MEMSET, [=] { return fill_now((T *)d, value, n); });
}

API cuMemsetD8Async(CUdeviceptr d, unsigned char value, size_t n, CUstream s)
{
  ENTER(CONTEXT);
  return submit_fill(call, d, value, n, s);
}

API cuMemsetD16Async(CUdeviceptr d, unsigned short value, size_t n, CUstream s)
{
  ENTER(CONTEXT);
  return submit_fill(call, d, value, n, s);
}

API cuMemsetD32Async(CUdeviceptr d, unsigned value, size_t n, CUstream s)
{
  ENTER(CONTEXT);
  return submit_fill(call, d, value, n, s);
}

API cuMemsetD8_v2(CUdeviceptr d, unsigned char value, size_t n)
{
  ENTER(CONTEXT | UNSAFE);
  return submit_fill(call, d, value, n, nullptr);
}

API cuMemsetD32_v2(CUdeviceptr d, unsigned value, size_t n)
{
  ENTER(CONTEXT | UNSAFE);
  return submit_fill(call, d, value, n, nullptr);
}
