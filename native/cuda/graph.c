/* graph.c - what a queue's thread starts on its stream, recorded as a CUDA graph, which one call
** starts again. Only this thread's calls count: others may allocate meanwhile. */
#include "cuda/cuda.h"

int cuda_record(int device)
{
  TRY(cuda_enter(device));
  return cuda_told(cu_api.StreamBeginCapture(cuda_stream(device), CU_CAPTURE_THREAD_LOCAL),
      "recording a CUDA graph");
}

int cuda_recorded(int device, void **made)
{
  cu_graph graph = NULL;
  cu_graph_exec runs = NULL;
  int code = cuda_told(cu_api.StreamEndCapture(cuda_stream(device), &graph),
      "recording a CUDA graph");
  if (!code && made)
    code = cuda_told(cu_api.GraphInstantiate(&runs, graph, 0), "making a CUDA graph");
  if (graph) cu_api.GraphDestroy(graph);
  if (!code && made) *made = runs;
  return code;
}

int cuda_replay(int device, void *made)
{
  __atomic_add_fetch(&cuda_counts.replayed, 1, __ATOMIC_RELAXED);
  return cuda_told(cu_api.GraphLaunch(made, cuda_stream(device)), "starting a CUDA graph");
}

void cuda_forget(int device, void *made)
{
  if (!cuda_enter(device)) cu_api.GraphExecDestroy(made);
}
