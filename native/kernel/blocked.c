/* blocked.c - which block of channels a device computes in. */
#include "kernel/blocked.h"

int channel_block(int device)
{
  static const int block[] = { [CPU_BASELINE] = 0, [CPU_AVX2] = 8, [CPU_AVX512] = 16 };
  return device_kind(device) == TY_CPU ? block[cpu_level()] : 0;
}
