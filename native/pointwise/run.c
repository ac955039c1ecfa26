/* run.c - runs sealed pointwise programs over their iteration space.
**
** The space is cut into blocks. If the innermost joined dim is long, a block is a piece of one row;
** else it is consecutive elements of the whole space, and operands that are not dense are gathered.
** An operand that has the compute dtype and is dense in a block is read and written in place;
** others are copied to and from their slot. Chunks of about 20 us run in parallel. Nothing is
** allocated: slots are on the stack.
*/
#include "base/cast.h"
#include "pointwise/ir.h"

/* -- other devices ----------------------------------------------------------------------------- */

static const struct pw_device *gpu;

void pw_register(int kind, const struct pw_device *d)
{
  if (kind == TY_GPU) gpu = d;
}

void **pw_made(const struct pw_program *t) { return (void **)(uintptr_t)&t->made; }

void pw_forget(struct pw_program *t)
{
  if (t->made) gpu->forget(t->made);
}

int sum_to(int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d)
{
  return device_kind(device) == TY_GPU ? gpu->sum_to(device, dst, dst_d, src, src_d)
                                       : sum_to_cpu(dst, dst_d, src, src_d);
}

/* -- the iteration space ----------------------------------------------------------------------- */

/* Computes the strides of an operand that aligns with the space to the right; 0 where it
** repeats. */
static int align_strides(const ty_desc *space, const ty_desc *d, int64_t stride[TY_MAXDIM])
{
  int64_t step = 1;
  for (int i = space->ndim - 1, k = d->ndim - 1; i >= 0; i--, k--) {
    int64_t size = k >= 0 ? d->dim[k] : 1;
    if (size != 1 && size != space->dim[i]) return TY_ESHAPE;
    stride[i] = size == 1 ? 0 : step;
    step *= size;
  }
  int64_t whole = 1;
  for (int k = 0; k < d->ndim - space->ndim; k++)
    whole *= d->dim[k]; /* leading ones are harmless */
  return whole == 1 ? TY_OK : TY_ESHAPE;
}

/* Joins adjacent dims that every operand can walk with one stride, and drops those of one
** element. */
static void join_dims(struct pw_loop *l)
{
  int n = 0; /* dims kept so far, of which the last may grow */
  for (int i = 0; i < l->ndim; i++) {
    if (l->dim[i] == 1) continue;
    bool joins = n > 0;
    for (int k = 0; k < l->n && joins; k++)
      joins = l->stride[k][n - 1] == l->stride[k][i] * l->dim[i];
    if (joins)
      l->dim[n - 1] *= l->dim[i];
    else
      l->dim[n++] = l->dim[i];
    for (int k = 0; k < l->n; k++) l->stride[k][n - 1] = l->stride[k][i];
  }
  if (!n) {
    l->dim[n++] = 1;
    for (int k = 0; k < l->n; k++) l->stride[k][0] = 1;
  }
  l->ndim = n;
}

int pw_loop_make(struct pw_loop *l, const ty_desc *space, const ty_desc *operand, int n)
{
  char a[160], b[160];
  NEED(n <= PW_ARGS, TY_EUNSUPPORTED, "pointwise program: %d operands; at most %d are possible", n,
      PW_ARGS);
  l->ndim = space->ndim;
  l->n = n;
  l->numbers = 0;
  l->count = 1;
  for (int i = 0; i < space->ndim; i++) l->dim[i] = space->dim[i], l->count *= space->dim[i];
  for (int k = 0; k < n; k++) {
    l->dtype[k] = (int8_t)operand[k].dtype;
    if (align_strides(space, &operand[k], l->stride[k]))
      return fail(TY_ESHAPE, "shape %s does not broadcast to %s",
          text_shape(&operand[k], a, sizeof a), text_shape(space, b, sizeof b));
  }
  join_dims(l);
  return TY_OK;
}

/* -- one run ----------------------------------------------------------------------------------- */

