/* sum.c - sums over ranks: reduce-scatter, then all-gather (Thakur, Rabenseifner, Gropp 2005), each
** rank adding one part of the elements.
**
** The adding rank gets the parts of all P ranks and adds them in the order of ranks, with the same
** bits as one process that adds P devices. 2 (P - 1) / P of the bytes leave each rank, which is the
** minimum. If hosts have several ranks each, sums are made in two steps, so that not all of that
** crosses the network: first over the ranks of a host, then each rank adds its part with the ranks
** that have the same part on other hosts. So 2 (H - 1) / H of the bytes leave each of H hosts, and
** the order of additions differs. Arrays are concatenated to one line, which is sent in blocks: a
** large array directly from its memory, small ones copied together.
*/
#include "comm/comm.h"
#include "base/convert.h"
#include "base/dtype.h"

enum {
  BLOCK_BYTES = 8 << 20, /* bytes summed at a time */
  LARGE_BYTES = 1 << 18, /* bytes: arrays from here on are sent without copying */
  PART_UNIT   = 64       /* a rank's part is a multiple of this many elements */
};

bool comm_reserve(struct comm_buffer *b, size_t bytes)
{
  if (bytes <= b->cap) return true;
  void *p = mem_grow(b->block, bytes + PAGE);
  if (!p) return false;
  b->block = p;
  b->data = (char *)align_up((uintptr_t)p, PAGE);
  b->cap = bytes;
  return true;
}

int comm_failed(const struct comm_world *w, const char *what)
{
  if (w->parent) w = w->parent;
  return fail(TY_ERUN, "rank %d of %d: %s: %s", w->rank, w->size, what, w->why);
}

/* -- elements ---------------------------------------------------------------------------------- */

/* Elements that are read before any is written, so that the compiler vectorises although `to` may
** be an operand. */
enum { VECTOR = 16 };

#define ADD(T, name)                                                      \
  static void name(void *to, const void *a, const void *b, int64_t n)     \
  {                                                                       \
    T *y = to, sum[VECTOR];                                               \
    const T *x = a, *z = b;                                               \
    int64_t i = 0;                                                        \
    for (; i + VECTOR <= n; i += VECTOR) {                                \
      for (int k = 0; k < VECTOR; k++) sum[k] = (T)(x[i + k] + z[i + k]); \
      memcpy(y + i, sum, sizeof sum);                                     \
    }                                                                     \
    for (; i < n; i++) y[i] = (T)(x[i] + z[i]);                           \
  }
ADD(float, add_f32)
ADD(double, add_f64)
ADD(uint8_t, add_u8)
ADD(uint32_t, add_i32) /* unsigned: overflow wraps */
ADD(uint64_t, add_i64)

static void sum_add_bool(void *to, const void *a, const void *b, int64_t n)
{
  uint8_t *y = to;
  const uint8_t *x = a, *z = b;
  for (int64_t i = 0; i < n; i++) y[i] = x[i] | z[i];
}

/* Writes a + b to `to`, which may be a or b. */
typedef void (*add_fn)(void *to, const void *a, const void *b, int64_t n);
/* Returns the addition of a dtype; NULL: it has none. */
static add_fn sum_find_adder(int dtype)
{
  switch (dtype) {
  case TY_F32: return add_f32;
  case TY_F64: return add_f64;
  case TY_U8:
  case TY_I8: return add_u8;
  case TY_I32: return add_i32;
  case TY_I64: return add_i64;
  case TY_BOOL: return sum_add_bool;
  default: return NULL;
  }
}

static void sum_pack_2bit(uint8_t *to, const float *x, int64_t n)
{
  memset(to, 0, (size_t)(n + 3) / 4);
  for (int64_t i = 0; i < n; i++) {
    unsigned code = x[i] > 0 ? 3 : x[i] < 0 ? 2 : 0;
    to[i / 4] |= (uint8_t)(code << (6 - 2 * (i % 4)));
  }
}

static void sum_add_2bit(float *y, const uint8_t *from, float threshold, int64_t n)
{
  const float value[4] = { 0, 0, -threshold, threshold };
  for (int64_t i = 0; i < n; i++) y[i] += value[from[i / 4] >> (6 - 2 * (i % 4)) & 3];
}

/* -- a block ----------------------------------------------------------------------------------- */

