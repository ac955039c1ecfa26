/* quantize.c - numbers to 8-bit integers and back: _contrib_quantize, _contrib_quantize_v2,
** _contrib_quantize_asym, _contrib_dequantize, _contrib_requantize, _contrib_calibrate_entropy.
**
** Ranges and levels: quantize.h. Rounding and the treatment of ranges around zero are the
** reference's: a uint8 represents what is not negative, and an int8 is read back as q R / 127.5.
*/
#include "kernel/element/entropy.h"
#include "op/op.h"
#include "operators/quantized/quantize.h"

struct quantize { int64_t out_type; double least, most; };
enum { AUTO, INT8, UINT8 };
static const struct param quantize_params[] = {
  { "out_type", P_ENUM, offsetof(struct quantize, out_type), "uint8", "integers of the result", "int8|uint8" }, { 0 } };
#define CALIBRATED(T) \
  { "min_calib_range", P_FLOAT, offsetof(struct T, least), "None", \
    "least number of the range; None: that of the data", NULL, NULL, 1 }, \
  { "max_calib_range", P_FLOAT, offsetof(struct T, most),  "None", \
    "largest number of the range; None: that of the data", NULL, NULL, 1 }
static const struct param calibrated_params[] = {
  { "out_type", P_ENUM, offsetof(struct quantize, out_type), "int8",
    "integers of the result; auto: uint8 where the range has nothing below 0", "auto|int8|uint8" }, CALIBRATED(quantize), { 0 } };
static const struct param shifted_params[] = { CALIBRATED(quantize), { 0 } };
static const struct param dequantize_params[] = {
  { "out_type", P_ENUM, offsetof(struct quantize, out_type), "float32", "numbers of the result", "float32" }, { 0 } };

/* -- inference --------------------------------------------------------------------------------- */

/* Infers ranges of one element, and that the result has the shape of the data. */
static int range_shape(struct infer *s)
{
  for (int i = 1; i < s->nin; i++) TRY(single_shape(s, &s->in[i]));
  for (int i = 1; i < s->nout; i++) TRY(single_shape(s, &s->out[i]));
  return shape_both(s, &s->in[0], &s->out[0]);
}

static int range_types(struct infer *s)
{
  for (int i = 1; i < s->nin; i++) TRY(type_is(s, &s->in[i], TY_F32));
  for (int i = 1; i < s->nout; i++) TRY(type_is(s, &s->out[i], TY_F32));
  return TY_OK;
}

static int quantize_type(struct infer *s)
{
  TRY(range_types(s));
  return type_is(s, &s->out[0], ((const struct quantize *)s->param)->out_type ? TY_U8 : TY_I8);
}

static int chosen_type(const struct quantize *p)
{
  bool positive = p->out_type == AUTO && p->least >= 0;
  return positive || p->out_type == UINT8 ? TY_U8 : TY_I8;
}
static int quantized_types(struct infer *s)
{
  TRY(range_types(s));
  return type_is(s, &s->out[0], chosen_type(s->param));
}
static int shifted_type(struct infer *s)
{
  TRY(range_types(s));
  TRY(type_is(s, &s->in[0], TY_F32));
  return type_is(s, &s->out[0], TY_U8);
}
static int from_int32(struct infer *s)
{
  TRY(type_is(s, &s->in[0], TY_I32));
  return quantized_types(s);
}
static int to_float(struct infer *s)
{
  TRY(range_types(s));
  return type_is(s, &s->out[0], TY_F32);
}

static int calibrated_check(void *param)
{
  const struct quantize *p = param;
  NEED(isnan(p->least) == isnan(p->most), TY_EVALUE,
      "min_calib_range and max_calib_range: give both or none");
  NEED(isnan(p->least) || p->least <= p->most, TY_EVALUE,
      "min_calib_range %g is above max_calib_range, %g", p->least, p->most);
  return TY_OK;
}

/* -- running ----------------------------------------------------------------------------------- */

struct rescaling { const struct operand *from, *to; double scale; };
static void rescale_elements(int64_t begin, int64_t end, void *context)
{
  const struct rescaling *s = context;
  for (int64_t i = begin; i < end; i++) put_level(s->to, i, real_of(s->from, i) * s->scale);
}

