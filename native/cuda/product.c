/* product.c - see product.h. cublasLt is column-major: a row-major C = A B is C' = B' A' for it,
** where X' is the same memory read by columns. The plan of a product (descriptors and the
** algorithm: the first of the library's heuristics, or the fastest, trial.h) is made once and kept
** in the kernel's state. */
#include <dlfcn.h>
#include <pthread.h>
#include "cuda/cublaslt.h"
#include "cuda/product.h"
#include "cuda/reduce.h"
#include "cuda/trial.h"

enum { WORKSPACE = 32 << 20 };                        /* bytes */
/* Bytes. All arrays are aligned to this, except views, which may begin at any element. */
enum { ALIGNED = 16 };

static struct lt_functions lt;
static lt_handle handles[CUDA_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int loaded;                                    /* 0: not tried, 1: yes, -1: failed */
static int version;                                   /* of cublasLt, 130100 */

struct product_plan {
  lt_product product;
  lt_layout a, b, c;
  struct lt_choice choice;
  uint32_t aligned;                                   /* alignment in bytes that it requires */
  bool tf32;                                          /* float32 is multiplied by TF32 */
  uint64_t bias;
};

/* -- the library ------------------------------------------------------------------------------- */

static bool load_cublaslt(void)
{
  void *lib = cuda_library(CUDA_CUBLASLT, NULL);
  bool good = lib != NULL;
#define FIND(name, symbol, arguments) \
  if (good) *(void **)&lt.name = dlsym(lib, symbol), good = lt.name != NULL;
  LT_FUNCTIONS(FIND)
#undef FIND
  if (good) version = cuda_library_version(CUDA_CUBLASLT, lib);
  return good;
}

static lt_handle open_handle(int device)
{
  lt_handle *h = &handles[device_id(device)];
  if (cuda_enter(device)) return NULL;
  pthread_mutex_lock(&lock);
  if (!loaded) loaded = load_cublaslt() ? 1 : -1;
  if (loaded > 0 && !*h && lt.Create(h)) *h = NULL;
  lt_handle made = loaded > 0 ? *h : NULL;
  pthread_mutex_unlock(&lock);
  return made;
}

/* -- plans ------------------------------------------------------------------------------------- */

static int type_of(int dtype)
{
  return dtype == TY_F64   ? LT_F64
      : dtype == TY_F16    ? LT_F16
      : dtype == TY_BF16   ? LT_BF16
                           : LT_F32;
}

static bool make_layout(
    lt_layout *l, int type, int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
  int32_t n = (int32_t)batch;
  if (lt.LayoutCreate(l, type, (uint64_t)rows, (uint64_t)cols, ld)) return false;
  return batch == 1 ||
      (!lt.LayoutSet(*l, LT_BATCH, &n, sizeof n) &&
          !lt.LayoutSet(*l, LT_STRIDE, &stride, sizeof stride));
}

static bool set_product(struct product_plan *t, const struct product *p)
{
  int32_t type = type_of(p->dtype), ta = p->tb, tb = p->ta;
  int compute = p->dtype == TY_F64 ? LT_BY_F64 : t->tf32 ? LT_BY_TF32 : LT_BY_F32;
  uint32_t epilogue = p->sums ? LT_SUMS_B
      : p->biased             ? (p->relu ? LT_RELU_BIAS : LT_ADD_BIAS)
                              : (p->relu ? LT_RELU : LT_DEFAULT);
  int scale = p->dtype == TY_F64 ? LT_F64 : LT_F32;
  if (lt.MatmulDescCreate(&t->product, compute, scale)) return false;
  bool good = !lt.MatmulDescSet(t->product, LT_TRANSA, &ta, sizeof ta) &&
      !lt.MatmulDescSet(t->product, LT_TRANSB, &tb, sizeof tb) &&
      !lt.MatmulDescSet(t->product, LT_EPILOGUE, &epilogue, sizeof epilogue);
  const bool has_bias = p->biased || p->sums;
  return good && (!has_bias || !lt.MatmulDescSet(t->product, LT_BIAS_TYPE, &type, sizeof type));
}

/* Describes the operands for cublasLt: A and B are exchanged, and so are rows and columns. */
static bool set_layouts(struct product_plan *t, const struct product *p)
{
  int type = type_of(p->dtype);
  int64_t br = p->tb ? p->k : p->n, bc = p->tb ? p->n : p->k;
  int64_t ar = p->ta ? p->m : p->k, ac = p->ta ? p->k : p->m;
  return make_layout(&t->a, type, br, bc, p->ldb, p->batch, p->stride_b) &&
      make_layout(&t->b, type, ar, ac, p->lda, p->batch, p->stride_a) &&
      make_layout(&t->c, type, p->n, p->m, p->ldc, p->batch, p->stride_c);
}

/* Gets up to `most` algorithms from the heuristics for a workspace; returns how many. */
static int ask_heuristics(lt_handle h, const struct product_plan *t, size_t workspace,
    struct lt_choice *out, int most)
{
  lt_preference preference;
  int found = 0, n = 0;
  if (lt.PreferenceCreate(&preference)) return 0;
  bool good = !lt.PreferenceSet(preference, LT_WORKSPACE, &workspace, sizeof workspace);
  for (int i = 0; i < 4 && good; i++)
    good = !lt.PreferenceSet(preference, LT_ALIGNED + i, &t->aligned, sizeof t->aligned);
  good = good &&
      !lt.Choose(h, t->product, t->a, t->b, t->c, t->c, preference, most, out, &found);
  lt.PreferenceDestroy(preference);
  for (int i = 0; good && i < found; i++)
    if (!out[i].state && out[i].workspace <= workspace) out[n++] = out[i];
  return n;
}

/* A product that is timed, by each of these choices. */
struct timed_product {
  lt_handle h;
  struct product_plan *plan;
  const struct product *p;
  const struct lt_choice *choice;
  int device;
  size_t a, b, c, bias;                               /* bytes, of ALIGN each */
};

static size_t matrix_bytes(const struct product *p, int64_t rows, int64_t ld, int64_t stride)
{
  const int64_t n = rows * ld + (p->batch - 1) * MAX(stride, 0);
  return align_up((size_t)n * dtype_size(p->dtype), ALIGN);
}

static bool start_product(void *of, int i, char *memory)
{
  const struct timed_product *m = of;
  struct product_plan *t = m->plan;
  const double one = 1, zero = 0;
  const float one32 = 1, zero32 = 0;
  const bool wide = m->p->dtype == TY_F64;
  char *b = memory + m->a, *c = b + m->b, *bias = c + m->c, *workspace = bias + m->bias;
  const uint64_t at = (uint64_t)(uintptr_t)bias;
  if (m->bias && lt.MatmulDescSet(t->product, LT_BIAS, &at, sizeof at)) return false;
  t->bias = m->bias ? at : t->bias;
  return !lt.Matmul(m->h, t->product, wide ? (const void *)&one : &one32, b, t->a, memory, t->b,
      wide ? (const void *)&zero : &zero32, c, t->c, c, t->c, &m->choice[i].algorithm, workspace,
      m->choice[i].workspace, cuda_stream(m->device));
}

/* Returns which of n choices to use. */
static int time_choices(int device, lt_handle h, struct product_plan *t, const struct product *p,
    const struct lt_choice *choice, int n, size_t limit)
{
  struct text what = { 0 };
  const bool biased = p->biased || p->sums;
  struct timed_product m = { h, t, p, choice, device,
    .a = matrix_bytes(p, p->ta ? p->k : p->m, p->lda, p->stride_a),
    .b = matrix_bytes(p, p->tb ? p->n : p->k, p->ldb, p->stride_b),
    .c = matrix_bytes(p, p->m, p->ldc, p->stride_c),
    .bias = biased ? align_up((size_t)MAX(p->m, p->n) * dtype_size(p->dtype), ALIGN) : 0 };
  struct trial trial = { device, n, m.a + m.b + m.c + m.bias, start_product, &m };
  size_t workspace = 0;
  for (int i = 0; i < n; i++) workspace = MAX(workspace, choice[i].workspace);
  trial.bytes += workspace;
  text_add(&what, "cublasLt %d, product of type %d, TF32 %d, turned %d %d, bias %d %d, relu %d",
      version, p->dtype, t->tf32, p->ta, p->tb, p->biased, p->sums, p->relu);
  const int64_t sizes[] = { p->m, p->n, p->k, p->lda, p->ldb, p->ldc, p->batch, p->stride_a,
    p->stride_b, p->stride_c };
  for (int i = 0; i < COUNT(sizes); i++) text_add(&what, " %lld", (long long)sizes[i]);
  text_add(&what, ", workspace %zu, aligned %u", limit, t->aligned);
  const int way = what.lost ? 0 : trial_choose(&trial, what.s);
  text_done(&what);
  return way;
}

static bool choose_algorithm(
    int device, lt_handle h, struct product_plan *t, const struct product *p, size_t workspace)
{
  struct lt_choice choice[TRIAL_WAYS];
  const int n = ask_heuristics(h, t, workspace, choice, trial_ways());
  if (!n) return false;
  t->choice = choice[n > 1 ? time_choices(device, h, t, p, choice, n, workspace) : 0];
  return true;
}

void product_done(struct product_plan *t)
{
  if (!t) return;
  if (t->product) lt.MatmulDescDestroy(t->product);
  if (t->a) lt.LayoutDestroy(t->a);
  if (t->b) lt.LayoutDestroy(t->b);
  if (t->c) lt.LayoutDestroy(t->c);
  mem_free(t);
}

static struct product_plan *make_plan(
    const struct call *c, const struct product *p, size_t workspace, uint32_t aligned)
{
  lt_handle h = open_handle(c->device);
  struct product_plan *t = h ? NEW(struct product_plan) : NULL;
  if (!t) return NULL;
  t->aligned = aligned;
  t->tf32 = p->dtype == TY_F32 && precision_allows_tf32(c->precision);
  if (set_product(t, p) && set_layouts(t, p) && choose_algorithm(c->device, h, t, p, workspace))
    return t;
  product_done(t);
  return NULL;
}

size_t product_workspace(const struct call *c, const struct product *p)
{
  struct product_plan *t = make_plan(c, p, WORKSPACE, ALIGNED);
  size_t bytes = t ? t->choice.workspace : 0;
  product_done(t);
  return bytes;
}

const char *product_refuse(const struct call *c, const struct product *p)
{
  if (!open_handle(c->device)) return CUDA_MISSING("cublasLt");
  struct product_plan *t = make_plan(c, p, WORKSPACE, ALIGNED);
  product_done(t);
  return t ? NULL : "cublasLt does not do it";
}

/* Returns the plan for matrices at these addresses. It is made at the first run, and made again,
** for the same workspace, if a matrix is less aligned than it requires. */
static struct product_plan *fitting_plan(
    const struct call *c, const struct product *p, struct product_plan *t, uintptr_t bits)
{
  if (!t) t = make_plan(c, p, WORKSPACE, ALIGNED);
  if (!t || bits % t->aligned == 0) return t;
  struct product_plan *loose =
      make_plan(c, p, t->choice.workspace, (uint32_t)(bits & -bits));
  product_done(t);
  return loose;
}

/* -- running ----------------------------------------------------------------------------------- */

static int check_cublaslt(int status, const struct product *p)
{
  if (!status) return TY_OK;
  return fail(TY_ERUN, "cublasLt: a product of %lld x %lld x %lld fails with status %d",
      (long long)p->m, (long long)p->n, (long long)p->k, status);
}

int product_run(const struct call *call, const struct product *p, struct product_plan **plan,
    const void *a, const void *b, const void *bias, void *c, void *workspace)
{
  const int device = call->device;
  float alpha = (float)p->alpha, beta = (float)p->beta;
  bool wide = p->dtype == TY_F64;
  const void *by[] = { wide ? (const void *)&p->alpha : &alpha,
    wide ? (const void *)&p->beta : &beta };
  const void *onto = p->onto ? p->onto : c;
  uintptr_t bits = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)onto;
  struct product_plan *t = *plan = fitting_plan(call, p, *plan, bits);
  NEED(t, TY_ERUN, "cublasLt has no way to make a product of %lld x %lld x %lld",
      (long long)p->m, (long long)p->n, (long long)p->k);
  uint64_t at = (uint64_t)(uintptr_t)bias;
  if ((p->biased || p->sums) && at != t->bias) {
    TRY(check_cublaslt(lt.MatmulDescSet(t->product, LT_BIAS, &at, sizeof at), p));
    t->bias = at;
  }
  cuda_count(device, 1, 0);
  return check_cublaslt(
      lt.Matmul(open_handle(device), t->product, by[0], b, t->a, a, t->b, by[1], onto, t->c, c,
          t->c, &t->choice.algorithm, workspace, t->choice.workspace, cuda_stream(device)),
      p);
}

