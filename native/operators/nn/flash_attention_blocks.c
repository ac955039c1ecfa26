/* flash_attention_blocks.c - common parts of forward and backward of _contrib_attention: locations
** of operands, which keys rows see, blocks of scores. */
#include "kernel/attention.h"
#include "operators/nn/flash_attention.h"

struct flash_packing flash_find_packing(const struct flash_param *p)
{
  static const struct flash_packing table[] = {
    [FLASH_APART] = { .inputs = 3, .q_parts = 1, .kv_parts = 1, .key = 1, .value = 2 },
    [FLASH_KV] = { .inputs = 2, .q_parts = 1, .kv_parts = 2, .key = 1, .value = 1,
      .value_part = 1 },
    [FLASH_QKV] = { .inputs = 1, .q_parts = 3, .kv_parts = 3, .key_part = 1, .value_part = 2 },
  };
  return table[p->packed];
}

struct flash_ports flash_make_ports(const struct flash_param *p)
{
  int n = flash_find_packing(p).inputs;
  struct flash_ports ports = { -1, -1, -1, -1, 0 };
  if (p->use_mask) ports.mask = n++;
  if (p->use_bias) ports.bias = n++;
  if (p->use_valid_length) ports.valid_length = n++;
  if (p->use_offset) ports.offset = n++;
  ports.n = n;
  return ports;
}

/* -- the call ---------------------------------------------------------------------------------- */

struct flash_side flash_make_side(
    const struct flash_param *p, const struct operand *x, int64_t heads, int parts, int part)
{
  const int64_t *dim = x->d.dim;
  struct flash_side s;
  int64_t skip = 0;
  if (p->layout == FLASH_NHTC) {
    s = (struct flash_side){ x->p, dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3] };
  }
  else {
    const int64_t d = dim[2] / (heads * parts);
    const bool time_first = p->layout == FLASH_TNC;
    s = (struct flash_side){ x->p, time_first ? dim[2] : dim[1] * dim[2], parts * d,
      time_first ? dim[1] * dim[2] : dim[2] };
    skip = part * d;
  }
  if (s.p) s.p += (size_t)skip * dtype_size(x->d.dtype);
  return s;
}

struct flash_grid flash_make_grid(const struct operand *x)
{
  struct flash_grid g = { .x = x };
  int64_t step = 1;
  for (int i = x->d.ndim - 1, axis = 3; i >= 0; i--, axis--) {
    if (x->d.dim[i] > 1) g.step[axis] = step;
    step *= x->d.dim[i];
  }
  return g;
}

struct flash flash_make(const struct call *c, int first)
{
  const struct flash_param *p = c->param;
  const struct flash_ports ports = flash_make_ports(p);
  const struct operand *in = c->in + first;
  const struct operand *y = first ? &c->in[first + ports.n] : &c->out[0];
  const struct flash_packing z = flash_find_packing(p);
  const struct operand *k = &in[z.key], *v = &in[z.value];
  const bool nhtc = p->layout == FLASH_NHTC, time_first = p->layout == FLASH_TNC;
  struct flash f = { .r = vec_ops_of(in[0].d.dtype),
    .dtype = in[0].d.dtype,
    .size = dtype_size(in[0].d.dtype),
    .batch = in[0].d.dim[time_first],
    .heads = nhtc ? in[0].d.dim[1] : p->heads,
    .kv_heads = nhtc ? k->d.dim[1] : p->kv_heads,
    .tq = in[0].d.dim[nhtc ? 2 : !time_first],
    .tk = k->d.dim[nhtc ? 2 : !time_first],
    .causal = p->causal,
    .window = MIN(p->window, ATTENTION_MOST_WINDOW) };
  /* few queries read keys and values in place and are bound by memory: rounding would save
  ** nothing */
  f.product = f.tq > GEMM_FEW ? gemm_type_for(c, f.dtype) : f.dtype;
  f.group = f.heads / f.kv_heads;
  f.d = nhtc ? in[0].d.dim[3] : in[0].d.dim[2] / (f.heads * z.q_parts);
  f.dv = nhtc ? v->d.dim[3] : v->d.dim[2] / (f.kv_heads * z.kv_parts);
  f.empty = p->empty ? NAN : 0;
  f.scale = p->scale != 0 ? p->scale : 1 / sqrt((double)f.d);
  f.q = flash_make_side(p, &in[0], f.heads, z.q_parts, 0);
  f.k = flash_make_side(p, k, f.kv_heads, z.kv_parts, z.key_part);
  f.v = flash_make_side(p, v, f.kv_heads, z.kv_parts, z.value_part);
  f.y = flash_make_side(p, y, f.heads, 1, 0);
  if (ports.mask >= 0) f.mask = flash_make_grid(&in[ports.mask]);
  if (ports.bias >= 0) f.bias = flash_make_grid(&in[ports.bias]);
  if (ports.valid_length >= 0) f.valid_length = &in[ports.valid_length];
  if (ports.offset >= 0) f.offset = &in[ports.offset];
  f.logsum = first ? c->in[first + ports.n + 1].p : c->out[1].p;
  f.attends = gemm_attends(f.product, f.d, f.dv);
  f.keys = f.causal && f.tk <= FLASH_PART ? FLASH_FEW_KEYS : FLASH_KEYS;
  if (!c->run) return f;
  f.drops = c->run->is_train && p->dropout > 0;
  f.drop = (struct drop){ c->run->rng, c->node, 1 - p->dropout };
  f.attends = f.attends && !f.drops;
  return f;
}

