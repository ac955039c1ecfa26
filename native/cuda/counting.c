/* counting.c - _histogram, getnnz, allclose (kernels/counts.cu). */
#include "cuda/family.h"
#include "kernel/strided_copy.h"
#include "op/registry.h"

static int counts_family(const struct call *c, const ty_desc *d, const char *name, cu_function *f)
{
  return cuda_family(c->device, FAMILY_counts, name, f, "T=%s TEAM=256", cuda_type(d->dtype));
}

/* -- histograms -------------------------------------------------------------------------------- */

static size_t histogram_scratch(const struct call *c)
{
  return sizeof(double) * (size_t)desc_count(&c->out[1].d);
}

static int histogram_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t bins = desc_count(&c->out[0].d), n = desc_count(d);
  void *none = NULL, **given = c->nin > 1 ? &c->in[1].p : &none;
  double low = 0, high = 0;
  cu_function edges, count;
  if (c->nin < 2) {
    const struct reals *range = op_reals(c->op, c->param, "range");
    low = range->d[0];
    high = range->d[1];
  }
  TRY(counts_family(c, d, "make_edges", &edges));
  void *first[] = { &c->out[1].p, &c->tmp, given, &bins, &low, &high };
  TRY(cuda_run(c, edges, bins + 1, first));
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_zero(c, &c->out[0]));
  TRY(counts_family(c, d, "histogram", &count));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->tmp, &n, &bins };
  return cuda_run(c, count, n, params);
}

/* -- what is not zero -------------------------------------------------------------------------- */

static int stored_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  double axis = cuda_number(c, "axis", -1);
  bool columns = axis == 0, whole = desc_count(&c->out[0].d) == 1 && axis < 0;
  int64_t rows = whole ? 1 : d->dim[columns ? 1 : 0], k = desc_count(d) / rows;
  int64_t row = columns ? 1 : k, step = columns ? d->dim[1] : 1;
  cu_function f;
  TRY(counts_family(c, d, "count_stored", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &rows, &k, &row, &step };
  return cuda_run(c, f, rows * CUDA_BLOCK, params);
}

/* -- two arrays -------------------------------------------------------------------------------- */

struct close_args { int64_t n; double rtol, atol; int64_t equal_nan; };
static int close_run(struct call *c)
{
  struct close_args s = { desc_count(&c->in[0].d), cuda_number(c, "rtol", 0),
    cuda_number(c, "atol", 0), cuda_flag(c, "equal_nan") };
  cu_function f;
  TRY(counts_family(c, &c->in[0].d, "all_close", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &s };
  return cuda_run(c, f, CUDA_BLOCK, params);
}

static const struct kernel histograms[] = {
  { "count", histogram_run, T_ANY, .scratch = histogram_scratch }, { 0 }
};
static const struct kernel stored[] = { { "count", stored_run, T_ANY }, { 0 } };
static const struct kernel closes[] = { { "look", close_run, T_ANY }, { 0 } };

const struct op_kernels cuda_counting[] = {
  { "_histogram", histograms, NULL },
  { "_contrib_getnnz", stored, NULL },
  { "_contrib_allclose", closes, NULL },
  { 0 }
};
