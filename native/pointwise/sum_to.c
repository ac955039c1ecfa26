/* sum_to.c - sum_to: sums an array over the axes that the result lacks or has with size 1; the
** gradient of broadcasting.
**
** Each joined dim is kept or summed. If the innermost is kept, BLOCK_ELEMENTS neighbouring outputs
** are summed together, row by row; if it is summed, each output is summed along rows. Sums are
** float64 or int64. If there are few outputs, the summed index space is split by shape alone and
** the parts are added in order, which gives equal bits on any number of threads.
*/
#include "pointwise/ir.h"

enum {
  PARTS   = 64,     /* most parts of the summed index space */
  PARTIAL = 8192,   /* most partial sums in all */
  MIN_PART = 1 << 15 /* least elements of a part or chunk */
};

union total { double d; int64_t i; };
struct axis { int64_t size, src, dst; };              /* strides in elements */
struct broadcast_sum {
  struct axis kept[TY_MAXDIM], summed[TY_MAXDIM];     /* outermost first */
  int nkept, nsummed;
  bool columns;                                       /* the innermost dim is kept, not in `kept` */
  int64_t width;                                      /* of that dim; 1 */
  int64_t outputs; /* groups of up to BLOCK_ELEMENTS columns, or elements */
  int64_t terms;                                      /* summed for each */
  int64_t parts;                                      /* of the terms */
  int64_t chunk;                                      /* terms of a part */
  const char *src;
  char *dst;
  int src_type, dst_type;
  bool whole;                                         /* integers */
  union total *partial;                               /* parts x outputs x group */
};

/* -- the plan ---------------------------------------------------------------------------------- */

static void add_axis(struct axis *list, int *n, struct axis a)
{
  struct axis *last = *n ? &list[*n - 1] : NULL;
  if (last && last->src == a.src * a.size && last->dst == a.dst * a.size) {
    last->size *= a.size;
    last->src = a.src;
    last->dst = a.dst;
  }
  else
    list[(*n)++] = a;
}

static int plan_axes(struct broadcast_sum *s, const ty_desc *dst, const ty_desc *src)
{
  int64_t from = 1, to = 1;
  struct axis all[TY_MAXDIM];
  bool is_summed[TY_MAXDIM];
  char a[160], b[160];
  for (int i = src->ndim - 1, k = dst->ndim - 1; i >= 0; i--, k--) {
    int64_t size = k >= 0 ? dst->dim[k] : 1;
    if (size != 1 && size != src->dim[i])
      return fail(TY_ESHAPE, "a sum of shape %s from %s is not possible",
          text_shape(dst, a, sizeof a), text_shape(src, b, sizeof b));
    is_summed[i] = size == 1 && src->dim[i] != 1;
    all[i] = (struct axis){ src->dim[i], from, is_summed[i] ? 0 : to };
    from *= src->dim[i];
    to *= size;
  }
  int last = -1;
  for (int i = 0; i < src->ndim; i++)
    if (all[i].size != 1) last = i;
  for (int i = 0; i <= last; i++)
    if (all[i].size != 1)
      add_axis(is_summed[i] ? s->summed : s->kept, is_summed[i] ? &s->nsummed : &s->nkept, all[i]);
  s->columns = last >= 0 && !is_summed[last];
  s->width = 1;
  if (s->columns) s->width = s->kept[--s->nkept].size;
  return TY_OK;
}

static void plan_parts(struct broadcast_sum *s)
{
  int64_t rows = 1;
  s->terms = 1;
  for (int i = 0; i < s->nkept; i++) rows *= s->kept[i].size;
  for (int i = 0; i < s->nsummed; i++) s->terms *= s->summed[i].size;
  s->outputs = rows * ((s->width - 1) / BLOCK_ELEMENTS + 1);
  int64_t group = MIN(s->width, BLOCK_ELEMENTS), work = s->terms * group;
  s->parts = MIN(
      MIN(PARTS / MIN(s->outputs, PARTS), PARTIAL / MAX(1, s->outputs * group)), work / MIN_PART);
  s->parts = MAX(1, MIN(s->parts, s->terms));
  s->chunk = (s->terms - 1) / s->parts + 1;
}

/* -- one output (or group of columns), one part ------------------------------------------------ */

/* Computes the offsets of output i. */
static void locate_output(const struct broadcast_sum *s, int64_t i, int64_t *src, int64_t *dst)
{
  *src = *dst = 0;
  for (int k = s->nkept - 1; k >= 0; k--) {
    int64_t at = i % s->kept[k].size;
    *src += at * s->kept[k].src;
    *dst += at * s->kept[k].dst;
    i /= s->kept[k].size;
  }
}

static int64_t summed_offset(const struct broadcast_sum *s, int64_t i)
{
  int64_t offset = 0;
  if (!i) return 0;
  for (int k = s->nsummed - 1; k >= 0; k--)
    offset += i % s->summed[k].size * s->summed[k].src, i /= s->summed[k].size;
  return offset;
}

