/* context.c - contexts and streams of the GPUs, and those of this thread.
**
** device.c opens them. Code that launches kernels or calls libraries gets a device's context and
** stream here. */
#include "cuda/cuda.h"

static struct cuda_device devices[CUDA_DEVICES];
/* the device whose queue this thread serves, -1: none */
static __thread int served = -1;
/* whether this thread starts its work on the second stream of that device */
static __thread bool second;
/* this thread's context */
static __thread cu_context entered;

struct cuda_device *cuda_device(int device) { return &devices[device_id(device)]; }

void cuda_serve(int device) { served = device; }
bool cuda_serves(int device) { return served == device; }

cu_stream cuda_stream(int device)
{
  const struct cuda_device *d = cuda_device(device);
  if (!cuda_serves(device)) return d->copies;
  return second ? d->second : d->stream;
}

void cuda_choose_stream(bool of_second) { second = of_second; }

int cuda_take_context(cu_context context)
{
  TRY(cuda_check(cu_api.CtxSetCurrent(context), "taking a CUDA device"));
  entered = context;
  return TY_OK;
}

int cuda_enter(int device)
{
  cu_context context = cuda_device(device)->context;
  cuda_name_device(device_id(device));
  return entered == context ? TY_OK : cuda_take_context(context);
}
