/* strided_copy.c - see strided_copy.h.
**
** Axes of one element are dropped, the others are ordered by their stride in dst, and neighbours
** that form one axis in both arrays are joined. The innermost axis and a partner form a plane.
** Planes are cut into blocks, which are the units of parallel work. If src is contiguous along
** another axis than the innermost one, that axis is the partner, and blocks are transposed in small
** square tiles of whole cache lines, so that both sides are accessed a line at a time. */
#include "base/stream_copy.h"
#include "kernel/primitives.h"
#include "kernel/strided_copy.h"

enum {
  UNIT_ELEMENTS = 32768,
  TILE_SIDE = 128,                                    /* elements of a transposed block's side */
  LINE_BYTES = 64,                                    /* bytes of a cache line */
  LOOP_BYTES = 96,                                    /* most bytes for which loops beat memcpy */
};

typedef uint8_t  u8  __attribute__((may_alias));
typedef uint16_t u16 __attribute__((may_alias));
typedef uint32_t u32 __attribute__((may_alias));
typedef uint64_t u64 __attribute__((may_alias));

struct plane { int64_t n1, to1, from1, n0, to0, from0; };   /* axis 0 is the inner one */

/* -- one block, per element size --------------------------------------------------------------- */

#define BLOCKS(T) \
static void strided_##T(const struct plane *p, T *d, const T *s) \
{ \
  for (int64_t i = 0; i < p->n1; i++, d += p->to1, s += p->from1) { \
    if (p->to0 == 1 && p->from0 == 1) for (int64_t j = 0; j < p->n0; j++) d[j] = s[j]; \
    else if (p->to0 == 1 && p->from0 == 0) for (int64_t j = 0; j < p->n0; j++) d[j] = *s; \
    else for (int64_t j = 0; j < p->n0; j++) d[j * p->to0] = s[j * p->from0]; \
  } \
} \
static void edge_##T(T *d, int64_t to1, const T *s, int64_t from0, int64_t n1, int64_t n0) \
{ \
  for (int64_t i = 0; i < n1; i++) \
    for (int64_t j = 0; j < n0; j++) d[i * to1 + j] = s[j * from0 + i]; \
} \
static void tile_##T(T *d, int64_t to1, const T *s, int64_t from0) \
{ \
  enum { N = LINE_BYTES / sizeof(T) }; \
  T line[N][N]; \
  for (int j = 0; j < N; j++) memcpy(line[j], s + j * from0, LINE_BYTES); \
  for (int i = 0; i < N; i++, d += to1) for (int j = 0; j < N; j++) d[j] = line[j][i]; \
} \
/* Requires to0 = from1 = 1. */ \
static void transpose_##T(const struct plane *p, T *d, const T *s) \
{ \
  enum { N = LINE_BYTES / sizeof(T) }; \
  for (int64_t i = 0; i < p->n1; i += N) \
    for (int64_t j = 0; j < p->n0; j += N) { \
      int64_t ni = MIN(N, p->n1 - i), nj = MIN(N, p->n0 - j); \
      T *to = d + i * p->to1 + j; \
      const T *from = s + j * p->from0 + i; \
      if (ni == N && nj == N) tile_##T(to, p->to1, from, p->from0); \
      else edge_##T(to, p->to1, from, p->from0, ni, nj); \
    } \
}
BLOCKS(u8)
BLOCKS(u16)
BLOCKS(u32)
BLOCKS(u64)

static void strided_copy_plane(
    const struct plane *p, char *d, const char *s, size_t size, bool across)
{
  if (across) switch (size) {
    case 1: transpose_u8(p, (u8 *)d, (const u8 *)s); return;
    case 2: transpose_u16(p, (u16 *)d, (const u16 *)s); return;
    case 4: transpose_u32(p, (u32 *)d, (const u32 *)s); return;
    default: transpose_u64(p, (u64 *)d, (const u64 *)s); return;
    }
  if (p->to0 == 1 && p->from0 == 1 && p->n0 * (int64_t)size > LOOP_BYTES) {
    for (int64_t i = 0; i < p->n1; i++)
      memcpy(elements_at(d, i * p->to1, size), elements_at(s, i * p->from1, size),
          (size_t)p->n0 * size);
    return;
  }
  switch (size) {
  case 1: strided_u8(p, (u8 *)d, (const u8 *)s); return;
  case 2: strided_u16(p, (u16 *)d, (const u16 *)s); return;
  case 4: strided_u32(p, (u32 *)d, (const u32 *)s); return;
  default: strided_u64(p, (u64 *)d, (const u64 *)s); return;
  }
}

/* -- preparing a move -------------------------------------------------------------------------- */

static int64_t strided_get_length(int64_t x) { return x < 0 ? -x : x; }

static void strided_swap_axes(struct move *m, int i, int j)
{
  int64_t t[3] = { m->dim[i], m->to[i], m->from[i] };
  m->dim[i] = m->dim[j];
  m->to[i] = m->to[j];
  m->from[i] = m->from[j];
  m->dim[j] = t[0];
  m->to[j] = t[1];
  m->from[j] = t[2];
}

