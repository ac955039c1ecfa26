/* winograd.c - transforms of Winograd's F(4 x 4, 3 x 3), compiled once per instruction set (see
** kernel/conv/winograd_isa.h).
**
** With X a 6 x 6 piece of the image, g the 3 x 3 window, Y the 4 x 4 result (A. Lavin, S. Gray,
** Fast Algorithms for Convolutional Neural Networks, 2016, section 4):
**   Y = A^T ((G g G^T) . (B^T X B)) A
** The points are 0, infinity, A1, -A1, A2, -A2; 5/8 and 3/2 give smaller rounding errors than the
** usual 1 and 2. The matrices are applied to columns, then to rows, always to a vector of
** channels. */
#include <string.h>
#include "kernel/conv/winograd_isa.h"
#include "kernel/gemm/isa/float.inc"

#define A1  0.625f
#define A2  1.5f
#define Q1  (A1 * A1)
#define Q2  (A2 * A2)
/* Factors of G: 1 / product of the differences from the other points. */
#define N0  (1 / (Q1 * Q2))
#define N1  (1 / (2 * Q1 * (Q1 - Q2)))
#define N2  (1 / (2 * Q2 * (Q2 - Q1)))

enum { TILE = WINOGRAD_TILE, SIDE = TILE + 2, RUN = 8, COLUMNS = TILE * RUN + 2 };

/* -- one dimension ----------------------------------------------------------------------------- */

INLINE void input_line(const V x[SIDE], V y[SIDE]) /* B^T */
{
  const V e1 = FMA(BCAST(-Q2), x[2], x[4]), o1 = FMA(BCAST(-Q2), x[1], x[3]);
  const V e2 = FMA(BCAST(-Q1), x[2], x[4]), o2 = FMA(BCAST(-Q1), x[1], x[3]);
  y[0] = FMA(BCAST(Q1 * Q2), x[0], FMA(BCAST(-Q1 - Q2), x[2], x[4]));
  y[1] = FMA(BCAST(Q1 * Q2), x[1], FMA(BCAST(-Q1 - Q2), x[3], x[5]));
  y[2] = FMA(BCAST(A1), o1, e1);
  y[3] = FMA(BCAST(-A1), o1, e1);
  y[4] = FMA(BCAST(A2), o2, e2);
  y[5] = FMA(BCAST(-A2), o2, e2);
}

INLINE void output_line(const V m[SIDE], V y[TILE]) /* A^T */
{
  const V s1 = m[2] + m[3], d1 = m[2] - m[3], s2 = m[4] + m[5], d2 = m[4] - m[5];
  y[0] = m[0] + s1 + s2;
  y[1] = FMA(BCAST(A2), d2, BCAST(A1) * d1);
  y[2] = FMA(BCAST(Q2), s2, BCAST(Q1) * s1);
  y[3] = FMA(BCAST(A2 * Q2), d2, FMA(BCAST(A1 * Q1), d1, m[1]));
}

INLINE void output_back_line(const V y[TILE], V m[SIDE]) /* A */
{
  const V e1 = FMA(BCAST(Q1), y[2], y[0]), o1 = FMA(BCAST(Q1), y[3], y[1]);
  const V e2 = FMA(BCAST(Q2), y[2], y[0]), o2 = FMA(BCAST(Q2), y[3], y[1]);
  m[0] = y[0];
  m[1] = y[3];
  m[2] = FMA(BCAST(A1), o1, e1);
  m[3] = FMA(BCAST(-A1), o1, e1);
  m[4] = FMA(BCAST(A2), o2, e2);
  m[5] = FMA(BCAST(-A2), o2, e2);
}

INLINE void filter_line(const V g[3], V u[SIDE]) /* G */
{
  const V e1 = BCAST(N1) * FMA(BCAST(Q1), g[2], g[0]), e2 = BCAST(N2) * FMA(BCAST(Q2), g[2], g[0]);
  u[0] = BCAST(N0) * g[0];
  u[1] = g[2];
  u[2] = FMA(BCAST(A1 * N1), g[1], e1);
  u[3] = FMA(BCAST(-A1 * N1), g[1], e1);
  u[4] = FMA(BCAST(A2 * N2), g[1], e2);
  u[5] = FMA(BCAST(-A2 * N2), g[1], e2);
}

