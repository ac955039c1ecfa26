/* driver.h - the parts of the interfaces of the CUDA driver and NVRTC that are used here, declared
** by hand, so that no toolkit is needed to build. The functions are looked up in the libraries when
** a device is first needed (load.c). Names are those of the libraries without prefixes. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long cu_pointer;                /* CUdeviceptr */
typedef struct cu_context  *cu_context;
typedef struct cu_stream   *cu_stream;
typedef struct cu_event    *cu_event;
typedef struct cu_module   *cu_module;
typedef struct cu_function *cu_function;
typedef struct cu_graph    *cu_graph;
typedef struct cu_graph_exec *cu_graph_exec;
typedef unsigned long long cu_memory;                 /* CUmemGenericAllocationHandle */
typedef struct nvrtc_program *nvrtc_program;

enum { CU_OUT_OF_MEMORY = 2, CU_STUB_LIBRARY = 34, CU_UNAVAILABLE = 46, CU_NO_DEVICE = 100,
       CU_NOT_READY = 600, CU_SYSTEM_NOT_READY = 802, CU_DRIVER_MISMATCH = 803 };
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2, CU_HOST_PORTABLE = 1,
       CU_CAPTURE_THREAD_LOCAL = 1 };
/* CUdevice_attribute */
enum { CU_PROCESSORS = 16, CU_MODE = 20, CU_MAJOR = 75, CU_MINOR = 76, CU_SHARED = 97,
       CU_VIRTUAL_MEMORY = 102 };
/* CUfunction_attribute */
enum { CU_DYNAMIC_SHARED = 8 };
/* CUcomputemode */
enum { CU_PROHIBITED = 2, CU_EXCLUSIVE = 3 };

