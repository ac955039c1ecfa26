// cells.cu - one step of recurrent cells after their products, and its gradient. Arrays are (batch,
// gates units) or (batch, units); rows of states may be further apart. Order of gates: lstm i f g
// o, gru r z n. Method: one thread per 16 bytes of units of a sample where alignment allows it,
// else per unit. Bound: bytes; with few samples, the latency of a launch.
#ifndef T
#include "prelude.cuh"
#define T float
#define RELU 0       // 1: plain cells use relu, else tanh
#define PACK 4       // units of a thread
#include "team.cuh"
#endif
#ifndef RELU
#define RELU 0
#endif
#ifndef PACK
#define PACK 1
#endif

typedef lanes<T, PACK> L;

FN T sigmoid_of(T x) { return 1 / (1 + exp_of(-x)); }
FN L load(const T *x, i64 at) { return *(const L *)(x + at); }
FN L load_or_zeros(const T *x, i64 at) { return x ? load(x, at) : L{}; }
FN void store(T *x, i64 at, const L &v) { *(L *)(x + at) = v; }

// Sample b, unit j, and its index in (batch, units) and in (batch, gates units).
struct cell_at { i64 b, j, unit, gate; };
FN cell_at cell_of(i64 i, i64 units, i64 gates)
{
  cell_at at = { i / units, i % units, i, 0 };
  at.gate = at.b * gates * units + at.j;
  return at;
}

// Sizes of a step. h_row, h0_row, dy_row: distances of rows, in elements.
struct cell_sizes { i64 n, units, h_row, h0_row, dy_row; };

extern "C" __global__ void simple_cell(
    T *h, const T *pre, const T *bx, const T *bh, const struct cell_sizes __grid_constant__ s)
{
  EACH(p, s.n / PACK)
  {
    const cell_at at = cell_of(p * PACK, s.units, 1);
    const L x = load(pre, at.gate), b = load(bx, at.j), c = load(bh, at.j);
    L out;
    for (int k = 0; k < PACK; k++) {
      const T v = x.at[k] + (b.at[k] + c.at[k]);
      set(out.at[k], RELU ? (v > 0 ? v : 0) : tanh_of(v));
    }
    store(h, at.b * s.h_row + at.j, out);
  }
}

// Computes the gradient of a simple cell. dy may be NULL, as in the gradients below.
extern "C" __global__ void simple_cell_back(
    T *dpre, const T *h, const T *dh, const T *dy, const struct cell_sizes __grid_constant__ s)
{
  EACH(p, s.n / PACK)
  {
    const cell_at at = cell_of(p * PACK, s.units, 1);
    const L g = load(dh, at.unit), more = load_or_zeros(dy, at.b * s.dy_row + at.j),
            y = load(h, at.b * s.h_row + at.j);
    L out;
    for (int k = 0; k < PACK; k++) {
      const T d = g.at[k] + more.at[k], v = y.at[k];
      set(out.at[k], RELU ? (v > 0 ? d : 0) : d * (1 - v * v));
    }
    store(dpre, at.unit, out);
  }
}

// Computes one step of an lstm. gate may be pre, and c may be c0.
extern "C" __global__ void lstm_cell(T *h, T *c, T *gate, const T *pre, const T *bx, const T *bh,
    const T *c0, const struct cell_sizes __grid_constant__ s)
{
  EACH(p, s.n / PACK)
  {
    const cell_at at = cell_of(p * PACK, s.units, 4);
    const L before = load(c0, at.unit);
    L v[4], next, out;
    for (int g = 0; g < 4; g++) {
      const L x = load(pre, at.gate + g * s.units), b = load(bx, g * s.units + at.j),
              d = load(bh, g * s.units + at.j);
      for (int k = 0; k < PACK; k++) v[g].at[k] = x.at[k] + (b.at[k] + d.at[k]);
    }
    for (int k = 0; k < PACK; k++) {
      const T i = sigmoid_of(v[0].at[k]), f = sigmoid_of(v[1].at[k]), g = tanh_of(v[2].at[k]),
              o = sigmoid_of(v[3].at[k]), cell = f * before.at[k] + i * g;
      set(v[0].at[k], i);
      set(v[1].at[k], f);
      set(v[2].at[k], g);
      set(v[3].at[k], o);
      set(next.at[k], cell);
      set(out.at[k], o * tanh_of(cell));
    }
    for (int g = 0; g < 4; g++) store(gate, at.gate + g * s.units, v[g]);
    store(c, at.unit, next);
    store(h, at.b * s.h_row + at.j, out);
  }
}

