/* product.cc - cublasLtMatmul and its heuristics: what the library does and what it refuses, the
** choice of an algorithm, and the work on the stream.
**
** A request for what the library cannot do returns CUBLAS_STATUS_NOT_SUPPORTED and is no finding,
** since a program may ask. An algorithm records the promised alignment, the workspace it needs and
** the product it was chosen for. A call that differs in one of them is a finding: on a GPU it is an
** error at best. */
#include "product.h"
using namespace cudasim;

enum { GOOD = CUBLAS_STATUS_SUCCESS, INVALID = CUBLAS_STATUS_INVALID_VALUE,
  LACKS = CUBLAS_STATUS_NOT_SUPPORTED };

struct cublasLtContext { int device; };
/* what an algorithm's 64 bytes hold */
struct Algorithm { uint64_t mark, product, workspace; uint32_t aligned[4]; uint64_t way; };
static const uint64_t MARK = 0x6375646173696d00;      /* "cudasim" */
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm has 64 bytes");

static bool find_number(int64_t type, Number *out)
{
  switch (type) {
  case CUDA_R_32F: *out = F32; return true;
  case CUDA_R_64F: *out = F64; return true;
  case CUDA_R_16F: *out = F16; return true;
  case CUDA_R_16BF: *out = BF16; return true;
  case CUDA_R_8I: *out = I8; return true;
  case CUDA_R_32I: *out = I32; return true;
  default: return false;
  }
}

/* -- reading descriptors ----------------------------------------------------------------------- */