/* CUmemAllocationProp, CUmemAccessDesc */
struct cu_location { int type, id; };
struct cu_allocation {
  int type, handle_types;
  struct cu_location location;
  void *win32;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
struct cu_access { struct cu_location location; int flags; };
enum { CU_LOCATION_DEVICE = 1, CU_ALLOCATION_PINNED = 1, CU_ACCESS_READ_WRITE = 3 };

/* name, symbol, arguments; all return CUresult */
#define CU_FUNCTIONS(_) \
  _(Init,                  "cuInit", (unsigned)) \
  _(DriverGetVersion,      "cuDriverGetVersion", (int *)) \
  _(DeviceGetCount,        "cuDeviceGetCount", (int *)) \
  _(DeviceGetName,         "cuDeviceGetName", (char *, int, int)) \
  _(DeviceTotalMem,        "cuDeviceTotalMem_v2", (size_t *, int)) \
  _(DeviceGetAttribute,    "cuDeviceGetAttribute", (int *, int, int)) \
  _(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (cu_context *, int)) \
  _(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int)) \
  _(CtxSetCurrent,         "cuCtxSetCurrent", (cu_context)) \
  _(DeviceCanAccessPeer,   "cuDeviceCanAccessPeer", (int *, int, int)) \
  _(CtxEnablePeerAccess,   "cuCtxEnablePeerAccess", (cu_context, unsigned)) \
  _(MemGetInfo,            "cuMemGetInfo_v2", (size_t *, size_t *)) \
  _(MemAlloc,              "cuMemAlloc_v2", (cu_pointer *, size_t)) \
  _(MemFree,               "cuMemFree_v2", (cu_pointer)) \
  _(MemHostAlloc,          "cuMemHostAlloc", (void **, size_t, unsigned)) \
  _(MemFreeHost,           "cuMemFreeHost", (void *)) \
  _(MemcpyHtoDAsync,       "cuMemcpyHtoDAsync_v2", \
    (cu_pointer, const void *, size_t, cu_stream)) \
  _(MemcpyDtoHAsync,       "cuMemcpyDtoHAsync_v2", (void *, cu_pointer, size_t, cu_stream)) \
  _(MemcpyDtoDAsync,       "cuMemcpyDtoDAsync_v2", (cu_pointer, cu_pointer, size_t, cu_stream)) \
  _(MemcpyPeerAsync,       "cuMemcpyPeerAsync", \
    (cu_pointer, cu_context, cu_pointer, cu_context, size_t, cu_stream)) \
  _(MemsetD8Async,         "cuMemsetD8Async", (cu_pointer, unsigned char, size_t, cu_stream)) \
  _(MemAddressReserve,     "cuMemAddressReserve", \
    (cu_pointer *, size_t, size_t, cu_pointer, uint64_t)) \
  _(MemAddressFree,        "cuMemAddressFree", (cu_pointer, size_t)) \
  _(MemCreate,             "cuMemCreate", \
    (cu_memory *, size_t, const struct cu_allocation *, uint64_t)) \
  _(MemRelease,            "cuMemRelease", (cu_memory)) \
  _(MemMap,                "cuMemMap", (cu_pointer, size_t, size_t, cu_memory, uint64_t)) \
  _(MemUnmap,              "cuMemUnmap", (cu_pointer, size_t)) \
  _(MemSetAccess,          "cuMemSetAccess", \
    (cu_pointer, size_t, const struct cu_access *, size_t)) \
  _(MemGetAllocationGranularity, "cuMemGetAllocationGranularity", \
    (size_t *, const struct cu_allocation *, int)) \
  _(StreamCreate,          "cuStreamCreate", (cu_stream *, unsigned)) \
  _(StreamDestroy,         "cuStreamDestroy_v2", (cu_stream)) \
  _(StreamSynchronize,     "cuStreamSynchronize", (cu_stream)) \
  _(StreamQuery,           "cuStreamQuery", (cu_stream)) \
  _(StreamWaitEvent,       "cuStreamWaitEvent", (cu_stream, cu_event, unsigned)) \
  _(StreamBeginCapture,    "cuStreamBeginCapture_v2", (cu_stream, int)) \
  _(StreamEndCapture,      "cuStreamEndCapture", (cu_stream, cu_graph *)) \
  _(GraphInstantiate,      "cuGraphInstantiateWithFlags", (cu_graph_exec *, cu_graph, uint64_t)) \
  _(GraphLaunch,           "cuGraphLaunch", (cu_graph_exec, cu_stream)) \
  _(GraphExecDestroy,      "cuGraphExecDestroy", (cu_graph_exec)) \
  _(GraphDestroy,          "cuGraphDestroy", (cu_graph)) \
  _(EventCreate,           "cuEventCreate", (cu_event *, unsigned)) \
  _(EventDestroy,          "cuEventDestroy_v2", (cu_event)) \
  _(EventRecord,           "cuEventRecord", (cu_event, cu_stream)) \
  _(EventSynchronize,      "cuEventSynchronize", (cu_event)) \
  _(EventElapsedTime,      "cuEventElapsedTime", (float *, cu_event, cu_event)) \
  _(ModuleLoadData,        "cuModuleLoadData", (cu_module *, const void *)) \
  _(ModuleGetFunction,     "cuModuleGetFunction", (cu_function *, cu_module, const char *)) \
  _(ModuleUnload,          "cuModuleUnload", (cu_module)) \
  _(FuncSetAttribute,      "cuFuncSetAttribute", (cu_function, int, int)) \
  _(LaunchKernel,          "cuLaunchKernel", \
    (cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
     cu_stream, void **, void **)) \
  _(GetErrorName,          "cuGetErrorName", (int, const char **)) \
  _(GetErrorString,        "cuGetErrorString", (int, const char **))

/* all return nvrtcResult */
#define NVRTC_FUNCTIONS(_) \
  _(Version,               "nvrtcVersion", (int *, int *)) \
  _(CreateProgram,         "nvrtcCreateProgram", \
    (nvrtc_program *, const char *, const char *, int, const char *const *, \
     const char *const *)) \
  _(CompileProgram,        "nvrtcCompileProgram", (nvrtc_program, int, const char *const *)) \
  _(GetCUBINSize,          "nvrtcGetCUBINSize", (nvrtc_program, size_t *)) \
  _(GetCUBIN,              "nvrtcGetCUBIN", (nvrtc_program, char *)) \
  _(GetPTXSize,            "nvrtcGetPTXSize", (nvrtc_program, size_t *)) \
  _(GetPTX,                "nvrtcGetPTX", (nvrtc_program, char *)) \
  _(GetProgramLogSize,     "nvrtcGetProgramLogSize", (nvrtc_program, size_t *)) \
  _(GetProgramLog,         "nvrtcGetProgramLog", (nvrtc_program, char *)) \
  _(DestroyProgram,        "nvrtcDestroyProgram", (nvrtc_program *)) \
  _(GetNumSupportedArchs,  "nvrtcGetNumSupportedArchs", (int *)) \
  _(GetSupportedArchs,     "nvrtcGetSupportedArchs", (int *))

#define DECLARE(name, symbol, arguments) int (*name) arguments;
struct cu_functions { CU_FUNCTIONS(DECLARE) };
struct nvrtc_functions { NVRTC_FUNCTIONS(DECLARE) };
#undef DECLARE
extern struct cu_functions cu_api;
extern struct nvrtc_functions nvrtc_api;
