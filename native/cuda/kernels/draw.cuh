// draw.cuh - random words by a key that may be in this device's memory, where it changes from run
// to run.
#pragma once
// on_device: seed and counter in this device's memory; or null
struct draw_key { u64 seed, counter; u32 node; const u64 *on_device; };

FN struct philox draw(const struct draw_key &key, u64 element)
{
  const u64 *at = key.on_device;
  return philox(at ? at[0] : key.seed, at ? at[1] : key.counter, key.node, element);
}

// [0, 1), of an element whose words are 2^40 apart
FN double draw_unit(const struct draw_key &key, u64 element, u64 round)
{
  struct philox p = draw(key, element + (round << 40));
  return unit_f64(p.w[0], p.w[1]);
}
