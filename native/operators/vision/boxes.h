/* boxes.h - common parts of the detection operators: boxes in arrays (see kernel/element/boxes.h),
** sorting by score, greedy non-maximum suppression. */
#pragma once
#include "kernel/element/boxes.h"
#include "op/op.h"
#include "operators/index/sort.h"
#include "kernel/vec/vec.h"

#define BOX_FORMS "corner|center"

static inline void read_four(const struct vec_ops *r, const void *p, int64_t i, double v[4])
{
  for (int k = 0; k < 4; k++) v[k] = r->get(p, i + k);
}

/* Returns the box whose four numbers begin at index i of p. form: CORNER or CENTER. */
static inline struct box box_at(
    const struct vec_ops *r, const struct metric *m, const void *p, int64_t i, int form)
{
  double v[4];
  read_four(r, p, i, v);
  return box_of(m, v, form);
}

/* Returns a sort key that puts the highest score first and NaN last. */
static inline uint64_t best_first(double score)
{
  return ~key_of_real(score == score ? score : -INFINITY);
}

struct nms {
  struct metric metric;
  const struct box *box;                              /* best first */
  /* boxes of different kinds do not suppress each other; NULL: all are of one kind */
  const double *kind;
  double  limit;
  /* an overlap of exactly `limit` also suppresses */
  bool    inclusive;
};

/* Marks in `gone` each of n boxes that overlaps an earlier unmarked one, until `most` are kept.
** Returns the number of boxes kept. The caller zeroes `gone`. */
static inline int64_t nms_run(const struct nms *s, uint8_t *gone, int64_t n, int64_t most)
{
  int64_t kept = 0;
  double limit = box_held(&s->metric, s->limit);
  for (int64_t i = 0; i < n && kept < most; i++) {
    if (gone[i]) continue;
    kept++;
    for (int64_t j = i + 1; j < n; j++) {
      if (gone[j] || (s->kind && s->kind[i] != s->kind[j])) continue;
      double v = box_overlap(&s->metric, &s->box[i], &s->box[j]);
      gone[j] = s->inclusive ? v >= limit : v > limit;
    }
  }
  return kept;
}

/* Checks that a shape, if known, has `ndim` dimensions. expected: for the error. */
static inline int shape_rank(struct infer *s, ty_desc *slot, int ndim, const char *expected)
{
  if (!slot->ndim || slot->ndim == ndim) return TY_OK;
  return infer_fail(s, TY_ESHAPE, slot, "expected %s, got %d dimensions", expected, slot->ndim);
}

/* Returns an array of n elements at *at_, in the caller's scratch, and advances *at_. */
static inline void *cut_array(char **at_, int64_t n, size_t size)
{
  void *p = *at_;
  *at_ += align_up((size_t)n * size, ALIGN);
  return p;
}
#define CUT(at_, n, T) ((T *)cut_array(&(at_), n, sizeof(T)))
