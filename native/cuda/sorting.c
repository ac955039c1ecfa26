/* sorting.c - sort, argsort, topk (kernels/sort.cu). */
#include "cuda/row.h"
#include "kernel/vec/vec.h"

/* Constants of kernels/sort.cu. SHORT, TILE: most elements that a warp and a block sort. DIGIT:
** bits of a digit. DIGITS: its values. KEY, TICKET: bytes of a sort_key and of a ticket. */
enum { SHORT = 32, TILE = 2048, DIGIT = 8, DIGITS = 1 << DIGIT, KEY = 16, TICKET = 16 };
enum { EACH = TILE / CUDA_BLOCK };                    /* elements of a tile per thread */

/* The lines of an array (outer, n, inner) along the middle axis. lines: outer * inner. k: how many
** first elements of each are requested. */
struct sorted_lines { int64_t lines, n, inner, k; };

static struct sorted_lines make_lines(const struct call *c, const ty_desc *d)
{
  double axis = cuda_number(c, "axis", -1);
  struct sorted_lines l = { 1, desc_count(d), 1, (int64_t)cuda_number(c, "k", 0) };
  if (axis >= -TY_MAXDIM) {
    struct split s = split_at(d, axis_in(axis, d->ndim));
    l = (struct sorted_lines){ s.outer * s.inner, s.k, s.inner, l.k };
  }
  if (l.k < 1) l.k = l.n;
  return l;
}

/* Same as in kernels/sort.cu. */
struct order_args {
  const void *x, *from;
  void *to, *value, *index, *mask;
  int64_t lines, n, whole, k, inner;
};

/* The constants that kernels are compiled with, see kernels/sort.cu. */
struct order_kind { int dtype, index, bits; bool down, wide, from_x, to_out; };

static int64_t tiles_of_line(int64_t n) { return (n + TILE - 1) / TILE; }
static size_t pair_bytes(bool wide) { return wide ? KEY : 8; }
static size_t count_bytes(int64_t n) { return n < 1 << 30 ? sizeof(uint32_t) : sizeof(uint64_t); }

/* Starts `threads` threads of a kernel of kernels/sort.cu for lines of n. These are not rows of the
** table, since n decides which kernels sort, and how often. */
static int start_sort(const struct call *c, const struct order_kind *kind, int64_t n,
    const char *name, int items, int64_t threads, void **params)
{
  return cuda_start_words(c, FAMILY_sort, name, threads, params,
      "T=%s POSITION=%s DOWN=%d WIDE=%d BITS=%d FROM_X=%d TO_OUT=%d ITEMS=%d COUNT=%s TEAM=32",
      cuda_type(kind->dtype), cuda_type(kind->index), kind->down, kind->wide, kind->bits,
      kind->from_x, kind->to_out, items, count_bytes(n) == sizeof(uint64_t) ? "u64" : "u32");
}

/* Sorts lines of up to TILE elements in one launch. Keys of other families use one kernel for all
** lengths, since these often vary with the batch. */
static int sort_in_blocks(
    const struct call *c, const struct order_kind *kind, struct order_args *s, int32_t bits)
{
  if (s->n <= SHORT && kind->to_out)
    return start_sort(c, kind, s->n, "sort_short", 1, s->lines * SHORT, (void *[]){ s });
  int items = kind->to_out ? 1 : EACH;
  while (items * CUDA_BLOCK < s->n) items *= 2;
  return start_sort(
      c, kind, s->n, "sort_lines", items, s->lines * CUDA_BLOCK, (void *[]){ s, &bits });
}

/* -- longer lines ------------------------------------------------------------------------------ */

/* counts: the counts of digits, followed by the state of one pass; later: the state of the next
** pass. */
struct pass_space { void *counts, *later; };

static size_t state_bytes(int64_t lines, int64_t n)
{
  return TICKET + (size_t)(lines * tiles_of_line(n)) * DIGITS * count_bytes(n);
}

static size_t counts_bytes(int64_t lines, int64_t n, int passes)
{
  return (size_t)(lines * passes) * DIGITS * count_bytes(n);
}

static int count_passes(int bits) { return (bits + DIGIT - 1) / DIGIT; }

