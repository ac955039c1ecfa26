/* quantize.h - 8-bit and 32-bit integers that represent numbers of a range.
**
** Of a range (least, most) only the larger magnitude R matters: an int8 q represents q R / 127, a
** uint8 q R / 255, an int32 q R / (2^31 - 1). The ends of a range are float32 arrays of one
** element.
*/
#pragma once
#include "kernel/element/levels.h"
#include "kernel/strided_copy.h"
#include "op/op.h"

/* Returns the largest level. */
static inline double levels_of(int dtype)
{
  return dtype == TY_U8 ? 255 : dtype == TY_I8 ? 127 : 2147483647;
}
/* Returns R of a range. */
static inline double range_magnitude(const struct operand *least, const struct operand *most)
{
  return range_size(real_of(least, 0), real_of(most, 0));
}
/* Returns the number that level 1 represents. */
static inline double unit_of(int dtype, double magnitude) { return magnitude / levels_of(dtype); }

/* Returns the level nearest to v, a number in units of that type. */
static inline double compute_level(double v, int dtype)
{
  double most = levels_of(dtype);
  return nearest_level(v, dtype == TY_U8 ? 0 : -most, most);
}
/* Stores the level nearest to v, in units of a's dtype, as element i. */
static inline void put_level(const struct operand *a, int64_t i, double v)
{
  double q = compute_level(v, a->d.dtype);
  if (a->d.dtype == TY_I8)
    ((int8_t *)a->p)[i] = (int8_t)q;
  else if (a->d.dtype == TY_U8)
    ((uint8_t *)a->p)[i] = (uint8_t)q;
  else
    ((int32_t *)a->p)[i] = (int32_t)q;
}
/* Writes the range to outputs k and k + 1 of a call. */
static inline void put_range(struct call *c, int k, double least, double most)
{
  if (c->out[k].p) *(float *)c->out[k].p = (float)least;
  if (c->out[k + 1].p) *(float *)c->out[k + 1].p = (float)most;
}
/* Infers the shape of a range's end: one element. */
static inline int single_shape(struct infer *s, ty_desc *d)
{
  int64_t one = 1;
  return shape_is(s, d, 1, &one);
}
static inline bool is_level(int dtype) { return dtype == TY_U8 || dtype == TY_I8; }

/* Layers in 8 bits (arithmetic.c): _contrib_quantized_fully_connected, _conv and _pooling, which
** are defined in the files of FullyConnected, Convolution and Pooling. Inputs are the layer's own,
** then the range of each; outputs are the result and its range. The layer is computed in double, in
** which sums of products of levels are exact. */
int layer8_shape(struct infer *s);
int layer8_type(struct infer *s);
extern const struct kernel layer8_cpu[];
#define LAYER8_RANGES " min_data max_data min_weight max_weight"
