/* cudnn_test.cc - graphs of convolutions and element-wise operations: values by plain formulas,
** gradients by their definition, what finalizing refuses, and the rules of a run. */
#include "../cudnn/abi.h"
#include "test.h"
#ifndef CUDASIM_REAL_HEADERS
extern "C" {
cudnnStatus_t cudnnCreate(cudnnHandle_t *);
cudnnStatus_t cudnnDestroy(cudnnHandle_t);
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t);
void cudnnGetLastErrorString(char *, size_t);
cudnnStatus_t cudnnBackendCreateDescriptor(
    cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t, int64_t, const void *);
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t, int64_t, int64_t *, void *);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t);
cudnnStatus_t cudnnBackendExecute(
    cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t);
}
#endif

typedef cudnnBackendDescriptor_t Thing;
static cudnnHandle_t handle;
static std::vector<Thing> things;

static Thing make_thing(cudnnBackendDescriptorType_t kind)
{
  Thing t = nullptr;
  OK(cudnnBackendCreateDescriptor(kind, &t));
  things.push_back(t);
  return t;
}
#define MAKE(kind) make_thing(CUDNN_BACKEND_##kind##_DESCRIPTOR)

template <class T>
static int set_attribute(Thing t, int name, cudnnBackendAttributeType_t type, std::vector<T> v)
{
  return cudnnBackendSetAttribute(
      t, (cudnnBackendAttributeName_t)name, type, (int64_t)v.size(), v.data());
}
#define WHOLE(t, name, ...)  \
  OK(set_attribute<int64_t>( \
      t, CUDNN_ATTR_##name, CUDNN_TYPE_INT64, std::vector<int64_t> __VA_ARGS__))
#define PART(t, name, part) \
  OK(set_attribute<Thing>(t, CUDNN_ATTR_##name, CUDNN_TYPE_BACKEND_DESCRIPTOR, { part }))

static Thing make_tensor(int64_t id, std::vector<int64_t> n, bool is_virtual = false)
{
  Thing t = MAKE(TENSOR);
  std::vector<int64_t> s(n.size(), 1);
  for (size_t d = n.size() - 1; d-- > 0;) s[d] = s[d + 1] * n[d + 1];
  OK(set_attribute<int32_t>(
      t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, { CUDNN_DATA_FLOAT }));
  WHOLE(t, TENSOR_DIMENSIONS, (n));
  WHOLE(t, TENSOR_STRIDES, (s));
  WHOLE(t, TENSOR_UNIQUE_ID, { id });
  WHOLE(t, TENSOR_BYTE_ALIGNMENT, { 16 });
  OK(set_attribute<char>(
      t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, { (char)is_virtual }));
  OK(cudnnBackendFinalize(t));
  return t;
}

static Thing make_window(int64_t pad, int64_t step, int64_t hole)
{
  Thing c = MAKE(CONVOLUTION);
  OK(set_attribute<int32_t>(
      c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, { CUDNN_DATA_FLOAT }));
  OK(set_attribute<int32_t>(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
      { CUDNN_CROSS_CORRELATION }));
  WHOLE(c, CONVOLUTION_SPATIAL_DIMS, { 2 });
  WHOLE(c, CONVOLUTION_PRE_PADDINGS, { pad, pad });
  WHOLE(c, CONVOLUTION_POST_PADDINGS, { pad, pad });
  WHOLE(c, CONVOLUTION_FILTER_STRIDES, { step, step });
  WHOLE(c, CONVOLUTION_DILATIONS, { hole, hole });
  OK(cudnnBackendFinalize(c));
  return c;
}

static Thing make_pointwise(cudnnPointwiseMode_t mode, Thing x, Thing b, Thing y)
{
  Thing how = MAKE(POINTWISE), op = MAKE(OPERATION_POINTWISE);
  OK(set_attribute<int32_t>(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, { mode }));
  OK(cudnnBackendFinalize(how));
  PART(op, OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  PART(op, OPERATION_POINTWISE_XDESC, x);
  if (b) PART(op, OPERATION_POINTWISE_BDESC, b);
  PART(op, OPERATION_POINTWISE_YDESC, y);
  return op;
}

/* Makes an operation of the three kinds, from its tensors in the order of the attributes' names. */
static Thing make_convolution(
    cudnnBackendDescriptorType_t kind, int first, Thing w, Thing x, Thing y, Thing k)
{
  Thing op = make_thing(kind);
  int at = first;                                     /* ALPHA; then BETA, CONV_DESC, W, X, Y */
  for (Thing part : { k, w, x, y })
    OK(set_attribute<Thing>(op, at++ + 2, CUDNN_TYPE_BACKEND_DESCRIPTOR, { part }));
  return op;
}

/* the engines of the heuristics, in their order */
enum { ANY_ORDER, NARROW, PLAIN, LEAN, WIDE, ENGINES };

static Thing make_plan(std::vector<Thing> operations, int engine = PLAIN)
{
  Thing graph = MAKE(OPERATIONGRAPH), heuristic = MAKE(ENGINEHEUR), p = MAKE(EXECUTION_PLAN),
        config[ENGINES];
  for (Thing &c : config) c = MAKE(ENGINECFG);
  for (Thing op : operations) OK(cudnnBackendFinalize(op));
  OK(set_attribute<Thing>(
      graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations));
  OK(cudnnBackendFinalize(graph));
  PART(heuristic, ENGINEHEUR_OPERATION_GRAPH, graph);
  OK(set_attribute<int32_t>(
      heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, { CUDNN_HEUR_MODE_A }));
  OK(cudnnBackendFinalize(heuristic));
  int64_t found = 0;
  OK(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES, &found, config));
  CHECK(found == ENGINES);
  OK(set_attribute<cudnnHandle_t>(
      p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, { handle }));
  PART(p, EXECUTION_PLAN_ENGINE_CONFIG, config[engine]);
  OK(cudnnBackendFinalize(p));
  return p;
}

static cudnnStatus_t run_plan(Thing p, std::vector<int64_t> ids, std::vector<CUdeviceptr> at)
{
  Thing pack = MAKE(VARIANT_PACK);
  int64_t bytes = 0, n;
  OK(cudnnBackendGetAttribute(
      p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes));
  CUdeviceptr workspace = new_memory((size_t)bytes);
  WHOLE(pack, VARIANT_PACK_UNIQUE_IDS, (ids));
  OK(set_attribute<CUdeviceptr>(
      pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, at));
  OK(set_attribute<CUdeviceptr>(
      pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, { workspace }));
  OK(cudnnBackendFinalize(pack));
  return cudnnBackendExecute(handle, p, pack);
}

static std::vector<float> make_numbers(size_t n, size_t from)
{
  std::vector<float> x(n);
  for (size_t i = 0; i < n; i++) x[i] = (float)((int)((i * 7 + from) % 5) - 2);
  return x;
}

/* 2 images of 4 channels, 5 x 5, and 6 filters of 3 x 3 in 2 groups, step 2, padding 1 */
enum { X = 2 * 4 * 5 * 5, W = 6 * 2 * 3 * 3, Y = 2 * 6 * 3 * 3 };
template <class F> static void each_tap(F f)
{
  for (int n = 0; n < 2; n++)
    for (int o = 0; o < 6; o++)
      for (int p = 0; p < 9; p++)
        for (int c = 0; c < 2; c++)
          for (int t = 0; t < 9; t++) {
            int h = p / 3 * 2 - 1 + t / 3, v = p % 3 * 2 - 1 + t % 3;
            if (h < 0 || v < 0 || h > 4 || v > 4) continue;
            f(((n * 4 + o / 3 * 2 + c) * 5 + h) * 5 + v, (o * 2 + c) * 9 + t, (n * 6 + o) * 9 + p);
          }
}

static void test_forward()
{
  auto x = make_numbers(X, 0), w = make_numbers(W, 3), b = make_numbers(6, 1);
  std::vector<float> want(Y);
  each_tap([&](int i, int j, int k) { want[(size_t)k] += x[(size_t)i] * w[(size_t)j]; });
  Thing sum = make_tensor(5, { 2, 6, 3, 3 }, true), biased = make_tensor(6, { 2, 6, 3, 3 }, true);
  Thing conv = make_convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, make_tensor(2, { 6, 2, 3, 3 }),
      make_tensor(1, { 2, 4, 5, 5 }), sum, make_window(1, 2, 1));
  Thing add = make_pointwise(CUDNN_POINTWISE_ADD, sum, make_tensor(3, { 1, 6, 1, 1 }), biased);
  Thing relu = make_pointwise(
      CUDNN_POINTWISE_RELU_FWD, biased, nullptr, make_tensor(4, { 2, 6, 3, 3 }));
  Thing p = make_plan({ conv, add, relu });
  CUdeviceptr dx = copy_up(x), dw = copy_up(w), db = copy_up(b), dy = new_memory(Y * 4);
  OK(run_plan(p, { 1, 2, 3, 4 }, { dx, dw, db, dy }));
  for (size_t i = 0; i < Y; i++) want[i] = fmaxf(0, want[i] + b[i / 9 % 6]);
  CHECK(copy_down<float>(dy, Y) == want);
  CHECK_CODE(run_plan(p, { 1, 2, 3 }, { dx, dw, db }), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  FOUND("no pointer for tensor 4");
  CHECK_CODE(run_plan(p, { 1, 2, 3, 4 }, { dx, dw, db + 4, dy }),
      CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  FOUND("bytes of alignment were promised");
  cudasim_fail("cudnnBackendExecute:1");
  CHECK_CODE(run_plan(p, { 1, 2, 3, 4 }, { dx, dw, db, dy }), CUDNN_STATUS_EXECUTION_FAILED);
  OK(run_plan(p, { 1, 2, 3, 4 }, { dx, dw, db, new_memory(Y * 4 - 4) }));
  CHECK_CODE(finish_stream(), CUDA_ERROR_ILLEGAL_ADDRESS);
  FOUND("leaves device memory");
}

static void test_gradients()
{
  auto x = make_numbers(X, 0), w = make_numbers(W, 3), g = make_numbers(Y, 2);
  std::vector<float> dx(X), dw(W);
  each_tap([&](int i, int j, int k) {
    dx[(size_t)i] += w[(size_t)j] * g[(size_t)k];
    dw[(size_t)j] += x[(size_t)i] * g[(size_t)k];
  });
  Thing image = make_tensor(1, { 2, 4, 5, 5 }), filter = make_tensor(2, { 6, 2, 3, 3 }),
        back = make_tensor(3, { 2, 6, 3, 3 });
  Thing k = make_window(1, 2, 1);
  Thing data = make_plan(
      { make_convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, filter, image, back, k) });
  Thing weights = make_plan(
      { make_convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, filter, image, back, k) });
  CUdeviceptr to_x = new_memory(X * 4), to_w = new_memory(W * 4);
  OK(run_plan(data, { 1, 2, 3 }, { to_x, copy_up(w), copy_up(g) }));
  CHECK(copy_down<float>(to_x, X) == dx);
  OK(run_plan(weights, { 1, 2, 3 }, { copy_up(x), to_w, copy_up(g) }));
  CHECK(copy_down<float>(to_w, W) == dw);
}

/* Checks beta, which adds to what the result holds. */
static void test_adding()
{
  auto x = make_numbers(X, 0), w = make_numbers(W, 3), y = make_numbers(Y, 2);
  Thing conv = make_convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, make_tensor(2, { 6, 2, 3, 3 }),
      make_tensor(1, { 2, 4, 5, 5 }), make_tensor(3, { 2, 6, 3, 3 }), make_window(1, 2, 1));
  OK(set_attribute<double>(
      conv, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_DOUBLE, { 3 }));
  CUdeviceptr to = copy_up(y);
  OK(run_plan(make_plan({ conv }), { 1, 2, 3 }, { copy_up(x), copy_up(w), to }));
  for (float &v : y) v *= 3;
  each_tap([&](int i, int j, int k) { y[(size_t)k] += x[(size_t)i] * w[(size_t)j]; });
  CHECK(copy_down<float>(to, Y) == y);
}

static std::vector<int32_t> read_notes(Thing p)
{
  Thing config = MAKE(ENGINECFG), engine = MAKE(ENGINE);
  int64_t n = 0;
  int32_t note[8];
  OK(cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &config));
  OK(cudnnBackendGetAttribute(
      config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine));
  OK(cudnnBackendGetAttribute(
      engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 8, &n, note));
  return { note, note + n };
}

/* Checks that engines do what their notes say: TF32 has 10 bits of a fraction. */
static void test_engines()
{
  auto product = [](int engine) {
    Thing y = make_tensor(3, { 1, 1, 1, 1 });
    Thing conv = make_convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, make_tensor(2, { 1, 1, 1, 1 }),
        make_tensor(1, { 1, 1, 1, 1 }), y, make_window(0, 1, 1));
    return make_plan({ conv }, engine);
  };
  auto value = [](Thing p) {
    CUdeviceptr to = new_memory(4);
    OK(run_plan(p, { 1, 2, 3 },
        { copy_up(std::vector<float>{ 1 + 1.0f / 4096 }), copy_up(std::vector<float>{ 1 }), to }));
    return copy_down<float>(to, 1)[0];
  };
  typedef std::vector<int32_t> Notes;
  Thing narrow = product(NARROW), plain = product(PLAIN);
  CHECK(read_notes(product(ANY_ORDER)) ==
      (Notes{ CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC }));
  CHECK(read_notes(narrow) == Notes{ CUDNN_NUMERICAL_NOTE_TENSOR_CORE });
  CHECK(read_notes(plain).empty());
  CHECK(value(narrow) == 1 && value(plain) == 1 + 1.0f / 4096);
}

