/* device.cc - the devices and their primary contexts. CUDASIM_DEVICES is their number (1),
** CUDASIM_MEMORY the bytes of each (4 GiB), CUDASIM_ARCH the compute capability (90), CUDASIM_TAKEN
** the bytes that other processes have of each. CUDASIM_VIRTUAL_MEMORY=0: memory cannot be mapped.
** CUDASIM_MODE=exclusive or prohibited: the devices cannot be opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "state.h"

static CUctx_st contexts[DEVICES];
static int ndevices;
static thread_local std::vector<CUctx_st *> *stack;   /* of current contexts */

CUctx_st &context_of(int device) { return contexts[device]; }
int device_count() { return ndevices; }
CUctx_st *current_context() { return stack && !stack->empty() ? stack->back() : nullptr; }

API cuInit(unsigned flags)
{
  Lock lock(state.lock);
  NEED(!flags, CUDA_ERROR_INVALID_VALUE);
  if (state.started) return CUDA_SUCCESS;
  int n = atoi(find_setting("CUDASIM_DEVICES", "1"));
  ndevices = n < 0 ? 0 : n > DEVICES ? DEVICES : n;
  if (!ndevices) return CUDA_ERROR_NO_DEVICE;
  size_t memory = strtoull(find_setting("CUDASIM_MEMORY", "4294967296"), nullptr, 0);
  size_t taken = strtoull(find_setting("CUDASIM_TAKEN", "0"), nullptr, 0);
  for (int i = 0; i < DEVICES; i++) {
    contexts[i].device = i;
    contexts[i].total = memory;
    contexts[i].used = taken < memory ? taken : memory;
  }
  start_planning();
  start_memory();
  start_queues();
  start_leaks();
  state.started = true;
  return CUDA_SUCCESS;
}

API cuDriverGetVersion(int *version)
{
  if (state.started) {
    ENTER(NOTHING);
  }
  NEED(version, CUDA_ERROR_INVALID_VALUE);
  *version = atoi(find_setting("CUDASIM_DRIVER", "13000"));
  return CUDA_SUCCESS;
}

API cuDeviceGetCount(int *n)
{
  ENTER(NOTHING);
  *n = ndevices;
  return CUDA_SUCCESS;
}

static bool is_device(int d) { return d >= 0 && d < ndevices; }

API cuDeviceGet(CUdevice *device, int ordinal)
{
  ENTER(NOTHING);
  NEED(is_device(ordinal), CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  return CUDA_SUCCESS;
}

API cuDeviceGetName(char *name, int n, CUdevice device)
{
  ENTER(NOTHING);
  NEED(is_device(device), CUDA_ERROR_INVALID_DEVICE);
  snprintf(name, (size_t)n, "cudasim");
  return CUDA_SUCCESS;
}

API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
  ENTER(NOTHING);
  NEED(is_device(device), CUDA_ERROR_INVALID_DEVICE);
  memset(uuid, 0, sizeof *uuid);
  memcpy(uuid->bytes, "cudasim", 7);
  uuid->bytes[15] = (char)device;
  return CUDA_SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
  ENTER(NOTHING);
  NEED(is_device(device), CUDA_ERROR_INVALID_DEVICE);
  *bytes = contexts[device].total;
  return CUDA_SUCCESS;
}

static int compute_mode()
{
  const char *mode = find_setting("CUDASIM_MODE", "default");
  return !strcmp(mode, "exclusive") ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS
      : !strcmp(mode, "prohibited") ? CU_COMPUTEMODE_PROHIBITED
                                    : CU_COMPUTEMODE_DEFAULT;
}

/* Returns the attributes by which programs choose launches, 0 for all others. */
static int find_attribute(int which)
{
  int arch = atoi(find_setting("CUDASIM_ARCH", "90"));
  switch (which) {
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: return 1024;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: return 65535;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 48 << 10;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 227 << 10;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 228 << 10;
  case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 64 << 10;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: return 65536;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1000000;
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 1000000;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 256;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 4;
  case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: return 1;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return compute_mode();
  case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: return 1;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 4 << 20;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
  case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 2;
  case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return arch / 10;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return arch % 10;
  case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    return atoi(find_setting("CUDASIM_VIRTUAL_MEMORY", "1"));
  default: return 0;
  }
}

API cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
  ENTER(NOTHING);
  NEED(value, CUDA_ERROR_INVALID_VALUE);
  NEED(is_device(device), CUDA_ERROR_INVALID_DEVICE);
  *value = which == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? device + 1 : find_attribute(which);
  return CUDA_SUCCESS;
}

/* -- contexts ---------------------------------------------------------------------------------- */

API cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
  ENTER(ENDING);
  NEED(is_device(device), CUDA_ERROR_INVALID_DEVICE);
  NEED(compute_mode() == CU_COMPUTEMODE_DEFAULT, CUDA_ERROR_DEVICE_UNAVAILABLE);
  NEED(contexts[device].used < contexts[device].total, CUDA_ERROR_OUT_OF_MEMORY);
  contexts[device].retained++;
  *out = &contexts[device];
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
  ENTER(ENDING);
  NEED(is_device(device), CUDA_ERROR_INVALID_DEVICE);
  RULE(contexts[device].retained, CUDA_ERROR_INVALID_CONTEXT, "device %d was not retained", device);
  contexts[device].retained--;
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
  ENTER(ENDING);
  NEED(is_device(device), CUDA_ERROR_INVALID_DEVICE);
  *flags = 0;
  *active = contexts[device].retained > 0;
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned)
{
  ENTER(ENDING);
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static bool is_context(const CUctx_st *c)
{
  return c >= contexts && c < contexts + ndevices && c->retained > 0;
}

static std::vector<CUctx_st *> &own_stack()
{
  if (!stack) stack = new std::vector<CUctx_st *>;
  return *stack;
}

API cuCtxSetCurrent(CUcontext c)
{
  ENTER(ENDING);
  RULE(!c || is_context(c), CUDA_ERROR_INVALID_CONTEXT, "not a context that is retained");
  if (!own_stack().empty()) own_stack().pop_back();
  if (c) own_stack().push_back(c);
  return CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext *c)
{
  ENTER(ENDING);
  *c = current_context();
  return CUDA_SUCCESS;
}

API cuCtxPushCurrent_v2(CUcontext c)
{
  ENTER(ENDING);
  RULE(is_context(c), CUDA_ERROR_INVALID_CONTEXT, "not a context that is retained");
  own_stack().push_back(c);
  return CUDA_SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext *c)
{
  ENTER(ENDING);
  RULE(current_context(), CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
  if (c) *c = current_context();
  own_stack().pop_back();
  return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice *device)
{
  ENTER(CONTEXT | ENDING);
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

API cuCtxSynchronize()
{
  ENTER(CONTEXT | UNSAFE);
  return queue_wait_all(call.lock, current_context()->device);
}

/* -- neighbours -------------------------------------------------------------------------------- */

bool devices_are_peers() { return atoi(find_setting("CUDASIM_PEERS", "1")); }

API cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
  ENTER(NOTHING);
  NEED(is_device(device) && is_device(peer), CUDA_ERROR_INVALID_DEVICE);
  *can = device != peer && devices_are_peers();
  return CUDA_SUCCESS;
}

API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
  ENTER(CONTEXT);
  CUctx_st *c = current_context();
  NEED(!flags, CUDA_ERROR_INVALID_VALUE);
  RULE(is_context(peer) && peer != c, CUDA_ERROR_INVALID_CONTEXT, "not a context of another device");
  NEED(devices_are_peers(), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  NEED(c->peers.insert(peer->device).second, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  return CUDA_SUCCESS;
}

API cuCtxDisablePeerAccess(CUcontext peer)
{
  ENTER(CONTEXT);
  RULE(is_context(peer), CUDA_ERROR_INVALID_CONTEXT, "not a context");
  NEED(current_context()->peers.erase(peer->device), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  return CUDA_SUCCESS;
}
