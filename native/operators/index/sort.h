/* sort.h - sort keys and a stable sort, for sort, topk and detections by score.
**
** Elements are converted to 64-bit integer keys with the same order (NaN above all numbers, -0 as
** 0), so that one stable merge sort works for all dtypes. For descending order the keys are
** complemented.
*/
#pragma once
#include "base/stop.h"
#include "op/op.h"

struct sort_key { uint64_t key; int64_t index; };

/* Returns the key of a number. */
static inline uint64_t key_of_real(double v)
{
  uint64_t bits;
  if (v != v) return ~0ull;
  v += 0.0; /* -0 becomes 0 */
  memcpy(&bits, &v, sizeof bits);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

static inline uint64_t key_of_whole(int64_t v) { return (uint64_t)v ^ 1ull << 63; }

enum { RUN = 16 };                                    /* keys of a run sorted by insertion */

static inline void insert_sort(struct sort_key *a, int64_t n)
{
  for (int64_t i = 1; i < n; i++) {
    struct sort_key k = a[i];
    int64_t j = i;
    for (; j > 0 && a[j - 1].key > k.key; j--) a[j] = a[j - 1];
    a[j] = k;
  }
}

static inline void merge_runs(
    struct sort_key *to, const struct sort_key *a, int64_t na, const struct sort_key *b, int64_t nb)
{
  while (na && nb) {
    bool second = b->key < a->key;
    *to++ = second ? *b : *a;
    b += second;
    nb -= second;
    a += !second;
    na -= !second;
  }
  memcpy(to, a, sizeof *a * (size_t)na);
  memcpy(to + na, b, sizeof *b * (size_t)nb);
}

/* Sorts n keys. b: scratch for n keys. Returns the array that has the result: a or b. */
static inline struct sort_key *merge_sort(struct sort_key *a, struct sort_key *b, int64_t n)
{
  for (int64_t i = 0; i < n; i += RUN) insert_sort(a + i, MIN(RUN, n - i));
  for (int64_t w = RUN; w < n && !stop_wanted(); w *= 2) {
    for (int64_t i = 0; i < n; i += 2 * w) {
      int64_t na = MIN(w, n - i), nb = MIN(w, n - i - na);
      merge_runs(b + i, a + i, na, a + i + na, nb);
    }
    struct sort_key *t = a;
    a = b;
    b = t;
  }
  return a;
}
