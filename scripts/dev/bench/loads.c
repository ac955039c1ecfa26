/* loads.c - reads arrays in loads of 64 bytes, by several threads: the least time in which a step
** can read its weights. A library of the benchmark (decoding.lua), built for the machine at hand.
*/
#include <pthread.h>
#include <stddef.h>

enum {
  LINE = 64,                                          /* bytes of a load */
  AT_ONCE = 8,                                        /* loads in flight */
  MOST_THREADS = 64
};
typedef long long line __attribute__((vector_size(LINE)));

struct reader {
  const char *const *array;
  const size_t *bytes;
  int arrays, rounds, member, members;
  line sum;
};

/* Adds up this member's part of each array, as often as there are rounds. */
static void *read_arrays(void *context)
{
  struct reader *r = context;
  line sum[AT_ONCE] = { 0 };
  for (int k = 0; k < r->rounds; k++)
    for (int i = 0; i < r->arrays; i++) {
      const size_t lines = r->bytes[i] / LINE, members = (size_t)r->members;
      const line *at = (const line *)r->array[i] + lines * (size_t)r->member / members,
                 *end = (const line *)r->array[i] + lines * (size_t)(r->member + 1) / members;
      for (; end - at >= AT_ONCE; at += AT_ONCE)
        for (int j = 0; j < AT_ONCE; j++) sum[j] += at[j];
      for (; at < end; at++) sum[0] += *at;
    }
  for (int j = 0; j < AT_ONCE; j++) r->sum += sum[j];
  return NULL;
}

/* Reads all arrays, which begin at multiples of 64 bytes, `rounds` times by `members` threads, the
** caller's included. Returns a number that depends on all bytes, so that no load is left out; -1:
** too many threads, or one that cannot be made. */
long long loads_read(
    const char *const *array, const size_t *bytes, int arrays, int members, int rounds)
{
  struct reader reader[MOST_THREADS];
  pthread_t thread[MOST_THREADS];
  long long sum = 0;
  int made = 1;
  if (members < 1 || members > MOST_THREADS) return -1;
  for (int m = 0; m < members; m++)
    reader[m] = (struct reader){ array, bytes, arrays, rounds, m, members, { 0 } };
  while (made < members && !pthread_create(&thread[made], NULL, read_arrays, &reader[made])) made++;
  read_arrays(&reader[0]);
  for (int m = 1; m < made; m++) pthread_join(thread[m], NULL);
  for (int m = 0; m < made; m++)
    for (size_t j = 0; j < LINE / sizeof sum; j++) sum ^= reader[m].sum[j];
  return made == members ? sum : -1;
}
