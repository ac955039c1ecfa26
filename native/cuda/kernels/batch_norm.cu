// batch_norm.cu - BatchNorm over (outer, k, inner) and its gradient, optionally followed by a sum
// and a relu. Method: two launches each. In the first one, each block computes the sums of one part
// of its channels, compensated, and in forward relative to the channel's first element there. In
// the second one, blocks join the parts of their channels in a fixed order and go over the elements
// again. LAST: inner is 1, neighbours are neighbouring channels. Elements are loaded 16 bytes at a
// time (PACK) where alignment allows it. Bound: bytes; forward reads x twice and writes y, backward
// reads dy and x twice and writes dx. KEPT: dy belongs to a relu that follows a sum of layers; the
// first launch of backward computes the gradient of that relu and writes it.
#ifndef T
#include "prelude.cuh"
#define T float
#define P float      // parameters and statistics
#define PACK 4       // elements of a load
#define LAST 0
#define RELU 0       // 1: a relu follows; 2: and backward reads its output; 3: KEPT
#define TEAM 256
#include "team.cuh"
#endif

typedef computes<T>::type C;
typedef lanes<T, PACK> L;
#define KEPT (RELU == 3)
#define CHANNELS (LAST ? PACK : 1)  // channels of a thread
#define CHANNEL(v) (LAST ? (v) : 0) // the channel of lane v of a pack

struct batch_args {
  i64 outer, k, inner, parts, chunks;
  i64 width; // threads per row, a power of two; a row has `inner` elements, LAST: k
  double eps, momentum;
  i32 fixed, batch, variance, ones; // variance: the third output is it; ones: sets gamma to 1
};

// The elements of a thread: rows `row`, row + step, .. below `rows`, and of each row the packs from
// `from` on.
struct batch_walk {
  i64 part, channel, row, rows, step, from, packs, row_size, base;
  int stride; // threads whose indices differ by a multiple of it have the same channels
  bool active;
};

FN batch_walk walk_of(const batch_args &s, i64 parts)
{
  batch_walk w;
  const int width = (int)s.width, x = threadIdx.x % width;
  const i64 packs = s.k / PACK, tiles = LAST ? (packs + width - 1) / width : s.k;
  const i64 tile = blockIdx.x % tiles;
  w.part = blockIdx.x / tiles;
  w.rows = (w.part + 1) * s.outer / parts;
  w.row = w.part * s.outer / parts + threadIdx.x / width;
  w.step = 256 / width;
  w.from = LAST ? tile * width + x : x;
  w.packs = LAST ? packs : s.inner / PACK;
  w.row_size = LAST ? s.k : s.k * s.inner;
  w.base = LAST ? 0 : tile * s.inner;
  w.channel = LAST ? w.from * PACK : tile;
  w.stride = LAST ? width : 1;
  w.active = !LAST || w.from < packs;
  return w;
}

#define EACH_PACK(at, w, s) \
  for (i64 o = (w).row; o < (w).rows; o += (w).step) \
    for (i64 j = (w).from, at = o * (w).row_size + (w).base + j * PACK; j < (w).packs; \
         j += LAST ? (w).packs : (s).width, at += LAST ? 0 : (s).width * PACK)

FN L load(const T *x, i64 at) { return *(const L *)(x + at); }

FN bool writes(const batch_walk &w) { return w.active && (int)threadIdx.x < w.stride; }
FN C rounded(double v)
{
  P to;
  set(to, v);
  return get<C>(to);
}

// The line of a channel: y = a (x - mean) + d.
struct batch_line { C a, mean, d; };
FN batch_line line_of(const batch_args &s, i64 c, double mean, double inverse, const P *gamma,
    const P *beta)
{
  const double slope = (s.fixed ? 1 : get<double>(gamma[c])) * inverse;
  return { rounded(slope), (C)mean, get<C>(beta[c]) };
}

FN C apply(const batch_line &l, T x) { return l.a * (get<C>(x) - l.mean) + l.d; }
// Returns v rounded to the type of outputs.
FN C stored(C v)
{
  T to;
  set(to, v);
  return get<C>(to);
}
FN bool dies(C v) { return v <= 0; } // NaN stays

// -- forward ------------------------------------------------------------------------------------

