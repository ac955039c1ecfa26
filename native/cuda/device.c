/* device.c - the device operations of a GPU: memory, copies, streams.
**
** Each device has four streams: one for its queue's thread, on which the work of tasks runs in
** order; a second one, on which a task may run a part of its work concurrently (second.c); one for
** data that the host sends meanwhile (send.c); and one for reads and writes by other threads, which
** wait for them. A task has completed when the queue has waited for its stream (`finish_queue`) or
** for the mark after it (`wait_for_task`). Copies between pageable host memory and the device go
** piece by piece through two pinned buffers: one is filled while the other is sent. */
#include <pthread.h>
#include "cuda/collective.h"
#include "cuda/family.h"
#include "cuda/send.h"
#include "cuda/stamps.h"
#include "device/order.h"

enum { LEAST_ARCH = 50, MARKS = 64 };

struct gpu {
  struct cuda_device *d;                              /* context.c */
  bool open;
  struct staging queue;                               /* for copies by the queue's thread */
  struct staging other;                               /* for all other threads, under `copying` */
  struct landings landings;
  pthread_mutex_t copying;                            /* held during copies by other threads */
  char *staging;                                      /* for kernels that run on the host */
  size_t staging_bytes;
  cu_event mark[MARKS];                               /* task number k has mark[k % MARKS] */
  struct stamp_clock clock;                           /* of the queue's stream */
};
static struct gpu gpus[CUDA_DEVICES];
static int count_found = -1;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static struct gpu *gpu_of(int device) { return &gpus[device_id(device)]; }
static bool is_gpu(int device) { return device_kind(device) == TY_GPU; }

/* -- finding and opening ----------------------------------------------------------------------- */

static int count_devices(void)
{
  int n = 0;
  if (count_found < 0) {
    bool none = cuda_load() || cu_api.DeviceGetCount(&n);
    count_found = none ? 0 : MIN(n, CUDA_DEVICES);
  }
  return count_found;
}

static int read_attribute(int id, int which, int *value)
{
  return cuda_check(
      cu_api.DeviceGetAttribute(value, which, id), "asking what a CUDA device can do");
}

static int make_event(cu_event *e)
{
  return cuda_check(cu_api.EventCreate(e, CU_EVENT_DISABLE_TIMING), "making an event");
}

/* Makes the device's streams. Call under the lock, with the device's context. */
static int make_streams(struct gpu *g)
{
  struct cuda_device *d = g->d;
  struct cu_allocation how = { .type = CU_ALLOCATION_PINNED,
    .location = { CU_LOCATION_DEVICE, d->id } };
  TRY(cuda_take_context(d->context));
  TRY(cuda_check(cu_api.StreamCreate(&d->stream, CU_STREAM_NON_BLOCKING), "making a stream"));
  TRY(cuda_check(cu_api.StreamCreate(&d->second, CU_STREAM_NON_BLOCKING), "making a stream"));
  TRY(cuda_check(cu_api.StreamCreate(&d->copies, CU_STREAM_NON_BLOCKING), "making a stream"));
  TRY(cuda_check(cu_api.MemGetAllocationGranularity(&d->granularity, &how, 1),
      "asking for the size of pages"));
  TRY(cuda_fault_new(&d->fault));
  for (int i = 0; i < MARKS; i++) TRY(make_event(&g->mark[i]));
  for (int i = 0; i < CUDA_MARKS; i++) TRY(make_event(&d->marks[i]));
  TRY(make_event(&d->fork));
  TRY(make_event(&d->join));
  TRY(landings_new(&g->landings));
  TRY(staging_new(&g->queue));
  return staging_new(&g->other);
}

/* Frees the streams, events and buffers of a device whose opening failed. */
static void drop_streams(struct gpu *g)
{
  struct cuda_device *d = g->d;
  if (!cuda_take_context(d->context)) {
    staging_done(&g->queue);
    staging_done(&g->other);
    if (d->fault) cu_api.MemFreeHost(d->fault);
    landings_done(&g->landings);
    for (int i = 0; i < MARKS; i++)
      if (g->mark[i]) cu_api.EventDestroy(g->mark[i]);
    for (int i = 0; i < CUDA_MARKS; i++)
      if (d->marks[i]) cu_api.EventDestroy(d->marks[i]);
    if (d->fork) cu_api.EventDestroy(d->fork);
    if (d->join) cu_api.EventDestroy(d->join);
    if (d->copies) cu_api.StreamDestroy(d->copies);
    if (d->second) cu_api.StreamDestroy(d->second);
    if (d->stream) cu_api.StreamDestroy(d->stream);
    cuda_take_context(NULL);
  }
  cu_api.DevicePrimaryCtxRelease(d->id);
  *d = (struct cuda_device){ 0 };
  *g = (struct gpu){ 0 };
}

