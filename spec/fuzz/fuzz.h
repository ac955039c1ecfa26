/* fuzz.h - what the programs of this folder share. Each is a reader of bytes that strangers may
** have made, fed by libFuzzer: make fuzz TIME=60.
**
** A reader may take 64 MiB and four times the bytes it is given; what it takes beyond that a
** header merely claims.
*/
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/base.h"

/* of the sanitizer (gcc has no header for them), or of replay/replay.c */
int __sanitizer_install_malloc_and_free_hooks(
    void (*take)(const volatile void *, size_t), void (*give)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *p);

enum { FUZZ_BASE = 64 << 20, FUZZ_TIMES = 4 };

static int64_t fuzz_held, fuzz_most;

static void fuzz_on_take(const volatile void *p, size_t n)
{
  int64_t held = __atomic_add_fetch(&fuzz_held, (int64_t)n, __ATOMIC_RELAXED);
  if (held > fuzz_most) fuzz_most = held;
}

static void fuzz_on_give(const volatile void *p)
{
  if (!p) return;
  int64_t bytes = (int64_t)__sanitizer_get_allocated_size((const void *)(uintptr_t)p);
  __atomic_sub_fetch(&fuzz_held, bytes, __ATOMIC_RELAXED);
}

static inline void fuzz_begin(void)
{
  static bool watched;
  if (!watched) __sanitizer_install_malloc_and_free_hooks(fuzz_on_take, fuzz_on_give);
  watched = true;
  fuzz_held = fuzz_most = 0;
}

/* bytes: what was given, or what it was before it was compressed */
static inline int fuzz_end(size_t bytes)
{
  int64_t most = fuzz_most;
  if (most > FUZZ_BASE + FUZZ_TIMES * (int64_t)bytes) {
    fprintf(stderr, "%lld bytes of memory for %zu bytes of input\n", (long long)most, bytes);
    abort();
  }
  return 0;
}

#define MUST(condition) \
  do \
    if (!(condition)) fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort(); \
  while (0)

/* A file that holds these bytes; its path stays good until the next call for the same slot. */
static inline const char *fuzz_file(int slot, const void *data, size_t bytes)
{
  static int fd[4];
  static char path[4][32];
  if (fd[slot]) close(fd[slot]);
  fd[slot] = memfd_create("fuzz", 0);
  MUST(fd[slot] > 0 && write(fd[slot], data, bytes) == (ssize_t)bytes);
  snprintf(path[slot], sizeof path[slot], "/proc/self/fd/%d", fd[slot]);
  return path[slot];
}

/* A copy of bytes as text, in memory of exactly this size. */
static inline char *fuzz_text(const void *data, size_t bytes)
{
  char *text = malloc(bytes + 1);
  MUST(text);
  if (bytes) memcpy(text, data, bytes);
  text[bytes] = 0;
  return text;
}
