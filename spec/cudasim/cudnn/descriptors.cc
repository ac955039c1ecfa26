/* descriptors.cc - the backend interface's descriptors: which attributes a kind has, their types
** and counts, and what must hold when one is finalized. Codes were compared with cuDNN 9.19's. */
#include "graph.h"
#include <mutex>
#include <set>
using namespace cudasim;

struct Rule {
  cudnnBackendDescriptorType_t kind;
  int attribute;
  cudnnBackendAttributeType_t type;
  int64_t most;
  bool needed;
};
#define K(kind) CUDNN_BACKEND_##kind##_DESCRIPTOR
#define R(kind, name, type, most, needed)                       \
  {                                                             \
    K(kind), CUDNN_ATTR_##name, CUDNN_TYPE_##type, most, needed \
  }
#define PART(kind, name, needed) R(kind, name, BACKEND_DESCRIPTOR, 1, needed)
#define CONVOLUTION(kind, name, a, b, c) \
  PART(kind, OPERATION_CONVOLUTION_##name##_CONV_DESC, true), \
  PART(kind, OPERATION_CONVOLUTION_##name##_##a, true), \
  PART(kind, OPERATION_CONVOLUTION_##name##_##b, true), \
  PART(kind, OPERATION_CONVOLUTION_##name##_##c, true), \
  R(kind, OPERATION_CONVOLUTION_##name##_ALPHA, DOUBLE, 1, false), \
  R(kind, OPERATION_CONVOLUTION_##name##_BETA, DOUBLE, 1, false)

static const Rule rules[] = {
  R(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, true),
  R(TENSOR, TENSOR_DIMENSIONS, INT64, 8, true),
  R(TENSOR, TENSOR_STRIDES, INT64, 8, true),
  R(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, true),
  R(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, true),
  R(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, false),
  R(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, true),
  R(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, true),
  R(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, true),
  R(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 6, true),
  R(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 6, true),
  R(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 6, true),
  R(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 6, true),
  CONVOLUTION(OPERATION_CONVOLUTION_FORWARD, FORWARD, X, W, Y),
  CONVOLUTION(OPERATION_CONVOLUTION_BACKWARD_DATA, BWD_DATA, DX, W, DY),
  CONVOLUTION(OPERATION_CONVOLUTION_BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
  R(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, false),
  R(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, false),
  R(POINTWISE, POINTWISE_NAN_PROPAGATION, NAN_PROPOGATION, 1, false),
  R(POINTWISE, POINTWISE_RELU_LOWER_CLIP_SLOPE, DOUBLE, 1, false),
  R(POINTWISE, POINTWISE_ELU_ALPHA, DOUBLE, 1, false),
  PART(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, true),
  PART(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, false),
  PART(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, false),
  PART(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, false),
  PART(OPERATION_POINTWISE, OPERATION_POINTWISE_DXDESC, false),
  PART(OPERATION_POINTWISE, OPERATION_POINTWISE_DYDESC, false),
  R(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, false),
  R(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 64, true),
  PART(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, true),
  R(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, true),
  PART(ENGINE, ENGINE_OPERATION_GRAPH, true),
  R(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1, true),
  PART(ENGINECFG, ENGINECFG_ENGINE, true),
  R(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, true),
  PART(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, true),
  R(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 64, true),
  R(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 64, true),
  R(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, false),
};

static const Rule *find_rule(const Bag *b, int attribute)
{
  for (const Rule &r : rules)
    if (r.kind == b->kind && r.attribute == attribute) return &r;
  return nullptr;
}

size_t attribute_bytes(int type)
{
  switch (type) {
  case CUDNN_TYPE_BOOLEAN: return 1;
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_DOUBLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
  default: return 4;
  }
}

int attribute_type(const Bag *b, int attribute)
{
  const Rule *r = find_rule(b, attribute);
  return r ? (int)r->type : -1;
}

static std::set<const Bag *> &bags = *new std::set<const Bag *>;
static std::mutex lock;
static thread_local std::string reason;

bool is_live(const Bag *b)
{
  std::unique_lock<std::mutex> own(lock);
  return bags.count(b) != 0;
}

cudnnStatus_t refuse_bag(cudnnStatus_t code, const std::string &why)
{
  reason = why;
  return code;
}

static cudnnStatus_t report_wrong(const char *function, const char *why)
{
  reason = why;
  return (cudnnStatus_t)report_misuse(CUDNN_STATUS_BAD_PARAM, function, "%s", why);
}

extern "C" __attribute__((visibility("default"))) void cudnnGetLastErrorString(char *out, size_t n)
{
  if (n) snprintf(out, n, "%s", reason.c_str());
}

/* -- the interface ----------------------------------------------------------------------------- */

#define ENTER \
  if (int r = enter_anywhere(__func__, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)) \
    return (cudnnStatus_t)r

API cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *out)
{
  ENTER;
  bool known = false;
  for (const Rule &r : rules) known |= r.kind == kind;
  if (!out) return report_wrong(__func__, "a null argument");
  if (!known) return refuse_bag(CUDNN_STATUS_NOT_SUPPORTED, "a descriptor that the stand-in lacks");
  Bag *b = new Bag;
  b->kind = kind;
  {
    std::unique_lock<std::mutex> own(lock);
    bags.insert(b);
  }
  count_object("descriptors of cuDNN", 1);
  *out = b;
  return CUDNN_STATUS_SUCCESS;
}

API cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
  Bag *b = (Bag *)d;
  if (!is_live(b)) return report_wrong(__func__, "not a descriptor, or destroyed before");
  {
    std::unique_lock<std::mutex> own(lock);
    bags.erase(b);
  }
  delete b;
  count_object("descriptors of cuDNN", -1);
  return CUDNN_STATUS_SUCCESS;
}

API cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t n, const void *from)
{
  ENTER;
  Bag *b = (Bag *)d;
  if (!is_live(b) || !from) return report_wrong(__func__, "not a descriptor, or nothing to set");
  if (b->done) return report_wrong(__func__, "the descriptor is finalized");
  const Rule *r = find_rule(b, name);
  if (!r)
    return report_wrong(
        __func__, "an attribute that the descriptor has not, or the stand-in lacks");
  if (r->type != type)
    return refuse_bag(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute's type");
  if (n < 1 || n > r->most) return report_wrong(__func__, "the attribute's count");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < n; i++) {
      Bag *part = ((Bag *const *)from)[i];
      if (!is_live(part))
        return report_wrong(__func__, "a part is not a descriptor, or was destroyed");
      if (!part->done)
        return refuse_bag(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a part is not finalized");
    }
  b->given[name].assign((const char *)from, (size_t)n * attribute_bytes(type));
  return CUDNN_STATUS_SUCCESS;
}

/* Returns whether cuDNN 9.19 has no engine for the graph: relu after a convolution of half types
** without a bias between them, unless the numbers of channels are multiples of 8. */
static bool lacks_engines(const Bag *graph)
{
  auto ops = graph->all<Bag *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (ops.size() != 2 || ops[0]->kind != K(OPERATION_CONVOLUTION_FORWARD)) return false;
  if (ops[1]->has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) return false;
  const Bag *x = ops[0]->bag(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
  const Bag *y = ops[0]->bag(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  Number type = F32;
  find_number(x->one<int32_t>(CUDNN_ATTR_TENSOR_DATA_TYPE), &type);
  bool eights = true;
  for (const Bag *t : { x, y }) eights &= t->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)[1] % 8 == 0;
  return size_of(type) == 2 && !eights;
}

/* Makes to[0 .. n) the configurations of the engines; *got: their number, all of them if n is 0. */
static cudnnStatus_t get_results(const Bag *heuristic, int64_t n, int64_t *got, void *to)
{
  *got = 0;
  if (lacks_engines(heuristic->bag(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)))
    return CUDNN_STATUS_SUCCESS;
  *got = n < 1 ? ENGINES : std::min(n, ENGINES);
  for (int64_t i = 0; i < n && i < *got; i++) {
    Bag *config = ((Bag **)to)[i];
    if (!is_live(config) || config->kind != K(ENGINECFG))
      return report_wrong(
          "cudnnBackendGetAttribute", "results want engine configurations to be made before");
    config->put(CUDNN_ATTR_ENGINECFG_ENGINE, heuristic->bag(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
    config->put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, i);
    config->done = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

/* Makes the descriptor *to the engine of a configuration. */
static cudnnStatus_t get_engine(const Bag *config, int64_t *got, void *to)
{
  Bag *e = *(Bag **)to;
  if (!is_live(e) || e->kind != K(ENGINE))
    return report_wrong("cudnnBackendGetAttribute", "the engine wants to be made before");
  e->put(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, config->bag(CUDNN_ATTR_ENGINECFG_ENGINE));
  e->put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, config->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  e->done = true;
  *got = 1;
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_notes(const Bag *e, int64_t n, int64_t *got, void *to)
{
  const Engine &about = find_engine(e->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  int32_t all[2], count = 0;
  if (about.tensor_cores) all[count++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  if (about.any_order) all[count++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  *got = count;
  memcpy(to, all, (size_t)std::min<int64_t>(n, count) * sizeof *all);
  return CUDNN_STATUS_SUCCESS;
}

API cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t n, int64_t *got, void *to)
{
  ENTER;
  Bag *b = (Bag *)d;
  int64_t count = 0;
  if (!is_live(b)) return report_wrong(__func__, "not a descriptor, or destroyed before");
  if (!b->done) return refuse_bag(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalized");
  if (!got) got = &count;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && b->kind == K(ENGINEHEUR))
    return get_results(b, n, got, to);
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && b->has(CUDNN_ATTR_ENGINE_GLOBAL_INDEX))
    return get_engine(b, got, to);
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && b->kind == K(ENGINE))
    return get_notes(b, n, got, to);
  auto at = b->given.find(name);
  if (at == b->given.end())
    return refuse_bag(CUDNN_STATUS_BAD_PARAM, "an attribute that is not set");
  *got = (int64_t)(at->second.size() / attribute_bytes(type));
  size_t bytes = (size_t)(n < *got ? n : *got) * attribute_bytes(type);
  if (bytes) memcpy(to, at->second.data(), bytes);
  return CUDNN_STATUS_SUCCESS;
}

/* -- finalizing -------------------------------------------------------------------------------- */

static const char *check_tensor(const Bag *b)
{
  Number type;
  auto n = b->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  if (n.size() != b->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES).size())
    return "a tensor's dimensions and strides differ in number";
  if (!find_number(b->one<int32_t>(CUDNN_ATTR_TENSOR_DATA_TYPE), &type))
    return "a data type that the stand-in lacks";
  int64_t aligned = b->one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  return aligned < 1 || aligned % (int64_t)size_of(type) ? "a tensor's alignment" : nullptr;
}

static const char *check_convolution(const Bag *b)
{
  size_t n = (size_t)b->one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  for (int a : { CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
           CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS })
    if (b->all<int64_t>(a).size() != n) return "a convolution's numbers are not one per axis";
  return nullptr;
}

/* Checks that each id has one tensor, and that one operation writes each virtual tensor before
** others read it. Returns NULL, or the error. */
static const char *check_graph(const Bag *b)
{
  std::map<int64_t, const Bag *> by_id;
  std::set<const Bag *> made;
  for (const Bag *op : b->all<Bag *>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    Ports ports = make_ports(op);
    if (!ports.writes) return "an operation that the stand-in lacks";
    std::vector<const Bag *> all = { op->bag(ports.writes) };
    for (int a : ports.reads)
      if (a && op->has(a)) all.push_back(op->bag(a));
    for (const Bag *t : all) {
      auto &known = by_id[t->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)];
      if (known && known != t) return "two tensors have one id";
      known = t;
      bool is_virtual = t->one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
      if (t != all[0] && is_virtual && !made.count(t)) return "a virtual tensor that nothing wrote";
    }
    made.insert(all[0]);
  }
  return nullptr;
}

static const char *check_pack(const Bag *b)
{
  auto ids = b->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  if (ids.size() != b->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size())
    return "a pack's ids and pointers differ in number";
  return std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size() ? "an id comes twice"
                                                                        : nullptr;
}

/* Returns the index of a plan's engine, which the heuristics chose or the program names. */
static int64_t index_of(const Bag *plan)
{
  const Bag *config = plan->bag(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (config->has(CUDNN_ATTR_ENGINE_GLOBAL_INDEX))
    return config->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  return config->bag(CUDNN_ATTR_ENGINECFG_ENGINE)->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

static const Bag *graph_of(const Bag *plan)
{
  const Bag *config = plan->bag(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Bag *engine = config->bag(CUDNN_ATTR_ENGINECFG_ENGINE);
  return engine->kind == K(ENGINE) ? engine->bag(CUDNN_ATTR_ENGINE_OPERATION_GRAPH) : engine;
}

static const char *check_bag(Bag *b)
{
  for (const Rule &r : rules)
    if (r.kind == b->kind && r.needed && !b->has(r.attribute)) return "an attribute is not set";
  switch (b->kind) {
  case K(TENSOR): return check_tensor(b);
  case K(CONVOLUTION): return check_convolution(b);
  case K(OPERATIONGRAPH): return check_graph(b);
  case K(VARIANT_PACK): return check_pack(b);
  case K(EXECUTION_PLAN):
    b->put<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index_of(b));
    b->put<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, find_engine(index_of(b)).workspace);
    return nullptr;
  default: return make_ports(b).writes ? check_operation(b) : nullptr;
  }
}

API cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
  ENTER;
  Bag *b = (Bag *)d;
  if (!is_live(b)) return report_wrong(__func__, "not a descriptor, or destroyed before");
  if (b->done) return report_wrong(__func__, "finalized before");
  if (const char *why = check_bag(b)) return refuse_bag(CUDNN_STATUS_BAD_PARAM, why);
  b->done = true;
  if (b->kind == K(EXECUTION_PLAN)) keep_graph(graph_of(b));
  return CUDNN_STATUS_SUCCESS;
}