/* Elements. */
enum {
  LONG_ROW = 64,      /* fewest elements of a row that is cut into pieces */
  WHOLE    = 1 << 14, /* most elements of a block without slots */
  /* most elements of a block where half types become float32: with 2,048, a page, arrays in memory
  ** took 1.1 to 2 times as long, and longer with prefetching */
  WIDENED  = 1 << 10
};
/* most bytes of the slots of such a block: with the operands they fit the first-level cache */
enum { WIDENED_BYTES = 16 << 10 };
/* How a block accesses an operand: loaded once per chunk, in place, loaded per block. */
enum { ONCE, DIRECT, COPY };
struct pw_run_state {
  const struct pw_program *t;
  const struct pw_loop *l;
  const struct pw_table *table;
  void *const *operand;
  int64_t block;                                      /* most elements of a block */
  int64_t slot;                                       /* elements of a slot */
  int64_t blocks;                                     /* of the space */
  /* blocks of a row; 0: blocks go across rows */
  int64_t pieces;
  int64_t piece;                                      /* elements of such a block */
  int64_t inner;                                      /* elements of a row */
  size_t size;                                        /* of an element of the compute dtype */
};

static bool is_dense(const struct pw_loop *l, int k)
{
  int64_t step = 1;
  for (int i = l->ndim - 1; i >= 0; i--) {
    if (l->stride[k][i] != step) return false;
    step *= l->dim[i];
  }
  return true;
}

static bool is_single(const struct pw_loop *l, int k)
{
  for (int i = 0; i < l->ndim; i++)
    if (l->stride[k][i]) return false;
  return true;
}

/* Returns whether every loop that reads a slot reads only one element of it. */
static bool is_read_once(const struct pw_program *t, int slot)
{
  for (int i = 0; i < t->ncode; i++) {
    const struct pw_ins *c = &t->code[i];
    const bool both = c->op == PW_GATE_FIXED, second = c->op > PW_CAST;
    if (c->a == slot || (c->b == slot && !second) || (c->c == slot && !both)) return false;
  }
  return true;
}

/* Returns whether blocks need no slots: all operands are used in place, and every result is an
** operand. */
static bool needs_no_slots(const struct pw_run_state *s)
{
  const struct pw_program *t = s->t;
  const struct pw_loop *l = s->l;
  if (l->ndim != 1 || t->nuniform || t->nslot > t->nget + t->nput) return false;
  for (int i = 0; i < t->nget; i++) {
    int k = t->get[i].operand;
    if (t->ncode && (k < 0 || !l->stride[k][0]) && is_read_once(t, t->get[i].slot)) continue;
    if (k < 0 || t->get[i].copy || l->stride[k][0] != 1 || l->dtype[k] != t->dtype) return false;
  }
  for (int i = 0; i < t->nput; i++) {
    int k = t->put[i].operand;
    if (t->ncode && (!t->put[i].direct || l->stride[k][0] != 1 || l->dtype[k] != t->dtype))
      return false;
  }
  return true;
}


/* Returns the elements of a slot. There are more if operands are converted, since calling a loop of
** a few hundred elements takes as long as its work. */
static int64_t slot_elements(const struct pw_run_state *s)
{
  bool converts = false;
  for (int k = 0; k < s->l->n; k++) converts |= is_half(s->l->dtype[k]);
  if (!converts || s->t->kind != KIND_F32) return BLOCK_ELEMENTS;
  const int64_t fit = WIDENED_BYTES / ((int64_t)s->size * MAX(s->t->nslot, 1)) / BLOCK_ELEMENTS *
      BLOCK_ELEMENTS;
  return MAX(BLOCK_ELEMENTS, MIN(WIDENED, fit));
}

/* Chooses how the space is cut into blocks. */
static void choose_blocks(struct pw_run_state *s)
{
  const struct pw_loop *l = s->l;
  s->inner = l->dim[l->ndim - 1];
  s->block = s->slot = slot_elements(s);
  if (needs_no_slots(s)) s->block = WHOLE;
  if (l->ndim == 1 || s->inner >= LONG_ROW) {
    s->pieces = (s->inner - 1) / s->block + 1;
    int64_t even = (int64_t)align_up((size_t)((s->inner - 1) / s->pieces + 1), 16);
    s->piece = s->pieces == 1 ? s->inner : even;
    s->pieces = (s->inner - 1) / s->piece + 1;
    s->blocks = s->pieces * (l->count / s->inner);
  }
  else
    s->pieces = 0, s->blocks = (l->count - 1) / s->block + 1;
}

struct coordinates { int64_t index[TY_MAXDIM]; };

static struct coordinates find_coordinates(const struct pw_loop *l, int64_t element)
{
  struct coordinates at;
  for (int i = l->ndim - 1; i > 0; i--) at.index[i] = element % l->dim[i], element /= l->dim[i];
  at.index[0] = element;
  return at;
}

static int64_t coordinates_offset(const struct pw_loop *l, int k, const struct coordinates *at)
{
  int64_t offset = 0;
  for (int i = 0; i < l->ndim; i++) offset += at->index[i] * l->stride[k][i];
  return offset;
}

