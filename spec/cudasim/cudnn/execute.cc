/* execute.cc - handles, and a plan's run: the operations of its graph one after another, as one
** entry of the stream. Virtual tensors have memory of the run. */
#include "graph.h"
using namespace cudasim;

struct cudnnContext { int device; CUstream stream; };

#define RULED(x, code, ...) \
  if (!(x)) return (cudnnStatus_t)report_misuse(code, __func__, __VA_ARGS__)

API cudnnCreate(cudnnHandle_t *out)
{
  if (int r = enter_call(__func__, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
          CUDNN_STATUS_NOT_INITIALIZED))
    return (cudnnStatus_t)r;
  *out = new cudnnContext{ current_device(), nullptr };
  count_object("handles of cuDNN", 1);
  return CUDNN_STATUS_SUCCESS;
}

API cudnnDestroy(cudnnHandle_t h)
{
  delete h;
  count_object("handles of cuDNN", -1);
  return CUDNN_STATUS_SUCCESS;
}

API cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
  if (int r = enter_anywhere(__func__, CUDNN_STATUS_EXECUTION_FAILED))
    return (cudnnStatus_t)r;
  RULED(device_of((CUstream)s) == h->device, CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH,
      "a handle and a stream of two devices");
  h->stream = (CUstream)s;
  return CUDNN_STATUS_SUCCESS;
}

API cudnnGetStream(cudnnHandle_t h, cudaStream_t *out)
{
  *out = (cudaStream_t)h->stream;
  return CUDNN_STATUS_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) size_t cudnnGetVersion(void) { return 91900; }

/* -- running ----------------------------------------------------------------------------------- */

/* what a run needs of the descriptors, which may be destroyed before it happens */
struct Run {
  std::map<const Bag *, std::shared_ptr<Bag>> copies;
  std::vector<Bag *> operations;
  std::map<const Bag *, View> views;
  std::map<const Bag *, std::vector<char>> made;      /* virtual tensors */
  std::vector<Region> regions;

  Bag *copy(const Bag *b)
  {
    auto &c = copies[b];
    if (c) return c.get();
    c = std::make_shared<Bag>(*b);
    Ports p = make_ports(b);
    std::vector<int> parts = { p.reads[0], p.reads[1], p.reads[2], p.writes,
      CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC };
    if (!p.writes) return c.get();
    for (int a : parts)
      if (a && b->has(a)) c->put(a, copy(b->bag(a)));
    return c.get();
  }
};

static int64_t compute_reach(const View &v)
{
  int64_t last = 0;
  for (size_t d = 0; d < v.n.size(); d++) last += (v.n[d] - 1) * v.s[d];
  return last + 1;
}

/* Finds the memory of a tensor: that of the variant pack, or memory of the run. Returns 0, or the
** code of a finding. */
static int place_tensor(Run *r, const Bag *t, const std::map<int64_t, void *> &given, Use use)
{
  bool known = r->views.count(t) != 0, is_virtual = t->one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  View v = make_view(t, nullptr);
  size_t bytes = (size_t)compute_reach(v) * size_of(v.type);
  if (is_virtual && !known) {
    r->made[t].resize(bytes);
    v.p = r->made[t].data();
  } else if (!known) {
    int64_t id = t->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    auto at = given.find(id);
    if (at == given.end() || !at->second)
      return report_misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnBackendExecute",
          "the pack has no pointer for tensor %lld", (long long)id);
    v.p = (char *)at->second;
    int64_t aligned = t->one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    if ((uintptr_t)v.p % (size_t)aligned)
      return report_misuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "cudnnBackendExecute",
          "tensor %lld is at %p; %lld bytes of alignment were promised", (long long)id, (void *)v.p,
          (long long)aligned);
  }
  if (!known) r->views[t] = v;
  bool dense = (int64_t)bytes == v.count() * (int64_t)size_of(v.type);
  if (!is_virtual && !(known && use == READS)) {
    const View &w = r->views[t];
    /* the gaps of a strided tensor may be unwritten, so only its first and last number count */
    r->regions.push_back({ "a tensor", w.p, dense ? bytes : size_of(v.type), use });
    if (!dense)
      r->regions.push_back({ "a tensor", w.p + bytes - size_of(v.type), size_of(v.type), use });
  }
  return 0;
}

API cudnnBackendExecute(
    cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
  if (int r = enter_call(__func__, CUDNN_STATUS_EXECUTION_FAILED, CUDNN_STATUS_EXECUTION_FAILED))
    return (cudnnStatus_t)r;
  Bag *p = (Bag *)plan, *k = (Bag *)pack;
  RULED(h && is_live(p) && is_live(k), CUDNN_STATUS_BAD_PARAM, "a null or destroyed argument");
  RULED(p->kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && p->done &&
          k->kind == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && k->done,
      CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "no plan and pack, or not finalized");
  Bag *graph = p->bag(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->bag(CUDNN_ATTR_ENGINECFG_ENGINE);
  /* the heuristics' configurations name the graph itself, a program's own an engine */
  if (is_live(graph) && graph->kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR)
    graph = graph->bag(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  RULED(is_live(graph), CUDNN_STATUS_BAD_PARAM, "the plan's graph was destroyed");
  auto ids = k->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  auto pointers = k->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<int64_t, void *> given;
  for (size_t i = 0; i < ids.size(); i++) given[ids[i]] = pointers[i];
  auto run = std::make_shared<Run>();
  void *workspace = k->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const Engine &engine = find_engine(p->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  RULED(workspace, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan wants a workspace of %lld bytes",
      (long long)engine.workspace);
  run->regions.push_back({ "the workspace", workspace, (size_t)engine.workspace, SCRATCH });
  for (const Bag *given_op : graph->all<Bag *>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    Bag *op = run->copy(given_op);
    Ports ports = make_ports(op);
    run->operations.push_back(op);
    for (int a : ports.reads)
      if (a)
        if (int r = place_tensor(run.get(), op->bag(a), given, READS)) return (cudnnStatus_t)r;
    Use use = ports.adds ? UPDATES : WRITES;
    if (int r = place_tensor(run.get(), op->bag(ports.writes), given, use)) return (cudnnStatus_t)r;
  }
  CUresult r = give_work(
      h->stream, __func__, run->regions,
      [=] {
        for (const Bag *op : run->operations) run_operation(op, run->views, engine);
      },
      engine.way);
  return r ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
