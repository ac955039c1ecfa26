/* descriptors.cc - layouts, products and preferences as bags of attributes, each with its size and
** default. The library's objects are plain bytes, which a program may copy; these may not be. */
#include "product.h"
#include <mutex>
#include <set>

struct Attribute { Kind kind; int id; size_t bytes; int64_t otherwise; };
static const Attribute attributes[] = {
  { LAYOUT, CUBLASLT_MATRIX_LAYOUT_TYPE, 4, 0 },
  { LAYOUT, CUBLASLT_MATRIX_LAYOUT_ORDER, 4, CUBLASLT_ORDER_COL },
  { LAYOUT, CUBLASLT_MATRIX_LAYOUT_ROWS, 8, 0 },
  { LAYOUT, CUBLASLT_MATRIX_LAYOUT_COLS, 8, 0 },
  { LAYOUT, CUBLASLT_MATRIX_LAYOUT_LD, 8, 0 },
  { LAYOUT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4, 1 },
  { LAYOUT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8, 0 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 4, 0 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_SCALE_TYPE, 4, 0 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_POINTER_MODE, 4, CUBLASLT_POINTER_MODE_HOST },
  { PRODUCT, CUBLASLT_MATMUL_DESC_TRANSA, 4, CUBLAS_OP_N },
  { PRODUCT, CUBLASLT_MATMUL_DESC_TRANSB, 4, CUBLAS_OP_N },
  { PRODUCT, CUBLASLT_MATMUL_DESC_TRANSC, 4, CUBLAS_OP_N },
  { PRODUCT, CUBLASLT_MATMUL_DESC_EPILOGUE, 4, CUBLASLT_EPILOGUE_DEFAULT },
  { PRODUCT, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8, 0 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 8, 0 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 8, 0 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8, 0 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, 8, 0 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, 4, -1 },
  { PRODUCT, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4, -1 },
  { PREFERENCE, CUBLASLT_MATMUL_PREF_SEARCH_MODE, 4, 0 },
  { PREFERENCE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8, 0 },
  { PREFERENCE, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4, 7 },
  { PREFERENCE, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4, 256 },
  { PREFERENCE, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4, 256 },
  { PREFERENCE, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4, 256 },
  { PREFERENCE, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4, 256 },
};

template <class... A>
static cublasStatus_t report_wrong(const char *function, const char *format, A... a)
{
  return (cublasStatus_t)cudasim::report_misuse(
      CUBLAS_STATUS_INVALID_VALUE, function, format, a...);
}

static const Attribute *find_attribute(Kind kind, int id)
{
  for (const Attribute &a : attributes)
    if (a.kind == kind && a.id == id) return &a;
  return nullptr;
}

int64_t Bag::get(int id) const
{
  auto at = given.find(id);
  return at != given.end() ? at->second : find_attribute(kind, id)->otherwise;
}

static std::set<const void *> &bags = *new std::set<const void *>;
static std::mutex lock;

const Bag *find_bag(const void *handle, Kind kind)
{
  std::unique_lock<std::mutex> own(lock);
  const Bag *b = (const Bag *)handle;
  return bags.count(handle) && b->kind == kind ? b : nullptr;
}

template <class T> static cublasStatus_t make_bag(T *out, Kind kind, std::map<int, int64_t> given)
{
  if (!out) return CUBLAS_STATUS_INVALID_VALUE;
  Bag *b = new Bag{ kind, std::move(given) };
  *out = (T)b;
  {
    std::unique_lock<std::mutex> own(lock);
    bags.insert(b);
  }
  cudasim::count_object("descriptors of cublasLt", 1);
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop_bag(const char *name, const void *handle, Kind kind)
{
  const Bag *b = find_bag(handle, kind);
  if (!b) return report_wrong(name, "not a descriptor of this kind, or destroyed before");
  {
    std::unique_lock<std::mutex> own(lock);
    bags.erase(b);
  }
  delete b;
  cudasim::count_object("descriptors of cublasLt", -1);
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_attribute(
    const char *name, void *handle, Kind kind, int id, const void *from, size_t n)
{
  Bag *b = (Bag *)find_bag(handle, kind);
  const Attribute *a = find_attribute(kind, id);
  if (!b || !from) return report_wrong(name, "not a descriptor of this kind, or nothing to set");
  if (!a) return report_wrong(name, "attribute %d, which the stand-in lacks", id);
  if (n != a->bytes)
    return report_wrong(name, "attribute %d has %zu bytes, not %zu", id, a->bytes, n);
  int32_t narrow;
  int64_t wide;
  memcpy(a->bytes == 4 ? (void *)&narrow : &wide, from, n);
  b->given[id] = a->bytes == 4 ? narrow : wide;
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get_attribute(
    const char *name, const void *handle, Kind kind, int id, void *to, size_t n, size_t *written)
{
  const Bag *b = find_bag(handle, kind);
  const Attribute *a = find_attribute(kind, id);
  if (!b || !a || (n && !to) || (!n && !written))
    return report_wrong(name, "not a descriptor, or an attribute that the stand-in lacks");
  if (written) *written = a->bytes;
  if (!n) return CUBLAS_STATUS_SUCCESS;
  if (n < a->bytes) return CUBLAS_STATUS_INVALID_VALUE;
  int64_t value = b->get(id);
  memcpy(to, &value, a->bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/* -- the interface ----------------------------------------------------------------------------- */

#define ENTER \
  if (int r = cudasim::enter_anywhere(__func__, CUBLAS_STATUS_ALLOC_FAILED)) return (cublasStatus_t)r

API cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
  ENTER;
  return make_bag(out, LAYOUT,
      { { CUBLASLT_MATRIX_LAYOUT_TYPE, type }, { CUBLASLT_MATRIX_LAYOUT_ROWS, (int64_t)rows },
          { CUBLASLT_MATRIX_LAYOUT_COLS, (int64_t)cols }, { CUBLASLT_MATRIX_LAYOUT_LD, ld } });
}

API cublasLtMatmulDescCreate(
    cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
  ENTER;
  return make_bag(out, PRODUCT,
      { { CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, compute },
          { CUBLASLT_MATMUL_DESC_SCALE_TYPE, scale } });
}

API cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
  ENTER;
  return make_bag(out, PREFERENCE, {});
}

#define ACCESS(name, type, attribute, kind)                                         \
  API name##Destroy(type x) { return drop_bag(__func__, x, kind); }                 \
  API name##SetAttribute(type x, attribute id, const void *from, size_t n)          \
  {                                                                                 \
    ENTER;                                                                          \
    return set_attribute(__func__, x, kind, id, from, n);                           \
  }                                                                                 \
  API name##GetAttribute(type x, attribute id, void *to, size_t n, size_t *written) \
  {                                                                                 \
    return get_attribute(__func__, x, kind, id, to, n, written);                    \
  }
ACCESS(cublasLtMatrixLayout, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, LAYOUT)
ACCESS(cublasLtMatmulDesc, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, PRODUCT)
ACCESS(cublasLtMatmulPreference, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
    PREFERENCE)