/* The dtypes in which elements are sent and added. */
struct travel {
  int out;     /* to the rank that adds */
  int back;    /* from it */
  int at;      /* in which elements are added */
  bool packed; /* sent as two bits each */
};

static struct travel travel_make(const struct comm_sum *s)
{
  bool half = s->dtype == TY_F16 || s->dtype == TY_BF16;
  if (half) return (struct travel){ s->dtype, s->dtype, TY_F32, false };
  if (s->dtype == TY_F32 && s->wire == TY_WIRE_F16)
    return (struct travel){ TY_F16, TY_F16, TY_F32, false };
  if (s->dtype == TY_F32 && s->wire == TY_WIRE_BF16)
    return (struct travel){ TY_BF16, TY_BF16, TY_F32, false };
  return (struct travel){ s->dtype, s->dtype, s->dtype, s->wire == TY_WIRE_2BIT };
}

static size_t travel_bytes_out(const struct travel *t, int64_t n)
{
  return t->packed ? (size_t)(n + 3) / 4 : (size_t)n * dtype_size(t->out);
}

/* What a rank adds: its own part, and those of the others in `recv`, by rank. */
struct rank_parts {
  const char *own;
  char *recv;
  size_t each; /* bytes of a part */
  int rank, ranks;
};

static const char *parts_at(const struct rank_parts *p, int rank)
{
  return rank == p->rank ? p->own : p->recv + p->each * (size_t)rank;
}

/* Adds the parts in the order of ranks. `to` may be this rank's own part. */
static void parts_add(const struct travel *t, float threshold, const struct rank_parts *p, char *to,
    char *work, int64_t n)
{
  add_fn add = sum_find_adder(t->at);
  if (t->packed) {
    memset(to, 0, sizeof(float) * (size_t)n);
    for (int r = 0; r < p->ranks; r++)
      sum_add_2bit((float *)to, (const uint8_t *)parts_at(p, r), threshold, n);
    return;
  }
  if (t->at == t->out) {
    /* space of a part that the first addition has read */
    char *partial = p->recv + (p->rank ? 0 : p->each);
    for (int r = 1; r < p->ranks; r++)
      add(r == p->ranks - 1 ? to : partial, r == 1 ? parts_at(p, 0) : partial, parts_at(p, r), n);
    return;
  }
  char *sum = work, *next = work + sizeof(float) * (size_t)n;
  dtype_convert(sum, t->at, parts_at(p, 0), t->out, n);
  for (int r = 1; r < p->ranks; r++) {
    dtype_convert(next, t->at, parts_at(p, r), t->out, n);
    add(sum, sum, next, n);
  }
  dtype_convert(to, t->back, sum, t->at, n);
}

/* Sums n elements over the ranks. send: elements as they are sent out; x: gets the result as it is
** sent back. */
static int block_sum(const struct comm_ops *ops, struct comm_world *whole, struct comm_buffer *recv,
    const struct travel *t, float threshold, const char *send, char *x, int64_t n)
{
  bool by_host = whole->intra_host && !t->packed;
  struct comm_world *w = by_host ? whole->intra_host : whole;
  int ranks = w->size;
  int64_t each = (n + ranks - 1) / ranks;
  size_t back = dtype_size(t->back), part[2][COMM_RANKS];
  each = (each + PART_UNIT - 1) / PART_UNIT * PART_UNIT;
  for (int r = 0; r < ranks; r++) {
    int64_t here = MIN(MAX(n - each * r, 0), each);
    part[0][r] = travel_bytes_out(t, here);
    part[1][r] = (size_t)here * back;
  }
  int64_t first = MIN(each * w->rank, n), own = MIN(n - first, each);
  size_t all = part[0][w->rank] * (size_t)ranks;
  NEED(comm_reserve(recv, all + ALIGN + 2 * sizeof(float) * (size_t)own), TY_EMEMORY,
      "out of memory: the sum of %lld elements over %d ranks", (long long)n, ranks);
  if (!ops->exchange(w, send, recv->data, part[0])) return comm_failed(w, "a sum");
  char *work = recv->data + align_up(all, sizeof(float)), *sum = x + (size_t)first * back;
  struct rank_parts parts = { .own = send + travel_bytes_out(t, first),
    .recv = recv->data,
    .each = part[0][w->rank],
    .rank = w->rank,
    .ranks = ranks };
  parts_add(t, threshold, &parts, sum, work, own);
  if (by_host && own) TRY(block_sum(ops, whole->inter_host, recv, t, threshold, sum, sum, own));
  return ops->gather(w, x, part[1]) ? TY_OK : comm_failed(w, "a sum");
}

