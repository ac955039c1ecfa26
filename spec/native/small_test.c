/* small_test.c - memory that is kept for the next blocks of its size: it is zeroed, counted, comes
** back from other threads, and is given back.
*/
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include "check.h"
#include "random.h"
#include "base/base.h"
#include "base/small.h"

enum { BLOCKS = 10000, BYTES = 100, LARGE = 700 };

static bool is_zero(const char *p, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (p[i]) return false;
  return true;
}

static void test_sizes(void)
{
  for (size_t n = 0; n < LARGE; n++) {
    const size_t size = small_size(n);
    CHECK(size >= n && size < n + 32, "%zu for %zu", size, n);
    CHECK(small_size(size) == size, "%zu for %zu", small_size(size), size);
  }
  CHECK(small_size(1 << 20) == 1 << 20, "%zu", small_size(1 << 20));
}

static void test_zeroed(void)
{
  for (size_t n = 0; n < LARGE; n++)
    for (int round = 0; round < 3; round++) {
      char *p = mem_new(n);
      CHECK(p && is_zero(p, n), "%zu bytes, round %d", n, round);
      memset(p, 0xff, n);
      mem_free(p);
    }
}

/* Makes, grows and frees blocks at random, each filled with its own byte. */
static void test_random(void)
{
  static char *block[64];
  static size_t size[64];
  const int64_t before = mem_bytes();
  int wrong = 0;
  for (int i = 0; i < count_trials(100000); i++) {
    const int k = (int)draw_below(COUNT(block));
    const size_t n = (size_t)draw_below(LARGE);
    for (size_t at = 0; at < size[k]; at++) wrong += block[k][at] != (char)k;
    if (block[k] && n % 3 == 0)
      block[k] = mem_grow(block[k], n);
    else {
      mem_free(block[k]);
      block[k] = mem_new(n);
    }
    size[k] = n;
    memset(block[k], k, n);
  }
  for (int k = 0; k < COUNT(block); k++) mem_free(block[k]);
  CHECK(!wrong, "%d bytes differ", wrong);
  CHECK(mem_bytes() == before, "%lld, before %lld", (long long)mem_bytes(), (long long)before);
}

static void *block[BLOCKS];

static void *free_all(void *unused)
{
  for (int i = 0; i < BLOCKS; i++) mem_free(block[i]);
  return unused;
}

/* Returns how many blocks of BYTES this thread can take without the system. */
static int count_kept(void)
{
  int n = 0;
  while (n < BLOCKS && (block[n] = small_take(BYTES))) n++;
  for (int i = 0; i < n; i++) free(block[i]);
  return n;
}

static void test_threads(void)
{
  const int64_t before = mem_bytes();
  pthread_t thread;
  count_kept();                                       /* takes all of them */
  void *probe = mem_new(BYTES);
  mem_free(probe);
  const bool keeps = count_kept() == 1;               /* not under a sanitizer */
  for (int i = 0; i < BLOCKS; i++) block[i] = mem_new(BYTES);
  CHECK(pthread_create(&thread, NULL, free_all, NULL) == 0, "no thread");
  pthread_join(thread, NULL);
  CHECK(mem_bytes() == before, "%lld, before %lld", (long long)mem_bytes(), (long long)before);
  const int n = count_kept();
  CHECK(!keeps || n > BLOCKS * 9 / 10, "%d of %d blocks came back", n, BLOCKS);
  for (int i = 0; i < BLOCKS; i++) block[i] = mem_new(BYTES);
  free_all(NULL);
  CHECK(small_release() == keeps, "nothing was kept");
  CHECK(!small_release(), "something is left");
}

/* Checks that growing a block takes as many kept blocks as it gives back. */
static void test_growing(void)
{
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < BLOCKS; i++) {
    char *p = mem_new(BYTES);
    memset(p, i, BYTES);
    p = mem_grow(p, 2 * BYTES);
    CHECK(p[0] == (char)i && p[BYTES - 1] == (char)i, "the contents did not move");
    if (i % 2) p = mem_grow(p, LARGE);
    CHECK(p[BYTES - 1] == (char)i, "the contents did not move");
    mem_free(p);
  }
  const size_t more = mallinfo2().uordblks - before;
  CHECK((int64_t)more < BLOCKS, "%zu bytes more", more);
}

/* Checks that aligned blocks, which come from the system, are not kept. */
static void test_lines(void)
{
  size_t before = 0;
  for (int i = 0; i < BLOCKS; i++) {
    if (i == 2 * LARGE) before = mallinfo2().uordblks; /* malloc has its caches then */
    char *p = mem_lines(BYTES + (size_t)i % LARGE);
    CHECK(p && (uintptr_t)p % ALIGN == 0 && is_zero(p, BYTES), "round %d", i);
    mem_free(p);
  }
  const size_t more = mallinfo2().uordblks - before;
  CHECK((int64_t)more < BLOCKS, "%zu bytes more", more);
}

int main(void)
{
  test_sizes();
  test_zeroed();
  test_growing();
  test_lines();
  test_random();
  test_threads();
  return check_end();
}
