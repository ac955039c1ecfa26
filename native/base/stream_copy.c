/* stream_copy.c - see stream_copy.h. On processors other than x86-64 it is memcpy. */
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <stdio.h>
#include "base/stream_copy.h"
#include "base/system.h"

/* Returns the bytes of the last-level cache that one core uses; sysconf gives the sum over a
** processor. */
static int64_t last_cache(void)
{
  long kib = 0;
  FILE *f = sys_fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
  if (f && fscanf(f, "%ldK", &kib) != 1) kib = 0;
  if (f) fclose(f);
  return MAX((int64_t)kib << 10, 8 << 20);
}

bool stream_copy_profitable(size_t bytes)
{
  static int64_t half;
  int64_t n = __atomic_load_n(&half, __ATOMIC_RELAXED);
  if (!n) {
    n = last_cache() / 2;
    __atomic_store_n(&half, n, __ATOMIC_RELAXED);
  }
  return (int64_t)bytes > n;
}

void stream_copy(void *dst, const void *src, size_t bytes)
{
  char *d = dst;
  const char *s = src;
  size_t at = 0;
#ifdef __SSE2__
  for (; (uintptr_t)d % 16 == 0 && at + 64 <= bytes; at += 64)
    for (size_t i = at; i < at + 64; i += 16)
      _mm_stream_si128(
          (__m128i *)(void *)(d + i), _mm_loadu_si128((const __m128i *)(const void *)(s + i)));
  _mm_sfence(); /* other threads see these before what follows */
#endif
  memcpy(d + at, s + at, bytes - at);
}
