/* levels.c - quantization to 8-bit integers and back (kernels/levels.cu): _contrib_quantize,
** _contrib_quantize_v2, _contrib_quantize_asym, _contrib_requantize, _contrib_dequantize,
** _contrib_quantized_act and _contrib_quantized_flatten; _contrib_calibrate_entropy
** (kernels/entropy.cu). */
#include "cuda/levels.h"
#include "cuda/row.h"

enum { T_ALL = T_FLOAT | T_INT };

/* Returns the level of a range's end (levels_of of operators/quantized/quantize.h). */
static double get_largest_level(int dtype)
{
  return dtype == TY_U8 ? 255 : dtype == TY_I8 ? 127 : 2147483647;
}

int cuda_start_levels(const struct call *c, const char *name, int data, int result, double levels,
    int64_t n, void **params)
{
  /* Not a row, since the words contain floats that depend on the dtypes. */
  const double most = get_largest_level(result);
  return cuda_start_words(c, FAMILY_levels, name, n, params,
      "T=%s Q=%s LEAST=%.1f MOST=%.1f LEVELS=%.1f TEAM=%d", cuda_type(data), cuda_type(result),
      result == TY_U8 ? 0.0 : -most, most, levels, CUDA_BLOCK);
}

/* The range of data: parameters, or computed in device memory by kernel "find_range". */
struct level_range {
  double least, most;
  bool given;
  void *found;                                        /* two doubles in scratch; NULL: not needed */
};

/* Computes output 0 from input 0, then the range. levels: see cuda_start_levels. */
static int quantize_data(const struct call *c, struct level_range s, double levels)
{
  const ty_desc *x = &c->in[0].d;
  int64_t n = desc_count(x);
  void *none = NULL, **low = c->nin > 1 ? &c->in[1].p : &none;
  void **high = c->nin > 1 ? &c->in[2].p : &none;
  int32_t given = s.given;
  const int result = c->out[0].d.dtype;
  if (s.found)
    TRY(cuda_start_levels(c, "find_range", x->dtype, result, levels, CUDA_BLOCK,
        (void *[]){ &s.found, &c->in[0].p, low, high, &n }));
  return cuda_start_levels(c, "quantize", x->dtype, result, levels, n,
      (void *[]){ &c->out[0].p, &c->out[1].p, &c->out[2].p, &c->in[0].p, low, high, &s.found,
        &given, &s.least, &s.most, &n });
}

static int quantize_run(struct call *c) { return quantize_data(c, (struct level_range){ 0 }, 0); }

/* Returns the range in the parameters; if there is none, that of the data. */
static struct level_range calibrated_range(const struct call *c)
{
  struct level_range s = { cuda_number(c, "min_calib_range", NAN),
    cuda_number(c, "max_calib_range", NAN) };
  s.given = !isnan(s.least);
  s.found = s.given ? NULL : c->tmp;
  return s;
}

static size_t range_scratch(const struct call *c) { return 2 * sizeof(double); }

static int quantize_asym_run(struct call *c)
{
  int64_t n = desc_count(&c->in[0].d);
  struct level_range s = calibrated_range(c);
  void *none = NULL;
  if (s.found)
    TRY(cuda_start_levels(c, "find_range", TY_F32, TY_U8, 0, CUDA_BLOCK,
        (void *[]){ &s.found, &c->in[0].p, &none, &none, &n }));
  return cuda_start_levels(c, "quantize_shifted", TY_F32, TY_U8, 0, n,
      (void *[]){ &c->out[0].p, &c->out[1].p, &c->out[2].p, &c->in[0].p, &s.found, &s.least,
        &s.most, &n });
}

static int requantize_run(struct call *c)
{
  return quantize_data(c, calibrated_range(c), get_largest_level(TY_I32));
}

static int quantize_v2_run(struct call *c)
{
  int from = c->in[0].d.dtype;
  struct level_range s = calibrated_range(c);
  if (!cuda_level(from)) return quantize_data(c, s, 0);
  NEED(from == c->out[0].d.dtype, TY_ERUN, "data is %s already", dtype_name(from));
  if (c->out[0].p)
    TRY(device_copy(c->device, c->out[0].p, c->device, c->in[0].p, desc_bytes(&c->in[0].d)));
  if (!s.given) s.least = s.most = 0;
  return cuda_start_levels(c, "put_range", from, from, 0, 1,
      (void *[]){ &c->out[1].p, &c->out[2].p, &s.least, &s.most });
}