void move_simplify(const struct move *m, struct move *out)
{
  struct move a = { 0 };
  for (int i = 0; i < m->n; i++) {
    if (m->dim[i] == 1) continue;
    move_axis(&a, m->dim[i], m->to[i], m->from[i]);
    for (int j = a.n - 1; j > 0 && strided_get_length(a.to[j - 1]) < strided_get_length(a.to[j]);
         j--)
      strided_swap_axes(&a, j - 1, j);
  }
  out->n = 0;
  for (int i = 0; i < a.n; i++) {
    int k = out->n - 1;
    if (k >= 0 && out->to[k] == a.to[i] * a.dim[i] && out->from[k] == a.from[i] * a.dim[i])
      out->dim[k] *= a.dim[i], out->to[k] = a.to[i], out->from[k] = a.from[i];
    else
      move_axis(out, a.dim[i], a.to[i], a.from[i]);
  }
  while (out->n < 2) { /* a plane needs two axes */
    move_axis(out, 1, 0, 0);
    for (int j = out->n - 1; j > 0; j--) strided_swap_axes(out, j - 1, j);
  }
}

/* Makes the axis along which src is contiguous the partner of the innermost axis. Returns false if
** that is the innermost axis itself, or either axis is short. */
static bool strided_find_partner(struct move *m)
{
  int in = m->n - 1;
  if (m->to[in] != 1 || m->from[in] == 1 || m->dim[in] < 4) return false;
  for (int i = 0; i < in; i++) {
    if (m->from[i] != 1 || m->dim[i] < 4) continue;
    for (int j = i; j + 1 < in; j++) strided_swap_axes(m, j, j + 1);
    return true;
  }
  return false;
}

struct copy_plan {
  struct move m;
  char *dst;
  const char *src;
  size_t size;
  bool across;
  /* elements of a block along the axes of the plane */
  int64_t side1, side0;
  int64_t count1, count0;                             /* number of blocks along them */
};

static void strided_plan_range(int64_t begin, int64_t end, void *context)
{
  const struct copy_plan *w = context;
  const struct move *m = &w->m;
  int a0 = m->n - 1, a1 = m->n - 2;
  for (int64_t u = begin; u < end; u++) {
    int64_t i0 = u % w->count0 * w->side0, rest = u / w->count0, i1 = rest % w->count1 * w->side1,
            at = rest / w->count1;
    int64_t to = i0 * m->to[a0] + i1 * m->to[a1], from = i0 * m->from[a0] + i1 * m->from[a1];
    for (int i = a1 - 1; i >= 0; at /= m->dim[i], i--) {
      to += at % m->dim[i] * m->to[i];
      from += at % m->dim[i] * m->from[i];
    }
    struct plane p = { MIN(w->side1, m->dim[a1] - i1), m->to[a1], m->from[a1],
      MIN(w->side0, m->dim[a0] - i0), m->to[a0], m->from[a0] };
    strided_copy_plane(&p, elements_at(w->dst, to, w->size), elements_at(w->src, from, w->size),
        w->size, w->across);
  }
}

static void strided_run_on_cpu(const struct move *m, void *dst, const void *src, size_t size)
{
  struct copy_plan w = { .dst = dst, .src = src, .size = size };
  move_simplify(m, &w.m);
  w.across = strided_find_partner(&w.m);
  int64_t n1 = w.m.dim[w.m.n - 2], n0 = w.m.dim[w.m.n - 1], units = 1;
  w.side0 = MIN(n0, w.across ? TILE_SIDE : UNIT_ELEMENTS);
  w.side1 = MIN(n1, w.across ? TILE_SIDE : MAX(1, UNIT_ELEMENTS / w.side0));
  w.count0 = (n0 + w.side0 - 1) / w.side0;
  w.count1 = (n1 + w.side1 - 1) / w.side1;
  for (int i = 0; i < w.m.n - 2; i++) units *= w.m.dim[i];
  parallel_chunks(units * w.count1 * w.count0, MAX(1, 2 * UNIT_ELEMENTS / (w.side0 * w.side1)),
      strided_plan_range, &w);
}

static bool strided_is_empty(const struct move *m)
{
  for (int i = 0; i < m->n; i++)
    if (m->dim[i] <= 0) return true;
  return false;
}

int move_run(int device, const struct move *m, void *dst, const void *src, size_t size)
{
  const struct primitives *other = primitives_of(device);
  if (strided_is_empty(m)) return TY_OK;
  if (other) return other->move(device, m, dst, src, size);
  strided_run_on_cpu(m, dst, src, size);
  return TY_OK;
}

