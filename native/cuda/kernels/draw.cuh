// draw.cuh - random words from a key. The key may be in device memory, where its values change
// between runs of the same launch.
#pragma once
// The key of a draw. on_device: seed and counter in device memory, which replace the fields here;
// NULL: the fields count.
struct draw_key { u64 seed, counter; u32 node; const u64 *on_device; };

FN struct philox draw(const struct draw_key &key, u64 element)
{
  const u64 *at = key.on_device;
  return philox(at ? at[0] : key.seed, at ? at[1] : key.counter, key.node, element);
}

// Returns a number in [0, 1). Round r of an element uses the words of element + r 2^40.
FN double draw_unit(const struct draw_key &key, u64 element, u64 round)
{
  struct philox p = draw(key, element + (round << 40));
  return unit_f64(p.w[0], p.w[1]);
}