/* Retains the device's context. Fails if another process uses the device exclusively, or all of its
** memory. */
static int take_device(struct cuda_device *d)
{
  int mode = 0, result = cu_api.DevicePrimaryCtxRetain(&d->context, d->id);
  if (result == CU_UNAVAILABLE) cu_api.DeviceGetAttribute(&mode, CU_MODE, d->id);
  NEED(result != CU_UNAVAILABLE, TY_EDEVICE, "gpu(%d), %s, cannot be opened: %s (nvidia-smi -i %d "
      "-c DEFAULT, as root, shares it)", d->id, d->name,
      mode == CU_EXCLUSIVE      ? "it is in exclusive mode, and another process has it"
          : mode == CU_PROHIBITED ? "its compute mode prohibits it"
                                  : "another process has it", d->id);
  NEED(result != CU_OUT_OF_MEMORY, TY_EMEMORY, "gpu(%d), %s, has no memory left for one more "
      "process; nvidia-smi lists those that have it", d->id, d->name);
  return cuda_check(result, "opening a CUDA device");
}

static int start_gpu(struct gpu *g, int id)
{
  struct cuda_device *d = cuda_device(TY_GPU + id);
  int major, minor, maps;
  g->d = d;
  d->id = id;
  cuda_name_device(id);
  TRY(read_attribute(id, CU_MAJOR, &major));
  TRY(read_attribute(id, CU_MINOR, &minor));
  TRY(read_attribute(id, CU_PROCESSORS, &d->processors));
  TRY(read_attribute(id, CU_SHARED, &d->shared));
  TRY(read_attribute(id, CU_VIRTUAL_MEMORY, &maps));
  d->arch = 10 * major + minor;
  d->waves = !env_disabled("wavefront");
  cu_api.DeviceGetName(d->name, sizeof d->name, id);
  NEED(d->arch >= LEAST_ARCH, TY_EDEVICE,
      "gpu(%d), %s, has compute capability %d.%d; at least %d.%d is needed", id, d->name, major,
      minor, LEAST_ARCH / 10, LEAST_ARCH % 10);
  NEED(d->arch >= cuda_least_arch(), TY_EDEVICE,
      "gpu(%d), %s, has compute capability %d.%d; NVRTC %d.%d compiles for %d.%d or more", id,
      d->name, major, minor, cuda_nvrtc_version() / 1000, cuda_nvrtc_version() % 1000 / 10,
      cuda_least_arch() / 10, cuda_least_arch() % 10);
  NEED(maps, TY_EDEVICE,
      "gpu(%d), %s, has no virtual memory management, which growing pools need", id, d->name);
  TRY(cuda_check(cu_api.DeviceTotalMem(&d->total, id), "asking for a device's memory"));
  TRY(take_device(d));
  int code = make_streams(g);
  if (code) {
    struct failure *f = failure_take(code); /* drop_streams may set another failure */
    drop_streams(g);
    code = failure_report(f);
    failure_drop(f);
    return code;
  }
  pthread_mutex_init(&g->copying, NULL);
  return TY_OK;
}

static int open_gpu(int device)
{
  struct gpu *g = gpu_of(device);
  if (device_id(device) < CUDA_DEVICES && __atomic_load_n(&g->open, __ATOMIC_ACQUIRE)) return TY_OK;
  int code = cuda_load();
  if (code) return fail(TY_EDEVICE, "gpu(%d) does not exist: %s; use cpu(i), or ask "
      "ty.num_gpus() first", device_id(device), ty_error());
  NEED(device_id(device) < count_devices(), TY_EDEVICE,
      "gpu(%d) does not exist: there %s %d here; use gpu(i) with a smaller i, or cpu(i)",
      device_id(device), count_devices() == 1 ? "is" : "are", count_devices());
  pthread_mutex_lock(&opening);
  if (!g->open) code = start_gpu(g, device_id(device));
  if (!code) __atomic_store_n(&g->open, true, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&opening);
  return code;
}

static int enter_queue(int device)
{
  cuda_serve(device);
  return cuda_enter(device);
}

static int finish_queue(int device)
{
  TRY(cuda_enter(device));
  TRY(cuda_check(cu_api.StreamSynchronize(cuda_stream(device)),
      device_sync() ? "this step" : "a task, TYCHO_SYNC=1 shows which"));
  return cuda_fault_report(cuda_device(device)->fault);
}

