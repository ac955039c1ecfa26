/* cudnn.h - the part of cuDNN 9's graph interface that is used here, declared by hand (see
** driver.h). All objects are descriptors, which are created, get attributes and are finalized. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "cuda/driver.h"

typedef struct dnn_handle *dnn_handle;
typedef struct dnn_thing *dnn_thing;                  /* cudnnBackendDescriptor_t */

/* cudnnDataType_t */
enum { DNN_F32 = 0, DNN_F64 = 1, DNN_F16 = 2, DNN_BF16 = 9 };
/* cudnnBackendAttributeType_t */
enum { DNN_HANDLE = 0, DNN_DATA_TYPE = 1, DNN_BOOLEAN = 2, DNN_INT64 = 3, DNN_DOUBLE = 5,
       DNN_POINTER = 6, DNN_MODE = 7, DNN_HEURISTIC = 8, DNN_NAN_RULE = 10, DNN_NOTE = 11,
       DNN_FORMULA = 14, DNN_THING = 15 };
/* cudnnBackendDescriptorType_t */
enum { DNN_POINTWISE = 0, DNN_CONVOLUTION = 1, DNN_ENGINE = 2, DNN_CONFIG = 3, DNN_CHOICE = 4,
       DNN_PLAN = 5, DNN_OP_FORWARD = 10, DNN_OP_FILTER = 11, DNN_OP_DATA = 12,
       DNN_OP_POINTWISE = 13, DNN_GRAPH = 15, DNN_PACK = 16, DNN_TENSOR = 17 };
/* cudnnBackendAttributeName_t. Attributes of a convolution's operation have consecutive numbers:
** alpha, beta, convolution, then the tensors, in an order that depends on the operation. */
enum { DNN_POINTWISE_MODE = 0, DNN_POINTWISE_COMPUTE = 1, DNN_POINTWISE_NAN = 2,
       DNN_CONVOLUTION_COMPUTE = 100, DNN_CONVOLUTION_MODE = 101, DNN_DILATIONS = 102,
       DNN_STRIDES = 103, DNN_PAD_AFTER = 104, DNN_PAD_BEFORE = 105, DNN_SPATIAL_AXES = 106,
       DNN_CHOICE_MODE = 200, DNN_CHOICE_GRAPH = 201, DNN_CHOICE_RESULTS = 202,
       DNN_CONFIG_ENGINE = 300, DNN_PLAN_HANDLE = 400, DNN_PLAN_CONFIG = 401,
       DNN_PLAN_WORKSPACE = 402, DNN_FORWARD_ALPHA = 700, DNN_FORWARD_X = 704,
       DNN_FORWARD_W = 703, DNN_FORWARD_Y = 705, DNN_DATA_ALPHA = 706, DNN_DATA_W = 709,
       DNN_DATA_DX = 710, DNN_DATA_DY = 711, DNN_FILTER_ALPHA = 712, DNN_FILTER_DW = 715,
       DNN_FILTER_X = 716, DNN_FILTER_DY = 717, DNN_OP_FORMULA = 750, DNN_OP_X = 751,
       DNN_OP_B = 752, DNN_OP_Y = 753, DNN_GRAPH_HANDLE = 800, DNN_GRAPH_OPS = 801,
       DNN_TENSOR_ALIGNED = 900, DNN_TENSOR_TYPE = 901, DNN_TENSOR_DIMS = 902,
       DNN_TENSOR_STRIDES = 903, DNN_TENSOR_ID = 906, DNN_TENSOR_VIRTUAL = 907,
       DNN_PACK_IDS = 1000, DNN_PACK_POINTERS = 1001, DNN_PACK_WORKSPACE = 1003,
       DNN_ENGINE_NOTES = 1303 };
enum { DNN_CROSS_CORRELATION = 1, DNN_ADD = 0, DNN_RELU = 100, DNN_NAN_STAYS = 1,
       DNN_CHOOSE_FALLBACK = 2, DNN_CHOOSE_BEST = 3 };
/* cudnnBackendNumericalNote_t */
enum { DNN_TENSOR_CORE = 0, DNN_DOWN_CONVERTS = 1, DNN_REDUCED_SUMS = 2,
       DNN_NONDETERMINISTIC = 4 };

#define DNN_FUNCTIONS(_) \
  _(Create,        "cudnnCreate", (dnn_handle *)) \
  _(SetStream,     "cudnnSetStream", (dnn_handle, cu_stream)) \
  _(CreateThing,   "cudnnBackendCreateDescriptor", (int, dnn_thing *)) \
  _(DestroyThing,  "cudnnBackendDestroyDescriptor", (dnn_thing)) \
  _(Set,           "cudnnBackendSetAttribute", (dnn_thing, int, int, int64_t, const void *)) \
  _(Get,           "cudnnBackendGetAttribute", \
    (dnn_thing, int, int, int64_t, int64_t *, void *)) \
  _(Finalize,      "cudnnBackendFinalize", (dnn_thing)) \
  _(Execute,       "cudnnBackendExecute", (dnn_handle, dnn_thing, dnn_thing))

#define DECLARE(name, symbol, arguments) int (*name) arguments;
struct dnn_functions { DNN_FUNCTIONS(DECLARE) };
#undef DECLARE
