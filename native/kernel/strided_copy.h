/* strided_copy.h - strided copies of elements of any size, for transpose, slice, Concat, tile, flip
** and others.
**
** A move is a nest of axes, outermost first: element (i, j, ...) goes from src[i * from0 + j *
** from1 + ...] to dst[i * to0 + j * to1 + ...]. Strides count elements and may be negative; `from`
** may be 0 (one element to many positions). No element of dst is written twice, and dst and src do
** not overlap. Elements have 1, 2, 4 or 8 bytes and are not interpreted. Order of calls: { 0 },
** move_axis for each axis, move_run. device: the one of dst and src; kernels pass their call's. A
** kernel that only calls these functions runs on any device (K_ANYWHERE). */
#pragma once
#include "kernel/kernel.h"

enum { MOVE_AXES = 2 * TY_MAXDIM };
struct move { int n; int64_t dim[MOVE_AXES], to[MOVE_AXES], from[MOVE_AXES]; };

static inline void move_axis(struct move *m, int64_t dim, int64_t to, int64_t from)
{
  m->dim[m->n] = dim;
  m->to[m->n] = to;
  m->from[m->n] = from;
  m->n++;
}
/* Makes an equal move with few axes, but at least two: axes of one element are dropped, axes that
** are contiguous in both arrays are joined, and the rest is ordered by stride in dst. */
void move_simplify(const struct move *m, struct move *out);
/* Copies the elements of a move; parallel. */
int move_run(int device, const struct move *m, void *dst, const void *src, size_t size);
/* Sets each element of dst to *value, which is in host memory; `from` is ignored. */
int move_set(int device, const struct move *m, void *dst, const void *value, size_t size);
/* Copies bytes; parallel. dst may be src. */
int move_bytes(int device, void *dst, const void *src, size_t bytes);
/* Sets bytes to 0. */
int move_zero(int device, void *dst, size_t bytes);
/* Writes n copies of *value, which is in host memory. */
int move_fill(int device, void *dst, const void *value, size_t size, int64_t n);

/* -- small helpers of operators that move ------------------------------------------------------ */

/* Fills in the strides of a dense array, in elements. */
static inline void fill_strides(const ty_desc *d, int64_t *stride)
{
  int64_t s = 1;
  for (int i = d->ndim - 1; i >= 0; i--) stride[i] = s, s *= d->dim[i];
}
static inline void *elements_at(const void *p, int64_t i, size_t size)
{
  return (char *)p + i * (int64_t)size;
}
static inline int64_t product_of(const ty_desc *d, int from, int to) /* of dims from .. to - 1 */
{
  int64_t n = 1;
  for (int i = from; i < to; i++) n *= d->dim[i];
  return n;
}
/* Stores a number as an element of any dtype, as a C cast does; out of range, as the nearest
** number. */
void    set_number(void *p, int dtype, double value);
/* Returns element i, of any dtype, truncated to an integer; INT64_MIN if it is NaN. */
int64_t index_of(const struct operand *a, int64_t i);
/* Returns element i, of any dtype, as a double. */
double  real_of(const struct operand *a, int64_t i);

/* Writes zeros to output k, if there is one and it is used. */
int move_zeros(const struct call *c, int k);
/* Copies input 0 to output 0; further outputs (gradients) are zeros. */
int copy_kernel(struct call *c);

/* A kernel table of one function that moves elements of any dtype. MOVE_ANYWHERE: one that only
** calls the functions above. */
#define MOVE_KERNEL(table, function) \
  static const struct kernel table[] = { { .name = "move", .run = function, .types = T_ANY }, \
                                         { 0 } };
#define MOVE_ANYWHERE(table, function) \
  static const struct kernel table[] = { \
    { .name = "move", .run = function, .types = T_ANY, .flags = K_ANYWHERE }, { 0 } };
