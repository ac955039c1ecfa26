/* second.c - the second stream of a device's queue: what does not depend on each other runs on both
** at once. Events order them, eagerly as in a recording, which becomes a graph with branches.
*/
#include "cuda/cuda.h"
#include "base/failure.h"

static int record_event(int device, cu_event e)
{
  return cuda_check(cu_api.EventRecord(e, cuda_stream(device)), "marking a point of a stream");
}

static int wait_event(int device, cu_event e)
{
  return cuda_check(
      cu_api.StreamWaitEvent(cuda_stream(device), e, 0), "ordering the streams of a GPU");
}

int cuda_fork(int device)
{
  const cu_event e = cuda_device(device)->forks[0];
  cuda_choose_stream(false);
  TRY(record_event(device, e));
  cuda_choose_stream(true);
  const int code = wait_event(device, e);
  cuda_choose_stream(false);
  return code;
}

int cuda_mark(int device, int mark)
{
  return record_event(device, cuda_device(device)->marks[mark]);
}

int cuda_await(int device, int mark)
{
  return wait_event(device, cuda_device(device)->marks[mark]);
}

int cuda_join(int device, int code)
{
  struct failure *f = code ? failure_take(code) : NULL; /* an order may fail on its own */
  const cu_event e = cuda_device(device)->forks[1];
  cuda_choose_stream(true);
  int joined = record_event(device, e);
  cuda_choose_stream(false);
  if (!joined) joined = wait_event(device, e);
  if (!f) return code ? code : joined;
  code = failure_report(f);
  failure_drop(f);
  return code;
}
