/* philox.h - counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11), shared by C and
** CUDA.
**
** A number is a function of (seed, the device's draw counter, node, element), the same with any
** number of threads and on any device. One call gives four 32-bit words of one element.
*/
#pragma once
#ifndef __CUDACC_RTC__                               /* its prelude defines these types */
#include <stdint.h>
#endif
#ifndef TY_DEVICE_FN
#define TY_DEVICE_FN static inline
#endif

struct philox { uint32_t w[4]; };
TY_DEVICE_FN struct philox philox(uint64_t seed, uint64_t counter, uint32_t node, uint64_t element)
{
  uint32_t c[4] = { (uint32_t)element, (uint32_t)(element >> 32), (uint32_t)counter,
    node ^ (uint32_t)(counter >> 32) * 0x85ebca6bu };
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int i = 0; i < 10; i++) {
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
    c[1] = (uint32_t)b;
    c[3] = (uint32_t)a;
    c[0] = n0;
    c[2] = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  struct philox p = { { c[0], c[1], c[2], c[3] } };
  return p;
}
TY_DEVICE_FN float unit_f32(uint32_t w) { return (float)(w >> 8) * 0x1p-24f; } /* [0, 1) */
TY_DEVICE_FN double unit_f64(uint32_t a, uint32_t b)
{
  return (double)((((uint64_t)a << 32) | b) >> 11) * 0x1p-53;
}
