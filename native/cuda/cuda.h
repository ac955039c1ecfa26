/* cuda.h - what the files of native/cuda share: the libraries, the devices, compiled kernels.
**
** The CUDA back end is part of the library on every machine and finds what it needs when it runs.
** A kernel's source is compiled by NVRTC for the device that is there, once; a queue's thread has
** one stream, on which its kernels and copies are launched in order. */
#pragma once
#include "cuda/driver.h"
#include "device/device.h"
#include "op/dispatch.h"

enum { CUDA_DEVICES = 16 };

/* -- libraries (load.c) ------------------------------------------------------------------------ */

/* Loads and starts the driver and NVRTC; TY_EDEVICE says what is missing. Any thread. */
int  cuda_load(void);
/* Returns the version of the driver, 13000 for 13.0; 0: it is not loaded. */
int  cuda_driver_version(void);
/* Returns the version of NVRTC, 13000 for 13.0; 0: it is not loaded. */
int  cuda_nvrtc_version(void);
enum cuda_library {
  CUDA_DRIVER, CUDA_NVRTC, CUDA_CUBLASLT, CUDA_CUDNN, CUDA_CUSOLVER, CUDA_NCCL
};
/* Opens a library. NULL: not found, or TYCHO_DISABLE switches it off; adds where it was looked for,
** what is there instead, and which packages have it to `missing`, which may be NULL. */
void *cuda_library(enum cuda_library which, struct text *missing);
/* Returns the version of an open library as its own function gives it, 130100; 0: it has none. */
int cuda_library_version(enum cuda_library which, void *lib);
/* why a kernel refuses whose library is missing */
#define CUDA_MISSING(name) name " was not found; tycho --platform says what is missing"
/* Loads a library; if it is missing, fails with TY_EDEVICE and what cuda_library says of it. */
int  cuda_library_needed(enum cuda_library which, void **lib);
/* Returns TY_OK for a driver's code of success, else a failure that names the device, what was done
** and the driver's words. */
int  cuda_check(int result, const char *what);
/* Names gpu(id) in the failures of this thread's calls from here on. */
void cuda_name_device(int id);

/* -- devices (context.c) ----------------------------------------------------------------------- */

/* What a kernel has found wrong (kernels/fault.cuh, which has the same struct). what NULL: an index
** that is out of range. Else `axis` is a fault_kind: `what` says what is wrong with matrix `index`,
** what parameter `index` should be, or which labels are allowed besides the classes. */
struct cuda_fault {
  int32_t taken;                                      /* 1: a kernel has written the rest */
  int32_t axis;                                       /* that was indexed; -1: of no array */
  int64_t index;
  int64_t position;                                   /* element of the array of indices */
  int64_t low, high;                                  /* the index had to be low .. high - 1 */
  int64_t op;                                         /* of cuda_origin */
  const char *what;
};
/* Numbers of what a device was given. */
struct cuda_work {
  int64_t launches;                                   /* kernels, calls of libraries */
  int64_t copies;                                     /* copies, fills */
};
/* Points in the order of a stream, see cuda_mark. */
enum { CUDA_MARKS = 8 };
struct cuda_device {
  int id;
  cu_context context;
  cu_stream stream;                                   /* of the queue's thread */
  cu_stream second;                                   /* of the queue's thread, beside `stream` */
  cu_stream copies;                                   /* of all other threads */
  cu_event marks[CUDA_MARKS];                         /* of cuda_mark */
  cu_event fork, join;                                /* of cuda_fork and cuda_join */
  int arch;                                           /* 90: compute capability 9.0 */
  int processors;                                     /* multiprocessors */
  int shared;                                         /* bytes of a block's shared memory */
  bool waves;                                         /* TYCHO_DISABLE does not name "wavefront" */
  size_t total;                                       /* bytes of memory */
  size_t granularity;                                 /* bytes of a page of mapped memory */
  struct cuda_fault *fault;                           /* pinned memory, which kernels write */
  struct cuda_work work;                              /* since it was opened; atomic */
  char name[96];
};
/* Returns a GPU that is open, or, for device.c, that it opens. */
struct cuda_device *cuda_device(int device);
/* Makes the device's context the current one of this thread. */
int  cuda_enter(int device);
/* Makes a context the current one of this thread, NULL: none. Only while a device is opened. */
int  cuda_take_context(cu_context context);
/* Makes this thread the one that serves the device's queue. */
void cuda_serve(int device);
bool cuda_serves(int device);
/* Returns the stream for work of this thread: on the thread that serves the queue the queue's, or
** the second one between cuda_fork and cuda_join. */
cu_stream cuda_stream(int device);

/* -- two streams (second.c): only on the thread that serves the device's queue ----------------- */

/* Lets the second stream begin after what the queue's has been given so far. A recording takes
** both. */
int  cuda_fork(int device);
/* Chooses the stream of what this thread starts from now on. */
void cuda_choose_stream(bool second);
/* Makes a mark, 0 to CUDA_MARKS - 1, after what the chosen stream has been given so far. */
int  cuda_mark(int device, int mark);
/* Orders what the chosen stream is given from now on after a mark. */
int  cuda_await(int device, int mark);
/* Chooses the queue's stream, and orders what it is given from now on after all that the second one
** has been given. Every fork needs it. Returns `code`, that of what was started in between, or if
** that is TY_OK its own. */
int  cuda_join(int device, int code);

/* -- growing ranges, peers (range.c): see struct device_ops ------------------------------------ */

bool cuda_range_grow(struct range *r, size_t bytes, bool *moved);
void cuda_range_trim(struct range *r, size_t bytes);
void cuda_range_free(struct range *r);
/* Lets copies between two open GPUs go directly, without the host, where the hardware can. Called
** by any thread, whose current context may be another one afterwards. */
void cuda_connect(int a, int b);

/* -- findings of kernels (fault.c) ------------------------------------------------------------- */

int cuda_fault_new(struct cuda_fault **out);
/* Returns what a kernel of a call takes as `op`: by it a failure names the node, or the operator
** where the call has no origin. */
int64_t cuda_origin(const struct call *c);
/* Returns the failure that was found, TY_OK: none. The kernels that may find one have ended. */
int cuda_fault_report(struct cuda_fault *f);

/* -- kernels (compile.c) ----------------------------------------------------------------------- */

/* Finds a function of a source in CUDA C++, compiled for the device with these options (NULL ends
** them). Compiles it once per process, and once per machine with the cache on disk. Fails with
** TY_EINTERNAL and the compiler's log. */
int cuda_compile(int device, const char *source, const char *const *options, const char *name,
    cu_function *out);
/* Returns the least compute capability that NVRTC compiles for, 75: 7.5; 0: it does not say. */
int cuda_least_arch(void);

/* Launches blocks of `block` threads, with `shared` bytes of memory, on this thread's stream. */
int cuda_launch(int device, cu_function f, int64_t blocks, int block, size_t shared, void **params);

/* -- graphs (graph.c): see struct device_ops --------------------------------------------------- */

/* Counts what the device is given, or what is being recorded. */
void cuda_count(int device, int64_t launches, int64_t copies);
int  cuda_record(int device);
int  cuda_recorded(int device, void **made);
int  cuda_replay(int device, void *made);
void cuda_forget(int device, void *made);

/* -- registration (all.c) ---------------------------------------------------------------------- */

void cuda_device_register(void);
void cuda_pointwise_register(void);
