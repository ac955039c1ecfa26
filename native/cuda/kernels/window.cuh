// window.cuh - windows over planes of (depth, height, width), for unfold.cu and quantized.cu.
#pragma once
struct window { i64 n, in[3], out[3], kernel[3], stride[3], dilate[3], pad[3]; };
struct triple { i64 at[3]; };

FN triple apart(i64 i, const i64 (&size)[3])
{
  return { { i / size[2] / size[1], i / size[2] % size[1], i % size[2] } };
}
FN i64 count_of(const i64 (&size)[3]) { return size[0] * size[1] * size[2]; }

// Returns the index along axis d that tap t reads at position o, or -1 if it is outside.
FN i64 seen(const window &s, int d, i64 o, i64 t)
{
  i64 i = o * s.stride[d] + t * s.dilate[d] - s.pad[d];
  return i >= 0 && i < s.in[d] ? i : -1;
}
// Returns the position along axis d at which tap t reads index i, or -1 if there is none.
FN i64 seen_from(const window &s, int d, i64 i, i64 t)
{
  i64 from = i + s.pad[d] - t * s.dilate[d], o = from / s.stride[d];
  return from >= 0 && from % s.stride[d] == 0 && o < s.out[d] ? o : -1;
}

// Returns the element of a plane that tap t reads at position i, or with BACK the position at which
// tap t reads element i; -1 if there is none.
template <bool BACK> FN i64 element_at(const window &s, const triple &i, const triple &t)
{
  i64 at = 0;
  bool inside = true;
  for (int d = 0; d < 3; d++) {
    i64 p = BACK ? seen_from(s, d, i.at[d], t.at[d]) : seen(s, d, i.at[d], t.at[d]);
    inside &= p >= 0;
    at = at * (BACK ? s.out[d] : s.in[d]) + p;
  }
  return inside ? at : -1;
}
FN i64 element_seen(const window &s, const triple &o, const triple &t)
{
  return element_at<false>(s, o, t);
}
FN i64 element_seen_from(const window &s, const triple &i, const triple &t)
{
  return element_at<true>(s, i, t);
}
