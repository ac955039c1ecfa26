/* stream.cc - streams and events. An event is a point of a queue; waiting for it in another stream
** is an Op that runs when the point is passed. The default stream waits for all blocking streams
** of its device, and they for it. */
#include <stdlib.h>
#include <time.h>
#include "state.h"

static CUstream_st defaults[DEVICES];
static std::set<CUstream_st *> &live = *new std::set<CUstream_st *>;
Registry<CUevent_st> events;

std::set<CUstream_st *> &list_streams() { return live; }

static CUstream_st *default_stream(int device)
{
  CUstream_st *s = &defaults[device];
  if (!s->queue) {
    s->device = device;
    s->queue = queue_new(device, true);
  }
  return s;
}

CUstream_st *find_stream(CUstream handle)
{
  if ((uintptr_t)handle <= 2) {
    CUctx_st *c = current_context();
    return c ? default_stream(c->device) : nullptr;
  }
  return live.count(handle) ? handle : nullptr;
}

static bool is_default(const CUstream_st *s) { return s >= defaults && s < defaults + DEVICES; }

/* Returns the marks that new work of a stream waits for. Work of the default stream comes after all
** work that blocking streams have now, and before all that they get later. */
static std::vector<Mark> list_marks(CUstream_st *s)
{
  std::vector<Mark> after;
  if (!s->queue->blocking) return after;
  if (!is_default(s)) {
    const CUstream_st &d = defaults[s->device];
    if (d.queue && !has_passed(end_of(d.queue))) after.push_back(end_of(d.queue));
    return after;
  }
  for (CUstream_st *other : live)
    if (other->device == s->device && other->queue->blocking) after.push_back(end_of(other->queue));
  return after;
}

CUresult give_op(CUstream_st *s, Op op)
{
  if (is_default(s) && any_capture(s->device))
    return report_misuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the default stream",
        "gets work while a blocking stream captures");
  std::vector<Mark> after = list_marks(s);
  op.after.insert(op.after.end(), after.begin(), after.end());
  queue_give(s->queue, std::move(op));
  return context_of(s->device).error;
}

/* -- streams ----------------------------------------------------------------------------------- */

static CUresult new_stream(CUstream *out, unsigned flags)
{
  NEED(out && !(flags & ~(unsigned)CU_STREAM_NON_BLOCKING), CUDA_ERROR_INVALID_VALUE);
  CUstream_st *s = new CUstream_st;
  s->device = current_context()->device;
  s->queue = queue_new(s->device, !(flags & CU_STREAM_NON_BLOCKING));
  live.insert(s);
  *out = s;
  return CUDA_SUCCESS;
}

API cuStreamCreate(CUstream *out, unsigned flags)
{
  ENTER(CONTEXT);
  return new_stream(out, flags);
}