/* Sorts by passes. s->from, s->to: buffers for pairs; on return s->to is the one with the
** result. */
static int sort_in_passes(const struct call *c, struct order_kind kind, struct order_args *s,
    int32_t passes, const struct pass_space *space)
{
  const bool to_out = kind.to_out;
  const size_t counted = counts_bytes(s->lines, s->n, passes);
  const int64_t threads = s->lines * tiles_of_line(s->n) * CUDA_BLOCK;
  void *counts = space->counts, *now = (char *)counts + counted, *later = space->later;
  TRY(device_fill(c->device, counts, 0, counted + state_bytes(s->lines, s->n)));
  TRY(start_sort(c, &kind, s->n, "count_digits", EACH, threads, (void *[]){ &counts, s, &passes }));
  for (int32_t pass = 0; pass < passes; pass++) {
    void *known = (char *)now + TICKET, *zeros = (char *)later + TICKET;
    kind.to_out = to_out && pass == passes - 1;
    TRY(start_sort(c, &kind, s->n, "sort_pass", EACH, threads,
        (void *[]){ &counts, &now, &known, &later, &zeros, s, &pass, &passes }));
    void *swap = now;
    now = later, later = swap;
    kind.from_x = false;
    swap = (void *)s->from;
    if (pass < passes - 1) s->from = s->to, s->to = swap;
  }
  return TY_OK;
}

/* Selects the first k elements of each line, and sorts them. s->to, s->from: buffers for pairs. */
static int select_in_tiles(const struct call *c, struct order_kind kind, struct order_args *s)
{
  while (s->n > TILE) {
    void *swap = (void *)s->from;
    TRY(start_sort(c, &kind, s->n, "select_keys", EACH,
        s->lines * tiles_of_line(s->n) * CUDA_BLOCK, (void *[]){ &s->to, s }));
    s->n = tiles_of_line(s->n) * s->k;
    kind.from_x = false;
    s->from = s->to, s->to = swap;
  }
  return sort_in_blocks(c, &kind, s, kind.bits);
}

/* -- keys of other families -------------------------------------------------------------------- */

/* Returns the bytes of counts and states for `count` keys in lines of unknown length, half of what
** passes need. Lines longer than a tile have fewer than two tiles per TILE keys, and there is at
** most one such line per TILE keys. */
static size_t keys_space(int64_t count)
{
  if (count <= TILE) return 0;
  const int64_t lines = count / TILE + 1;
  return align_up(TICKET + (size_t)(lines * (KEY / 2 + 2)) * DIGITS * count_bytes(count), ALIGN);
}

size_t cuda_keys_bytes(int64_t count)
{
  return align_up((size_t)count * KEY, ALIGN) + keys_space(count);
}

int cuda_sort_bits(
    const struct call *c, void **keys, void *space, int64_t count, int64_t n, int bits)
{
  const struct order_kind kind = { TY_F32, TY_I32, 64, .wide = true };
  const size_t own = align_up((size_t)count * KEY, ALIGN);
  if (n <= 1 || bits <= 0) return TY_OK;
  struct order_args s = { .from = *keys, .to = space, .lines = count / n, .n = n, .whole = n };
  if (n <= TILE)
    TRY(sort_in_blocks(c, &kind, &s, bits));
  else
    TRY(sort_in_passes(c, kind, &s, count_passes(bits),
        &(struct pass_space){ (char *)*keys + own, (char *)space + own }));
  *keys = s.to;
  return TY_OK;
}

int cuda_sort_keys(const struct call *c, void **keys, void *space, int64_t count, int64_t n)
{
  return cuda_sort_bits(c, keys, space, count, n, 64);
}

/* -- operators --------------------------------------------------------------------------------- */

static bool is_wide(const ty_desc *d, int64_t n)
{
  return dtype_size(d->dtype) == sizeof(uint64_t) || n > UINT32_MAX;
}

static bool takes_few(const struct sorted_lines *l) { return l->k <= TILE / 4; }