extern "C" __global__ void lstm_cell_back(T *dpre, T *dc, const T *dh, const T *dy, const T *gate,
    const T *c, const T *c0, const struct cell_sizes __grid_constant__ s)
{
  EACH(p, s.n / PACK)
  {
    const cell_at at = cell_of(p * PACK, s.units, 4);
    const L cell = load(c, at.unit), before = load(c0, at.unit), head = load(dh, at.unit),
            more = load_or_zeros(dy, at.b * s.dy_row + at.j);
    L v[4], carried = load(dc, at.unit);
    for (int g = 0; g < 4; g++) v[g] = load(gate, at.gate + g * s.units);
    for (int k = 0; k < PACK; k++) {
      const T i = v[0].at[k], f = v[1].at[k], g = v[2].at[k], o = v[3].at[k],
              t = tanh_of(cell.at[k]), out = head.at[k] + more.at[k],
              d = carried.at[k] + out * o * (1 - t * t);
      set(v[0].at[k], d * g * i * (1 - i));
      set(v[1].at[k], d * before.at[k] * f * (1 - f));
      set(v[2].at[k], d * i * (1 - g * g));
      set(v[3].at[k], out * t * o * (1 - o));
      set(carried.at[k], d * f);
    }
    for (int g = 0; g < 4; g++) store(dpre, at.gate + g * s.units, v[g]);
    store(dc, at.unit, carried);
  }
}

// Recomputes the states h (steps, batch, units) from gates and cells, whose steps are `step`
// elements apart.
extern "C" __global__ void lstm_states(
    T *h, const T *gate, const T *c, i64 step, i64 n, const struct cell_sizes __grid_constant__ s)
{
  EACH(p, n / PACK)
  {
    const i64 i = p * PACK, t = i / s.n;
    const cell_at at = cell_of(i % s.n, s.units, 4);
    const L o = load(gate, t * step + at.gate + 3 * s.units), cell = load(c, t * step + at.unit);
    L out;
    for (int k = 0; k < PACK; k++) set(out.at[k], o.at[k] * tanh_of(cell.at[k]));
    store(h, i, out);
  }
}

extern "C" __global__ void gru_cell(T *h, T *gate, T *inner, const T *x, const T *hx, const T *bx,
    const T *bh, const T *h0, const struct cell_sizes __grid_constant__ s)
{
  EACH(p, s.n / PACK)
  {
    const cell_at at = cell_of(p * PACK, s.units, 3);
    const L before = load(h0, at.b * s.h0_row + at.j);
    L v[3], b[3], w[3], d[3], kept, out;
    for (int g = 0; g < 3; g++) {
      v[g] = load(x, at.gate + g * s.units);
      b[g] = load(bx, g * s.units + at.j);
      w[g] = load(hx, at.gate + g * s.units);
      d[g] = load(bh, g * s.units + at.j);
    }
    for (int k = 0; k < PACK; k++) {
      const T r = sigmoid_of(v[0].at[k] + b[0].at[k] + w[0].at[k] + d[0].at[k]);
      const T z = sigmoid_of(v[1].at[k] + b[1].at[k] + w[1].at[k] + d[1].at[k]);
      const T hn = w[2].at[k] + d[2].at[k], next = tanh_of(v[2].at[k] + b[2].at[k] + r * hn);
      set(v[0].at[k], r);
      set(v[1].at[k], z);
      set(v[2].at[k], next);
      set(kept.at[k], hn);
      set(out.at[k], (1 - z) * next + z * before.at[k]);
    }
    for (int g = 0; g < 3; g++) store(gate, at.gate + g * s.units, v[g]);
    store(inner, at.unit, kept);
    store(h, at.b * s.h_row + at.j, out);
  }
}

extern "C" __global__ void gru_cell_back(T *dx, T *dhx, T *dh, const T *dy, const T *gate,
    const T *inner, const T *h0, const struct cell_sizes __grid_constant__ s)
{
  EACH(p, s.n / PACK)
  {
    const cell_at at = cell_of(p * PACK, s.units, 3);
    const L more = load_or_zeros(dy, at.b * s.dy_row + at.j), hn = load(inner, at.unit),
            before = load(h0, at.b * s.h0_row + at.j);
    L v[3], by_h, carried = load(dh, at.unit);
    for (int g = 0; g < 3; g++) v[g] = load(gate, at.gate + g * s.units);
    for (int k = 0; k < PACK; k++) {
      const T r = v[0].at[k], z = v[1].at[k], next = v[2].at[k], d = carried.at[k] + more.at[k];
      const T dn = d * (1 - z) * (1 - next * next);
      set(v[0].at[k], dn * hn.at[k] * r * (1 - r));
      set(v[1].at[k], d * (before.at[k] - next) * z * (1 - z));
      set(v[2].at[k], dn);
      set(by_h.at[k], dn * r);
      set(carried.at[k], d * z);
    }
    for (int g = 0; g < 3; g++) {
      store(dx, at.gate + g * s.units, v[g]);
      store(dhx, at.gate + g * s.units, g == 2 ? by_h : v[g]);
    }
    store(dh, at.unit, carried);
  }
}
