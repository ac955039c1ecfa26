// decoding.cu - operators of language models: _contrib_rotary_embedding, and _contrib_cache_append,
// which writes the keys and values of new positions after those that caches hold. Method: one
// thread per pair of a row, for all heads, with angles in double; one thread per element. Bound:
// bytes.
#ifndef T
#include "prelude.cuh"
#define T float      // data; keys
#define VALUE float  // values
#define NUMBER i32   // offsets; lengths
#define TEAM 256
#include "fault.cuh"
#include "team.cuh"
#endif

typedef computes<T>::type C;

// The layout of data. sample, head, row: distances in elements. The first `turned` of the `size`
// numbers of a head are rotated.
struct rotary_args {
  i64 samples, heads, length, size, sample, head, row, turned;
  double base, scale; // scale: negative in backward
  i32 interleaved;
};

extern "C" __global__ void rotary(
    T *y, const T *x, const NUMBER *offset, const struct rotary_args __grid_constant__ s)
{
  const i64 pairs = s.turned / 2, columns = s.size - pairs;
  EACH(u, s.samples * s.length * columns)
  {
    const i64 i = u % columns, row = u / columns % s.length, sample = u / columns / s.length;
    const i64 at = sample * s.sample + row * s.row;
    if (i >= pairs) {
      for (i64 h = 0; y != x && h < s.heads; h++)
        y[at + h * s.head + pairs + i] = x[at + h * s.head + pairs + i];
      continue;
    }
    const double position = (double)((offset ? get<i64>(offset[sample]) : 0) + row);
    const double angle = s.scale * pow(s.base, -2.0 * (double)i / (double)s.turned) * position;
    const C cosine = (C)cos(angle), sine = (C)sin(angle);
    const i64 first = s.interleaved ? 2 * i : i, second = s.interleaved ? first + 1 : i + pairs;
    for (i64 h = 0; h < s.heads; h++) {
      const i64 e = at + h * s.head;
      const C a = get<C>(x[e + first]), b = get<C>(x[e + second]);
      set(y[e + first], a * cosine - b * sine);
      set(y[e + second], a * sine + b * cosine);
    }
  }
}

struct append_args { i64 batch, more, capacity, key_width, value_width; };

// Appends keys and values to caches. If any cache has too few free positions, writes nothing and
// reports a fault.
extern "C" __global__ void cache_append(device_fault *fault, i64 op, i64 what, NUMBER *out,
    T *key_cache, VALUE *value_cache, const T *key, const VALUE *value, const NUMBER *length,
    const struct append_args __grid_constant__ s)
{
  const i64 most = s.capacity - s.more;
  int bad = 0;
  for (i64 i = threadIdx.x; i < s.batch; i += blockDim.x) {
    const i64 n = get<i64>(length[i]);
    if (n >= 0 && n <= most) continue;
    bad = 1;
    if (blockIdx.x == 0) report_index(fault, op, n, i, s.capacity, s.more, BAD_LENGTH, what);
  }
  if (team_max(bad)) return;
  EACH(i, s.batch) if (out) set(out[i], get<i64>(length[i]) + s.more);
  EACH(u, s.batch * s.more * (s.key_width + s.value_width))
  {
    const i64 width = s.key_width + s.value_width, j = u % width, row = u / width;
    const i64 sample = row / s.more;
    const i64 to = sample * s.capacity + get<i64>(length[sample]) + row % s.more;
    if (j < s.key_width)
      key_cache[to * s.key_width + j] = key[row * s.key_width + j];
    else
      value_cache[to * s.value_width + j - s.key_width] =
          value[row * s.value_width + j - s.key_width];
  }
}
