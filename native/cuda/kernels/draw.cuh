// draw.cuh - random words by a key that may be in this device's memory, where it changes from run
// to run.
#pragma once
// The key of a draw. on_device: its seed and counter in this device's memory, which replace those
// here; or NULL.
struct draw_key { u64 seed, counter; u32 node; const u64 *on_device; };

FN struct philox draw(const struct draw_key &key, u64 element)
{
  const u64 *at = key.on_device;
  return philox(at ? at[0] : key.seed, at ? at[1] : key.counter, key.node, element);
}

// Returns a number of [0, 1) for a round of an element; the rounds of an element are 2^40 elements
// apart.
FN double draw_unit(const struct draw_key &key, u64 element, u64 round)
{
  struct philox p = draw(key, element + (round << 40));
  return unit_f64(p.w[0], p.w[1]);
}