/* Writes the levels of input 0 times `unit` in the range (least, most) to output 0, and the range
** that they represent to outputs 1 and 2. */
static int rescale_to_range(struct call *c, double unit, double least, double most)
{
  struct operand *to = &c->out[0];
  double r = range_size(least, most);
  struct rescaling s = { &c->in[0], to, r > 0 ? unit * levels_of(to->d.dtype) / r : 0 };
  if (to->p) parallel_for(desc_count(&to->d), NS_CALL, rescale_elements, &s);
  if (to->d.dtype == TY_U8)
    put_range(c, 1, least, most);
  else
    put_range(c, 1, -r, r);
  return TY_OK;
}

static int quantize_run(struct call *c)
{
  return rescale_to_range(c, 1, real_of(&c->in[1], 0), real_of(&c->in[2], 0));
}

/* Finds the least and the largest number of x times `unit`; both 0 where all are NaN. */
static void find_ends(const struct operand *x, double unit, double *least, double *most)
{
  *least = INFINITY;
  *most = -INFINITY;
  for (int64_t i = 0; i < desc_count(&x->d); i++) {
    double v = real_of(x, i) * unit;
    if (v < *least) *least = v;
    if (v > *most) *most = v;
  }
  if (*least > *most) *least = *most = 0;
}

/* Quantizes input 0 times `unit` in the range of the parameters, or its own. */
static int quantize_calibrated(struct call *c, double unit)
{
  const struct quantize *p = c->param;
  double least = p->least, most = p->most;
  if (isnan(least)) find_ends(&c->in[0], unit, &least, &most);
  return rescale_to_range(c, unit, least, most);
}

static int quantize_v2_run(struct call *c)
{
  const struct quantize *p = c->param;
  if (!is_level(c->in[0].d.dtype)) return quantize_calibrated(c, 1);
  NEED(c->in[0].d.dtype == c->out[0].d.dtype, TY_ERUN, "data is %s already",
      dtype_name(c->in[0].d.dtype));
  if (c->out[0].p) memmove(c->out[0].p, c->in[0].p, desc_bytes(&c->in[0].d));
  put_range(c, 1, isnan(p->least) ? 0 : p->least, isnan(p->most) ? 0 : p->most);
  return TY_OK;
}

struct shifting { const float *from; uint8_t *to; float scale, shift; };
static void shift_elements(int64_t begin, int64_t end, void *context)
{
  const struct shifting *s = context;
  for (int64_t i = begin; i < end; i++)
    s->to[i] = (uint8_t)shifted_level(s->from[i], s->scale, s->shift);
}

static int quantize_asym_run(struct call *c)
{
  const struct quantize *p = c->param;
  double least = p->least, most = p->most;
  if (isnan(least)) find_ends(&c->in[0], 1, &least, &most);
  struct shifting s = { c->in[0].p, c->out[0].p, scale_of_range(least, most) };
  s.shift = shift_of_range(most, s.scale);
  if (s.to) parallel_for(desc_count(&c->in[0].d), NS_CALL, shift_elements, &s);
  put_range(c, 1, s.scale, s.shift);
  return TY_OK;
}

static int requantize_run(struct call *c)
{
  return quantize_calibrated(c, unit_of(TY_I32, range_magnitude(&c->in[1], &c->in[2])));
}

static int dequantize_run(struct call *c)
{
  double r = range_magnitude(&c->in[1], &c->in[2]),
         unit = c->in[0].d.dtype == TY_I8 ? r / 127.5 : unit_of(c->in[0].d.dtype, r);
  for (int64_t i = 0; i < desc_count(&c->in[0].d); i++)
    ((float *)c->out[0].p)[i] = (float)(real_of(&c->in[0], i) * unit);
  return TY_OK;
}

/* -- _contrib_calibrate_entropy: where to cut a histogram so that its levels lose least -------- */

struct calibrate { int64_t bins; };
static const struct param calibrate_params[] = {
  { "num_quantized_bins", P_INT, offsetof(struct calibrate, bins), "255", "levels", NULL, "[1,65536]" }, { 0 } };