/* Moves to the start of the next row. Returns the change of the operand's offset. */
static int64_t next_row(const struct pw_loop *l, int k, struct coordinates *at)
{
  int i = l->ndim - 2;
  int64_t step = -at->index[l->ndim - 1] * l->stride[k][l->ndim - 1];
  at->index[l->ndim - 1] = 0;
  for (; i > 0 && at->index[i] + 1 == l->dim[i]; i--)
    step -= at->index[i] * l->stride[k][i], at->index[i] = 0;
  at->index[i]++;
  return step + l->stride[k][i];
}

/* Returns the bytes of an element of an operand. */
static size_t element_size(const struct pw_run_state *s, int k)
{
  return dtype_size(s->l->dtype[k]);
}

/* Loads n elements of a dtype as the compute dtype. Half types become float32 first. */
static void load_dtype(const struct pw_run_state *s, int dtype, void *slot, const void *from,
    int64_t stride, int64_t n)
{
  const struct pw_table *table = s->table;
  const int kind = s->t->kind;
  if (kind == KIND_F32 || !is_half(dtype)) {
    table->load[kind][dtype](slot, from, stride, n);
    return;
  }
  _Alignas(64) float block[BLOCK_ELEMENTS];
  for (int64_t i = 0; i < n; i += BLOCK_ELEMENTS) {
    const int64_t part = MIN(BLOCK_ELEMENTS, n - i);
    table->load[KIND_F32][dtype](block, (const uint16_t *)from + i * stride, stride, part);
    table->load[kind][TY_F32]((char *)slot + (size_t)i * s->size, block, 1, part);
  }
}

static void load_elements(const struct pw_run_state *s, int k, void *slot, const void *from,
    int64_t stride, int64_t n)
{
  const int dtype = s->l->dtype[k];
  if (stride == 1 && s->t->kind == KIND_F32 && is_half(dtype))
    cast_between(dtype, TY_F32)(slot, from, n);
  else
    load_dtype(s, dtype, slot, from, stride, n);
}

static void store_elements(const struct pw_run_state *s, int k, void *to, const void *slot,
    int64_t stride, int64_t n)
{
  const int dtype = s->l->dtype[k];
  if (stride == 1 && s->t->kind == KIND_F32 && is_half(dtype))
    cast_between(TY_F32, dtype)(to, slot, n);
  else
    pw_store_elements(s->t->kind, dtype, to, slot, stride, n);
}

/* Loads or stores n elements of an operand from coordinates `at` on, row by row. */
static void move_gathered(
    const struct pw_run_state *s, int k, void *slot, struct coordinates at, int64_t n, bool store)
{
  const struct pw_loop *l = s->l;
  int last = l->ndim - 1;
  int64_t stride = l->stride[k][last], offset = coordinates_offset(l, k, &at),
          bytes = (int64_t)element_size(s, k);
  char *base = s->operand[k], *here = slot;
  for (int64_t part; n > 0; n -= part) {
    part = MIN(n, s->inner - at.index[last]);
    if (store)
      store_elements(s, k, base + offset * bytes, here, stride, part);
    else
      load_elements(s, k, here, base + offset * bytes, stride, part);
    here += (size_t)part * s->size;
    if (n > part) offset += next_row(l, k, &at);
  }
}

struct operand_view {
  char *p;
  int64_t stride;                                     /* of the innermost dim */
  uint8_t how;                                        /* ONCE, DIRECT or COPY */
};

/* Chooses how blocks access each operand. */
static void classify_operands(const struct pw_run_state *s, struct operand_view *view)
{
  const struct pw_loop *l = s->l;
  for (int k = 0; k < l->n; k++) {
    int64_t stride = l->stride[k][l->ndim - 1];
    bool own = l->dtype[k] == s->t->dtype;
    view[k].p = s->operand[k];
    view[k].stride = stride;
    view[k].how = l->ndim == 1                              ? (stride == 1 && own   ? DIRECT
                                                                      : stride == 0 ? ONCE
                                                                                    : COPY)
        : is_single(l, k)                                   ? ONCE
        : own && (s->pieces ? stride == 1 : is_dense(l, k)) ? DIRECT
                                                            : COPY;
  }
}