/* Returns the bytes of scratch: two buffers of pairs, then counts and states of passes. */
static size_t order_scratch(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  struct sorted_lines l = make_lines(c, d);
  const size_t pair = pair_bytes(is_wide(d, l.n));
  if (l.n <= TILE) return 0;
  if (takes_few(&l)) {
    const int64_t first = tiles_of_line(l.n) * l.k, second = tiles_of_line(first) * l.k;
    return align_up((size_t)(l.lines * first) * pair, ALIGN) + (size_t)(l.lines * second) * pair;
  }
  const int passes = count_passes(8 * (int)dtype_size(d->dtype));
  return 2 * align_up((size_t)(l.lines * l.n) * pair, ALIGN) +
         align_up(counts_bytes(l.lines, l.n, passes) + state_bytes(l.lines, l.n), ALIGN) +
         state_bytes(l.lines, l.n);
}

static int order_lines(
    struct call *c, struct operand *value, struct operand *index, struct operand *mask)
{
  const ty_desc *d = &c->in[0].d;
  struct sorted_lines l = make_lines(c, d);
  const struct order_kind kind = { d->dtype, index ? index->d.dtype : TY_I32,
    8 * (int)dtype_size(d->dtype), !cuda_number(c, "is_ascend", 1), is_wide(d, l.n), true, true };
  struct order_args s = { c->in[0].p, NULL, NULL, value ? value->p : NULL, index ? index->p : NULL,
    mask ? mask->p : NULL, l.lines, l.n, l.n, l.k, l.inner };
  if (!s.value && !s.index && !s.mask) return TY_OK;
  if (mask) TRY(cuda_zero(c, mask));
  if (!desc_count(d)) return TY_OK;
  if (l.n <= TILE) return sort_in_blocks(c, &kind, &s, kind.bits);
  const size_t pair = pair_bytes(kind.wide);
  char *at = c->tmp;
  const int64_t pairs = takes_few(&l) ? tiles_of_line(l.n) * l.k : l.n;
  s.to = cuda_piece(&at, (size_t)(l.lines * pairs) * pair);
  if (takes_few(&l)) return s.from = at, select_in_tiles(c, kind, &s);
  const int passes = count_passes(kind.bits);
  s.from = cuda_piece(&at, (size_t)(l.lines * l.n) * pair);
  void *counts = cuda_piece(
      &at, counts_bytes(l.lines, l.n, passes) + state_bytes(l.lines, l.n));
  return sort_in_passes(c, kind, &s, passes, &(struct pass_space){ counts, at });
}

static int run_sort(struct call *c) { return order_lines(c, &c->out[0], &c->out[1], NULL); }
static int run_argsort(struct call *c) { return order_lines(c, NULL, &c->out[0], NULL); }
static int run_topk(struct call *c)
{
  bool both = cuda_word(c, "ret_typ", "both"), values = both || cuda_word(c, "ret_typ", "value");
  if (cuda_word(c, "ret_typ", "mask")) return order_lines(c, NULL, NULL, &c->out[0]);
  return values ? order_lines(c, &c->out[0], &c->out[1], NULL)
                : order_lines(c, NULL, &c->out[0], NULL);
}

/* Sizes of the gradient. in: head gradient, and the indices of its elements, which are missing if
** the results have no gradient. */
struct sort_back_args { int64_t count, n, k, inner, bits; };
static int64_t sort_back_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->out[0].d;
  struct sorted_lines l = make_lines(c, d);
  const int64_t count = l.lines * l.k;
  *(struct sort_back_args *)s =
      (struct sort_back_args){ count, l.n, l.k, l.inner, 8 * (int64_t)dtype_size(d->dtype) };
  return c->nin < 2 ? -1 : count;
}

#define KEYS(table, run) \
  static const struct kernel table[] = { { "radix", run, T_ANY, .scratch = order_scratch }, { 0 } };
KEYS(sorts, run_sort)
KEYS(argsorts, run_argsort)
KEYS(topks, run_topk)
static const struct kernel sorts_back[] = {
  { "scatter", CUDA_ROW(FAMILY_sort, "put_back", "T=$o0 POSITION=$i1 BITS=%4",
    "o0 i0 i1 s0 s1 s2 s3", sort_back_sizes, 1), .types = T_ANY }, { 0 }
};

const struct op_kernels cuda_sorting[] = {
  { "sort", sorts, sorts_back },
  { "argsort", argsorts, NULL },
  { "topk", topks, sorts_back },
  { 0 }
};
