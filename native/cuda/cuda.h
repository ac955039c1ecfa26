/* cuda.h - shared by the files of native/cuda: libraries, devices, compiled kernels.
**
** The CUDA back end is part of the library on every machine, and loads the driver and libraries at
** run time. NVRTC compiles kernels for the device at their first use. The thread of a device's
** queue launches its kernels and copies in order on one stream. */
#pragma once
#include "cuda/driver.h"
#include "device/device.h"
#include "op/dispatch.h"

enum { CUDA_DEVICES = 16 };

/* -- libraries (load.c) ------------------------------------------------------------------------ */

/* Loads and initialises the driver and NVRTC; TY_EDEVICE says what is missing. Any thread. */
int  cuda_load(void);
/* Returns the version of the driver, 13000 for 13.0; 0: it is not loaded. */
int  cuda_driver_version(void);
/* Returns the version of NVRTC, 13000 for 13.0; 0: it is not loaded. */
int  cuda_nvrtc_version(void);
enum cuda_library {
  CUDA_DRIVER, CUDA_NVRTC, CUDA_CUBLASLT, CUDA_CUDNN, CUDA_CUSOLVER, CUDA_NCCL
};
/* Opens a library. Returns NULL if it is not found or TYCHO_DISABLE names it; then `missing`,
** unless NULL, gets where it was looked for, what was found instead, and which packages have it. */
void *cuda_library(enum cuda_library which, struct text *missing);
/* Returns the version of an open library in its own form, such as 130100; 0: unknown. */
int cuda_library_version(enum cuda_library which, void *lib);
/* The reason for refusing a call if a kernel's library is missing. */
#define CUDA_MISSING(name) name " was not found; tycho --platform says what is missing"
/* Loads a library; if it is missing, fails with TY_EDEVICE and what cuda_library says of it. */
int  cuda_library_needed(enum cuda_library which, void **lib);
/* Returns TY_OK if `result` of the driver is success; else fails with the device, `what` was done
** and the driver's text. */
int  cuda_check(int result, const char *what);
/* Sets which GPU failures of this thread name from now on. */
void cuda_name_device(int id);

/* -- devices (context.c) ----------------------------------------------------------------------- */

/* An error found by a kernel (same struct as in kernels/fault.cuh). what NULL: an index is out of
** range. Else `axis` is a fault_kind, and `what` says what is wrong with matrix `index`, what
** parameter `index` should be, or which labels are allowed besides the classes. */
struct cuda_fault {
  int32_t taken;                                      /* 1: a kernel has written the rest */
  int32_t axis;                                       /* axis that was indexed; -1: no array */
  int64_t index;
  int64_t position;                                   /* element of the array of indices */
  int64_t low, high;                                  /* the index had to be low .. high - 1 */
  int64_t op;                                         /* result of cuda_origin */
  const char *what;
};
/* Counts of work that a device was given. */
struct cuda_work {
  int64_t launches;                                   /* kernels, calls of libraries */
  int64_t copies;                                     /* copies, fills */
};
/* Number of marks, see cuda_mark. */
enum { CUDA_MARKS = 8 };
struct cuda_device {
  int id;
  cu_context context;
  cu_stream stream;                                   /* of the queue's thread */
  cu_stream second;                                   /* a second stream of that thread */
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
  /* counts since the device was opened; atomic */
  struct cuda_work work;
  char name[96];
};
/* Returns the struct of a GPU, which is open; device.c also calls it while it opens one. */
struct cuda_device *cuda_device(int device);
/* Makes the device's context the current one of this thread. */
int  cuda_enter(int device);
/* Sets the current context of this thread (NULL: none). Only for opening a device. */
int  cuda_take_context(cu_context context);
/* Declares that this thread serves the device's queue. */
void cuda_serve(int device);
/* Returns whether this thread serves the device's queue. */
bool cuda_serves(int device);
/* Returns the stream for work of this thread: on the queue's thread that of the queue, or the one
** chosen between cuda_fork and cuda_join; on others `copies`. */
cu_stream cuda_stream(int device);

/* -- two streams (second.c): only on the thread that serves the device's queue ----------------- */

/* Makes the second stream wait for the work given to the queue's stream so far. A recording
** includes both. */
int  cuda_fork(int device);
/* Chooses the stream for this thread's further work. */
void cuda_choose_stream(bool second);
/* Places a mark, 0 .. CUDA_MARKS - 1, after the work given to the chosen stream so far. */
int  cuda_mark(int device, int mark);
/* Makes later work on the chosen stream wait for a mark. */
int  cuda_await(int device, int mark);
/* Chooses the queue's stream and makes its later work wait for all work of the second stream. Call
** it after each cuda_fork, also on failure. Returns `code`, the result of the work in between, or
** if that is TY_OK its own. */
int  cuda_join(int device, int code);

/* -- growing ranges, peers (range.c): see struct device_ops ------------------------------------ */

bool cuda_range_grow(struct range *r, size_t bytes, bool *moved);
void cuda_range_trim(struct range *r, size_t bytes);
void cuda_range_free(struct range *r);
/* Enables direct copies between two open GPUs, if the hardware supports them. Any thread; its
** current context may change. */
void cuda_connect(int a, int b);

/* -- errors found by kernels (fault.c) --------------------------------------------------------- */

/* Allocates the pinned memory of a device's fault. */
int cuda_fault_new(struct cuda_fault **out);
/* Returns the `op` argument of a call's kernel, by which a failure names the node, or the operator
** if the call has no origin. */
int64_t cuda_origin(const struct call *c);
/* Fails with an error that a kernel has found; TY_OK if there is none. Call it when the kernels
** have ended. */
int cuda_fault_report(struct cuda_fault *f);

/* -- kernels (compile.c) ----------------------------------------------------------------------- */

/* Finds function `name` of a CUDA C++ source, compiled for the device with these options (ended by
** NULL). It is compiled once per process, or once per machine with the cache on disk. Fails with
** TY_EINTERNAL and the compiler's log. */
int cuda_compile(int device, const char *source, const char *const *options, const char *name,
    cu_function *out);
/* Returns the lowest compute capability that NVRTC supports, 75 for 7.5; 0: unknown. */
int cuda_least_arch(void);

/* Launches `blocks` blocks of `block` threads with `shared` bytes of shared memory on this thread's
** stream. */
int cuda_launch(int device, cu_function f, int64_t blocks, int block, size_t shared, void **params);

/* -- graphs (graph.c): see struct device_ops --------------------------------------------------- */

/* Counts work given to the device, or recorded. */
void cuda_count(int device, int64_t launches, int64_t copies);
int  cuda_record(int device);
int  cuda_recorded(int device, void **made);
int  cuda_replay(int device, void *made);
void cuda_forget(int device, void *made);

/* -- registration (all.c) ---------------------------------------------------------------------- */

void cuda_device_register(void);
void cuda_pointwise_register(void);