int move_set(int device, const struct move *m, void *dst, const void *value, size_t size)
{
  const struct primitives *other = primitives_of(device);
  struct move same = *m;
  uint64_t bits = 0;
  if (strided_is_empty(m)) return TY_OK;
  memset(same.from, 0, sizeof same.from);
  memcpy(&bits, value, size);
  if (other) return other->set(device, &same, dst, bits, size);
  strided_run_on_cpu(&same, dst, value, size);
  return TY_OK;
}

/* -- plain bytes ------------------------------------------------------------------------------- */

/* Nanoseconds of a byte that is copied: 0.04, an estimate. */
#define COPY_NS (PARALLEL_CHUNK_NS / (1 << 18))
struct byte_copy { char *dst; const char *src; bool past; };

static void strided_copy_range(int64_t begin, int64_t end, void *context)
{
  const struct byte_copy *b = context;
  if (b->past)
    stream_copy(b->dst + begin, b->src + begin, (size_t)(end - begin));
  else
    memcpy(b->dst + begin, b->src + begin, (size_t)(end - begin));
}

static void strided_zero_range(int64_t begin, int64_t end, void *context)
{
  const struct byte_copy *b = context;
  memset(b->dst + begin, 0, (size_t)(end - begin));
}

int move_bytes(int device, void *dst, const void *src, size_t bytes)
{
  struct byte_copy b = { dst, src, stream_copy_profitable(bytes) };
  if (dst == src) return TY_OK;
  if (primitives_of(device)) return device_copy(device, dst, device, src, bytes);
  parallel_for((int64_t)bytes, COPY_NS, strided_copy_range, &b);
  return TY_OK;
}

int move_zero(int device, void *dst, size_t bytes)
{
  struct byte_copy b = { dst, NULL, false };
  if (primitives_of(device)) return device_fill(device, dst, 0, bytes);
  parallel_for((int64_t)bytes, COPY_NS, strided_zero_range, &b);
  return TY_OK;
}

int move_fill(int device, void *dst, const void *value, size_t size, int64_t n)
{
  struct move m = { 0 };
  move_axis(&m, n, 1, 0);
  return move_set(device, &m, dst, value, size);
}

/* -- numbers of any dtype ---------------------------------------------------------------------- */

static int64_t strided_bound_integer(double v, double lo, double hi)
{
  return v != v ? (int64_t)lo : v <= lo ? (int64_t)lo : v >= hi ? (int64_t)hi : (int64_t)v;
}

void set_number(void *p, int dtype, double v)
{
  switch (dtype) {
  case TY_F32: *(float *)p = (float)v; break;
  case TY_F64: *(double *)p = v; break;
  case TY_F16: *(uint16_t *)p = float_to_half((float)v); break;
  case TY_BF16: *(uint16_t *)p = float_to_bf16((float)v); break;
  case TY_U8: *(uint8_t *)p = (uint8_t)strided_bound_integer(v, INT32_MIN, INT32_MAX); break;
  case TY_I8: *(int8_t *)p = (int8_t)(uint8_t)strided_bound_integer(v, INT32_MIN, INT32_MAX); break;
  case TY_I32: *(int32_t *)p = (int32_t)strided_bound_integer(v, INT32_MIN, INT32_MAX); break;
  case TY_I64:
    *(int64_t *)p = v >= 0x1p63 ? INT64_MAX : v < -0x1p63 || v != v ? INT64_MIN : (int64_t)v;
    break;
  default: *(uint8_t *)p = v != 0;
  }
}

double real_of(const struct operand *a, int64_t i)
{
  switch (a->d.dtype) {
  case TY_F32: return ((const float *)a->p)[i];
  case TY_F64: return ((const double *)a->p)[i];
  case TY_F16: return half_to_float(((const uint16_t *)a->p)[i]);
  case TY_BF16: return bf16_to_float(((const uint16_t *)a->p)[i]);
  default: return (double)index_of(a, i);
  }
}

static int64_t strided_truncate_integer(double v)
{
  return v >= 0x1p62 ? INT64_MAX : v > -0x1p62 ? (int64_t)v : INT64_MIN;
}

int64_t index_of(const struct operand *a, int64_t i)
{
  switch (a->d.dtype) {
  case TY_F32:
  case TY_F64:
  case TY_F16:
  case TY_BF16: return strided_truncate_integer(real_of(a, i));
  case TY_I32: return ((const int32_t *)a->p)[i];
  case TY_I64: return ((const int64_t *)a->p)[i];
  case TY_I8: return ((const int8_t *)a->p)[i];
  default: return ((const uint8_t *)a->p)[i];
  }
}

int move_zeros(const struct call *c, int k)
{
  const struct operand *y = &c->out[k];
  return k < c->nout && y->p ? move_zero(c->device, y->p, desc_bytes(&y->d)) : TY_OK;
}

int copy_kernel(struct call *c)
{
  const struct operand *y = c->out;
  if (y->p) TRY(move_bytes(c->device, y->p, c->in[0].p, desc_bytes(&y->d)));
  for (int k = 1; k < c->nout; k++) TRY(move_zeros(c, k));
  return TY_OK;
}
