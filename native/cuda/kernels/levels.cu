// levels.cu - converts numbers to 8-bit integers of a range and back (kernel/element/levels.h):
// quantize, quantize_v2, quantize_asym, requantize, dequantize, data and weights of quantized_rnn,
// and relu on such integers. Ranges are float32 arrays of one element and are read here, so that
// the host need not wait. Method: one thread per element; if the range is that of the data, one
// block finds it first. Bound: bytes, except for that block.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/levels.h"
#define T float       // data
#define Q i8          // integers of the result
#define LEAST -127.0  // the first and the last level of the result
#define MOST 127.0
#define LEVELS 127.0  // the level of the end of the data's range; 0: data are plain numbers
#define TEAM 256
#include "team.cuh"
#include "fault.cuh"
#endif

// Returns the real number that one level of the range (low, high) represents.
FN double unit_of(const float *low, const float *high)
{
  return LEVELS > 0 ? range_size(*low, *high) / LEVELS : 1;
}

extern "C" __global__ void find_range(
    double *found, const T *x, const float *low, const float *high, i64 n)
{
  double unit = unit_of(low, high), least = infinity<double>(), most = -infinity<double>();
  EACH_OF_TEAM(i, 0, n)
  {
    double v = get<double>(x[i]) * unit;
    if (v < least) least = v;
    if (v > most) most = v;
  }
  least = team_least(least);
  most = team_max(most);
  if (!LEADS) return;
  found[0] = least > most ? 0 : least; // 0: all elements are NaN
  found[1] = least > most ? 0 : most;
}

// Quantizes x. given: whether the range is `least` .. `most`; else it is `found`, or if that is
// NULL *low .. *high.
extern "C" __global__ void quantize(Q *y, float *from, float *to, const T *x, const float *low,
    const float *high, const double *found, i32 given, double least, double most, i64 n)
{
  if (!given) {
    least = found ? found[0] : (double)*low;
    most = found ? found[1] : (double)*high;
  }
  double r = range_size(least, most), scale = r > 0 ? unit_of(low, high) * MOST / r : 0;
  if (y) EACH(i, n) y[i] = (Q)nearest_level(get<double>(x[i]) * scale, LEAST, MOST);
  if (blockIdx.x || threadIdx.x) return;
  if (from) *from = (float)(LEAST < 0 ? -r : least);
  if (to) *to = (float)(LEAST < 0 ? r : most);
}

// Quantizes x with a shift. found: the range; NULL: it is `least` .. `most`.
extern "C" __global__ void quantize_shifted(Q *y, float *scale_out, float *shift_out, const T *x,
    const double *found, double least, double most, i64 n)
{
  if (found) {
    least = found[0];
    most = found[1];
  }
  float scale = scale_of_range(least, most), shift = shift_of_range(most, scale);
  if (y) EACH(i, n) y[i] = (Q)shifted_level(get<double>(x[i]), scale, shift);
  if (blockIdx.x || threadIdx.x) return;
  if (scale_out) *scale_out = scale;
  if (shift_out) *shift_out = shift;
}

extern "C" __global__ void dequantize(
    float *y, const T *x, const float *low, const float *high, i64 n)
{
  double unit = unit_of(low, high);
  EACH(i, n) y[i] = (float)(get<double>(x[i]) * unit);
}

extern "C" __global__ void put_range(float *from, float *to, double least, double most)
{
  if (blockIdx.x || threadIdx.x) return;
  if (from) *from = (float)least;
  if (to) *to = (float)most;
}

extern "C" __global__ void rectify(Q *y, const T *x, i64 n)
{
  EACH(i, n)
  {
    i32 v = get<i32>(x[i]);
    y[i] = (Q)(v > 0 ? v : 0);
  }
}

// -- lstm over 8-bit data ------------------------------------------------------------------------

extern "C" __global__ void read_shifted(
    float *y, const T *x, const float *scale, const float *shift, i64 n, device_fault *fault,
    i64 op, i64 want)
{
  if (!(*scale > 0)) {
    if (!blockIdx.x && !threadIdx.x) report_fault(fault, op, want, 0, BAD_PARAMETERS);
    return;
  }
  EACH(i, n) y[i] = shifted_number(get<double>(x[i]), *scale, *shift);
}

// Weights of an lstm: per pass (layer, direction) matrices (rows, inputs) and (rows, outputs).
// inputs is replaced by `inner` in all layers but the first.
struct weight_rows { i64 rows, inputs, inner, outputs, passes, directions; };

// Rounds weights to levels, one team per row. The same row of all matrices shares one scale, from
// its largest magnitude.
extern "C" __global__ void round_weights(
    float *to, const float *w, const struct weight_rows __grid_constant__ s)
{
  EACH_ROW(row, s.rows)
  {
    float most = 0;
    for (i32 rounds = 0; rounds < 2; rounds++) {
      i64 at = 0;
      for (i64 p = 0; p < 2 * s.passes; p++) {
        i64 n = p & 1 ? s.outputs : p < 2 * s.directions ? s.inputs : s.inner;
        const i64 from = at + row * n;
        EACH_OF_TEAM(j, from, from + n)
        {
          if (rounds)
            to[j] = rounded_weight(w[j], most);
          else
            most = fmaxf(most, fabsf(w[j]));
        }
        at += s.rows * n;
      }
      if (!rounds) most = team_max(most);
    }
  }
}