// Writes to `part` (parts, k, 2) the mean of each part and channel, and the sum of squares about
// it.
extern "C" __global__ void batch_parts(
    double *part, const T *x, const struct batch_args __grid_constant__ s)
{
  const batch_walk w = walk_of(s, s.parts);
  const i64 begin = w.part * s.outer / s.parts;
  exact_sum<C> sum[CHANNELS] = {}, square[CHANNELS] = {};
  C centre[CHANNELS] = {};
  for (int i = 0; i < CHANNELS && w.active; i++)
    centre[i] = get<C>(x[begin * w.row_size + (LAST ? w.channel + i : w.base)]);
  EACH_PACK(at, w, s)
  {
    const L in = load(x, at);
    for (int v = 0; v < PACK; v++) {
      const C d = get<C>(in.at[v]) - centre[CHANNEL(v)];
      sum[CHANNEL(v)].add(d);
      square[CHANNEL(v)].add(d * d);
    }
  }
  const double n = (double)((w.rows - begin) * s.inner);
  for (int i = 0; i < CHANNELS; i++) {
    const double all = join_block(sum[i].value(), w.stride);
    const double squares = join_block(square[i].value(), w.stride), rest = squares - all * all / n;
    double *to = part + 2 * (w.part * s.k + w.channel + i);
    if (!writes(w)) continue;
    to[0] = centre[i] + all / n;
    to[1] = rest < 0 ? 0 : rest; // NaN stays
  }
}

// Returns mean and variance of channel c from its parts, joined in order.
struct batch_moments { double mean, var; };
FN batch_moments join_moments(const batch_args &s, const batch_walk &w, i64 c, const double *part)
{
  const i64 first = threadIdx.x / w.stride, step = 256 / w.stride, end = w.active ? s.parts : 0;
  const double count = (double)(s.outer * s.inner);
  double sum = 0, square = 0;
#define OF_PART(p) ((double)(((p) + 1) * s.outer / s.parts - (p)*s.outer / s.parts) * s.inner)
  for (i64 p = first; p < end; p += step) sum += OF_PART(p) * part[2 * (p * s.k + c)];
  const double mean = join_block(sum, w.stride) / count;
  for (i64 p = first; p < end; p += step) {
    const double *of = part + 2 * (p * s.k + c), d = of[0] - mean;
    square += of[1] + OF_PART(p) * d * d;
  }
  return { mean, join_block(square, w.stride) / count };
}

// Computes y, adds `more` where it is given, then applies relu, whose mask may be NULL. mean, var:
// fixed ones, which replace those of the parts.
extern "C" __global__ void batch_apply(T *y, T *mask, P *mean_out, P *third_out, P *gamma,
    const T *x, const T *more, const double *part, const P *mean, const P *var, const P *beta,
    const struct batch_args __grid_constant__ s)
{
  const batch_walk w = walk_of(s, s.chunks);
  batch_line line[CHANNELS];
  for (int i = 0; i < CHANNELS; i++) {
    const i64 c = w.channel + i;
    batch_moments m = { 0, 0 };
    if (s.batch)
      m = join_moments(s, w, c, part);
    else if (w.active)
      m = { get<double>(mean[c]), get<double>(var[c]) };
    if (!w.active) continue;
    const double centre = rounded(m.mean), variance = rounded(m.var);
    const double inverse = rounded(1 / sqrt(variance + s.eps));
    line[i] = line_of(s, c, centre, inverse, gamma, beta);
    if (w.part || !writes(w)) continue;
    if (mean_out) set(mean_out[c], centre);
    if (third_out) set(third_out[c], s.variance ? variance : inverse);
    if (s.ones) set(gamma[c], 1.0);
  }
  if (!y) return;
  EACH_PACK(at, w, s)
  {
    const L in = load(x, at);
    L out, live, to_add;
    if (more) to_add = load(more, at);
    for (int v = 0; v < PACK; v++) {
      C value = apply(line[CHANNEL(v)], in.at[v]);
      if (more) {
        set(out.at[v], value);
        value = get<C>(out.at[v]) + get<C>(to_add.at[v]);
      }
      set(out.at[v], RELU && dies(value) ? 0 : value);
      set(live.at[v], (C)!dies(value));
    }
    *(L *)(y + at) = out;
    if (mask) *(L *)(mask + at) = live;
  }
}

// -- backward -----------------------------------------------------------------------------------

// Returns the statistics that forward used for channel c.
struct batch_seen { double mean, inverse, var; };
FN batch_seen seen_of(const batch_args &s, i64 c, const P *mean, const P *third)
{
  const double m = get<double>(mean[c]), t = get<double>(third[c]);
  if (s.variance || !s.batch) return { m, rounded(1 / sqrt(t + s.eps)), t };
  const double var = 1 / (t * t) - s.eps;
  return { m, t, var < 0 ? 0 : var };
}

// Returns dy if relu passed the element, else 0.
FN C passed(const batch_line &l, T dy, T x, T y)
{
  const bool dead = RELU == 1 ? dies(stored(apply(l, x))) : RELU == 2 ? dies(get<C>(y)) : false;
  return dead ? 0 : get<C>(dy);
}

// Returns the slope of relu from its output, as its formula does: a NaN stays NaN.
FN C slope_of(T y)
{
  const C v = get<C>(y);
  return v > 0 ? 1 : v == v ? 0 : v;
}