static void cast_elements(
    const struct pw_run_state *s, int dtype, char *d, const char *a, int64_t n)
{
  _Alignas(64) char block[BLOCK_ELEMENTS * sizeof(double)];
  if (s->t->kind == KIND_F32 && is_half(dtype)) {
    const cast_fn narrow = cast_between(TY_F32, dtype), widen = cast_between(dtype, TY_F32);
    for (int64_t i = 0; i < n; i += BLOCK_ELEMENTS) {
      narrow(block, a + (size_t)i * s->size, MIN(BLOCK_ELEMENTS, n - i));
      widen(d + (size_t)i * s->size, block, MIN(BLOCK_ELEMENTS, n - i));
    }
    return;
  }
  for (int64_t i = 0; i < n; i += BLOCK_ELEMENTS) {
    pw_store_elements(
        s->t->kind, dtype, block, a + (size_t)i * s->size, 1, MIN(BLOCK_ELEMENTS, n - i));
    load_dtype(s, dtype, d + (size_t)i * s->size, block, 1, MIN(BLOCK_ELEMENTS, n - i));
  }
}

/* Applies a real function to integers, as float64. */
static void apply_real(const struct pw_run_state *s, const struct pw_ins *c, void **slot, int64_t n)
{
  const struct pw_table *table = s->table;
  const int dtype = s->t->kind == KIND_I32 ? TY_I32 : TY_I64;
  const bool two = c->op == PW_HYPOT;
  _Alignas(64) double a[BLOCK_ELEMENTS], b[BLOCK_ELEMENTS];
  for (int64_t i = 0; i < n; i += BLOCK_ELEMENTS) {
    const int64_t k = MIN(BLOCK_ELEMENTS, n - i);
    const size_t at = (size_t)i * s->size;
    table->load[KIND_F64][dtype](a, (const char *)slot[c->a] + at, 1, k);
    if (two) table->load[KIND_F64][dtype](b, (const char *)slot[c->b] + at, 1, k);
    table->op[KIND_F64][c->op](a, a, two ? b : a, a, k);
    table->store[KIND_F64][dtype]((char *)slot[c->d] + at, a, 1, k);
  }
}

static void run_code(const struct pw_run_state *s, void **slot, int first, int last, int64_t n)
{
  const struct pw_program *t = s->t;
  const struct pw_table *table = s->table;
  for (int i = first; i < last; i++) {
    const struct pw_ins *c = &t->code[i];
    if (c->op == PW_CAST)
      cast_elements(s, c->dtype, slot[c->d], slot[c->a], n);
    else if (!table->op[t->kind][c->op])
      apply_real(s, c, slot, n);
    else
      table->op[t->kind][c->op](slot[c->d], slot[c->a], slot[c->b], slot[c->c], n);
  }
}

/* Loads numbers and single elements and runs the uniform instructions, once per chunk. */
static void run_once(
    const struct pw_run_state *s, const struct operand_view *view, void **slot, int64_t n)
{
  const struct pw_program *t = s->t;
  for (int i = 0; i < t->nget; i++) {
    int k = t->get[i].operand;
    if (k >= 0 && (view[k].how == ONCE || t->get[i].once))
      load_dtype(s, s->l->dtype[k], slot[t->get[i].slot], view[k].p, 0, n);
    if (k >= 0) continue;
    union {
      float f;
      double d;
      int32_t i;
      int64_t l;
    } v = { 0 };
    double x = t->get[i].number;
    switch (t->kind) {
    case KIND_F32: v.f = (float)x; break;
    case KIND_F64: v.d = x; break;
    case KIND_I32: v.i = (int32_t)x; break; /* in range: see pw_number */
    default: v.l = (int64_t)x;
    }
    s->table->load[t->kind][t->dtype](slot[t->get[i].slot], &v, 0, n);
  }
  run_code(s, slot, 0, t->nuniform, n);
}

/* A block: its elements, and the coordinates of the first one. */
struct spot { int64_t first, n; struct coordinates at; };

static struct spot find_spot(const struct pw_run_state *s, int64_t b)
{
  struct spot at = { b * s->block, MIN(s->block, s->l->count - b * s->block), { { 0 } } };
  if (s->pieces) {
    int64_t row = s->pieces == s->blocks ? 0 : b / s->pieces,
            start = (b - row * s->pieces) * s->piece;
    at.first = row * s->inner + start;
    at.n = MIN(s->piece, s->inner - start);
  }
  if (s->l->ndim > 1) at.at = find_coordinates(s->l, at.first);
  return at;
}

