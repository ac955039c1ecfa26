/* pointwise.c - pointwise programs on a GPU: each is printed in the form that its operands allow,
** compiled once, and launched with a thread per element or pack. Compiled kernels are kept with the
** program (pw_made). Independent runs (pw_together) share launches, as many as fit into the
** arguments. A program that ends with a reduction becomes the function that computes the elements
** of kernels/reduce.cu. Bound by bytes. */
#include <pthread.h>
#include "cuda/cuda.h"
#include "cuda/reduce.h"

/* WAVES: most blocks per multiprocessor. ARGUMENTS, ONE_LOOP: bytes of a launch's arguments, and of
** one loop's. */
enum { BLOCK_THREADS = 256, WAVES = 16, ARGUMENTS = 4096,
       ONE_LOOP = 8 + (TY_MAXDIM + PW_ARGS * TY_MAXDIM + PW_ARGS + 1) * 8 };

struct variant {
  struct variant *next;
  int device, form, ndim, n, together;
  uint32_t numbers, single;
  int dtype[PW_ARGS];
  int end;                                            /* operand that is reduced; -1: none */
  struct reduce_words reduces;                        /* words of its reduction */
  cu_function f;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* -- forms ------------------------------------------------------------------------------------- */

static bool is_number(const struct pw_loop *l, int k) { return l->numbers >> k & 1; }

static bool is_aligned(const void *p, int dtype)
{
  return (uintptr_t)p % (PW_PACK * dtype_size(dtype)) == 0;
}

/* Returns a form of one dim, if each operand is dense or a single element: packs if alignment
** allows, for few elements only together with others. */
static int dense_form(const struct pw_loop *l, void *const *operand, bool together)
{
  int form = PW_PACKED;
  for (int k = 0; k < l->n; k++) {
    if (is_number(l, k) || l->stride[k][0] == 0) continue;
    if (l->stride[k][0] != 1) return PW_NARROW;
    if (!is_aligned(operand[k], l->dtype[k])) form = PW_DENSE;
  }
  return l->count < 4 * BLOCK_THREADS && !together ? PW_DENSE : form;
}

static int64_t operand_reach(const struct pw_loop *l, int k)
{
  int64_t last = 0;
  for (int d = 0; d < l->ndim; d++) last += (l->dim[d] - 1) * l->stride[k][d];
  return last;
}

static int choose_form(const struct pw_loop *l, void *const *operand, bool together)
{
  int form = l->ndim == 1 ? dense_form(l, operand, together) : PW_NARROW;
  if (form >= PW_DENSE) return form;
  if (l->count > INT32_MAX / 2) return PW_GENERAL;
  for (int k = 0; k < l->n; k++)
    if (!is_number(l, k) && operand_reach(l, k) > INT32_MAX) return PW_GENERAL;
  return PW_NARROW;
}

static uint32_t single_operands(const struct pw_loop *l)
{
  uint32_t mask = 0;
  for (int k = 0; k < l->n; k++)
    if (!is_number(l, k) && l->stride[k][0] == 0) mask |= 1u << k;
  return mask;
}

/* -- variants ---------------------------------------------------------------------------------- */

/* Returns the bytes of one loop of n operands among the arguments of a launch. */
static size_t loop_bytes(int n) { return 8 * (size_t)(3 + n); }
static int count_loops(int n) { return (int)((ARGUMENTS - 8) / loop_bytes(n)); }

static struct variant variant_for(
    int device, const struct pw_loop *l, void *const *operand, bool together)
{
  struct variant v = { .device = device, .form = choose_form(l, operand, together), .n = l->n,
    .numbers = l->numbers, .end = -1 };
  if (v.form >= PW_DENSE) {
    v.single = single_operands(l);
    v.together = together ? count_loops(l->n) : 0;
  }
  else
    v.ndim = l->ndim;
  for (int k = 0; k < l->n; k++) v.dtype[k] = l->dtype[k];
  return v;
}

static bool same_variant(const struct variant *a, const struct variant *b)
{
  return a->device == b->device && a->form == b->form && a->ndim == b->ndim && a->n == b->n &&
      a->numbers == b->numbers && a->single == b->single && a->together == b->together &&
      !memcmp(a->dtype, b->dtype, sizeof *a->dtype * (size_t)a->n) && a->end == b->end &&
      (a->end < 0 || !strcmp(a->reduces.s, b->reduces.s));
}

static const struct variant *find_variant(struct variant *list, const struct variant *v)
{
  while (list && !same_variant(list, v)) list = list->next;
  return list;
}

static int compile_kernel(
    const struct pw_program *t, const struct variant *v, const struct pw_cuda *how, cu_function *f)
{
  static const char *const options[] = { "--std=c++17", "--fmad=false", NULL };
  struct text source = { 0 };
  int code = pw_cuda(t, how, "pointwise", &source);
  if (!code) code = cuda_compile(v->device, source.s, options, "pointwise", f);
  text_done(&source);
  return code;
}

static int compile_end(
    const struct pw_program *t, const struct variant *v, const struct pw_cuda *how, cu_function *f)
{
  struct text element = { 0 };
  text_add(&element, "#define POINTWISE\nnamespace pw {\n");
  pw_cuda_begin(t, &element);
  pw_cuda_element(t, how, "pointwise", v->end, &element);
  text_add(&element, "}\n");
  int code = element.lost ? fail(TY_EMEMORY, "out of memory: CUDA source")
      : cuda_family_compile(v->device, FAMILY_reduce, element.s, v->reduces.s, "reduce", f);
  text_done(&element);
  return code;
}

static int compile_variant(
    const struct pw_program *t, const struct variant *v, struct variant **out)
{
  struct pw_cuda how = { v->form, v->n, v->ndim, v->dtype, v->single, v->numbers, v->together };
  struct variant *made = NEW(struct variant);
  NEED(made, TY_EMEMORY, "out of memory");
  *made = *v;
  int code = v->end < 0 ? compile_kernel(t, v, &how, &made->f) : compile_end(t, v, &how, &made->f);
  if (code) return mem_free(made), code;
  *out = made;
  return TY_OK;
}

static int get_variant(const struct pw_program *t, const struct variant *v,
    const struct variant **out)
{
  struct variant **head = (struct variant **)pw_made(t), *made = NULL;
  *out = find_variant(__atomic_load_n(head, __ATOMIC_ACQUIRE), v);
  if (*out) return TY_OK;
  pthread_mutex_lock(&lock);
  *out = find_variant(*head, v);
  int code = *out ? TY_OK : compile_variant(t, v, &made);
  if (!*out && !code) {
    made->next = *head;
    __atomic_store_n(head, made, __ATOMIC_RELEASE);
    *out = made;
  }
  pthread_mutex_unlock(&lock);
  return code;
}

static void forget_variants(void *made)
{
  for (struct variant *v = made, *next; v; v = next) {
    next = v->next;
    mem_free(v);
  }
}

/* -- launching --------------------------------------------------------------------------------- */

struct writer { char *at; };

static void put_bytes(struct writer *w, const void *p, size_t n)
{
  memcpy(w->at, p, n);
  w->at += n;
}

static void put_index(struct writer *w, bool wide, int64_t v)
{
  int32_t narrow = (int32_t)v;
  if (wide)
    put_bytes(w, &v, sizeof v);
  else
    put_bytes(w, &narrow, sizeof narrow);
}

/* Fills the struct that cuda_source.c describes. */
static void put_arguments(
    struct writer *w, const struct variant *v, const struct pw_loop *l, void *const *operand)
{
  char *begin = w->at;
  put_bytes(w, &l->count, sizeof l->count);
  bool wide = v->form == PW_GENERAL;
  for (int d = 0; d < v->ndim; d++) put_index(w, wide, l->dim[d]);
  for (int k = 0; k < l->n; k++)
    for (int d = 0; d < v->ndim; d++) put_index(w, wide, is_number(l, k) ? 0 : l->stride[k][d]);
  w->at = begin + align_up((size_t)(w->at - begin), 8);
  for (int k = 0; k < l->n; k++) {
    uint64_t value = (uint64_t)(uintptr_t)operand[k];
    if (is_number(l, k)) memcpy(&value, operand[k], sizeof value);
    put_bytes(w, &value, sizeof value);
  }
}

static int64_t count_blocks(const struct variant *v, const struct pw_loop *l)
{
  int64_t threads = v->form == PW_PACKED ? l->count / PW_PACK : l->count;
  int64_t most = (int64_t)cuda_device(v->device)->processors * WAVES;
  return MAX(MIN((threads + BLOCK_THREADS - 1) / BLOCK_THREADS, most), 1);
}

/* The loops of this thread that wait for a common launch; all are of one variant. */
static __thread struct {
  bool open;
  const struct variant *v;
  int64_t n, blocks;
  struct writer w;
  _Alignas(8) char arguments[ARGUMENTS];
} batch;

static int launch_batch(void)
{
  const struct variant *v = batch.v;
  batch.v = NULL;
  if (!v) return TY_OK;
  void *params[] = { batch.arguments };
  memcpy(batch.arguments, &batch.n, sizeof batch.n);
  return cuda_launch(v->device, v->f, batch.blocks, BLOCK_THREADS, 0, params);
}

static int add_loop(const struct variant *v, const struct pw_loop *l, void *const *operand)
{
  if (batch.v && (batch.v != v || batch.n == v->together)) TRY(launch_batch());
  if (!batch.v) {
    batch.v = v;
    batch.n = batch.blocks = 0;
    batch.w.at = batch.arguments + 8;
  }
  int64_t blocks = count_blocks(v, l);
  put_arguments(&batch.w, v, l, operand);
  put_bytes(&batch.w, &batch.blocks, sizeof batch.blocks);
  put_bytes(&batch.w, &blocks, sizeof blocks);
  batch.blocks += blocks;
  batch.n++;
  return TY_OK;
}

static int group_loops(int device, bool begin)
{
  batch.open = begin;
  return launch_batch();
}

static int run_loop(
    int device, const struct pw_program *t, const struct pw_loop *l, void *const *operand)
{
  _Alignas(8) char arguments[ONE_LOOP];
  struct writer w = { arguments };
  void *params[] = { arguments };
  struct variant v = variant_for(device, l, operand, batch.open);
  const struct variant *made;
  TRY(get_variant(t, &v, &made));
  if (made->together) return add_loop(made, l, operand);
  put_arguments(&w, &v, l, operand);
  return cuda_launch(device, made->f, count_blocks(made, l), BLOCK_THREADS, 0, params);
}

/* -- reductions at the end --------------------------------------------------------------------- */

static size_t end_scratch(const struct pw_end *end) { return cuda_reduce_scratch(&end->over); }

static int run_end(int device, const struct pw_program *t, const struct pw_loop *l,
    void *const *operand, const struct pw_end *end, void *tmp)
{
  _Alignas(8) char arguments[ONE_LOOP];
  struct writer w = { arguments };
  struct variant v = variant_for(device, l, operand, false);
  const struct cuda_reduce f = { end->kind, end->finish, end->dtype, .y = operand[end->operand] };
  const struct variant *made;
  v.form = MIN(v.form, PW_DENSE);
  v.end = end->operand;
  v.reduces = cuda_reduce_words(&end->over, &f);
  TRY(get_variant(t, &v, &made));
  put_arguments(&w, &v, l, operand);
  return cuda_reduce_launch(device, made->f, &end->over, &f, arguments, tmp);
}

static const struct pw_device gpu = {
  run_loop, group_loops, end_scratch, run_end, cuda_sum_to, forget_variants
};

void cuda_pointwise_register(void) { pw_register(TY_GPU, &gpu); }
