/* boxes.h - overlaps of boxes, their order by score, and greedy suppression: what the detection
** operators share.
**
** A box is two corners and its area. Overlaps are compared with thresholds, so they are rounded
** where the data's own type would round (`single`): float32 data decides a tie as float32
** arithmetic does. A box with a NaN overlaps nothing.
*/
#pragma once
#include "op/op.h"
#include "operators/index/sort.h"
#include "kernel/vec/vec.h"

enum { CORNER, CENTER };                              /* x1 y1 x2 y2; x y width height */
#define BOX_FORMS "corner|center"

struct box { double x1, y1, x2, y2, area; };
/* pixel: 1 where both ends of a side count, as in whole pixels */
struct metric { bool single; double pixel; };

static inline double held(const struct metric *m, double v)
{
  return m->single ? (double)(float)v : v;
}

static inline struct box box_of(const struct metric *m, const double v[4], int form)
{
  struct box b = { v[0], v[1], v[2], v[3], 0 };
  double w = v[2], h = v[3];
  if (form == CENTER) {
    b.x1 = held(m, v[0] - w / 2);
    b.x2 = held(m, v[0] + w / 2);
    b.y1 = held(m, v[1] - h / 2);
    b.y2 = held(m, v[1] + h / 2);
  }
  else {
    w = held(m, held(m, v[2] - v[0]) + m->pixel);
    h = held(m, held(m, v[3] - v[1]) + m->pixel);
  }
  b.area = w < 0 || h < 0 ? 0 : held(m, w * h);
  return b;
}

static inline void read4(const struct vec_ops *r, const void *p, int64_t i, double v[4])
{
  for (int k = 0; k < 4; k++) v[k] = r->get(p, i + k);
}

static inline struct box box_at(
    const struct vec_ops *r, const struct metric *m, const void *p, int64_t i, int form)
{
  double v[4];
  read4(r, p, i, v);
  return box_of(m, v, form);
}

/* Intersection over union. */
static inline double box_overlap(const struct metric *m, const struct box *a, const struct box *b)
{
  double w = held(m, held(m, MIN(a->x2, b->x2) - MAX(a->x1, b->x1)) + m->pixel);
  double h = held(m, held(m, MIN(a->y2, b->y2) - MAX(a->y1, b->y1)) + m->pixel);
  double both = w > 0 && h > 0 ? held(m, w * h) : 0, sum = a->area + b->area;
  if (sum != sum) return NAN;
  return both > 0 ? held(m, both / held(m, held(m, sum) - both)) : 0;
}

/* The key that puts the highest score first, and NaN last. */
static inline uint64_t best_first(double score)
{
  return ~key_of_real(score == score ? score : -INFINITY);
}

struct nms {
  struct metric metric;
  const struct box *box;                              /* best first */
  /* boxes of two kinds let each other stand; NULL: all of one kind */
  const double *kind;
  double  limit;
  /* an overlap of exactly `limit` is too much */
  bool    inclusive;
};

/* Goes through n boxes and marks those that overlap an earlier one that stands, until `most`
** stand; returns how many do. `gone` is zeroed by the caller. */
static inline int64_t nms_run(const struct nms *s, uint8_t *gone, int64_t n, int64_t most)
{
  int64_t standing = 0;
  double limit = held(&s->metric, s->limit);
  for (int64_t i = 0; i < n && standing < most; i++) {
    if (gone[i]) continue;
    standing++;
    for (int64_t j = i + 1; j < n; j++) {
      if (gone[j] || (s->kind && s->kind[i] != s->kind[j])) continue;
      double v = box_overlap(&s->metric, &s->box[i], &s->box[j]);
      gone[j] = s->inclusive ? v >= limit : v > limit;
    }
  }
  return standing;
}

/* A shape of `ndim` dims, as far as it is known. */
static inline int shape_rank(struct infer *s, ty_desc *slot, int ndim, const char *expected)
{
  if (!slot->ndim || slot->ndim == ndim) return TY_OK;
  return infer_fail(s, TY_ESHAPE, slot, "expected %s, got %d dimensions", expected, slot->ndim);
}

/* Working memory: one part per member of the team, cut into arrays in the order of the calls to
** `cut`. */
static inline void *cut(char **at_, int64_t n, size_t size)
{
  void *p = *at_;
  *at_ += align_up((size_t)n * size, ALIGN);
  return p;
}
#define CUT(at_, n, T) ((T *)cut(&(at_), n, sizeof(T)))