/* -- blocks ------------------------------------------------------------------------------------ */

/* Returns which of `keys` keys the query at `position` sees. */
static struct flash_span find_query_span(const struct flash *f, int64_t position, int64_t keys)
{
  struct flash_span s = { 0, keys };
  if (f->window) {
    s.lo = MAX(s.lo, position - f->window + 1);
    s.hi = MIN(s.hi, position + f->window);
  }
  if (f->causal) s.hi = MIN(s.hi, position + 1);
  s.lo = MIN(s.lo, keys);
  s.hi = MAX(s.hi, s.lo);
  return s;
}

/* Returns the number of valid keys of a sample. */
static int64_t count_valid_keys(const struct flash *f, int64_t sample)
{
  return f->valid_length ? index_at(f->valid_length, sample, f->tk + 1) : f->tk;
}

/* Returns the position of a sample's first query, clamped so that sums with it do not overflow;
** beyond the limits it makes no difference. */
static int64_t find_first_position(const struct flash *f, int64_t sample)
{
  if (!f->offset) return 0;
  const int64_t position = whole_at(f->offset, sample), most = f->tk + f->tq + f->window;
  return position < -most ? -most : MIN(position, most);
}

static int64_t count_row_blocks(const struct flash *f)
{
  return (f->tq + FLASH_QUERIES - 1) / FLASH_QUERIES;
}

/* Returns the number of a block of rows of a sample among those of flash_find_spans. */
static int64_t span_number(const struct flash *f, int64_t sample, int64_t block)
{
  return (f->bias.step[0] ? sample * count_row_blocks(f) : 0) + block;
}

struct flash_span flash_find_span(const struct flash *f, const struct flash_rows *b)
{
  if (f->spans) return f->spans[span_number(f, b->sample, b->q0 / FLASH_QUERIES)];
  const int64_t first = find_first_position(f, b->sample) + b->q0,
                keys = count_valid_keys(f, b->sample);
  struct flash_span lo = find_query_span(f, first, keys),
                    hi = find_query_span(f, first + (b->across ? 0 : b->m - 1), keys);
  return (struct flash_span){ lo.lo, hi.hi };
}

/* -- keys that a bias hides -------------------------------------------------------------------- */

enum {
  LEAST_STRETCH  = 32,                                /* keys that are examined together */
  MOST_STRETCHES = 256                                /* of a row */
};
/* e^x is 0 for x below minus this, in float64 and all narrower types */
#define NO_WEIGHT 750.0

/* Returns whether a bias may hide keys from blocks of rows, the same keys for all heads. Nothing
** else may hide keys, since at least one key that the bias leaves has to count. */
static bool may_find_spans(const struct flash *f)
{
  const struct flash_grid *g = &f->bias;
  return g->x && f->tq > 1 && f->tk > FLASH_KEYS && g->step[2] && g->step[3] && !g->step[1] &&
      !f->mask.x && !f->causal && !f->window && !f->valid_length;
}

/* Returns the number of blocks of rows for which the bias differs. */
static int64_t count_spans(const struct flash *f)
{
  return (f->bias.step[0] ? f->batch : 1) * count_row_blocks(f);
}

size_t flash_spans_bytes(const struct flash *f)
{
  if (!may_find_spans(f)) return 0;
  return align_up((size_t)count_spans(f) * sizeof(struct flash_span) +
      (size_t)f->batch * sizeof(double), ALIGN);
}

/* Returns an upper bound of the norm of a position in any head: the largest norm of a position in
** one head or, where heads are contiguous, in all together. Infinity if a number is not finite. */
static double find_norm(const struct flash *f, const struct flash_side *s, int64_t sample,
    int64_t heads, int64_t positions)
{
  const bool beside = s->head < s->row;               /* the heads of a position are contiguous */
  const int64_t n = beside ? (heads - 1) * s->head + f->d : f->d;
  double most = 0;
  for (int64_t h = 0; h < (beside ? 1 : heads); h++)
    for (int64_t i = 0; i < positions; i++) {
      const char *x = flash_at(f, s, sample, h, i);
      const double square = f->r->dot(x, x, n);
      if (!isfinite(square)) return INFINITY;
      most = MAX(most, square);
    }
  return sqrt(most);
}