static int make_matrix(const Bag *l, bool turned, Matrix *m)
{
  if (!find_number(l->get(CUBLASLT_MATRIX_LAYOUT_TYPE), &m->type)) return LACKS;
  int64_t order = l->get(CUBLASLT_MATRIX_LAYOUT_ORDER);
  if (order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW) return LACKS;
  m->by_row = order == CUBLASLT_ORDER_ROW;
  m->rows = l->get(CUBLASLT_MATRIX_LAYOUT_ROWS);
  m->cols = l->get(CUBLASLT_MATRIX_LAYOUT_COLS);
  m->ld = l->get(CUBLASLT_MATRIX_LAYOUT_LD);
  m->batch = l->get(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  m->stride = l->get(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  if (m->rows < 1 || m->cols < 1 || m->batch < 1) return INVALID;
  if (m->ld < (m->by_row ? m->cols : m->rows)) return INVALID;
  m->rs = m->by_row ? m->ld : 1;
  m->cs = m->by_row ? 1 : m->ld;
  if (turned) {
    std::swap(m->rs, m->cs);
    std::swap(m->rows, m->cols);
  }
  return GOOD;
}

/* Returns whether the library's table has these types of sums, scale and numbers. */
static bool types_agree(const Product &p)
{
  Number in = p.a.type, out = p.d.type;
  if (p.b.type != in || p.c.type != out) return false;
  switch (p.compute) {
  case CUBLAS_COMPUTE_64F:
  case CUBLAS_COMPUTE_64F_PEDANTIC: return in == F64 && out == F64 && p.scale == F64;
  case CUBLAS_COMPUTE_32I:
  case CUBLAS_COMPUTE_32I_PEDANTIC:
    return in == I8 && ((p.scale == I32 && out == I32) || (p.scale == F32 && out == I8));
  case CUBLAS_COMPUTE_32F:
  case CUBLAS_COMPUTE_32F_PEDANTIC:
    if (p.scale != F32) return false;
    return in == F32 ? out == F32 : in == I8 ? out == F32 : (in == F16 || in == BF16) &&
            (out == in || out == F32);
  case CUBLAS_COMPUTE_32F_FAST_TF32:
  case CUBLAS_COMPUTE_32F_FAST_16F:
  case CUBLAS_COMPUTE_32F_FAST_16BF: return in == F32 && out == F32 && p.scale == F32;
  default: return false;
  }
}

static bool epilogue_exists(int e)
{
  switch (e) {
  case CUBLASLT_EPILOGUE_DEFAULT: case CUBLASLT_EPILOGUE_RELU: case CUBLASLT_EPILOGUE_RELU_AUX:
  case CUBLASLT_EPILOGUE_BIAS: case CUBLASLT_EPILOGUE_RELU_BIAS:
  case CUBLASLT_EPILOGUE_RELU_AUX_BIAS: case CUBLASLT_EPILOGUE_DRELU:
  case CUBLASLT_EPILOGUE_DRELU_BGRAD: case CUBLASLT_EPILOGUE_GELU: case CUBLASLT_EPILOGUE_GELU_AUX:
  case CUBLASLT_EPILOGUE_GELU_BIAS: case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
  case CUBLASLT_EPILOGUE_DGELU: case CUBLASLT_EPILOGUE_DGELU_BGRAD: case CUBLASLT_EPILOGUE_BGRADA:
  case CUBLASLT_EPILOGUE_BGRADB: return true;
  default: return false;
  }
}

static int make_epilogue(const Bag *d, Product *p)
{
  int e = (int)d->get(CUBLASLT_MATMUL_DESC_EPILOGUE);
  if (!epilogue_exists(e)) return INVALID;
  p->epilogue = e & ~CUBLASLT_EPILOGUE_DEFAULT;
  Number plain = p->d.type == I8 ? F32 : p->d.type;
  int64_t bias = d->get(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  int64_t aux = d->get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE);
  p->bias_type = p->aux_type = plain;
  if (bias >= 0 && (!find_number(bias, &p->bias_type) || p->bias_type != plain)) return LACKS;
  if (aux >= 0 && (!find_number(aux, &p->aux_type) || p->aux_type != plain)) return LACKS;
  p->bias = (char *)d->get(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  p->bias_stride = d->get(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
  p->aux = (char *)d->get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  p->aux_ld = d->get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
  p->aux_stride = d->get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE);
  if (p->epilogue && p->d.by_row) return LACKS;
  if (p->epilogue && p->exact() && p->epilogue & ~(BIAS | RELU)) return LACKS;
  bool sums = p->epilogue & (BIAS_GRADIENT | SUM_A | SUM_B);
  if (sums && p->d.batch > 1) return LACKS;
  if (!(p->epilogue & AUX)) return GOOD;
  bool mask = p->epilogue & (RELU | DRELU);
  return p->aux_ld < p->d.rows || p->aux_ld % (mask ? 128 : 8) ? INVALID : GOOD;
}

/* Returns whether the library can sum A or B in the epilogue: only A as it is and B transposed. */
static bool sums_fit(const Product &p, const Bag *d)
{
  const bool ta = d->get(CUBLASLT_MATMUL_DESC_TRANSA) != CUBLAS_OP_N;
  const bool tb = d->get(CUBLASLT_MATMUL_DESC_TRANSB) != CUBLAS_OP_N;
  return !(p.epilogue & SUM_A && ta) && !(p.epilogue & SUM_B && !tb);
}

/* Returns whether the library has a product of integers: A' B, by columns, with dimensions that are
** multiples of 4. True for other types. */
static bool whole_numbers_fit(const Product &p, const Bag *d)
{
  if (!p.exact()) return true;
  return d->get(CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T &&
      d->get(CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_N && !p.a.by_row && !p.b.by_row &&
      p.a.rows % 4 == 0 && p.a.cols % 4 == 0 && p.a.ld % 4 == 0 && p.b.ld % 4 == 0;
}

/* Fills in *p from descriptors. Returns GOOD, INVALID, or LACKS for what the library cannot do. */
static int make_product(
    const Bag *d, const Bag *a, const Bag *b, const Bag *c, const Bag *o, Product *p)
{
  bool ta = d->get(CUBLASLT_MATMUL_DESC_TRANSA) != CUBLAS_OP_N;
  bool tb = d->get(CUBLASLT_MATMUL_DESC_TRANSB) != CUBLAS_OP_N;
  const struct { const Bag *layout; bool turned; Matrix *m; } all[] = { { a, ta, &p->a },
    { b, tb, &p->b }, { c, false, &p->c }, { o, false, &p->d } };
  for (auto &x : all)
    if (int r = make_matrix(x.layout, x.turned, x.m)) return r;
  p->compute = (int)d->get(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  int64_t mode = d->get(CUBLASLT_MATMUL_DESC_POINTER_MODE);
  if (mode > CUBLASLT_POINTER_MODE_DEVICE || d->get(CUBLASLT_MATMUL_DESC_TRANSC) != CUBLAS_OP_N)
    return LACKS;
  p->scales_on_device = mode == CUBLASLT_POINTER_MODE_DEVICE;
  if (!find_number(d->get(CUBLASLT_MATMUL_DESC_SCALE_TYPE), &p->scale) || !types_agree(*p))
    return LACKS;
  if (p->a.rows != p->d.rows || p->b.cols != p->d.cols || p->a.cols != p->b.rows) return INVALID;
  if (p->c.rows != p->d.rows || p->c.cols != p->d.cols || p->c.by_row != p->d.by_row)
    return INVALID;
  for (const Matrix *m : { &p->a, &p->b, &p->c })
    if (m->batch != p->d.batch) return INVALID;
  if (int r = make_epilogue(d, p)) return r;
  return whole_numbers_fit(*p, d) && sums_fit(*p, d) ? GOOD : LACKS;
}

/* -- algorithms -------------------------------------------------------------------------------- */

/* Returns a hash of everything that the choice of an algorithm depends on. */
static uint64_t hash_product(const Product &p)
{
  uint64_t h = 1469598103934665603u;
  auto add = [&](int64_t v) { h = (h ^ (uint64_t)v) * 1099511628211u; };
  for (const Matrix *m : { &p.a, &p.b, &p.c, &p.d })
    for (int64_t v : { (int64_t)m->type, m->rows, m->cols, m->rs, m->cs, m->batch, m->stride })
      add(v);
  for (int64_t v : { (int64_t)p.compute, (int64_t)p.epilogue, (int64_t)p.scale }) add(v);
  return h;
}

/* Returns the bytes of workspace that a product uses. Like the library, it splits long sums if
** there is room for their parts. */
static size_t wanted_workspace(const Product &p, size_t most)
{
  size_t parts = (size_t)(p.d.rows * p.d.cols * p.d.batch) * 4 * 2;
  return p.a.cols >= 64 && !p.exact() && parts <= most ? parts : 0;
}

static Algorithm choose_algorithm(const Product &p, size_t most, const uint32_t aligned[4])
{
  Algorithm a = { MARK, hash_product(p), wanted_workspace(p, most), {}, 0 };
  memcpy(a.aligned, aligned, sizeof a.aligned);
  return a;
}

static bool power_of_two(int64_t v) { return v > 0 && !(v & (v - 1)); }

#define NAMED(condition, ...) \
  if (!(condition)) return (cublasStatus_t)report_misuse(INVALID, __func__, __VA_ARGS__)
#define BAGS(d, a, b, c, o) \
  const Bag *bags[] = { find_bag(d, PRODUCT), find_bag(a, LAYOUT), find_bag(b, LAYOUT), \
    find_bag(c, LAYOUT), find_bag(o, LAYOUT) }; \
  for (const Bag *x : bags) NAMED(x, "a descriptor is missing, of another kind, or destroyed")

API cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t o, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t *out, int *found)
{
  if (int r = enter_call(__func__, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_EXECUTION_FAILED))
    return (cublasStatus_t)r;
  const Bag *wish = find_bag(preference, PREFERENCE);
  NAMED(h && wish && out && found && wanted > 0, "a null or destroyed argument");
  BAGS(d, a, b, c, o);
  Product p = {};
  *found = 0;
  int r = make_product(bags[0], bags[1], bags[2], bags[3], bags[4], &p);
  if (r) return (cublasStatus_t)r;
  uint32_t aligned[4];
  for (int i = 0; i < 4; i++) {
    int64_t v = wish->get(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i);
    NAMED(power_of_two(v), "an alignment of %lld bytes", (long long)v);
    aligned[i] = v > 16 ? 16 : (uint32_t)v;           /* no algorithm here needs more */
  }
  size_t most = (size_t)wish->get(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  for (size_t limit : { most, (size_t)0, most }) {
    if (*found == wanted) break;
    Algorithm chosen = choose_algorithm(p, limit, aligned);
    chosen.way = (uint64_t)*found;
    cublasLtMatmulHeuristicResult_t *r = &out[(*found)++];
    memset((void *)r, 0, sizeof *r);
    memcpy((void *)&r->algo, &chosen, sizeof chosen);
    r->workspaceSize = chosen.workspace;
    r->wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

/* -- the call ---------------------------------------------------------------------------------- */

static void add_region(std::vector<Region> *all, const char *name, const Matrix &m, Use use)
{
  size_t one = size_of(m.type);
  bool rows_lie = m.rs != 1 && m.cs == 1;
  int64_t lines = rows_lie ? m.rows : m.cols, length = rows_lie ? m.cols : m.rows;
  int64_t step = rows_lie ? m.rs : m.cs;
  for (int64_t z = 0; z < m.batch; z++)
    all->push_back({ name, m.of(z), (size_t)length * one, use, (size_t)lines, (size_t)step * one });
}

static void cover_epilogue(std::vector<Region> *all, const Product &p)
{
  size_t one = size_of(p.bias_type), rows = (size_t)p.d.rows;
  size_t n = p.epilogue & SUM_B ? (size_t)p.d.cols : rows;
  if (p.epilogue & BIAS)
    all->push_back({ "the bias", p.bias, rows * one, READS, (size_t)(p.bias_stride ? p.d.batch : 1),
        (size_t)p.bias_stride * one });
  if (p.epilogue & (BIAS_GRADIENT | SUM_A | SUM_B))
    all->push_back({ "the gradient of the bias", p.bias, n * one, WRITES });
  if (!(p.epilogue & AUX)) return;
  bool mask = p.epilogue & (RELU | DRELU);
  size_t bits = mask ? 1 : 8 * size_of(p.aux_type);
  Use use = p.epilogue & (DRELU | DGELU) ? READS : WRITES;
  all->push_back({ "the epilogue's second output", p.aux,
      (rows * bits + 7) / 8, use, (size_t)(p.d.cols * p.d.batch), (size_t)p.aux_ld * bits / 8 });
}

static std::vector<Region> list_regions(const Product &p, void *workspace, size_t bytes)
{
  std::vector<Region> all;
  if (bytes) all.push_back({ "the workspace", workspace, bytes, SCRATCH });
  add_region(&all, "A", p.a, READS);
  add_region(&all, "B", p.b, READS);
  if (p.scales_on_device) {
    all.push_back({ "alpha", p.alpha, size_of(p.scale), READS });
    all.push_back({ "beta", p.beta, size_of(p.scale), READS });
  }
  if (!p.scales_on_device && p.by[1] != 0) add_region(&all, "C", p.c, READS);
  add_region(&all, "D", p.d, WRITES);
  cover_epilogue(&all, p);
  return all;
}

/* Checks the pointers of a call against its algorithm. Returns 0, or the code of a finding. */
static int check_call(const char *name, const Product &p, const Algorithm &a, const void *workspace,
    size_t bytes)
{
  if (a.mark != MARK || a.product != hash_product(p))
    return report_misuse(INVALID, name, "the algorithm was chosen for another product");
  if (bytes < a.workspace || (a.workspace && !workspace))
    return report_misuse(INVALID, name, "a workspace of %zu bytes; the algorithm needs %zu",
        workspace ? bytes : 0, (size_t)a.workspace);
  if ((uintptr_t)workspace % 16)
    return report_misuse(INVALID, name, "the workspace is not aligned to 16");
  const void *at[] = { p.a.p, p.b.p, p.c.p, p.d.p };
  for (int i = 0; i < 4; i++)
    if ((uintptr_t)at[i] % a.aligned[i])
      return report_misuse(INVALID, name, "%c is at %p; %u bytes of alignment were promised",
          "ABCD"[i], at[i], a.aligned[i]);
  if (p.epilogue & (BIAS | BIAS_GRADIENT | SUM_A | SUM_B) && !p.bias)
    return report_misuse(INVALID, name, "the epilogue's bias is not set");
  if (p.epilogue & AUX && (!p.aux || (uintptr_t)p.aux % 16))
    return report_misuse(
        INVALID, name, "the epilogue's second output is not set, or not aligned to 16");
  bool same = p.c.p == p.d.p;
  if (same && (p.c.rs != p.d.rs || p.c.cs != p.d.cs || p.c.stride != p.d.stride))
    return report_misuse(INVALID, name, "C and D are at one place in different layouts");
  return GOOD;
}

static void read_scales(Product *p, const void *alpha, const void *beta)
{
  p->alpha = alpha;
  p->beta = beta;
  if (p->scales_on_device) return;
  p->by[0] = load_number(alpha, p->scale, 0);
  p->by[1] = load_number(beta, p->scale, 0);
}

API cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
    cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta,
    const void *c, cublasLtMatrixLayout_t cl, void *o, cublasLtMatrixLayout_t ol,
    const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes, cudaStream_t stream)
{
  if (int r = enter_call(__func__, CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED))
    return (cublasStatus_t)r;
  NAMED(h && alpha && beta && a && b && o, "a null argument");
  NAMED(device_of((CUstream)stream) == h->device, "a handle and a stream of two devices");
  BAGS(d, al, bl, cl, ol);
  Product p = {};
  if (int r = make_product(bags[0], bags[1], bags[2], bags[3], bags[4], &p))
    return (cublasStatus_t)report_misuse(r, __func__, "a product that the library does not make");
  NAMED(p.scales_on_device == is_device_memory(alpha), "alpha is not where the pointer mode says");
  read_scales(&p, alpha, beta);
  NAMED(c || (!p.scales_on_device && p.by[1] == 0), "C is null");
  p.a.p = (char *)a;
  p.b.p = (char *)b;
  p.c.p = (char *)(c ? c : o);
  p.d.p = (char *)o;
  Algorithm chosen;
  const uint32_t loose[4] = { 1, 1, 1, 1 };
  if (algorithm)
    memcpy(&chosen, algorithm, sizeof chosen);
  else
    chosen = choose_algorithm(p, workspace ? bytes : 0, loose);
  if (int r = check_call(__func__, p, chosen, workspace, bytes)) return (cublasStatus_t)r;
  CUresult given = give_work((CUstream)stream, __func__,
      list_regions(p, workspace, chosen.workspace), [=] { run_product(p); }, (int)chosen.way);
  return given ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

/* -- handles ----------------------------------------------------------------------------------- */

API cublasLtCreate(cublasLtHandle_t *out)
{
  if (int r = enter_call(__func__, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_NOT_INITIALIZED))
    return (cublasStatus_t)r;
  *out = new cublasLtContext{ current_device() };
  count_object("handles of cublasLt", 1);
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtDestroy(cublasLtHandle_t h)
{
  delete h;
  count_object("handles of cublasLt", -1);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion(void) { return 130100; }