/* -- order between GPUs ------------------------------------------------------------------------ */

static int mark_task(int device, uint64_t seq)
{
  if (device == COLLECTIVE_QUEUE) return collective_mark(seq);
  struct gpu *g = gpu_of(device);
  TRY(cuda_enter(device));
  return cuda_check(
      cu_api.EventRecord(g->mark[seq % MARKS], g->d->stream), "marking the end of a task");
}

static int await_ticket(int device, struct ticket t)
{
  if (device == COLLECTIVE_QUEUE) return collective_await(gpu_of(t.device)->mark[t.seq % MARKS]);
  TRY(cuda_enter(device));
  if (t.device == COLLECTIVE_QUEUE) return collective_awaited(cuda_stream(device), t.seq);
  cu_event e = gpu_of(t.device)->mark[t.seq % MARKS];
  return cuda_check(cu_api.StreamWaitEvent(cuda_stream(device), e, 0), "waiting for another GPU");
}

/* Waits for a task. If kernels have found an error, which may be a later task's, waits for the
** whole stream. */
static int wait_for_task(int device, uint64_t seq)
{
  struct gpu *g = gpu_of(device);
  if (device == COLLECTIVE_QUEUE)
    return fail(TY_ESTATE, "sums over GPUs are waited for by looking");
  TRY(cuda_enter(device));
  TRY(cuda_check(cu_api.EventSynchronize(g->mark[seq % MARKS]), "a task"));
  NEED(!g->d->fault->taken, TY_ESTATE, "a kernel has found something");
  return TY_OK;
}

static bool is_busy(int device)
{
  if (device == COLLECTIVE_QUEUE) return collective_busy();
  return !cuda_enter(device) && cu_api.StreamQuery(cuda_stream(device)) == CU_NOT_READY;
}

static int leave_stamp(int device, void **made)
{
  TRY(cuda_enter(device));
  return stamp_leave(&gpu_of(device)->clock, cuda_stream(device), made);
}

static bool read_stamps(int device, void *first, void *last, int64_t *from, int64_t *to)
{
  return !cuda_enter(device) && stamp_read(&gpu_of(device)->clock, first, last, from, to);
}

/* Returns whether the device is lost; the driver keeps an error of a kernel or a copy in the
** context. */
static bool is_lost(int device)
{
  if (cuda_enter(device)) return true;
  int result = cu_api.StreamQuery(cuda_stream(device));
  return result && result != CU_NOT_READY;
}

/* -- memory ------------------------------------------------------------------------------------ */

static void *alloc_memory(int device, size_t bytes)
{
  cu_pointer p = 0;
  if (cuda_enter(device) || cu_api.MemAlloc(&p, MAX(bytes, 1))) return NULL;
  return (void *)(uintptr_t)p;
}

static void release_memory(int device, void *data, size_t bytes)
{
  if (!cuda_enter(device)) cu_api.MemFree((cu_pointer)(uintptr_t)data);
}

static int64_t total_memory(int device) { return (int64_t)gpu_of(device)->d->total; }

static int64_t available_memory(int device)
{
  size_t left, all;
  return cuda_enter(device) || cu_api.MemGetInfo(&left, &all) ? -1 : (int64_t)left;
}

static void count_work(int device, int64_t *launches, int64_t *copies)
{
  *launches = __atomic_load_n(&cuda_device(device)->work.launches, __ATOMIC_RELAXED);
  *copies = __atomic_load_n(&cuda_device(device)->work.copies, __ATOMIC_RELAXED);
}

static void describe_gpu(int device, struct text *t)
{
  const struct cuda_device *d = cuda_device(device);
  text_add(t, "%s, compute capability %d.%d, %d processors, ", d->name, d->arch / 10, d->arch % 10,
      d->processors);
}

static int make_staging(int device, size_t bytes, void **out)
{
  struct gpu *g = gpu_of(device);
  if (bytes > g->staging_bytes || !g->staging) {
    TRY(finish_queue(device)); /* copies from the old block may be in progress */
    if (g->staging) cu_api.MemFreeHost(g->staging);
    g->staging = NULL;
    g->staging_bytes = align_up(MAX(bytes, 1 << 20), 1 << 20);
    NEED(!cu_api.MemHostAlloc((void **)&g->staging, g->staging_bytes, CU_HOST_PORTABLE), TY_EMEMORY,
        "no memory on the host for copies of %zu bytes", bytes);
  }
  *out = g->staging;
  return TY_OK;
}