static int dequantize_run(struct call *c)
{
  int from = c->in[0].d.dtype;
  int64_t n = desc_count(&c->in[0].d);
  if (!c->out[0].p) return TY_OK;
  const double levels = from == TY_I8 ? 127.5 : get_largest_level(from);
  return cuda_start_levels(c, "dequantize", from, TY_I8, levels, n,
      (void *[]){ &c->out[0].p, &c->in[0].p, &c->in[1].p, &c->in[2].p, &n });
}

int cuda_keep_range(const struct call *c, int k)
{
  for (int i = 0; i < 2; i++)
    if (c->out[i + 1].p)
      TRY(device_copy(c->device, c->out[i + 1].p, c->device, c->in[k + i].p, sizeof(float)));
  return TY_OK;
}

const char *cuda_refuse_numbers(const struct call *c)
{
  return cuda_level(c->in[0].d.dtype) ? NULL : "data is neither uint8 nor int8";
}

static int flat_run(struct call *c)
{
  if (c->out[0].p)
    TRY(device_copy(c->device, c->out[0].p, c->device, c->in[0].p, desc_bytes(&c->in[0].d)));
  return cuda_keep_range(c, 1);
}

static int act_run(struct call *c)
{
  int64_t n = desc_count(&c->in[0].d);
  if (c->out[0].p)
    TRY(cuda_start_levels(c, "rectify", c->in[0].d.dtype, c->out[0].d.dtype, 0, n,
        (void *[]){ &c->out[0].p, &c->in[0].p, &n }));
  return cuda_keep_range(c, 1);
}

/* -- where to cut off a histogram -------------------------------------------------------------- */

static int64_t count_cuts(int64_t bins, int64_t levels) { return bins / 2 - levels / 2 + 1; }

static int calibrate_range(struct call *c)
{
  const struct operand *hist = &c->in[0], *edge = &c->in[1];
  int64_t n = desc_count(&hist->d), levels = (int64_t)cuda_number(c, "num_quantized_bins", 1);
  int64_t cuts = count_cuts(n, levels);
  char *at = c->tmp;
  void *bin = cuda_piece(&at, (size_t)n * sizeof(double)), *loss = at;
  const char *words = "T=$i1 TEAM=256";
  TRY(cuda_convert(c->device, bin, TY_F64, hist->p, hist->d.dtype, n));
  TRY(cuda_start(c, FAMILY_entropy, "cut_losses", words, cuts,
      (void *[]){ &loss, &bin, &n, &levels, &cuts }));
  return cuda_start(c, FAMILY_entropy, "choose_cut", words, CUDA_BLOCK,
      (void *[]){ &c->out[0].p, &c->out[1].p, &loss, (void *)&edge->p, &n, &levels, &cuts });
}

static size_t calibrate_scratch(const struct call *c)
{
  int64_t n = desc_count(&c->in[0].d), levels = (int64_t)cuda_number(c, "num_quantized_bins", 1);
  return align_up((size_t)n * sizeof(double), ALIGN) +
      (size_t)count_cuts(n, levels) * sizeof(double);
}

#define KERNELS(name, run, types, scratch) \
  static const struct kernel name[] = { { "levels", run, types, NULL, scratch }, { 0 } };
KERNELS(quantizes, quantize_run, T_ALL, NULL)
KERNELS(quantizes_v2, quantize_v2_run, T_ALL, range_scratch)
KERNELS(quantizes_asym, quantize_asym_run, T_ALL, range_scratch)
KERNELS(requantizes, requantize_run, T_ALL, range_scratch)
KERNELS(dequantizes, dequantize_run, T_ALL, NULL)
KERNELS(calibrates, calibrate_range, T_ALL, calibrate_scratch)

/* Dtypes of data and results; the ends of ranges are float32. */
enum { T_LEVELS = T(TY_I8) | T(TY_U8) | T(TY_F32) };
static const struct kernel flattens[] = {
  { "levels", flat_run, T_LEVELS, cuda_refuse_numbers }, { 0 }
};
static const struct kernel acts[] = {
  { "levels", act_run, T_LEVELS, cuda_refuse_numbers }, { 0 }
};

const struct op_kernels cuda_levels[] = {
  { "_contrib_quantize", quantizes, NULL },
  { "_contrib_quantize_v2", quantizes_v2, NULL },
  { "_contrib_quantize_asym", quantizes_asym, NULL },
  { "_contrib_requantize", requantizes, NULL },
  { "_contrib_dequantize", dequantizes, NULL },
  { "_contrib_calibrate_entropy", calibrates, NULL },
  { "_contrib_quantized_flatten", flattens, NULL },
  { "_contrib_quantized_act", acts, NULL },
  { 0 }
};