INLINE void filter_back_line(const V u[SIDE], V g[3]) /* G^T */
{
  const V s1 = BCAST(N1) * (u[2] + u[3]), d1 = BCAST(A1 * N1) * (u[2] - u[3]);
  const V s2 = BCAST(N2) * (u[4] + u[5]), d2 = BCAST(A2 * N2) * (u[4] - u[5]);
  g[0] = FMA(BCAST(N0), u[0], s1 + s2);
  g[1] = d1 + d2;
  g[2] = FMA(BCAST(Q1), s1, FMA(BCAST(Q2), s2, u[1]));
}

/* -- input ------------------------------------------------------------------------------------- */

/* Neighbouring tiles share two columns, which are transformed once. The rows that only the next row
** of tiles reads are prefetched, since they are too short for the hardware prefetcher. */
static const float zeros[COLUMNS * W];

/* Reads and transforms columns from x on. The first tile begins inside the image or at most two
** columns before it. */
INLINE void input_columns(const struct winograd_run *r, int64_t x, int64_t columns,
    float out[SIDE][COLUMNS * W])
{
  const int64_t from = x < 0 ? -x : 0, to = r->w - x < columns ? r->w - x : columns;
  const int64_t below = TILE * r->apart * r->w * W;
  const float *row[SIDE];
  for (int i = 0; i < SIDE; i++) {
    const int64_t y = r->y + i * r->apart;
    row[i] = y >= 0 && y < r->h ? r->image + (y * r->w + x + from) * W : zeros;
    memset(out[i], 0, sizeof(V) * (size_t)from);
    memset(out[i] + to * W, 0, sizeof(V) * (size_t)(columns - to));
  }
  for (int64_t k = from; k < to; k++) {
    V a[SIDE], b[SIDE];
    UNROLL for (int i = 0; i < SIDE; i++) a[i] = LOAD(row[i] + (k - from) * W);
    UNROLL for (int i = 2; i < SIDE; i++) __builtin_prefetch(row[i] + below + (k - from) * W);
    input_line(a, b);
    UNROLL for (int i = 0; i < SIDE; i++) STORE(out[i] + k * W, b[i]);
  }
}

INLINE void input_row(const struct winograd_run *r, const float *column, float *out)
{
  V a[SIDE], b[SIDE];
  UNROLL for (int j = 0; j < SIDE; j++) a[j] = LOAD(column + j * W);
  input_line(a, b);
  UNROLL for (int j = 0; j < SIDE; j++) STORE(out + j * r->plane, b[j]);
}

static void winograd_transform_input(const struct winograd_run *r)
{
  float column[SIDE][COLUMNS * W];
  for (int64_t first = 0; first < r->n; first += RUN) {
    const int64_t n = r->n - first < RUN ? r->n - first : RUN;
    input_columns(r, r->x + TILE * first, TILE * (n - 1) + SIDE, column);
    for (int64_t t = 0; t < n; t++)
      for (int i = 0; i < SIDE; i++)
        input_row(r, column[i] + TILE * t * W,
            r->points + (first + t) * r->step + i * SIDE * r->plane);
  }
}

/* -- output ------------------------------------------------------------------------------------ */

INLINE void output_row(
    const struct winograd_run *r, const V *y, V scale, V bias, float *out, const int columns)
{
  const bool add = r->add, relu = r->relu;
  UNROLL for (int j = 0; j < TILE; j++)
    if (j < columns) {
      V v = y[j] * scale + bias;
      if (add) v += LOAD(out + j * W);
      if (relu) v = SELECT(v < 0, (V){ 0 }, v); /* NaN stays */
      STORE(out + j * W, v);
    }
}

