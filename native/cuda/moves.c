/* moves.c - the primitives of kernel/primitives.h on a GPU: moves of elements (kernels/move.cu,
** transpose.cu) and sums (reduce.h). */
#include "cuda/reduce.h"
#include "kernel/primitives.h"
#include "kernel/strided_copy.h"

static bool is_even(int64_t x) { return x % 2 == 0; }

/* Doubles the element size if the innermost axis is contiguous in both arrays and everything is
** divisible. Returns whether it did. */
static bool widen_units(struct move *m, const void *dst, const void *src, size_t size)
{
  enum { LOAD = 16 };                                 /* the widest one, in bytes */
  int in = m->n - 1;
  uintptr_t at = (uintptr_t)dst | (uintptr_t)src;
  if (size == LOAD || at % (2 * size) || m->to[in] != 1 || m->from[in] != 1 || !is_even(m->dim[in]))
    return false;
  for (int i = 0; i < in; i++)
    if (!is_even(m->to[i]) || !is_even(m->from[i])) return false;
  m->dim[in] /= 2;
  for (int i = 0; i < in; i++) m->to[i] /= 2, m->from[i] /= 2;
  return true;
}

/* args: the struct of kernels/move.cu, that is the number of elements, then size and strides of
** each axis. axes: number of axes. */
struct nest_args { int64_t args[1 + 3 * MOVE_AXES]; int axes; };
static struct nest_args make_nest(const struct move *m)
{
  struct nest_args s = { { 1 }, m->n };
  for (int i = 0; i < m->n; i++) {
    s.args[0] *= m->dim[i];
    s.args[1 + 3 * i] = m->dim[i];
    s.args[2 + 3 * i] = m->to[i];
    s.args[3 + 3 * i] = m->from[i];
  }
  return s;
}

static int launch_nest(
    int device, const char *name, struct nest_args *s, size_t size, void *dst, const void *from)
{
  cu_function f;
  TRY(cuda_family(device, FAMILY_move, name, &f, "UNIT=%s AXES=%d INDEX=%s", cuda_unit(size),
      s->axes, cuda_index(s->args[0])));
  void *params[] = { &dst, (void *)from, s->args };
  return cuda_launch(device, f, cuda_blocks(device, s->args[0]), CUDA_BLOCK, 0, params);
}

/* -- through tiles ----------------------------------------------------------------------------- */

enum { TILE = 32, NARROW = 8, WORD = 4 };             /* TILE as in kernels/transpose.cu */

/* Finds the axes that are contiguous in dst and in src. Returns false unless they differ and are
** long. */
static bool transposed_axes(const struct move *m, int *to, int *from)
{
  *to = *from = -1;
  for (int i = 0; i < m->n; i++) {
    if (m->dim[i] < NARROW) continue;
    if (m->to[i] == 1) *to = i;
    if (m->from[i] == 1) *from = i;
  }
  return *to >= 0 && *from >= 0 && *to != *from;
}

/* Returns how many elements of `size` bytes a load takes: as many as WORD bytes have, where both
** axes consist of such packs, each at a multiple of WORD, and fill half a tile of them. */
static int transpose_pack(
    const struct move *m, int to, int from, const void *dst, const void *src, size_t size)
{
  const int pack = size < WORD ? WORD / (int)size : 1, half = TILE * pack / 2;
  if (((uintptr_t)dst | (uintptr_t)src) % WORD) return 1;
  if (m->dim[to] < half || m->dim[from] < half) return 1;
  if (m->dim[to] % pack || m->dim[from] % pack) return 1;
  for (int i = 0; i < m->n; i++) {
    if (i != to && m->to[i] % pack) return 1;
    if (i != from && m->from[i] % pack) return 1;
  }
  return pack;
}

static int transpose_tiles(int device, const struct move *m, int to, int from, void *dst,
    const void *src, size_t size)
{
  const int pack = transpose_pack(m, to, from, dst, src, size), side = TILE * pack;
  int64_t args[5 + 3 * MOVE_AXES] = { 0, m->dim[to], m->from[to], m->dim[from], m->to[from] };
  int64_t tiles = (m->dim[to] + side - 1) / side * ((m->dim[from] + side - 1) / side);
  int outer = 0;
  cu_function f;
  for (int i = 0; i < m->n; i++) {
    if (i == to || i == from) continue;
    memcpy(&args[5 + 3 * outer++], (int64_t[]){ m->dim[i], m->to[i], m->from[i] },
        3 * sizeof *args);
    tiles *= m->dim[i];
  }
  args[0] = tiles;
  if (!outer) args[5] = 1, outer = 1;
  TRY(cuda_family(device, FAMILY_transpose, "transpose", &f, "UNIT=%s PACK=%d OUTER=%d INDEX=%s",
      cuda_unit(size), pack, outer, cuda_index(tiles * side)));
  void *params[] = { &dst, &src, args };
  return cuda_launch(
      device, f, cuda_blocks(device, tiles * CUDA_BLOCK), CUDA_BLOCK, 0, params);
}

static int move_nest(int device, const struct move *m, void *dst, const void *src, size_t size)
{
  struct move wide, simple;
  int to, from;
  move_simplify(m, &wide);
  while (widen_units(&wide, dst, src, size)) size *= 2;
  /* simplified again, since a unit may be the whole innermost axis */
  move_simplify(&wide, &simple);
  if (transposed_axes(&simple, &to, &from))
    return transpose_tiles(device, &simple, to, from, dst, src, size);
  struct nest_args s = make_nest(&simple);
  return launch_nest(device, "move", &s, size, dst, &src);
}

static int set_nest(int device, const struct move *m, void *dst, uint64_t value, size_t size)
{
  struct move simple;
  move_simplify(m, &simple);
  struct nest_args s = make_nest(&simple);
  return launch_nest(device, "fill_strided", &s, size, dst, &value);
}

static int sum_axes(int device, const struct reduce *r, const void *x, void *y, bool add, void *tmp)
{
  struct cuda_reduce f = { R_SUM, F_NONE, r->dtype, x, .y = y, .add = add };
  return cuda_reduce(device, r, &f, tmp);
}

static struct reduce reduce_all(int dtype, int64_t n)
{
  struct reduce r;
  reduce_plan_axes(dtype, 1, &n, 1, &r);
  return r;
}

static int norm_all(int device, const void *x, int dtype, int64_t n, void *y, int to, void *tmp)
{
  struct reduce r = reduce_all(dtype, n);
  struct cuda_reduce f = { R_SQUARE, F_ROOT, to, x, .y = y };
  return cuda_reduce(device, &r, &f, tmp);
}

static size_t norm_scratch(int dtype, int64_t n)
{
  struct reduce r = reduce_all(dtype, n);
  return cuda_reduce_scratch(&r);
}

const struct primitives cuda_primitives = {
  .move = move_nest,
  .set = set_nest,
  .sum = sum_axes,
  .sum_scratch = cuda_reduce_scratch,
  .norm = norm_all,
  .norm_scratch = norm_scratch,
  .random = cuda_numbers,
};
