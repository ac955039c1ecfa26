/* graph.c - records the work that a queue's thread starts on its stream as a CUDA graph, which one
** call launches again. Only calls of this thread are recorded; others may allocate meanwhile. */
#include "cuda/cuda.h"

struct recorded { cu_graph_exec runs; struct cuda_work work; };
/* counts of what this thread records; NULL: it records nothing */
static __thread struct cuda_work *recording;
static __thread struct cuda_work noted;

void cuda_count(int device, int64_t launches, int64_t copies)
{
  struct cuda_work *w = recording ? recording : &cuda_device(device)->work;
  __atomic_add_fetch(&w->launches, launches, __ATOMIC_RELAXED);
  __atomic_add_fetch(&w->copies, copies, __ATOMIC_RELAXED);
}

int cuda_record(int device)
{
  TRY(cuda_enter(device));
  TRY(cuda_check(cu_api.StreamBeginCapture(cuda_stream(device), CU_CAPTURE_THREAD_LOCAL),
      "recording a CUDA graph"));
  noted = (struct cuda_work){ 0 };
  recording = &noted;
  return TY_OK;
}

static int instantiate_graph(cu_graph graph, void **made)
{
  struct recorded *r = NEW(struct recorded);
  NEED(r, TY_EMEMORY, "out of memory: a CUDA graph");
  r->work = noted;
  int code = cuda_check(cu_api.GraphInstantiate(&r->runs, graph, 0), "making a CUDA graph");
  if (code)
    mem_free(r);
  else
    *made = r;
  return code;
}

int cuda_recorded(int device, void **made)
{
  cu_graph graph = NULL;
  recording = NULL;
  int code = cuda_check(cu_api.StreamEndCapture(cuda_stream(device), &graph),
      "recording a CUDA graph");
  if (!code && made) code = instantiate_graph(graph, made);
  if (graph) cu_api.GraphDestroy(graph);
  return code;
}

int cuda_replay(int device, void *made)
{
  const struct recorded *r = made;
  cuda_count(device, r->work.launches, r->work.copies);
  return cuda_check(cu_api.GraphLaunch(r->runs, cuda_stream(device)), "starting a CUDA graph");
}

void cuda_forget(int device, void *made)
{
  struct recorded *r = made;
  if (!cuda_enter(device)) cu_api.GraphExecDestroy(r->runs);
  mem_free(r);
}