/* Checks codes of cudnnBackendFinalize, which are those of cuDNN 9.19. */
static void test_finalizing()
{
  char why[200];
  Thing empty = MAKE(TENSOR), k = make_window(1, 2, 1);
  CHECK_CODE(cudnnBackendFinalize(empty), CUDNN_STATUS_BAD_PARAM);
  CHECK_CODE(
      set_attribute<int32_t>(empty, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_DATA_TYPE, { 1 }),
      CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  int64_t got;
  CHECK_CODE(cudnnBackendGetAttribute(
                 empty, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, &got, nullptr),
      CUDNN_STATUS_NOT_INITIALIZED);
  Thing wrong = make_convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, make_tensor(2, { 6, 2, 3, 3 }),
      make_tensor(1, { 2, 4, 5, 5 }), make_tensor(3, { 2, 6, 4, 3 }), k);
  CHECK_CODE(cudnnBackendFinalize(wrong), CUDNN_STATUS_BAD_PARAM);
  cudnnGetLastErrorString(why, sizeof why);
  CHECK(strstr(why, "the result's lengths"));
  Thing graph = MAKE(OPERATIONGRAPH);
  CHECK_CODE(set_attribute<Thing>(
                 graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, { wrong }),
      CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  CHECK(cudasim_findings() == 0);
  CHECK_CODE(cudnnBackendFinalize(k), CUDNN_STATUS_BAD_PARAM);
  FOUND("finalized before");
  CHECK_CODE(
      set_attribute<int64_t>(k, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, { 1, 1 }),
      CUDNN_STATUS_BAD_PARAM);
  FOUND("the descriptor is finalized");
}

void run_all()
{
  OK(cudnnCreate(&handle));
  OK(cudnnSetStream(handle, (cudaStream_t)stream));
  test_forward();
  test_gradients();
  test_adding();
  test_engines();
  test_finalizing();
  for (Thing t : things) OK(cudnnBackendDestroyDescriptor(t));
  OK(cudnnDestroy(handle));
  CHECK(cudasim_live("descriptors of cuDNN") == 0 && cudasim_live("handles of cuDNN") == 0);
}
