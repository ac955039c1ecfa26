/* sorting.c - sort, argsort, topk (kernels/sort.cu). */
#include "cuda/family.h"
#include "kernel/vec/vec.h"

enum { RUN = 32 };                                    /* as in kernels/sort.cu */
enum { KEY = 16 };                                    /* bytes of a key */

/* (outer, n, inner) around the axis, of which the first k of each line are asked for */
struct sorted_lines { int64_t lines, n, inner, k; };

static struct sorted_lines lines_of(const struct call *c, const ty_desc *d)
{
  double axis = cuda_number(c, "axis", -1);
  struct sorted_lines l = { 1, desc_count(d), 1, (int64_t)cuda_number(c, "k", 0) };
  if (axis >= -TY_MAXDIM) {
    struct split s = split_at(d, axis_in(axis, d->ndim));
    l = (struct sorted_lines){ s.outer * s.inner, s.k, s.inner, l.k };
  }
  if (l.k < 1) l.k = l.n;
  return l;
}

size_t cuda_keys_bytes(int64_t n) { return align_up((size_t)n * KEY, ALIGN); }
static size_t keys_scratch(const struct call *c)
{
  return 2 * cuda_keys_bytes(desc_count(&c->in[0].d));
}

static int sort_family(const struct call *c, const char *name, int dtype, int index, cu_function *f)
{
  bool down = !cuda_number(c, "is_ascend", 1);
  return cuda_family(c->device, FAMILY_sort, name, f, "T=%s POSITION=%s DOWN=%d", cuda_type(dtype),
      cuda_type(index), down);
}

int cuda_sort_keys(const struct call *c, void **keys, void *space, int64_t count, int64_t n)
{
  void *from = *keys, *to = space, *swap;
  cu_function runs, merge;
  TRY(cuda_family(c->device, FAMILY_sort, "sort_runs", &runs, "T=float"));
  TRY(cuda_family(c->device, FAMILY_sort, "merge_runs", &merge, "T=float"));
  void *first[] = { &to, &from, &count, &n };
  TRY(cuda_run(c, runs, count, first));
  for (int64_t width = RUN; width < n; width *= 2) {
    swap = from, from = to, to = swap;
    void *params[] = { &to, &from, &count, &n, &width };
    TRY(cuda_run(c, merge, count, params));
  }
  *keys = to;
  return TY_OK;
}

/* *sorted: the keys of all lines, in order */
static int sort_keys(const struct call *c, const struct sorted_lines *l, void **sorted)
{
  int64_t count = l->lines * l->n;
  cu_function read;
  *sorted = c->tmp;
  TRY(sort_family(c, "read_keys", c->in[0].d.dtype, TY_I32, &read));
  void *source[] = { sorted, &c->in[0].p, &count, (void *)&l->n, (void *)&l->inner };
  TRY(cuda_run(c, read, count, source));
  return cuda_sort_keys(c, sorted, (char *)c->tmp + cuda_keys_bytes(count), count, l->n);
}

static int order_lines(
    struct call *c, struct operand *value, struct operand *index, struct operand *mask)
{
  struct sorted_lines l = lines_of(c, &c->in[0].d);
  int64_t count = l.lines * l.k;
  void *sorted, *v = value ? value->p : NULL, *i = index ? index->p : NULL;
  void *m = mask ? mask->p : NULL;
  cu_function f;
  if (!v && !i && !m) return TY_OK;
  TRY(sort_keys(c, &l, &sorted));
  if (mask) TRY(cuda_zero(c, mask));
  TRY(sort_family(c, "write_order", c->in[0].d.dtype, index ? index->d.dtype : TY_I32, &f));
  void *params[] = { &v, &i, &m, &c->in[0].p, &sorted, &count, &l.n, &l.k, &l.inner };
  return cuda_run(c, f, count, params);
}

static int run_sort(struct call *c) { return order_lines(c, &c->out[0], &c->out[1], NULL); }
static int run_argsort(struct call *c) { return order_lines(c, NULL, &c->out[0], NULL); }
static int run_topk(struct call *c)
{
  bool both = cuda_word(c, "ret_typ", "both"), values = both || cuda_word(c, "ret_typ", "value");
  if (cuda_word(c, "ret_typ", "mask")) return order_lines(c, NULL, NULL, &c->out[0]);
  return values ? order_lines(c, &c->out[0], &c->out[1], NULL)
                : order_lines(c, NULL, &c->out[0], NULL);
}

/* in: head gradient, and where its elements come from, but for what has no gradient */
static int sort_backward(struct call *c)
{
  struct operand *dx = &c->out[0];
  struct sorted_lines l = lines_of(c, &dx->d);
  int64_t count = l.lines * l.k;
  cu_function f;
  TRY(cuda_zero(c, dx));
  if (!dx->p || c->nin < 2) return TY_OK;
  TRY(sort_family(c, "put_back", dx->d.dtype, c->in[1].d.dtype, &f));
  void *params[] = { &dx->p, &c->in[0].p, &c->in[1].p, &count, &l.n, &l.k, &l.inner };
  return cuda_run(c, f, count, params);
}

#define KEYS(table, run) \
  static const struct kernel table[] = { { "merge", run, T_ANY, .scratch = keys_scratch }, { 0 } };
KEYS(sorts, run_sort)
KEYS(argsorts, run_argsort)
KEYS(topks, run_topk)
static const struct kernel sorts_back[] = { { "scatter", sort_backward, T_ANY }, { 0 } };

const struct op_kernels cuda_sorting[] = {
  { "sort", sorts, sorts_back },
  { "argsort", argsorts, NULL },
  { "topk", topks, sorts_back },
  { 0 }
};
