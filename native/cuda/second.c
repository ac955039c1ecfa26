/* second.c - the second stream of a device's queue: independent parts of a task run on both streams
** at once. Events order the streams; in a recording, this order becomes branches of a graph. */
#include "cuda/cuda.h"
#include "base/failure.h"

/* Records an event on the chosen stream, after the work that it was given so far. */
static int record_event(int device, cu_event e)
{
  return cuda_check(cu_api.EventRecord(e, cuda_stream(device)), "marking a point of a stream");
}

/* Makes the chosen stream wait for an event. */
static int await_event(int device, cu_event e)
{
  return cuda_check(
      cu_api.StreamWaitEvent(cuda_stream(device), e, 0), "ordering the streams of a GPU");
}

int cuda_fork(int device)
{
  const cu_event e = cuda_device(device)->fork;
  cuda_choose_stream(false);
  TRY(record_event(device, e));
  cuda_choose_stream(true);
  const int code = await_event(device, e);
  cuda_choose_stream(false);
  return code;
}

int cuda_mark(int device, int mark)
{
  return record_event(device, cuda_device(device)->marks[mark]);
}

int cuda_await(int device, int mark)
{
  return await_event(device, cuda_device(device)->marks[mark]);
}

int cuda_join(int device, int code)
{
  struct failure *f = code ? failure_take(code) : NULL; /* the calls below may overwrite it */
  const cu_event e = cuda_device(device)->join;
  cuda_choose_stream(true);
  int joined = record_event(device, e);
  cuda_choose_stream(false);
  if (!joined) joined = await_event(device, e);
  if (!f) return code ? code : joined;
  code = failure_report(f);
  failure_drop(f);
  return code;
}
