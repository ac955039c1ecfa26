/* quantized.c - arithmetic on 8-bit integers and their ranges (kernels/quantized.cu):
** _contrib_quantized_*. pooling.c has their pooling, levels.c operators that only change levels. */
#include "cuda/levels.h"
#include "cuda/row.h"
#include "cuda/window.h"
#include "kernel/vec/vec.h"

/* Launches n threads of a kernel. Not a row, since the type of sums depends on the number of
** terms. */
static int start_products(
    const struct call *c, const char *name, int64_t terms, int64_t n, void **params)
{
  enum { MOST_PRODUCT = 255 * 127 };
  return cuda_start_words(c, FAMILY_quantized, name, n, params, "T=$i0 B=$i1 Y=$o0 SUM=%s TEAM=32",
      terms <= INT32_MAX / MOST_PRODUCT ? "i32" : "i64");
}

/* Returns the elements of the result; 0: it is unused. */
static int64_t count_written(const struct call *c)
{
  return c->out[0].p ? desc_count(&c->out[0].d) : 0;
}

/* -- layers ------------------------------------------------------------------------------------ */

/* Same as in kernels/quantized.cu. */
struct layer8_args { const void *x, *weight, *bias, *low[3], *high[3]; };

static struct layer8_args make_layer_args(const struct call *c)
{
  const struct operand *in = c->in;
  int n = c->nin / 3;
  struct layer8_args a = { in[0].p, in[1].p, n > 2 ? in[2].p : NULL };
  for (int i = 0; i < n; i++) {
    a.low[i] = in[n + 2 * i].p;
    a.high[i] = in[n + 2 * i + 1].p;
  }
  return a;
}

static int fully_connect(struct call *c)
{
  struct layer8_args a = make_layer_args(c);
  int64_t n = c->in[1].d.dim[0], k = c->in[1].d.dim[1], m = count_written(c) / n;
  return start_products(c, "fully_connect", k, m * n * 32,
      (void *[]){ &c->out[0].p, &c->out[1].p, &c->out[2].p, &a, &m, &n, &k });
}

static int convolve_quantized(struct call *c)
{
  struct layer8_args a = make_layer_args(c);
  const ty_desc *weight = &c->in[1].d;
  struct cuda_window s = cuda_make_window(c, &c->in[0].d, count_written(c));
  int64_t groups = (int64_t)cuda_number(c, "num_group", 1), channels = weight->dim[1];
  int64_t filters = weight->dim[0] / groups;
  return start_products(c, "convolve", desc_count(weight) / weight->dim[0], s.n,
      (void *[]){ &c->out[0].p, &c->out[1].p, &c->out[2].p, &a, &s, &groups, &filters,
        &channels });
}

static const char *refuse_last(const struct call *c)
{
  if (cuda_word(c, "layout", "NHWC") || cuda_word(c, "layout", "NDHWC")) return "channels last";
  return cuda_refuse_numbers(c);
}

/* -- elements ---------------------------------------------------------------------------------- */

enum { SUM, PRODUCT };

/* Same as in kernels/quantized.cu. */
struct pair8_args {
  const void *a, *b, *low[2], *high[2];
  double least, most;
  int64_t n, product;
};

static int64_t pair_sizes(const struct call *c, void *s)
{
  const struct operand *in = c->in;
  int64_t n = count_written(c);
  *(struct pair8_args *)s = (struct pair8_args){ in[0].p, in[1].p, { in[2].p, in[4].p },
    { in[3].p, in[5].p }, cuda_number(c, "min_calib_range", NAN),
    cuda_number(c, "max_calib_range", NAN), n, cuda_what(c) == PRODUCT };
  return n;
}

static const char *refuse_pair(const struct call *c)
{
  return cuda_level(c->in[0].d.dtype) && cuda_level(c->in[1].d.dtype)
      ? NULL
      : "the inputs are neither uint8 nor int8";
}

/* Same as in kernels/quantized.cu. */
struct norm8_args {
  const void *x, *gamma, *beta, *mean, *variance, *low, *high;
  double eps, least, most;
  int64_t n, channels, inner;
};

