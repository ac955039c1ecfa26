// cells.cu - one step of recurrent cells after their products, and its gradient. Arrays are
// (batch, gates units) or (batch, units); rows of states may be further apart. Gate order: lstm
// i f g o, gru r z n. Method: a thread a unit of a sample. Bound: bytes; of few samples the latency
// of a launch.
#ifndef T
#include "prelude.cuh"
#define T float
#define RELU 0       // of plain cells; else tanh
#include "team.cuh"
#endif
#ifndef RELU
#define RELU 0
#endif

template <typename A> FN A sigmoid_of(A x) { return 1 / (1 + exp_of(-x)); }

// Of sample b and unit j: place in (batch, units), in (batch, gates units).
struct cell_at { i64 b, j, unit, gate; };
FN cell_at cell_of(i64 i, i64 units, i64 gates)
{
  cell_at at = { i / units, i % units, i, 0 };
  at.gate = at.b * gates * units + at.j;
  return at;
}

// h's rows are h_row apart, h0's h0_row, dy's dy_row
struct cell_sizes { i64 n, units, h_row, h0_row, dy_row; };

extern "C" __global__ void simple_cell(
    T *h, const T *pre, const T *bx, const T *bh, const struct cell_sizes __grid_constant__ s)
{
  EACH(i, s.n)
  {
    cell_at at = cell_of(i, s.units, 1);
    T v = pre[at.gate] + (bx[at.j] + bh[at.j]);
    set(h[at.b * s.h_row + at.j], RELU ? (v > 0 ? v : 0) : tanh_of(v));
  }
}

// dy may be NULL, here and below
extern "C" __global__ void simple_cell_back(
    T *dpre, const T *h, const T *dh, const T *dy, const struct cell_sizes __grid_constant__ s)
{
  EACH(i, s.n)
  {
    cell_at at = cell_of(i, s.units, 1);
    T d = dh[i] + (dy ? dy[at.b * s.dy_row + at.j] : 0), v = h[at.b * s.h_row + at.j];
    set(dpre[i], RELU ? (v > 0 ? d : 0) : d * (1 - v * v));
  }
}

// gate may be pre, c may be c0
extern "C" __global__ void lstm_cell(T *h, T *c, T *gate, const T *pre, const T *bx, const T *bh,
    const T *c0, const struct cell_sizes __grid_constant__ s)
{
  EACH(e, s.n)
  {
    cell_at at = cell_of(e, s.units, 4);
    T v[4];
    for (int k = 0; k < 4; k++) {
      i64 unit = k * s.units + at.j;
      v[k] = pre[at.gate + k * s.units] + (bx[unit] + bh[unit]);
    }
    T i = sigmoid_of(v[0]), f = sigmoid_of(v[1]), g = tanh_of(v[2]), o = sigmoid_of(v[3]);
    T next = f * c0[e] + i * g;
    set(gate[at.gate], i);
    set(gate[at.gate + s.units], f);
    set(gate[at.gate + 2 * s.units], g);
    set(gate[at.gate + 3 * s.units], o);
    set(c[e], next);
    set(h[at.b * s.h_row + at.j], o * tanh_of(next));
  }
}

extern "C" __global__ void lstm_cell_back(T *dpre, T *dc, const T *dh, const T *dy, const T *gate,
    const T *c, const T *c0, const struct cell_sizes __grid_constant__ s)
{
  EACH(e, s.n)
  {
    cell_at at = cell_of(e, s.units, 4);
    const T *v = gate + at.gate;
    T i = v[0], f = v[s.units], g = v[2 * s.units], o = v[3 * s.units], t = tanh_of(c[e]);
    T out = dh[e] + (dy ? dy[at.b * s.dy_row + at.j] : 0), d = dc[e] + out * o * (1 - t * t);
    T *to = dpre + at.gate;
    set(to[0], d * g * i * (1 - i));
    set(to[s.units], d * c0[e] * f * (1 - f));
    set(to[2 * s.units], d * i * (1 - g * g));
    set(to[3 * s.units], out * t * o * (1 - o));
    set(dc[e], d * f);
  }
}

// The states of `steps` steps, whose gates and cells are `step` apart: h (steps, batch, units).
extern "C" __global__ void lstm_states(
    T *h, const T *gate, const T *c, i64 step, i64 n, const struct cell_sizes __grid_constant__ s)
{
  EACH(i, n)
  {
    i64 t = i / s.n;
    cell_at at = cell_of(i % s.n, s.units, 4);
    set(h[i], gate[t * step + at.gate + 3 * s.units] * tanh_of(c[t * step + at.unit]));
  }
}

extern "C" __global__ void gru_cell(T *h, T *gate, T *inner, const T *x, const T *hx, const T *bx,
    const T *bh, const T *h0, const struct cell_sizes __grid_constant__ s)
{
  EACH(e, s.n)
  {
    cell_at at = cell_of(e, s.units, 3);
    i64 k0 = at.gate, k1 = k0 + s.units, k2 = k1 + s.units;
    i64 j0 = at.j, j1 = j0 + s.units, j2 = j1 + s.units;
    T r = sigmoid_of(x[k0] + bx[j0] + hx[k0] + bh[j0]);
    T z = sigmoid_of(x[k1] + bx[j1] + hx[k1] + bh[j1]);
    T hn = hx[k2] + bh[j2], next = tanh_of(x[k2] + bx[j2] + r * hn);
    set(gate[k0], r);
    set(gate[k1], z);
    set(gate[k2], next);
    set(inner[e], hn);
    set(h[at.b * s.h_row + at.j], (1 - z) * next + z * h0[at.b * s.h0_row + at.j]);
  }
}

extern "C" __global__ void gru_cell_back(T *dx, T *dhx, T *dh, const T *dy, const T *gate,
    const T *inner, const T *h0, const struct cell_sizes __grid_constant__ s)
{
  EACH(e, s.n)
  {
    cell_at at = cell_of(e, s.units, 3);
    i64 k0 = at.gate, k1 = k0 + s.units, k2 = k1 + s.units;
    T r = gate[k0], z = gate[k1], next = gate[k2];
    T d = dh[e] + (dy ? dy[at.b * s.dy_row + at.j] : 0);
    T dn = d * (1 - z) * (1 - next * next), dr = dn * inner[e] * r * (1 - r);
    T dz = d * (h0[at.b * s.h0_row + at.j] - next) * z * (1 - z);
    dx[k0] = dhx[k0] = dr;
    dx[k1] = dhx[k1] = dz;
    set(dx[k2], dn);
    set(dhx[k2], dn * r);
    set(dh[e], d * z);
  }
}