/* Returns where a block begins in an operand. */
static char *block_address(
    const struct pw_run_state *s, const struct operand_view *v, int k, const struct spot *at)
{
  int64_t offset = s->l->ndim == 1 || !s->pieces ? at->first * v[k].stride
                                                 : coordinates_offset(s->l, k, &at->at);
  return v[k].p + offset * (int64_t)element_size(s, k);
}

/* Points slots to a block of the operands, or loads the block into them. */
static void load_block(const struct pw_run_state *s, const struct operand_view *view, void **slot,
    char *scratch, const struct spot *at)
{
  const struct pw_program *t = s->t;
  for (int i = 0; i < t->nget; i++) {
    int k = t->get[i].operand, to = t->get[i].slot;
    if (k < 0 || t->get[i].once || view[k].how == ONCE) continue;
    char *own = scratch + (size_t)(to * s->slot) * s->size;
    if (view[k].how == DIRECT && !t->get[i].copy)
      slot[to] = block_address(s, view, k, at);
    else if (s->pieces)
      load_elements(s, k, own, block_address(s, view, k, at), view[k].stride, at->n);
    else
      move_gathered(s, k, own, at->at, at->n, false);
  }
  for (int i = 0; i < t->nput; i++) {
    int k = t->put[i].operand;
    if (t->put[i].direct && view[k].how == DIRECT)
      slot[t->put[i].slot] = block_address(s, view, k, at);
  }
}

/* Stores the results of a block that were not computed in place. */
static void store_block(const struct pw_run_state *s, const struct operand_view *view, void **slot,
    const struct spot *at)
{
  const struct pw_program *t = s->t;
  for (int i = 0; i < t->nput; i++) {
    int k = t->put[i].operand;
    if (t->put[i].direct && view[k].how == DIRECT) continue;
    if (s->pieces || view[k].how == DIRECT) {
      char *to = block_address(s, view, k, at), *from = slot[t->put[i].slot];
      if (to != from) store_elements(s, k, to, from, view[k].stride, at->n);
    }
    else
      move_gathered(s, k, slot[t->put[i].slot], at->at, at->n, true);
  }
}

static void run_blocks(int64_t begin, int64_t end, void *context)
{
  const struct pw_run_state *s = context;
  const struct pw_program *t = s->t;
  _Alignas(64) char scratch[SLOTS * BLOCK_ELEMENTS * sizeof(double)];
  struct operand_view view[PW_ARGS];
  void *slot[SLOTS];
  for (int i = 0; i < t->nslot; i++) slot[i] = scratch + (size_t)(i * s->slot) * s->size;
  classify_operands(s, view);
  run_once(s, view, slot, MIN(s->l->count, s->slot));
  for (int64_t b = begin; b < end; b++) {
    struct spot at = find_spot(s, b);
    load_block(s, view, slot, scratch, &at);
    run_code(s, slot, t->nuniform, t->ncode, at.n);
    store_block(s, view, slot, &at);
  }
}

int pw_run(int device, const struct pw_program *t, const struct pw_loop *l, void *const *operand)
{
  if (device_kind(device) == TY_GPU) return l->count > 0 ? gpu->run(device, t, l, operand) : TY_OK;
  struct pw_run_state s = { .t = t, .l = l, .table = pw_table(), .operand = operand };
  s.size = t->kind == KIND_F32 || t->kind == KIND_I32 ? 4 : 8;
  if (l->count <= 0) return TY_OK;
  choose_blocks(&s);
  int64_t grain = MAX(
      1, 320000 / (MAX(t->cost, 1) * MAX(1, l->count / s.blocks))); /* blocks per 20 us */
  if (s.blocks <= grain)
    run_blocks(0, s.blocks, &s);
  else
    parallel_chunks_stoppable(s.blocks, grain, run_blocks, &s);
  return TY_OK;
}

bool pw_can_end(int device) { return device_kind(device) == TY_GPU; }

size_t pw_end_scratch(int device, const struct pw_end *end)
{
  return pw_can_end(device) ? gpu->end_scratch(end) : 0;
}

int pw_run_end(int device, const struct pw_program *t, const struct pw_loop *l,
    void *const *operand, const struct pw_end *end, void *tmp)
{
  NEED(pw_can_end(device), TY_EINTERNAL, "a pointwise program on a CPU ends in a reduction");
  return gpu->run_end(device, t, l, operand, end, tmp);
}

int pw_together(int device, bool begin)
{
  return device_kind(device) == TY_GPU ? gpu->together(device, begin) : TY_OK;
}