/* -- arrays as one line ------------------------------------------------------------------------ */

/* Copies n elements of the line into `block`, converting them to the dtype in which they are sent,
** or back. */
static void line_copy(const struct comm_sum *s, struct line_position from, char *block, int type,
    bool back, int64_t n)
{
  size_t own = dtype_size(s->dtype), other = dtype_size(type);
  while (n) {
    const struct comm_part *p = &s->part[from.part];
    int64_t here = MIN(p->n - from.at, n);
    size_t at = own * (size_t)from.at;
    if (back)
      dtype_convert(p->to + at, s->dtype, block, type, here);
    else
      dtype_convert(block, type, p->from + at, s->dtype, here);
    block += other * (size_t)here;
    n -= here;
    from = (struct line_position){ from.part + 1, 0 };
  }
}

/* Returns the elements of the block at a position: of one large array, or of several small ones. */
static int64_t line_block_size(const struct comm_sum *s, struct line_position at, int64_t most)
{
  int64_t large = LARGE_BYTES / (int64_t)dtype_size(s->dtype), n = s->part[at.part].n - at.at;
  if (n >= large) return MIN(n, most);
  for (int i = at.part + 1; i < s->n && s->part[i].n < large && n + s->part[i].n <= most; i++)
    n += s->part[i].n;
  return n;
}

/* Returns the position n elements after p. */
static struct line_position line_advance(
    const struct comm_sum *s, struct line_position p, int64_t n)
{
  while (p.part < s->n && n >= s->part[p.part].n - p.at) {
    n -= s->part[p.part].n - p.at;
    p = (struct line_position){ p.part + 1, 0 };
  }
  p.at += n;
  return p;
}

/* Sums the block of n elements at a position. */
static int line_sum(const struct comm_ops *ops, struct comm_world *w, struct comm_buffer scratch[3],
    const struct comm_sum *s, const struct travel *t, struct line_position at, int64_t n)
{
  size_t back = dtype_size(t->back);
  const struct comm_part *p = &s->part[at.part];
  bool direct = t->back == s->dtype && p->n - at.at >= n;
  char *x = direct ? p->to + back * (size_t)at.at : scratch[1].data;
  const char *send = direct ? p->from + back * (size_t)at.at : x;
  if (!direct) line_copy(s, at, x, t->back, false, n);
  if (t->packed) {
    sum_pack_2bit((uint8_t *)scratch[2].data, (const float *)send, n);
    send = scratch[2].data;
  }
  TRY(block_sum(ops, w, &scratch[0], t, s->threshold, send, x, n));
  if (!direct) line_copy(s, at, x, t->back, true, n);
  return TY_OK;
}

int comm_sum(const struct comm_ops *ops, struct comm_world *w, struct comm_buffer scratch[3],
    const struct comm_sum *s, struct line_position *at)
{
  struct travel t = travel_make(s);
  NEED(sum_find_adder(t.at), TY_EDTYPE, "a sum over ranks of %s", dtype_name(s->dtype));
  int64_t all = 0, most = BLOCK_BYTES / (int64_t)dtype_size(t.at);
  for (int i = 0; i < s->n; i++) all += s->part[i].n;
  if (w->size == 1 && s->wire == TY_WIRE_FULL) {
    for (int i = 0; i < s->n; i++)
      memmove(s->part[i].to, s->part[i].from, dtype_size(s->dtype) * (size_t)s->part[i].n);
    *at = (struct line_position){ s->n, 0 };
    return TY_OK;
  }
  size_t bytes = dtype_size(t.at) * (size_t)MIN(all, most);
  NEED(comm_reserve(&scratch[1], bytes) && comm_reserve(&scratch[2], bytes), TY_EMEMORY,
      "out of memory: the sum of %lld elements over %d ranks", (long long)all, w->size);
  *at = line_advance(s, *at, 0);
  if (at->part == s->n) return TY_OK;
  int64_t n = line_block_size(s, *at, most);
  TRY(line_sum(ops, w, scratch, s, &t, *at, n));
  *at = line_advance(s, *at, n);
  return TY_OK;
}