/* Adds elements first .. last - 1 of the summed index space, n columns wide, from src to acc. */
static void sum_terms(const struct broadcast_sum *s, void *acc, const char *src, int64_t n,
    int64_t first, int64_t last)
{
  const struct pw_table *t = pw_table();
  size_t size = dtype_size(s->src_type);
  int64_t inner = s->nsummed ? s->summed[s->nsummed - 1].size : 1,
          step = s->nsummed ? s->summed[s->nsummed - 1].src : 0;
  for (int64_t i = first, run; i < last; i += run) {
    const char *p = src + (size_t)summed_offset(s, i) * size;
    run = MIN(last - i, inner - i % inner);
    if (s->columns)
      for (int64_t k = 0; k < run; k++)
        t->sum_add[s->src_type](acc, p + (size_t)(k * step) * size, 1, n);
    else
      t->sum_row[s->src_type](acc, p, step, run);
  }
}

static void store_sums(const struct broadcast_sum *s, int64_t dst, const void *acc, int64_t n)
{
  char *p = s->dst + (size_t)dst * dtype_size(s->dst_type);
  pw_store_elements(s->whole ? KIND_I64 : KIND_F64, s->dst_type, p, acc, 1, n);
}

struct output_columns { int64_t src, dst, n; };

static struct output_columns find_group(const struct broadcast_sum *s, int64_t output)
{
  struct output_columns g;
  int64_t across = (s->width - 1) / BLOCK_ELEMENTS + 1, block = output % across * BLOCK_ELEMENTS;
  locate_output(s, output / across, &g.src, &g.dst);
  g.src += block;
  g.dst += block;
  g.n = MIN(BLOCK_ELEMENTS, s->width - block);
  return g;
}

/* Computes single outputs begin .. end - 1. They are dense, so a block of sums is stored at
** once. */
static void run_rows(const struct broadcast_sum *s, int64_t begin, int64_t end)
{
  union total acc[BLOCK_ELEMENTS];
  size_t size = dtype_size(s->src_type);
  for (int64_t o = begin, n; o < end; o += n) {
    n = MIN(BLOCK_ELEMENTS, end - o);
    memset(acc, 0, sizeof *acc * (size_t)n);
    for (int64_t j = 0; j < n; j++) {
      int64_t src = s->nkept == 1 ? (o + j) * s->kept[0].src : find_group(s, o + j).src;
      sum_terms(s, &acc[j], s->src + (size_t)src * size, 1, 0, s->terms);
    }
    store_sums(s, o, acc, n);
  }
}

static void run_outputs(int64_t begin, int64_t end, void *context)
{
  const struct broadcast_sum *s = context;
  if (!s->columns) {
    run_rows(s, begin, end);
    return;
  }
  for (int64_t o = begin; o < end; o++) {
    union total acc[BLOCK_ELEMENTS]; /* zero bits are 0 in both types */
    struct output_columns g = find_group(s, o);
    memset(acc, 0, sizeof *acc * (size_t)g.n);
    sum_terms(s, acc, s->src + (size_t)g.src * dtype_size(s->src_type), g.n, 0, s->terms);
    store_sums(s, g.dst, acc, g.n);
  }
}

static void run_parts(int64_t begin, int64_t end, void *context)
{
  const struct broadcast_sum *s = context;
  int64_t wide = MIN(s->width, BLOCK_ELEMENTS);
  for (int64_t i = begin; i < end; i++) {
    int64_t output = i / s->parts, first = i % s->parts * s->chunk;
    struct output_columns g = find_group(s, output);
    sum_terms(s, s->partial + i * wide, s->src + (size_t)g.src * dtype_size(s->src_type), g.n,
        first, MIN(s->terms, first + s->chunk));
  }
}

static void add_parts(const struct broadcast_sum *s)
{
  int64_t wide = MIN(s->width, BLOCK_ELEMENTS);
  for (int64_t o = 0; o < s->outputs; o++) {
    struct output_columns g = find_group(s, o);
    for (int64_t p = 1; p < s->parts; p++)
      for (int64_t j = 0; j < g.n; j++) {
        if (s->whole)
          s->partial[o * s->parts * wide + j].i += s->partial[(o * s->parts + p) * wide + j].i;
        else
          s->partial[o * s->parts * wide + j].d += s->partial[(o * s->parts + p) * wide + j].d;
      }
    store_sums(s, g.dst, s->partial + o * s->parts * wide, g.n);
  }
}

int sum_to_cpu(void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d)
{
  struct broadcast_sum s = { .src = src,
    .dst = dst,
    .src_type = src_d->dtype,
    .dst_type = dst_d->dtype,
    .whole = !dtype_float(src_d->dtype) };
  TRY(plan_axes(&s, dst_d, src_d));
  plan_parts(&s);
  if (s.parts == 1) {
    parallel_chunks_stoppable(
        s.outputs, MAX(1, MIN_PART / (s.terms * MIN(s.width, BLOCK_ELEMENTS))), run_outputs, &s);
    return TY_OK;
  }
  union total partial[PARTIAL];
  int64_t n = s.outputs * s.parts * MIN(s.width, BLOCK_ELEMENTS);
  memset(partial, 0, sizeof *partial * (size_t)n);
  s.partial = partial;
  parallel_chunks_stoppable(s.outputs * s.parts, 1, run_parts, &s);
  add_parts(&s);
  return TY_OK;
}