static int calibrate_shape(struct infer *s)
{
  const ty_desc *h = &s->in[0];
  if (h->ndim > 1) return infer_fail(s, TY_ESHAPE, h, "expected one dimension, got %d", h->ndim);
  if (h->ndim && h->dim[0] && h->dim[0] < ((const struct calibrate *)s->param)->bins)
    return infer_fail(
        s, TY_ESHAPE, h, "%lld bins are fewer than num_quantized_bins", (long long)h->dim[0]);
  if (h->ndim && h->dim[0]) {
    int64_t n = h->dim[0] + 1;
    TRY(shape_is(s, &s->in[1], 1, &n));
  }
  TRY(single_shape(s, &s->out[0]));
  return single_shape(s, &s->out[1]);
}
static int calibrate_type(struct infer *s)
{
  TRY(type_is(s, &s->out[0], TY_F32));
  return type_is(s, &s->out[1], TY_F32);
}
static size_t calibrate_scratch(const struct call *c)
{
  return sizeof(double) * (size_t)desc_count(&c->in[0].d);
}

static int calibrate_run(struct call *c)
{
  int64_t n = desc_count(&c->in[0].d), levels = ((const struct calibrate *)c->param)->bins;
  double *bin = c->tmp, best = INFINITY, threshold = real_of(&c->in[1], n);
  for (int64_t i = 0; i < n; i++) bin[i] = real_of(&c->in[0], i);
  for (int64_t i = levels / 2; i <= n / 2; i++) {
    struct histogram_cut h = cut_at(bin, n, levels, i);
    double d = cut_divergence(&h);
    if (d < best) best = d, threshold = real_of(&c->in[1], h.start + h.n);
  }
  put_range(c, 0, threshold, best);
  return TY_OK;
}

/* -- rows -------------------------------------------------------------------------------------- */

#define CPU(run_, types_) .cpu = (const struct kernel[]){ { "levels", run_, types_ }, { 0 } }
#define PARAMS(list, T) .param = list, .param_size = sizeof(struct T)
enum { T_ALL = T_FLOAT | T_INT };

const struct op op_quantize[] = {
  { .name = "_contrib_quantize", .in = "data min_range max_range", .out = "output0 output1 output2",
    .doc = "data as 8-bit integers of the range (min_range, max_range), and the range that they represent.",
    PARAMS(quantize_params, quantize), .shape = range_shape, .type = quantize_type, CPU(quantize_run, T_ALL) },
  { .name = "_contrib_quantize_v2", .in = "data", .out = "output0 output1 output2",
    .doc = "data as 8-bit integers of a given range or its own, and the range that they represent; integers stay as they are.",
    PARAMS(calibrated_params, quantize), .check = calibrated_check, .shape = range_shape, .type = quantized_types,
    CPU(quantize_v2_run, T_ALL), .flags = OP_MAY_FAIL | OP_NAMED_INPUT },
  { .name = "_contrib_quantize_asym", .in = "data", .out = "output scale shift",
    .doc = "data as uint8, floor(data scale + shift + 0.5), where a given range or its own becomes 0 to 255; scale and shift.",
    PARAMS(shifted_params, quantize), .check = calibrated_check, .shape = range_shape, .type = shifted_type,
    CPU(quantize_asym_run, T_ALL), .flags = OP_NAMED_INPUT },
  { .name = "_contrib_dequantize", .in = "data min_range max_range",
    .doc = "8-bit integers as the numbers that they represent.",
    PARAMS(dequantize_params, quantize), .shape = range_shape, .type = to_float, CPU(dequantize_run, T_ALL) },
  { .name = "_contrib_requantize", .in = "data min_range max_range", .out = "output0 output1 output2",
    .doc = "32-bit integers of the range (min_range, max_range) as 8-bit ones of a given range or their own.",
    PARAMS(calibrated_params, quantize), .check = calibrated_check, .shape = range_shape, .type = from_int32, CPU(requantize_run, T_ALL) },
  { .name = "_contrib_calibrate_entropy", .in = "hist hist_edges", .out = "threshold divergence",
    .doc = "Where to cut off a histogram about zero so that num_quantized_bins levels diverge least from it, and by how much.",
    PARAMS(calibrate_params, calibrate), .shape = calibrate_shape, .type = calibrate_type,
    .cpu = (const struct kernel[]){ { "entropy", calibrate_run, T_ALL, NULL, calibrate_scratch }, { 0 } } },
  { 0 }
};