// Writes to `part` (parts, k, 2) the sums of dy and of dy (x - mean) of each part and channel.
// KEPT: dy (plus `more` unless NULL) is first multiplied by the slope of the relu with output y,
// and the product is written to `kept`, which may be dy or `more`.
extern "C" __global__ void batch_back_parts(double *part, T *kept, const T *dy, const T *more,
    const T *x, const T *y, const P *mean, const P *third, const P *gamma, const P *beta,
    const struct batch_args __grid_constant__ s)
{
  const batch_walk w = walk_of(s, s.parts);
  exact_sum<C> sum[CHANNELS] = {}, dot[CHANNELS] = {};
  batch_line line[CHANNELS];
  for (int i = 0; i < CHANNELS && w.active; i++) {
    const batch_seen seen = seen_of(s, w.channel + i, mean, third);
    line[i] = line_of(s, w.channel + i, seen.mean, seen.inverse, gamma, beta);
  }
  EACH_PACK(at, w, s)
  {
    const L in = load(x, at);
    L head = load(dy, at), out = {}, to_add;
    if (RELU > 1) out = load(y, at);
    if (KEPT && more) {
      to_add = load(more, at);
      for (int v = 0; v < PACK; v++) set(head.at[v], get<C>(head.at[v]) + get<C>(to_add.at[v]));
    }
    for (int v = 0; KEPT && v < PACK; v++)
      set(head.at[v], get<C>(head.at[v]) * slope_of(out.at[v]));
    if (KEPT) *(L *)(kept + at) = head;
    for (int v = 0; v < PACK; v++) {
      const C g = passed(line[CHANNEL(v)], head.at[v], in.at[v], out.at[v]);
      sum[CHANNEL(v)].add(g);
      dot[CHANNEL(v)].add(g * (get<C>(in.at[v]) - line[CHANNEL(v)].mean));
    }
  }
  for (int i = 0; i < CHANNELS; i++) {
    const double all = join_block(sum[i].value(), w.stride);
    const double dots = join_block(dot[i].value(), w.stride);
    double *to = part + 2 * (w.part * s.k + w.channel + i);
    if (!writes(w)) continue;
    to[0] = all;
    to[1] = dots;
  }
}

// The line of a gradient: dx = f dy + g (x - mean) + h.
struct batch_plane { C f, g, h; };
FN batch_plane plane_of(
    const batch_args &s, const batch_seen &seen, double gamma, double sum, double dot)
{
  const double count = (double)(s.outer * s.inner), slope = gamma * seen.inverse;
  const double by_x = s.batch ? -slope * seen.inverse * seen.inverse * dot / count : 0;
  return { rounded(slope), rounded(by_x), rounded(s.batch ? -slope * sum / count : 0) };
}

FN void move_to(P &moving, double now, double momentum)
{
  set(moving, get<double>(moving) * momentum + now * (1 - momentum));
}

// Computes dx and the gradients of gamma and beta, and updates the moving statistics.
extern "C" __global__ void batch_back_apply(T *dx, P *dgamma, P *dbeta, P *moving_mean,
    P *moving_var, const T *dy, const T *x, const T *y, const double *part, const P *mean,
    const P *third, const P *gamma, const P *beta, const struct batch_args __grid_constant__ s)
{
  const batch_walk w = walk_of(s, s.chunks);
  batch_line line[CHANNELS];
  batch_plane plane[CHANNELS];
  for (int i = 0; i < CHANNELS; i++) {
    const i64 c = w.channel + i, first = threadIdx.x / w.stride, step = 256 / w.stride;
    double sum = 0, dot = 0;
    for (i64 p = first; w.active && p < s.parts; p += step) {
      sum += part[2 * (p * s.k + c)];
      dot += part[2 * (p * s.k + c) + 1];
    }
    sum = join_block(sum, w.stride);
    dot = join_block(dot, w.stride);
    if (!w.active) continue;
    const batch_seen seen = seen_of(s, c, mean, third);
    line[i] = line_of(s, c, seen.mean, seen.inverse, gamma, beta);
    plane[i] = plane_of(s, seen, s.fixed ? 1 : get<double>(gamma[c]), sum, dot);
    if (w.part || !writes(w)) continue;
    if (dgamma) set(dgamma[c], s.fixed ? 0 : dot * seen.inverse);
    if (dbeta) set(dbeta[c], sum);
    if (!s.batch) continue;
    move_to(moving_mean[c], seen.mean, s.momentum);
    move_to(moving_var[c], seen.var, s.momentum);
  }
  if (!dx) return;
  EACH_PACK(at, w, s)
  {
    const L head = load(dy, at), in = load(x, at);
    L out, active = {};
    if (RELU > 1) active = load(y, at);
    for (int v = 0; v < PACK; v++) {
      const batch_plane &p = plane[CHANNEL(v)];
      const C g = passed(line[CHANNEL(v)], head.at[v], in.at[v], active.at[v]);
      set(out.at[v], p.f * g + (p.g * (get<C>(in.at[v]) - line[CHANNEL(v)].mean) + p.h));
    }
    *(L *)(dx + at) = out;
  }
}
