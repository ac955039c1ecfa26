/* counting.c - _histogram, getnnz, allclose (kernels/counts.cu). */
#include "cuda/row.h"
#include "kernel/strided_copy.h"
#include "op/registry.h"

#define WORDS "T=$i0 TEAM=256"

/* -- histograms -------------------------------------------------------------------------------- */

static size_t histogram_scratch(const struct call *c)
{
  return sizeof(double) * (size_t)desc_count(&c->out[1].d);
}

static int histogram_run(struct call *c)
{
  int64_t bins = desc_count(&c->out[0].d), n = desc_count(&c->in[0].d);
  void *none = NULL, **given = c->nin > 1 ? &c->in[1].p : &none;
  double low = 0, high = 0;
  if (c->nin < 2) {
    const struct reals *range = op_reals(c->op, c->param, "range");
    low = range->d[0];
    high = range->d[1];
  }
  TRY(cuda_start(c, FAMILY_counts, "make_edges", WORDS, bins + 1,
      (void *[]){ &c->out[1].p, &c->tmp, given, &bins, &low, &high }));
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_zero(c, &c->out[0]));
  return cuda_start(c, FAMILY_counts, "histogram", WORDS, n,
      (void *[]){ &c->out[0].p, &c->in[0].p, &c->tmp, &n, &bins });
}

/* -- elements that are not zero ---------------------------------------------------------------- */

struct stored_args { int64_t rows, k, row, step; };
static int64_t stored_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->in[0].d;
  double axis = cuda_number(c, "axis", -1);
  bool columns = axis == 0, whole = desc_count(&c->out[0].d) == 1 && axis < 0;
  int64_t rows = whole ? 1 : d->dim[columns ? 1 : 0], k = desc_count(d) / rows;
  *(struct stored_args *)s =
      (struct stored_args){ rows, k, columns ? 1 : k, columns ? d->dim[1] : 1 };
  return rows * CUDA_BLOCK;
}

/* -- two arrays -------------------------------------------------------------------------------- */

struct close_args { int64_t n; double rtol, atol; int64_t equal_nan; };
static int64_t close_sizes(const struct call *c, void *s)
{
  *(struct close_args *)s = (struct close_args){ desc_count(&c->in[0].d),
    cuda_number(c, "rtol", 0), cuda_number(c, "atol", 0), cuda_flag(c, "equal_nan") };
  return CUDA_BLOCK;
}

static const struct kernel histograms[] = {
  { "count", histogram_run, T_ANY, .scratch = histogram_scratch }, { 0 }
};
static const struct kernel stored[] = {
  { "count", CUDA_ROW(FAMILY_counts, "count_stored", WORDS, "o0 i0 s0 s1 s2 s3", stored_sizes),
    .types = T_ANY }, { 0 }
};
static const struct kernel closes[] = {
  { "look", CUDA_ROW(FAMILY_counts, "all_close", WORDS, "o0 i0 i1 s", close_sizes),
    .types = T_ANY }, { 0 }
};

const struct op_kernels cuda_counting[] = {
  { "_histogram", histograms, NULL },
  { "_contrib_getnnz", stored, NULL },
  { "_contrib_allclose", closes, NULL },
  { 0 }
};