/* -- copies ------------------------------------------------------------------------------------ */

static bool within_staging(const struct gpu *g, const void *p, size_t bytes)
{
  return g->staging && (const char *)p >= g->staging &&
      (const char *)p + bytes <= g->staging + g->staging_bytes;
}

static int copy_between(int dst_device, cu_pointer dst, int src_device, cu_pointer src,
    size_t bytes, cu_stream stream)
{
  const struct gpu *d = gpu_of(dst_device), *s = gpu_of(src_device);
  if (dst_device == src_device)
    return cuda_check(cu_api.MemcpyDtoDAsync(dst, src, bytes, stream), "a copy on the GPU");
  return cuda_check(cu_api.MemcpyPeerAsync(dst, d->d->context, src, s->d->context, bytes, stream),
      "a copy between GPUs");
}

static int send_staged(struct gpu *g, struct staging *s, cu_stream stream, cu_pointer to,
    const void *from, size_t bytes)
{
  return s == &g->queue ? staging_land(s, &g->landings, to, from, bytes, stream)
                        : staging_send(s, to, from, bytes, stream);
}

static int copy_on_stream(struct gpu *g, struct staging *s, cu_stream stream, int dst_device,
    void *dst, int src_device, const void *src, size_t bytes)
{
  cu_pointer to = (cu_pointer)(uintptr_t)dst, from = (cu_pointer)(uintptr_t)src;
  if (is_gpu(dst_device) && is_gpu(src_device))
    return copy_between(dst_device, to, src_device, from, bytes, stream);
  if (is_gpu(dst_device))
    return within_staging(g, src, bytes)
        ? cuda_check(cu_api.MemcpyHtoDAsync(to, src, bytes, stream), "a copy to the GPU")
        : send_staged(g, s, stream, to, src, bytes);
  return within_staging(g, dst, bytes)
      ? cuda_check(cu_api.MemcpyDtoHAsync(dst, from, bytes, stream), "a copy from the GPU")
      : staging_fetch(s, dst, from, bytes, stream);
}

static int copy_memory(int dst_device, void *dst, int src_device, const void *src, size_t bytes)
{
  int device = cuda_serves(src_device) || !is_gpu(dst_device) ? src_device : dst_device;
  struct gpu *g = gpu_of(device);
  if (!bytes) return TY_OK;
  if (is_gpu(dst_device) && is_gpu(src_device)) cuda_connect(dst_device, src_device);
  TRY(cuda_enter(device));
  cuda_count(device, 0, 1);
  if (cuda_serves(device))
    return copy_on_stream(g, &g->queue, g->d->stream, dst_device, dst, src_device, src, bytes);
  pthread_mutex_lock(&g->copying);
  int code = copy_on_stream(g, &g->other, g->d->copies, dst_device, dst, src_device, src, bytes);
  if (!code) code = cuda_check(cu_api.StreamSynchronize(g->d->copies), "a copy");
  pthread_mutex_unlock(&g->copying);
  return code;
}

static int fill_memory(int device, void *data, int value, size_t bytes)
{
  TRY(cuda_enter(device));
  cu_pointer p = (cu_pointer)(uintptr_t)data;
  cuda_count(device, 0, 1);
  return cuda_check(
      cu_api.MemsetD8Async(p, (unsigned char)value, bytes, cuda_stream(device)), "filling memory");
}

/* -- the kind of device ------------------------------------------------------------------------ */

static const struct device_ops gpu_ops = {
  .name       = "gpu",
  .count      = count_devices,
  .open       = open_gpu,
  .enter      = enter_queue,
  .finish     = finish_queue,
  .lost       = is_lost,
  .alloc      = alloc_memory,
  .release    = release_memory,
  .copy       = copy_memory,
  .fill       = fill_memory,
  .staging    = make_staging,
  .convert    = cuda_convert,
  .range_grow = cuda_range_grow,
  .range_trim = cuda_range_trim,
  .range_free = cuda_range_free,
  .memory     = total_memory,
  .available  = available_memory,
  .work       = count_work,
  .describe   = describe_gpu,
  .record     = cuda_record,
  .recorded   = cuda_recorded,
  .replay     = cuda_replay,
  .forget     = cuda_forget,
  .stamp      = leave_stamp,
  .stamped    = read_stamps,
};

void cuda_device_register(void)
{
  static const struct order_ops order = { mark_task, await_ticket, wait_for_task, is_busy };
  device_register(TY_GPU, &gpu_ops);
  order_register(TY_GPU, &order);
  cuda_collective_register(&order);
}