/* -- a product and sums ------------------------------------------------------------------------ */

static struct reduce plan_sums(const struct product *p)
{
  return cuda_reduce_all_but(p->dtype, p->k, p->m, 1);
}

size_t product_sums_workspace(const struct call *c, const struct product *p)
{
  struct product with = *p;
  const struct reduce r = plan_sums(p);
  with.sums = true;
  return MAX(MAX(product_workspace(c, p), product_workspace(c, &with)),
      cuda_reduce_scratch(&r));
}

int product_run_sums(const struct call *call, const struct product *p,
    struct product_with_sums *made, const void *a, const void *b, void *c, void *sums, bool add,
    void *workspace)
{
  struct product with = *p;
  const struct reduce r = plan_sums(p);
  const struct cuda_reduce f = { R_SUM, F_NONE, p->dtype, a, .y = sums, .add = add };
  with.sums = !add && !made->apart;
  if (with.sums) {
    made->plan = fitting_plan(
        call, &with, made->plan, (uintptr_t)a | (uintptr_t)b | (uintptr_t)c);
    made->apart = !made->plan;
    with.sums = !made->apart;
  }
  TRY(product_run(call, &with, &made->plan, a, b, sums, c, workspace));
  return with.sums ? TY_OK : cuda_reduce(call->device, &r, &f, workspace);
}
