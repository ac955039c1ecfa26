/* memory.cc - allocations in one piece, pinned host memory. */
#include <stdlib.h>
#include <sys/mman.h>
#include "state.h"

enum { ALIGN = 256, PAGE = 4096 };
/* by address of an allocation: its pages, its bytes */
struct Allocation { char *from; size_t reserved, bytes; int device; };
static std::map<char *, Allocation> &allocations = *new std::map<char *, Allocation>;
static std::map<char *, size_t> &pinned = *new std::map<char *, size_t>;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Allocates at the end of the pages, so that an access after it is a fault. */
API cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
  ENTER(CONTEXT | UNSAFE);
  NEED(out, CUDA_ERROR_INVALID_VALUE);
  RULE(bytes, CUDA_ERROR_INVALID_VALUE, "0 bytes");
  CUctx_st *c = current_context();
  NEED(bytes <= c->total - c->used, CUDA_ERROR_OUT_OF_MEMORY);
  size_t whole = round_up(bytes, PAGE);
  char *p = arena_take(whole);
  NEED(p && !mprotect(p, whole, PROT_READ | PROT_WRITE), CUDA_ERROR_OUT_OF_MEMORY);
  char *from = p + whole - round_up(bytes, ALIGN);
  spoil_memory(p, whole);
  range_add(from, bytes, c->device);
  allocations[from] = { p, whole, bytes, c->device };
  c->used += bytes;
  counts.allocations++;
  *out = (CUdeviceptr)from;
  return CUDA_SUCCESS;
}

API cuMemFree_v2(CUdeviceptr d)
{
  ENTER(UNSAFE | ENDING);
  if (!d) return CUDA_SUCCESS;
  auto at = allocations.find((char *)d);
  RULE(at != allocations.end(), CUDA_ERROR_INVALID_VALUE, "%p is not what cuMemAlloc returned",
      (void *)d);
  Allocation a = at->second;
  allocations.erase(at);
  queue_wait_all(call.lock, a.device);                /* as the real driver does */
  range_remove((char *)d);
  arena_give(a.from, a.reserved);
  context_of(a.device).used -= a.bytes;
  return CUDA_SUCCESS;
}

API cuMemGetInfo_v2(size_t *left, size_t *total)
{
  ENTER(CONTEXT);
  const CUctx_st *c = current_context();
  *total = c->total;
  *left = c->total - c->used;
  return CUDA_SUCCESS;
}

API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr d)
{
  ENTER(CONTEXT);
  auto at = allocations.upper_bound((char *)d);
  NEED(at != allocations.begin(), CUDA_ERROR_INVALID_VALUE);
  --at;
  NEED((char *)d < at->first + at->second.bytes, CUDA_ERROR_INVALID_VALUE);
  if (base) *base = (CUdeviceptr)at->first;
  if (bytes) *bytes = at->second.bytes;
  return CUDA_SUCCESS;
}

/* -- pinned memory of the host ----------------------------------------------------------------- */

bool is_pinned(const void *p, size_t bytes)
{
  auto at = pinned.upper_bound((char *)p);
  if (at == pinned.begin()) return false;
  --at;
  return (const char *)p + bytes <= at->first + at->second;
}

static CUresult new_pinned(void **out, size_t bytes)
{
  NEED(out && bytes, CUDA_ERROR_INVALID_VALUE);
  char *p = (char *)mmap(
      nullptr, round_up(bytes, PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(p != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  spoil_memory(p, bytes);
  pinned[p] = bytes;
  *out = p;
  return CUDA_SUCCESS;
}

API cuMemHostAlloc(void **out, size_t bytes, unsigned)
{
  ENTER(CONTEXT | UNSAFE);
  return new_pinned(out, bytes);
}

API cuMemAllocHost_v2(void **out, size_t bytes)
{
  ENTER(CONTEXT | UNSAFE);
  return new_pinned(out, bytes);
}

API cuMemFreeHost(void *p)
{
  ENTER(UNSAFE | ENDING);
  auto at = pinned.find((char *)p);
  RULE(at != pinned.end(), CUDA_ERROR_INVALID_VALUE, "%p is not what cuMemHostAlloc returned", p);
  size_t bytes = at->second;
  for (int d = 0; d < device_count(); d++) queue_wait_all(call.lock, d);
  pinned.erase((char *)p);
  munmap(p, round_up(bytes, PAGE));
  return CUDA_SUCCESS;
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned)
{
  ENTER(CONTEXT);
  NEED(is_pinned(p, 1), CUDA_ERROR_INVALID_VALUE);
  *out = (CUdeviceptr)p;
  return CUDA_SUCCESS;
}

/* -- leaks ------------------------------------------------------------------------------------- */

size_t live_allocations() { return allocations.size(); }
size_t live_pinned() { return pinned.size(); }