API cuStreamCreateWithPriority(CUstream *out, unsigned flags, int)
{
  ENTER(CONTEXT);
  return new_stream(out, flags);
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
  ENTER(CONTEXT);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

API cuStreamDestroy_v2(CUstream s)
{
  ENTER(ENDING);
  RULE(live.count(s), CUDA_ERROR_INVALID_HANDLE, "not a stream, or destroyed before");
  RULE(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream captures");
  live.erase(s);
  auto queue = s->queue;
  queue_wait(call.lock, end_of(queue));
  queue_drop(queue);
  delete s;
  return CUDA_SUCCESS;
}

#define STREAM(s, handle) \
  CUstream_st *s = find_stream(handle); \
  RULE(s, CUDA_ERROR_INVALID_HANDLE, "not a stream, or destroyed before")

API cuStreamSynchronize(CUstream handle)
{
  ENTER(CONTEXT);
  STREAM(s, handle);
  if (s->capture) return capture_refuse(s, "cuStreamSynchronize");
  Mark end = end_of(s->queue);
  if (is_default(s))
    for (const Mark &m : list_marks(s)) queue_wait(call.lock, m);
  return queue_wait(call.lock, end);
}

API cuStreamQuery(CUstream handle)
{
  ENTER(CONTEXT);
  STREAM(s, handle);
  if (s->capture) return capture_refuse(s, "cuStreamQuery");
  queue_poll(call.lock);
  if (context_of(s->device).error) return context_of(s->device).error;
  return has_passed(end_of(s->queue)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API cuStreamGetCtx(CUstream handle, CUcontext *out)
{
  ENTER(CONTEXT);
  STREAM(s, handle);
  *out = &context_of(s->device);
  return CUDA_SUCCESS;
}

API cuStreamGetFlags(CUstream handle, unsigned *flags)
{
  ENTER(CONTEXT);
  STREAM(s, handle);
  *flags = s->queue->blocking ? 0 : CU_STREAM_NON_BLOCKING;
  return CUDA_SUCCESS;
}

API cuLaunchHostFunc(CUstream handle, CUhostFn f, void *data)
{
  ENTER(CONTEXT);
  STREAM(s, handle);
  NEED(f, CUDA_ERROR_INVALID_VALUE);
  return submit_work(s, CU_GRAPH_NODE_TYPE_HOST, [=] {
    run_host(f, data);
    return CUDA_SUCCESS;
  });
}

/* Submits work of a library of the stand-in: like cuLaunchHostFunc, but it may touch device memory
** and counts as a kernel. f returns NULL, or why it failed. */
extern "C" __attribute__((visibility("default"))) CUresult cudasim_work(
    CUstream handle, const char *(*f)(void *), std::shared_ptr<void> data)
{
  ENTER(CONTEXT);
  STREAM(s, handle);
  return submit_work(s, CU_GRAPH_NODE_TYPE_KERNEL, [=]() -> CUresult {
    const char *why = f(data.get());
    counts.launches++;
    return why ? report_fault(CUDA_ERROR_ILLEGAL_ADDRESS, why) : CUDA_SUCCESS;
  });
}

/* -- events ------------------------------------------------------------------------------------ */

/* Returns milliseconds. With CUDASIM_TICK each launch, copy and fill takes that many ns. */
static double read_clock()
{
  static const double tick = atof(find_setting("CUDASIM_TICK", "0"));
  timespec t;
  const auto ticks = counts.launches + counts.copies + counts.fills + counts.slower;
  if (tick > 0) return (double)ticks * tick * 1e-6;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

#define EVENT(e) \
  RULE(events.has(e), CUDA_ERROR_INVALID_HANDLE, "not an event, or destroyed before")

API cuEventCreate(CUevent *out, unsigned flags)
{
  ENTER(CONTEXT);
  NEED(out, CUDA_ERROR_INVALID_VALUE);
  *out = events.add(new CUevent_st);
  (*out)->device = current_context()->device;
  (*out)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
  return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent e)
{
  ENTER(ENDING);
  EVENT(e);
  events.live.erase(e);
  delete e;
  return CUDA_SUCCESS;
}

API cuEventRecord(CUevent e, CUstream handle)
{
  ENTER(CONTEXT);
  STREAM(s, handle);
  EVENT(e);
  RULE(e->device == s->device, CUDA_ERROR_INVALID_HANDLE, "event and stream of two devices");
  e->captured = s->capture != nullptr;
  e->capture = s->capture;
  if (e->captured) {
    e->nodes = s->last;
    return CUDA_SUCCESS;
  }
  auto time = e->time = std::make_shared<double>(0);
  Op op;
  op.work = [=] {
    *time = read_clock();
    return CUDA_SUCCESS;
  };
  CUresult r = give_op(s, std::move(op));
  e->mark = end_of(s->queue);
  return r;
}

API cuStreamWaitEvent(CUstream handle, CUevent e, unsigned flags)
{
  ENTER(CONTEXT);
  STREAM(s, handle);
  EVENT(e);
  NEED(!flags, CUDA_ERROR_INVALID_VALUE);
  if (s->capture || e->captured) return capture_wait(s, e);
  Op op;
  op.after.push_back(e->mark);
  counts.waits++;
  return give_op(s, std::move(op));
}

API cuEventQuery(CUevent e)
{
  ENTER(CONTEXT);
  EVENT(e);
  RULE(!e->captured, CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture");
  queue_poll(call.lock);
  return has_passed(e->mark) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API cuEventSynchronize(CUevent e)
{
  ENTER(CONTEXT);
  EVENT(e);
  RULE(!e->captured, CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture");
  return queue_wait(call.lock, Mark(e->mark));
}

static CUresult measure_elapsed(float *ms, CUevent a, CUevent b, const char *name)
{
  if (!events.has(a) || !events.has(b))
    return report_misuse(CUDA_ERROR_INVALID_HANDLE, name, "no event");
  if (!a->timed || !b->timed || !a->time || !b->time)
    return report_misuse(
        CUDA_ERROR_INVALID_HANDLE, name, "an event without time, or never recorded");
  NEED(has_passed(a->mark) && has_passed(b->mark), CUDA_ERROR_NOT_READY);
  *ms = (float)(*b->time - *a->time);
  return CUDA_SUCCESS;
}

#undef cuEventElapsedTime
API cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
  ENTER(CONTEXT);
  return measure_elapsed(ms, a, b, "cuEventElapsedTime");
}

API cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b)
{
  ENTER(CONTEXT);
  return measure_elapsed(ms, a, b, "cuEventElapsedTime");
}