/* Returns which keys of a row of the bias count if scores differ by at most `range`. A stretch with
** NaN counts. */
static struct flash_span find_row_span(const struct flash *f, const char *row, double range)
{
  const int64_t least = (f->tk + MOST_STRETCHES - 1) / MOST_STRETCHES,
                each = align_up((size_t)least, LEAST_STRETCH);
  double most[MOST_STRETCHES], greatest = -INFINITY;
  for (int64_t k = 0, i = 0; k < f->tk; k += each, i++) {
    most[i] = f->r->max(vec_at(f->r, row, k), MIN(each, f->tk - k));
    greatest = MAX(greatest, most[i]);
  }
  struct flash_span s = { f->tk, 0 };
  for (int64_t k = 0, i = 0; k < f->tk; k += each, i++) {
    const int64_t n = MIN(each, f->tk - k);
    if (greatest - most[i] > range && !isnan(f->r->sum(vec_at(f->r, row, k), n))) continue;
    s.lo = MIN(s.lo, k);
    s.hi = k + n;
  }
  return s;
}

struct span_job { struct flash *f; double *range; };

/* Computes for each sample how much lower a bias must be for a key's weight to be 0. */
static void find_ranges(int64_t begin, int64_t end, void *context)
{
  const struct span_job *j = context;
  const struct flash *f = j->f;
  for (int64_t sample = begin; sample < end; sample++) {
    const double most = fabs(f->scale) * find_norm(f, &f->q, sample, f->heads, f->tq) *
        find_norm(f, &f->k, sample, f->kv_heads, f->tk);
    j->range[sample] = isfinite(most) ? 2 * most + NO_WEIGHT : INFINITY;
  }
}

/* Finds the spans of blocks begin .. end - 1 of rows. */
static void find_block_spans(int64_t begin, int64_t end, void *context)
{
  const struct span_job *j = context;
  const struct flash *f = j->f;
  const int64_t blocks = count_row_blocks(f);
  for (int64_t i = begin; i < end; i++) {
    const int64_t sample = i / blocks, first = i % blocks * FLASH_QUERIES,
                  last = MIN(first + FLASH_QUERIES, f->tq);
    struct flash_span all = { f->tk, 0 };
    for (int64_t q = first; q < last; q++) {
      const struct flash_rows b = { .sample = sample, .q0 = q, .m = 1 };
      const char *row = vec_at(f->r, f->bias.x->p, flash_grid_element(&f->bias, &b, 0, 0));
      const struct flash_span s = find_row_span(f, row, j->range[sample]);
      all = (struct flash_span){ MIN(all.lo, s.lo), MAX(all.hi, s.hi) };
    }
    f->spans[i] = all;
  }
}

void flash_find_spans(struct flash *f, char *base)
{
  if (!may_find_spans(f)) return;
  const int64_t n = count_spans(f);
  struct span_job j = { f, (double *)base };
  parallel_for(f->batch, NS_ELEMENT * (double)((f->tq + f->tk) * f->heads * f->d), find_ranges, &j);
  for (int64_t i = 1; i < f->batch && !f->bias.step[0]; i++)
    j.range[0] = MAX(j.range[0], j.range[i]);
  f->spans = (struct flash_span *)(j.range + f->batch);
  parallel_for(n, NS_ELEMENT * (double)(FLASH_QUERIES * f->tk), find_block_spans, &j);
  for (int64_t i = 0; i < n && f->tk <= FLASH_PART; i++)
    if (f->spans[i].hi - f->spans[i].lo <= f->tk - FLASH_FEW_KEYS) f->keys = FLASH_FEW_KEYS;
}

bool flash_cut_rows(const struct flash *f, int64_t sample, int64_t kv, int64_t q0, int64_t q1,
    int64_t i, struct flash_rows *b)
{
  const int64_t head = kv * f->group;
  if (f->tq == 1) {
    const int64_t from = i * FLASH_QUERIES;
    if (from >= f->group) return false;
    *b = (struct flash_rows){ sample, head + from, 0, MIN(FLASH_QUERIES, f->group - from), true };
    return true;
  }
  const int64_t blocks = (q1 - q0 + FLASH_QUERIES - 1) / FLASH_QUERIES;
  if (i >= blocks * f->group) return false;
  const int64_t from = q0 + i % blocks * FLASH_QUERIES;
  *b = (struct flash_rows){ sample, head + i / blocks, from, MIN(FLASH_QUERIES, q1 - from), false };
  return true;
}