static int64_t norm_sizes(const struct call *c, void *s)
{
  const struct operand *in = c->in;
  const ty_desc *d = &in[0].d;
  struct split at = split_at(d, axis_in((int64_t)cuda_number(c, "axis", 1), d->ndim));
  int64_t n = count_written(c);
  *(struct norm8_args *)s = (struct norm8_args){ in[0].p,
    cuda_flag(c, "fix_gamma") ? NULL : in[1].p, in[2].p, in[3].p, in[4].p, in[5].p, in[6].p,
    cuda_number(c, "eps", 0), cuda_number(c, "min_calib_range", NAN),
    cuda_number(c, "max_calib_range", NAN), n, at.k, at.inner };
  return n;
}

/* -- concatenation ----------------------------------------------------------------------------- */

/* Joins arrays; in: arrays, then the two ends of each one's range. */
static int join_levels(struct call *c)
{
  const struct operand *in = c->in, *y = &c->out[0];
  int arrays = c->nin / 3;
  struct split s =
      split_at(&y->d, axis_in((int64_t)cuda_number(c, "dim", 1), y->d.ndim));
  int64_t whole = s.k * s.inner, at = 0;
  void *range = c->tmp;
  const char *words = "T=$i0 B=$o0 Y=$o0 SUM=i32 TEAM=32";
  for (int i = 0; i < arrays; i++) {
    const struct operand *ends = &in[arrays + 2 * i];
    int32_t first = !i;
    TRY(cuda_start(c, FAMILY_quantized, "widen", words, 1,
        (void *[]){ &range, (void *)&ends[0].p, (void *)&ends[1].p, &first }));
  }
  TRY(cuda_start(c, FAMILY_quantized, "give_range", words, 1,
      (void *[]){ &c->out[1].p, &c->out[2].p, &range }));
  for (int i = 0; y->p && i < arrays; i++) {
    const struct operand *ends = &in[arrays + 2 * i];
    int64_t n = desc_count(&in[i].d), run = n / s.outer;
    TRY(cuda_start(c, FAMILY_quantized, "join", words, n,
        (void *[]){ (void *)&y->p, (void *)&in[i].p, (void *)&ends[0].p, (void *)&ends[1].p,
          &range, &n, &run, &whole, &at }));
    at += run;
  }
  return TY_OK;
}

static size_t range_scratch(const struct call *c) { return 2 * sizeof(double); }

/* -- rows of a table --------------------------------------------------------------------------- */

static int take_rows(struct call *c)
{
  const ty_desc *table = &c->in[1].d;
  int64_t count = desc_count(&c->in[0].d), k = table->dim[0], row = table->dim[1], n = count * row;
  TRY(cuda_keep_range(c, 2));
  if (!c->out[0].p) return TY_OK;
  return cuda_start(c, FAMILY_rows, "take_rows", "UNIT=u8 I=$i0 INDEX=^o0", n,
      (void *[]){ &c->out[0].p, &c->in[1].p, &c->in[0].p, &n, &count, &k, &row });
}

#define KERNELS(name, run, refuse, scratch) \
  static const struct kernel name[] = { \
    { "levels", run, T_FLOAT | T_INT, refuse, scratch }, { 0 } };
KERNELS(connects, fully_connect, cuda_refuse_numbers, NULL)
KERNELS(convolves, convolve_quantized, refuse_last, NULL)
KERNELS(joins, join_levels, cuda_refuse_numbers, range_scratch)
KERNELS(takes, take_rows, NULL, NULL)

/* Sums (of one product) are int32. */
#define ELEMENTS(table, kernel_, second, sizes, why) \
  static const struct kernel table[] = { \
    { "levels", CUDA_ROW(FAMILY_quantized, kernel_, "T=$i0 B=" second " Y=$o0 SUM=i32 TEAM=32", \
      "o0 o1 o2 s", sizes), .types = T_FLOAT | T_INT, .refuse = why }, { 0 } };
ELEMENTS(combines,   "combine",   "$i1", pair_sizes, refuse_pair)
ELEMENTS(normalizes, "normalize", "$i0", norm_sizes, cuda_refuse_numbers)

const struct op_kernels cuda_quantized[] = {
  { "_contrib_quantized_fully_connected", connects, NULL },
  { "_contrib_quantized_conv", convolves, NULL },
  { "_contrib_quantized_elemwise_add", combines, NULL, SUM },
  { "_contrib_quantized_elemwise_mul", combines, NULL, PRODUCT },
  { "_contrib_quantized_batch_norm", normalizes, NULL },
  { "_contrib_quantized_concat", joins, NULL },
  { "_contrib_quantized_embedding", takes, NULL },
  { 0 }
};
