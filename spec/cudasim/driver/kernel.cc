/* kernel.cc - functions of modules and their launches. Parameters are copied at the
** call; the grid runs when it is its turn in the stream. */
#include <string.h>
#include "../run/check.h"
#include "../run/run.h"
#include "state.h"

static const int DEFAULT_SHARED = 48 << 10;           /* bytes, unless the program raised it */

#define FUNCTION(f) \
  RULE(function_lives(f), CUDA_ERROR_INVALID_HANDLE, "not a function, or its module is unloaded")

/* Returns the most threads of a block; a kernel that is not run has no bounds. */
static int threads_of(const CUfunc_st *f) { return f->kernel ? f->kernel->max_threads : 1024; }

API cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction f)
{
  ENTER(CONTEXT);
  FUNCTION(f);
  switch (which) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = threads_of(f); break;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)f->module->shared_bytes; break;
  case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
  case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = 90; break;
  case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    *value = f->max_dynamic ? f->max_dynamic : DEFAULT_SHARED;
    break;
  default: *value = 0;
  }
  return CUDA_SUCCESS;
}

API cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value)
{
  ENTER(CONTEXT);
  FUNCTION(f);
  if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
  RULE(which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_VALUE,
      "attribute %d cannot be set", (int)which);
  RULE(value >= 0 && value <= MAX_DYNAMIC, CUDA_ERROR_INVALID_VALUE,
      "%d bytes of dynamic shared memory; a block may have %d", value, MAX_DYNAMIC);
  f->max_dynamic = value;
  return CUDA_SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads, size_t)
{
  ENTER(CONTEXT);
  FUNCTION(f);
  NEED(n && threads > 0, CUDA_ERROR_INVALID_VALUE);
  *n = 2048 / threads < 32 ? 2048 / threads : 32;
  return CUDA_SUCCESS;
}

/* -- launching --------------------------------------------------------------------------------- */

struct Grid { unsigned grid[3], block[3]; size_t dynamic; };

/* the parameters of a launch in one piece of memory; at: the address of each */
struct Parameters {
  std::unique_ptr<char[]> bytes;
  std::vector<void *> at;
  size_t n = 0;
};

static std::shared_ptr<Parameters> copy_parameters(const cudasim_kernel *k, void **given)
{
  auto p = std::make_shared<Parameters>();
  for (int i = 0; i < k->count; i++) p->n += (k->bytes[i] + 15) / 16 * 16;
  p->bytes.reset(new char[p->n + 16]);
  char *at = (char *)(((uintptr_t)p->bytes.get() + 15) / 16 * 16);
  for (int i = 0; i < k->count; i++) {
    memcpy(at, given[i], k->bytes[i]);
    p->at.push_back(at);
    at += (k->bytes[i] + 15) / 16 * 16;
  }
  return p;
}

static CUresult run_now(const CUfunc_st *f, const std::string &name, const Grid &g, Parameters &p)
{
  if (!function_lives(f))
    return report_fault(CUDA_ERROR_LAUNCH_FAILED, name + ": its module was unloaded before it ran");
  const CUmod_st *m = f->module;
  Launch launch = { f->kernel, p.at.data(), { g.grid[0], g.grid[1], g.grid[2] },
    { g.block[0], g.block[1], g.block[2] }, g.dynamic, m->shared, m->shared_bytes };
  check_parameters(p.bytes.get(), p.n + 16);
  counts.launches++;
  const char *why = run_launch(launch);
  const Moved moved = check_moved();
  note_cost(name, moved.read, moved.written);
  if (!why) return CUDA_SUCCESS;
  bool address = !strncmp(why, "an access", 9);
  CUresult code = address ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_LAUNCH_FAILED;
  return report_fault(code, name + ": " + why);
}

static CUresult check_grid(const CUfunc_st *f, const Grid &g)
{
  const char *name = f->name.c_str();
  uint64_t threads = (uint64_t)g.block[0] * g.block[1] * g.block[2];
  RULE(threads && g.grid[0] && g.grid[1] && g.grid[2], CUDA_ERROR_INVALID_VALUE,
      "%s: a grid of no threads", name);
  RULE(threads <= MAX_THREADS && g.block[2] <= 64, CUDA_ERROR_INVALID_VALUE,
      "%s: %llu threads in a block", name, (unsigned long long)threads);
  RULE(threads <= (uint64_t)threads_of(f), CUDA_ERROR_INVALID_VALUE,
      "%s: %llu threads in a block, its __launch_bounds__ are %d", name,
      (unsigned long long)threads, threads_of(f));
  RULE(g.grid[0] < 1u << 31 && g.grid[1] < 65536 && g.grid[2] < 65536, CUDA_ERROR_INVALID_VALUE,
      "%s: too many blocks, %u x %u x %u", name, g.grid[0], g.grid[1], g.grid[2]);
  size_t most = (size_t)(f->max_dynamic ? f->max_dynamic : DEFAULT_SHARED);
  RULE(g.dynamic <= most, CUDA_ERROR_INVALID_VALUE,
      "%s: %zu bytes of dynamic shared memory, allowed are %zu", name, g.dynamic, most);
  return CUDA_SUCCESS;
}

static CUresult submit_launch(
    const char *name, CUfunction f, const Grid &g, CUstream handle, void **given, void **extra)
{
  CUstream_st *s = find_stream(handle);
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "%s: not a stream, or destroyed before", name);
  RULE(function_lives(f), CUDA_ERROR_INVALID_HANDLE, "%s: not a function", name);
  RULE(f->module->device == s->device, CUDA_ERROR_INVALID_HANDLE,
      "%s: a function and a stream of two devices", f->name.c_str());
  RULE(!extra, CUDA_ERROR_NOT_SUPPORTED, "%s: parameters packed by `extra`", name);
  if (CUresult r = check_grid(f, g)) return r;
  std::string of = f->name;
  if (!f->kernel)
    return submit_work(s, CU_GRAPH_NODE_TYPE_KERNEL, [of] {
      counts.launches++;
      note_cost(of, 0, 0);
      return CUDA_SUCCESS;
    });
  for (int i = 0; i < f->kernel->count; i++)
    RULE(given && given[i], CUDA_ERROR_INVALID_VALUE, "%s: parameter %d is missing",
        f->name.c_str(), i);
  auto p = copy_parameters(f->kernel, given);
  return submit_work(s, CU_GRAPH_NODE_TYPE_KERNEL, [=] { return run_now(f, of, g, *p); });
}

API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned dynamic, CUstream s, void **parameters, void **extra)
{
  ENTER(CONTEXT);
  Grid g = { { gx, gy, gz }, { bx, by, bz }, dynamic };
  return submit_launch(call.name, f, g, s, parameters, extra);
}

API cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra)
{
  ENTER(CONTEXT);
  NEED(c, CUDA_ERROR_INVALID_VALUE);
  Grid g = { { c->gridDimX, c->gridDimY, c->gridDimZ }, { c->blockDimX, c->blockDimY, c->blockDimZ },
    c->sharedMemBytes };
  return submit_launch(call.name, f, g, c->hStream, parameters, extra);
}