INLINE void output_tile(const struct winograd_run *r, const float *points, float *out)
{
  const V bias = r->bias ? LOAD(r->bias) : (V){ 0 },
          scale = r->scale ? LOAD(r->scale) : (V){ 0 } + 1;
  V z[TILE][SIDE];
  UNROLL for (int j = 0; j < SIDE; j++) {
    V a[SIDE], b[TILE];
    UNROLL for (int i = 0; i < SIDE; i++) a[i] = LOAD(points + (i * SIDE + j) * r->plane);
    output_line(a, b);
    UNROLL for (int i = 0; i < TILE; i++) z[i][j] = b[i];
  }
  for (int i = 0; i < r->down; i++, out += r->apart * r->w * W) {
    V y[TILE];
    output_line(z[i], y);
    if (r->across == TILE)
      output_row(r, y, scale, bias, out, TILE);
    else
      output_row(r, y, scale, bias, out, r->across);
  }
}

static void winograd_transform_output(const struct winograd_run *r)
{
  float *out = r->image + (r->y * r->w + r->x) * W;
  for (int64_t t = 0; t < r->n; t++)
    output_tile(r, r->points + t * r->step, out + TILE * t * W);
}

INLINE void output_back_tile(const struct winograd_run *r, const float *image, float *points)
{
  const int rows = r->down, columns = r->across;
  V z[SIDE][TILE];
  UNROLL for (int j = 0; j < TILE; j++) {
    V a[TILE], b[SIDE];
    UNROLL for (int i = 0; i < TILE; i++)
      a[i] = i < rows && j < columns ? LOAD(image + (i * r->w + j) * W) : (V){ 0 };
    output_back_line(a, b);
    UNROLL for (int i = 0; i < SIDE; i++) z[i][j] = b[i];
  }
  for (int i = 0; i < SIDE; i++) {
    V m[SIDE];
    output_back_line(z[i], m);
    UNROLL for (int j = 0; j < SIDE; j++) STORE(points + (i * SIDE + j) * r->plane, m[j]);
  }
}

static void winograd_transform_output_back(const struct winograd_run *r)
{
  const float *image = r->image + (r->y * r->w + r->x) * W;
  for (int64_t t = 0; t < r->n; t++)
    output_back_tile(r, image + TILE * t * W, r->points + t * r->step);
}

/* -- filter ------------------------------------------------------------------------------------ */

static void winograd_transform_filter(const struct winograd_filter *f)
{
  float g[9][W];
  V z[SIDE][3];
  for (int64_t c = 0; c < f->n; c++) {
    for (int l = 0; l < W; l++)
      for (int t = 0; t < 9; t++)
        g[t][l] = f->window[c * f->row + l * f->lane + (f->flip ? 8 - t : t)];
    for (int j = 0; j < 3; j++) {
      V b[SIDE];
      filter_line((V[]){ LOAD(g[j]), LOAD(g[3 + j]), LOAD(g[6 + j]) }, b);
      for (int i = 0; i < SIDE; i++) z[i][j] = b[i];
    }
    for (int i = 0; i < SIDE; i++) {
      V u[SIDE];
      filter_line(z[i], u);
      for (int j = 0; j < SIDE; j++)
        STORE(f->points + c * f->step + (i * SIDE + j) * f->plane, u[j]);
    }
  }
}

static void winograd_transform_filter_back(const struct winograd_filter *f)
{
  float g[9][W];
  V z[3][SIDE];
  for (int64_t c = 0; c < f->n; c++) {
    for (int j = 0; j < SIDE; j++) {
      V a[SIDE], b[3];
      for (int i = 0; i < SIDE; i++)
        a[i] = LOAD(f->points + c * f->step + (i * SIDE + j) * f->plane);
      filter_back_line(a, b);
      for (int i = 0; i < 3; i++) z[i][j] = b[i];
    }
    for (int i = 0; i < 3; i++) {
      V y[3];
      filter_back_line(z[i], y);
      for (int j = 0; j < 3; j++) STORE(g[3 * i + j], y[j]);
    }
    for (int l = 0; l < W; l++)
      for (int t = 0; t < 9; t++) {
        float *out = &f->window[c * f->row + l * f->lane + t];
        *out = g[t][l] + (f->add ? *out : 0);
      }
  }
}

#define ISA_NAME_(isa) winograd_isa_##isa
#define ISA_NAME(isa) ISA_NAME_(isa)
extern const struct winograd_isa ISA_NAME(ISA);
const struct winograd_isa ISA_NAME(ISA) = { W, winograd_transform_input, winograd_transform_output,
  winograd_transform_output_back, winograd_transform_filter, winograd_transform_filter_back };
