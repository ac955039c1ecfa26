/* conv_1x1.c - tiles of 1 x 1 convolutions over channels in blocks, compiled once per
** instruction set (see kernel/conv/isa_1x1.h). The sums of a tile stay in registers. Positions
** lie a vector apart, so that a block of channels is read through one pointer. Lines of x that
** the next tile wants lie pages apart, too far for a processor to see them coming: they are
** asked for here.
*/
#include "kernel/conv/isa_1x1.h"
#include "kernel/gemm/isa/float.inc"

/* rows of the weight that are fetched before their turn; channels */
enum { AHEAD = 12, AT_ONCE = 4 };

INLINE void finish(const struct point_tile *t, V acc[][2], const int mr, const int nv)
{
  UNROLL for (int j = 0; j < nv; j++) {
    const V bias = t->bias ? LOAD(t->bias + j * W) : (V){ 0 },
            scale = t->scale ? LOAD(t->scale + j * W) : (V){ 0 } + 1;
    UNROLL for (int i = 0; i < mr; i++) {
      float *y = t->y + j * t->far + i * W;
      V v = acc[i][j] * scale + bias;
      if (t->add) v += LOAD(y);
      if (t->relu) v = SELECT(v < 0, (V){ 0 }, v); /* NaN stays */
      STORE(y, v);
    }
  }
}

INLINE void tile_any(const struct point_tile *t, const int mr, const int nv)
{
  const float *weight = t->weight;
  V acc[MR][2];
  UNROLL for (int i = 0; i < mr; i++) acc[i][0] = acc[i][1] = (V){ 0 };
  for (int64_t o = 0; o < t->blocks; o++) {
    const float *x = t->x + o * t->far, *soon = t->soon + o * t->soon_far;
    for (int c = 0; c < W; c += AT_ONCE, x += AT_ONCE)
      UNROLL for (int p = 0; p < AT_ONCE; p++) {
        __builtin_prefetch(soon, 0, 2);
        soon += t->soon_step;
        UNROLL for (int j = 0; j < nv; j++) __builtin_prefetch(weight + (AHEAD * nv + j) * W);
        V w0 = LOAD(weight), w1 = nv > 1 ? LOAD(weight + W) : w0;
        UNROLL for (int i = 0; i < mr; i++) {
          V v = BCAST(x[i * W + p]);
          acc[i][0] = FMA(v, w0, acc[i][0]);
          if (nv > 1) acc[i][1] = FMA(v, w1, acc[i][1]);
        }
        weight += nv * W;
      }
  }
  finish(t, acc, mr, nv);
}

#define TILE(mr) \
  static void tile_##mr##_1(const struct point_tile *t) { tile_any(t, mr, 1); } \
  static void tile_##mr##_2(const struct point_tile *t) { tile_any(t, mr, 2); }
EACH(TILE)

#define ENTRY(mr) { tile_##mr##_1, tile_##mr##_2 },
static void (*const tiles[MR + 1][2])(const struct point_tile *) = { { 0 }, EACH(ENTRY) };

static void tile(const struct point_tile *t) { tiles[t->rows][t->vectors - 1](t); }

#define NAME_(isa) point_isa_##isa
#define NAME(isa) NAME_(isa)
extern const struct point_isa NAME(ISA);
const struct point_isa NAME(ISA) = { W, MR, tile };