struct flash_span flash_span_of_group(
    const struct flash *f, int64_t sample, int64_t kv, int64_t q0, int64_t q1)
{
  struct flash_span all = { f->tk, 0 };
  struct flash_rows b;
  for (int64_t i = 0; flash_cut_rows(f, sample, kv, q0, q1, i, &b); i++) {
    const struct flash_span seen = flash_find_span(f, &b);
    all = (struct flash_span){ MIN(all.lo, seen.lo), MAX(all.hi, seen.hi) };
  }
  return all;
}

void flash_scale_queries(const struct flash *f, const struct flash_rows *b, char *out)
{
  const char *q = flash_rows_at(f, &f->q, b);
  const int64_t step = flash_row_step(&f->q, b);
  for (int64_t i = 0; i < b->m; i++)
    f->r->affine(out + (size_t)(i * f->d) * f->size, q + (size_t)(i * step) * f->size, f->scale, 0,
        f->d);
}

int64_t flash_grid_element(
    const struct flash_grid *g, const struct flash_rows *b, int64_t i, int64_t k0)
{
  return b->sample * g->step[0] + (b->head + (b->across ? i : 0)) * g->step[1] +
      (b->q0 + (b->across ? 0 : i)) * g->step[2] + k0 * g->step[3];
}

#define APPLY_MASK(T) \
  for (int64_t j = 0; j < n; j++) \
    if (!((const T *)m->p)[from + j * step]) f->r->set(s, j, -INFINITY);

/* Sets scores whose element of the mask is 0 to -infinity; that of the first one is `from`. */
static void apply_mask(const struct flash *f, int64_t from, char *s, int64_t n)
{
  const struct operand *m = f->mask.x;
  const int64_t step = f->mask.step[3];
  switch (m->d.dtype) {
    case TY_BOOL:
    case TY_U8:
    case TY_I8: APPLY_MASK(uint8_t) break;
    case TY_F32: APPLY_MASK(float) break;
    case TY_F64: APPLY_MASK(double) break;
    default:
      for (int64_t j = 0; j < n; j++)
        if (number_at(m, from + j * step) == 0) f->r->set(s, j, -INFINITY);
  }
}

/* Adds the bias to scores; that of the first one is element `from`. */
static void add_bias(const struct flash *f, int64_t from, char *s, int64_t n)
{
  const struct operand *x = f->bias.x;
  if (f->bias.step[3])
    f->r->add(s, vec_at(f->r, x->p, from), n);
  else
    f->r->affine(s, s, 1, f->r->get(x->p, from), n);
}

bool flash_restrict(const struct flash *f, const struct flash_rows *b, char *s, int64_t ld,
    int64_t k0, int64_t n)
{
  const int64_t first = find_first_position(f, b->sample) + b->q0,
                keys = count_valid_keys(f, b->sample);
  bool some = f->mask.x || f->bias.x;
  if (!flash_restricts(f)) return false;
  for (int64_t i = 0; i < b->m; i++, s += (size_t)ld * f->size) {
    const struct flash_span seen = find_query_span(f, first + (b->across ? 0 : i), keys);
    if (f->bias.x) add_bias(f, flash_grid_element(&f->bias, b, i, k0), s, n);
    if (f->mask.x) apply_mask(f, flash_grid_element(&f->mask, b, i, k0), s, n);
    const int64_t lo = MIN(MAX(seen.lo - k0, 0), n), hi = MIN(MAX(seen.hi - k0, lo), n);
    if (lo == 0 && hi == n) continue;
    some = true;
    f->r->fill(s, -INFINITY, lo);
    f->r->fill(s + (size_t)hi * f->size, -INFINITY, n - hi);
  }
  return some;
}

void flash_multiply_nonzero(const struct flash *f, bool ta, int64_t m, int64_t n, int64_t k,
    const char *a, int64_t lda, const char *b, int64_t ldb, char *c, int64_t ldc)
{
  const struct vec_ops *r = f->r;
  for (int64_t i = 0; i < m; i++)
    for (int64_t p = 0; p < k; p++) {
      const double factor = r->get(a, ta ? p * lda + i : i * lda + p);
      if (factor != 0) r->axpy_in(vec_at(r, c, i * ldc), vec_at(r, b, p * ldb), factor, 1, n);
    }
}

bool flash_is_finite(const struct flash *f, int64_t rows, int64_t n, const char *x, int64_t step)
{
  if (step == n) n *= rows, rows = 1;
  for (int64_t i = 0; i < rows; i++) {
    const void *row = vec_at(f->r, x, i * step);
    if (!isfinite(f->r->dot(row, row, n))) return false;
  }
  return true;
}

void flash_clear(const struct flash *f, int64_t rows, int64_t n, char *x, int64_t step)
{
  for (int64_t i = 0; i < rows; i++) memset(vec_at(f->r, x, i * step), 0, f->size * (size_t)n);
}
