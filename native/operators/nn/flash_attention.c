/* flash_attention.c - _contrib_attention: ports, inference, the forward kernel. */
#include "operators/nn/flash_attention.h"
#include "kernel/vec/softmax.h"

#define FIELD(f) offsetof(struct flash_param, f)
static const struct param params[] = {
  { "heads",    P_INT,   FIELD(heads),    "1",   "heads of query; unused with layout NHTC", NULL, "[1,]" },
  { "kv_heads", P_INT,   FIELD(kv_heads), "0",
    "heads of key and value, each of which serves heads / kv_heads heads of query; 0: as many as heads", NULL, "[0,]" },
  { "layout",   P_ENUM,  FIELD(layout),   "NTC", "NTC (batch, length, heads * size), TNC (length, batch, heads * size), "
    "NHTC (batch, heads, length, size)", "NTC|TNC|NHTC" },
  { "packed",   P_ENUM,  FIELD(packed),   "none", "kv: each head of the second input is its key, then its value; qkv: each head "
    "of the only input is its query, key and value", "none|kv|qkv" },
  { "causal",   P_BOOL,  FIELD(causal),   "0",   "a query sees no key of a later position" },
  { "window",   P_INT,   FIELD(window),   "0",   "a query sees keys less than so many positions away; 0: all", NULL, "[0,]" },
  { "scale",    P_FLOAT, FIELD(scale),    "0",   "factor of the products of queries and keys; 0: 1 / sqrt(size of a head)" },
  { "dropout",  P_FLOAT, FIELD(dropout),  "0",   "share of the weights that become 0 in training", NULL, "[0,1]" },
  { "empty",    P_ENUM,  FIELD(empty),    "zero", "what a query for which no key counts gives: 0, or NaN as softmax does", "zero|nan" },
  { "use_mask", P_BOOL,  FIELD(use_mask), "0",   "there is an input mask: keys count where it is not 0" },
  { "use_bias", P_BOOL,  FIELD(use_bias), "0",   "there is an input bias, which is added to the scores" },
  { "use_valid_length", P_BOOL, FIELD(use_valid_length), "0",
    "there is an input valid_length: the number of keys of each sample that count" },
  { "use_offset", P_BOOL, FIELD(use_offset), "0",
    "there is an input offset: the position of the first query of each sample, for causal and window; else 0" },
  { 0 }
};

/* -- ports ------------------------------------------------------------------------------------- */

#define WITH_OFFSET(s) s, s " offset"
#define WITH_LENGTH(s) WITH_OFFSET(s), WITH_OFFSET(s " valid_length")
#define WITH_BIAS(s)   WITH_LENGTH(s), WITH_LENGTH(s " bias")
#define WITH_MASK(s)   { WITH_BIAS(s), WITH_BIAS(s " mask") }

static const char *input_ports(const void *param)
{
  static const char *const of[3][16] = { WITH_MASK("query key value"), WITH_MASK("query key_value"),
    WITH_MASK("query_key_value") };
  const struct flash_param *p = param;
  return of[p->packed][(p->use_mask ? 8 : 0) + (p->use_bias ? 4 : 0) +
      (p->use_valid_length ? 2 : 0) + (p->use_offset ? 1 : 0)];
}

static const char *gradient_reads(const void *param)
{
  static const char *const of[] = { "g0 i0 o0 o1", "g0 i0 i1 o0 o1", "g0 i0 i1 i2 o0 o1",
    "g0 i0 i1 i2 i3 o0 o1", "g0 i0 i1 i2 i3 i4 o0 o1", "g0 i0 i1 i2 i3 i4 i5 o0 o1",
    "g0 i0 i1 i2 i3 i4 i5 i6 o0 o1" };
  return of[flash_make_ports(param).n - 1];
}

static bool drops_weights(const void *param, bool is_train)
{
  return is_train && ((const struct flash_param *)param)->dropout > 0;
}

static int flash_check(void *param)
{
  struct flash_param *p = param;
  char expected[64];
  if (!p->kv_heads) p->kv_heads = p->heads;
  if (!isfinite(p->scale)) return param_fail("scale", "a finite number", "%g", p->scale);
  if (p->layout == FLASH_NHTC)
    return p->packed == FLASH_APART
        ? TY_OK
        : param_fail("layout", "NTC or TNC with packed inputs", "NHTC");
  snprintf(expected, sizeof expected,
      p->packed == FLASH_QKV ? "heads = %lld with packed = qkv" : "a divisor of heads = %lld",
      (long long)p->heads);
  const bool fits = p->packed == FLASH_QKV ? p->heads == p->kv_heads : p->heads % p->kv_heads == 0;
  return fits ? TY_OK : param_fail("kv_heads", expected, "%lld", (long long)p->kv_heads);
}

/* -- inference --------------------------------------------------------------------------------- */

/* Sizes of one input or output; 0: not known. */
struct flash_shape {
  int64_t batch;
  int64_t heads;
  int64_t length;                                     /* positions */
  int64_t size;                                       /* elements of a part of a head */
};

/* Reads the sizes of x, whose heads have `parts` parts. Returns a code. */
static int read_shape(struct infer *s, const ty_desc *x, int64_t heads, int parts,
    struct flash_shape *out)
{
  const struct flash_param *p = s->param;
  *out = (struct flash_shape){ 0 };
  if (!x->ndim) return TY_OK;
  const int want = p->layout == FLASH_NHTC ? 4 : 3;
  if (x->ndim != want)
    return infer_fail(s, TY_ESHAPE, x, "expected %s, got %d dimensions",
        p->layout == FLASH_NHTC        ? "(batch, heads, length, size)"
            : p->layout == FLASH_TNC ? "(length, batch, heads * size)"
                                       : "(batch, length, heads * size)",
        x->ndim);
  if (p->layout == FLASH_NHTC) {
    *out = (struct flash_shape){ x->dim[0], x->dim[1], x->dim[2], x->dim[3] };
    return TY_OK;
  }
  const int64_t width = heads > INT32_MAX ? INT64_MAX : heads * parts;
  if (x->dim[2] % width)
    return infer_fail(s, TY_ESHAPE, x, "a row of %lld numbers cannot be divided into %lld heads%s",
        (long long)x->dim[2], (long long)heads, parts > 1 ? " with several parts" : "");
  const bool time_first = p->layout == FLASH_TNC;
  *out = (struct flash_shape){ x->dim[time_first], heads, x->dim[!time_first], x->dim[2] / width };
  return TY_OK;
}

/* Infers the shape of x from its sizes. Returns a code. */
static int write_shape(struct infer *s, ty_desc *x, int parts, struct flash_shape z)
{
  const struct flash_param *p = s->param;
  if (p->layout == FLASH_NHTC)
    return shape_is(s, x, 4, (int64_t[]){ z.batch, z.heads, z.length, z.size });
  const int64_t width = z.heads * parts * z.size;
  if (p->layout == FLASH_TNC)
    return shape_is(s, x, 3, (int64_t[]){ z.length, z.batch, width });
  return shape_is(s, x, 3, (int64_t[]){ z.batch, z.length, width });
}

/* Checks a mask or a bias: its last axes are (batch, heads, queries, keys), or 1. */
static int check_grid(struct infer *s, const ty_desc *x, const int64_t full[4])
{
  if (!x->ndim) return TY_OK;
  bool fits = x->ndim <= 4;
  for (int i = 0; fits && i < x->ndim; i++) {
    const int64_t want = full[4 - x->ndim + i];
    fits = !x->dim[i] || x->dim[i] == 1 || !want || x->dim[i] == want;
  }
  if (fits) return TY_OK;
  char got[256];
  return infer_fail(s, TY_ESHAPE, x,
      "expected a shape that broadcasts to (batch %lld, heads %lld, queries %lld, keys %lld), "
      "got %s",
      (long long)full[0], (long long)full[1], (long long)full[2], (long long)full[3],
      text_shape(x, got, sizeof got));
}

static int flash_shapes(struct infer *s)
{
  const struct flash_param *p = s->param;
  const struct flash_ports ports = flash_make_ports(p);
  const struct flash_packing z = flash_find_packing(p);
  const bool apart = p->packed == FLASH_APART;
  ty_desc *q_in = &s->in[0], *k_in = &s->in[z.key], *v_in = &s->in[z.value];
  struct flash_shape q, k, v, y;
  TRY(read_shape(s, q_in, p->heads, z.q_parts, &q));
  TRY(read_shape(s, k_in, p->kv_heads, z.kv_parts, &k));
  TRY(read_shape(s, v_in, p->kv_heads, z.kv_parts, &v));
  TRY(read_shape(s, &s->out[0], p->heads, 1, &y));
  const int64_t batch = q.batch ? q.batch : k.batch ? k.batch : v.batch ? v.batch : y.batch,
                size = q.size ? q.size : k.size, keys = k.length ? k.length : v.length,
                values = v.size ? v.size : y.size, heads = q.heads ? q.heads : y.heads,
                kv_heads = k.heads ? k.heads : v.heads, queries = q.length ? q.length : y.length;
  if (heads && kv_heads && heads % kv_heads)
    return infer_fail(s, TY_ESHAPE, k_in, "%lld heads of queries are no multiple of %lld of keys",
        (long long)heads, (long long)kv_heads);
  if (heads)
    TRY(write_shape(s, q_in, z.q_parts, (struct flash_shape){ batch, heads, queries, size }));
  if (kv_heads) {
    TRY(write_shape(s, k_in, z.kv_parts, (struct flash_shape){ batch, kv_heads, keys, size }));
    if (apart)
      TRY(write_shape(s, v_in, 1, (struct flash_shape){ batch, kv_heads, keys, values }));
  }
  if (heads)
    TRY(write_shape(s, &s->out[0], 1,
        (struct flash_shape){ batch, heads, queries, apart ? values : size }));
  if (heads) TRY(shape_is(s, &s->out[1], 4, (int64_t[]){ 2, batch, heads, queries }));
  const int64_t full[4] = { batch, heads, queries, keys };
  if (ports.mask >= 0) TRY(check_grid(s, &s->in[ports.mask], full));
  if (ports.bias >= 0) TRY(check_grid(s, &s->in[ports.bias], full));
  if (ports.valid_length >= 0) TRY(shape_is(s, &s->in[ports.valid_length], 1, &batch));
  if (ports.offset >= 0) TRY(shape_is(s, &s->in[ports.offset], 1, &batch));
  return TY_OK;
}

/* Returns the number of keys of a sample, 0 while it is unknown. */
static int64_t count_keys(const struct infer *s)
{
  const struct flash_param *p = s->param;
  const ty_desc *k = &s->in[flash_find_packing(p).key];
  return k->ndim < 3 ? 0
      : p->layout == FLASH_NHTC ? (k->ndim == 4 ? k->dim[2] : 0)
                                : k->dim[p->layout == FLASH_NTC];
}

static int flash_types(struct infer *s)
{
  const struct flash_param *p = s->param;
  const struct flash_ports ports = flash_make_ports(p);
  const int inputs = flash_find_packing(p).inputs;
  ty_desc *all[5];
  int n = 0;
  for (int i = 0; i < inputs; i++) all[n++] = &s->in[i];
  if (ports.bias >= 0) all[n++] = &s->in[ports.bias];
  all[n++] = &s->out[0];
  /* first finds the dtype in any of them, then passes it to the others; an error names all[i] */
  for (int i = 1; i < n; i++) TRY(type_both(s, all[i], all[0]));
  for (int i = 1; i < n; i++) TRY(type_both(s, all[i], all[0]));
  const int dtype = all[0]->dtype;
  if (dtype == TY_NODTYPE) return TY_OK;
  if (!dtype_float(dtype))
    return infer_fail(s, TY_EDTYPE, all[0], "expected a float type, got %s", dtype_name(dtype));
  TRY(type_is(s, &s->out[1], dtype == TY_F64 ? TY_F64 : TY_F32));
  if (ports.mask >= 0 && s->in[ports.mask].dtype == TY_NODTYPE)
    TRY(type_is(s, &s->in[ports.mask], dtype));
  const int64_t positions = count_keys(s) ? count_keys(s) + 1 : 0;
  if (ports.valid_length >= 0) TRY(type_index(s, &s->in[ports.valid_length], all[0], positions));
  if (ports.offset >= 0) TRY(type_index(s, &s->in[ports.offset], all[0], positions));
  return TY_OK;
}

/* -- forward ----------------------------------------------------------------------------------- */

/* A thread's part of scratch, for one task. */
struct flash_workspace {
  char *q;                                            /* scaled queries of a block of rows */
  char *s;                                            /* their scores, then their weights */
  char *k;                                            /* packed keys; NULL: read in place */
  char *v;                                            /* packed values, where k is not NULL */
  /* per row of the task: maximum score so far */
  double *greatest;
  double *sum;                                        /* per row: sum of weights so far */
  bool only_block;                                    /* all keys of the rows are in one block */
};

/* Returns the rows of a task: a chunk of queries of a group of heads. */
static int64_t count_task_rows(const struct flash *f)
{
  return f->group * MIN(f->tq, flash_chunk(f));
}

/* Returns the bytes of f->keys packed values. */
static size_t get_value_bytes(const struct flash *f)
{
  return gemm_pack_bytes(f->product, f->dv, f->keys);
}

/* Sets the pointers of a workspace at base. Returns the bytes that it takes; base NULL: does
** nothing else. */
static size_t divide_scratch(const struct flash *f, char *base, struct flash_workspace *x)
{
  const int64_t rows = flash_rows_most(f), keys = MIN(f->tk, FLASH_WIDE),
                row = f->attends ? gemm_score_row(keys) : keys;
  const size_t bytes[6] = { (size_t)(rows * f->d) * f->size, (size_t)(rows * row) * f->size,
    gemm_pack_bytes(f->product, keys, f->d),
    FLASH_WIDE / FLASH_FEW_KEYS * gemm_pack_bytes(f->product, f->dv, FLASH_FEW_KEYS),
    (size_t)count_task_rows(f) * sizeof(double), (size_t)count_task_rows(f) * sizeof(double) };
  char *part[6];
  size_t used = 0;
  for (int i = 0; i < 6; i++) {
    part[i] = base + used;
    used += align_up(bytes[i], ALIGN);
  }
  if (base)
    *x = (struct flash_workspace){ part[0], part[1], part[2], part[3], (double *)part[4],
      (double *)part[5], false };
  return used;
}

/* Updates `greatest` and `sum` of rows b for the scores s of keys k0 .. k0 + n - 1 (rows ld apart),
** replaces the scores by weights e^(score - greatest), with dropout, and rescales y. */
static void weigh_scores(const struct flash *f, const struct flash_rows *b, char *s, int64_t ld,
    int64_t k0, int64_t n, double *greatest, double *sum)
{
  const struct vec_ops *r = f->r;
  char *y = flash_rows_at(f, &f->y, b);
  const int64_t step = flash_row_step(&f->y, b);
  for (int64_t i = 0; i < b->m; i++, s += (size_t)ld * f->size) {
    const double before = greatest[i], most = MAX(before, r->max(s, n)),
                 shift = most == -INFINITY ? 0 : most;
    const double shrink = sum[i] == 0 || before == most ? 1 : exp(before - most);
    greatest[i] = most;
    sum[i] = sum[i] * shrink + r->softmax->exp_sum(s, s, shift, n);
    if (shrink != 1) r->affine(vec_at(r, y, i * step), vec_at(r, y, i * step), shrink, 0, f->dv);
    if (f->drops)
      r->dropout(s, s, NULL, &f->drop, flash_row_number(f, b, i) * f->tk + k0, n);
  }
}

/* Computes y += s v (x->only_block: y = s v) for rows b and keys k0 .. k0 + n - 1; the first one is
** key `from` of the packed block. Returns a code. */
static int add_values(const struct flash *f, const struct flash_workspace *x,
    const struct flash_rows *b, int64_t kv, int64_t k0, int64_t n, int64_t from)
{
  char *y = flash_rows_at(f, &f->y, b);
  const int64_t step = flash_row_step(&f->y, b);
  if (!x->k)
    return gemm_one(f->product, false, false, b->m, f->dv, n, 1, x->s, n,
        flash_at(f, &f->v, b->sample, kv, k0), f->v.row, !x->only_block, y, step);
  for (int64_t k = 0; k < n; k += f->keys) {
    const char *v = x->v + (size_t)((from + k) / f->keys) * get_value_bytes(f);
    TRY(gemm_packed(f->product, false, b->m, f->dv, MIN(f->keys, n - k),
        x->s + (size_t)k * f->size, n, v, y, step, &(struct gemm_epilogue){ .add = true }));
  }
  return TY_OK;
}

/* Computes y += s v for rows b and keys k0 .. k0 + n - 1; weights of 0 add nothing even if values
** are not finite. */
static void add_nonzero_values(const struct flash *f, const struct flash_workspace *x,
    const struct flash_rows *b, int64_t kv, int64_t k0, int64_t n, int64_t ld)
{
  char *y = flash_rows_at(f, &f->y, b);
  const int64_t step = flash_row_step(&f->y, b);
  if (x->only_block) flash_clear(f, b->m, f->dv, y, step);
  flash_multiply_nonzero(f, false, b->m, f->dv, n, x->s, ld, flash_at(f, &f->v, b->sample, kv, k0),
      f->v.row, y, step);
}

/* Does forward_block with attend.h, some rows at a time. Keys k0 .. k0 + n - 1 are packed. */
static void attend_block(const struct flash *f, const struct flash_workspace *x,
    const struct flash_rows *b, int64_t kv, int64_t k0, int64_t n, bool finite, int64_t row)
{
  const int64_t each = gemm_attend_rows(f->product, b->m);
  flash_scale_queries(f, b, x->q);
  for (int64_t i = 0; i < b->m; i += each) {
    struct flash_rows part = *b;
    *(b->across ? &part.head : &part.q0) += i;
    part.m = MIN(each, b->m - i);
    const struct flash_span seen = flash_find_span(f, &part);
    const int64_t from = MAX(seen.lo - k0, 0) / f->keys * f->keys, to = MIN(n, seen.hi - k0);
    if (from >= to) continue;
    const struct gemm_attend g = { .type = f->product,
      .m = part.m,
      .n = to - from,
      .d = f->d,
      .dv = f->dv,
      .q = (const float *)x->q + i * f->d,
      .k = x->k + gemm_pack_bytes(f->product, from, f->d),
      .s = (float *)x->s,
      .lds = gemm_score_row(to - from),
      .v = x->v,
      .keys = n,
      .from = from,
      .y = (float *)flash_rows_at(f, &f->y, &part),
      .ldy = flash_row_step(&f->y, &part),
      .greatest = x->greatest + row + i,
      .sum = x->sum + row + i };
    gemm_score(&g);
    if (!flash_restrict(f, &part, x->s, g.lds, k0 + from, g.n) || finite) {
      gemm_weigh(&g);
      continue;
    }
    for (int64_t r = 0; r < g.m; r++)
      if (g.sum[r] == 0) memset(g.y + r * g.ldy, 0, (size_t)f->dv * sizeof(float));
    weigh_scores(f, &part, x->s, g.lds, k0 + from, g.n, g.greatest, g.sum);
    add_nonzero_values(f, x, &part, kv, k0 + from, g.n, g.lds);
  }
}

/* Adds keys k0 .. k0 + n - 1 of key head kv to the sums of rows b. row: index of the first row in
** the task. x->k NULL: reads keys and values in place. finite: weights of 0 may be multiplied,
** since all values are finite or no key is hidden. Returns a code. */
static int forward_block(const struct flash *f, const struct flash_workspace *x,
    const struct flash_rows *b, int64_t kv, int64_t k0, int64_t n, bool finite, int64_t row)
{
  if (x->k && f->attends) {
    attend_block(f, x, b, kv, k0, n, finite, row);
    return TY_OK;
  }
  const struct flash_span seen = flash_find_span(f, b);
  const int64_t from = MAX(seen.lo - k0, 0) / f->keys * f->keys;
  n = MIN(n, (seen.hi - k0 + f->keys - 1) / f->keys * f->keys) - from;
  k0 += from;
  if (x->k) {
    flash_scale_queries(f, b, x->q);
    TRY(gemm_packed(f->product, false, b->m, n, f->d, x->q, f->d,
        x->k + gemm_pack_bytes(f->product, from, f->d), x->s, n, NULL));
  }
  else
    TRY(gemm_one(f->product, false, true, b->m, n, f->d, f->scale, flash_rows_at(f, &f->q, b),
        flash_row_step(&f->q, b), flash_at(f, &f->k, b->sample, kv, k0), f->k.row, 0, x->s, n));
  const bool restricted = flash_restrict(f, b, x->s, n, k0, n);
  weigh_scores(f, b, x->s, n, k0, n, x->greatest + row, x->sum + row);
  const char *v = flash_at(f, &f->v, b->sample, kv, k0);
  if (restricted && !(finite || flash_is_finite(f, n, f->dv, v, f->v.row))) {
    add_nonzero_values(f, x, b, kv, k0, n, n);
    return TY_OK;
  }
  return add_values(f, x, b, kv, k0, n, from);
}

/* Stores shift + log as the logsum of a row, and its rounding error. */
static void store_logsum(const struct flash *f, int64_t row, double shift, double log)
{
  f->r->set(f->logsum, row, shift + log);
  const double stored = f->r->get(f->logsum, row);
  f->r->set(f->logsum, flash_count_rows(f) + row, isfinite(stored) ? shift - stored + log : 0);
}

/* Divides the sums of values of rows b by the sums of weights, and stores logsum if backward needs
** it. */
static void finish_rows(
    const struct flash *f, const struct flash_rows *b, const double *greatest, const double *sum)
{
  const struct vec_ops *r = f->r;
  char *y = flash_rows_at(f, &f->y, b);
  const int64_t step = flash_row_step(&f->y, b);
  for (int64_t i = 0; i < b->m; i++) {
    const bool empty = sum[i] == 0;
    const double shift = greatest[i] == -INFINITY ? 0 : greatest[i],
                 none = f->empty == 0 ? INFINITY : NAN;
    if (empty)
      r->fill(vec_at(r, y, i * step), f->empty, f->dv);
    else
      r->affine(vec_at(r, y, i * step), vec_at(r, y, i * step), 1 / sum[i], 0, f->dv);
    if (f->logsum)
      store_logsum(f, flash_row_number(f, b, i), empty ? none : shift, empty ? 0 : log(sum[i]));
  }
}

struct forward_job { struct flash f; int failed; };

/* Packs keys k0 .. k0 + n - 1 of key head kv into `keys`, and their values into x->v, for attend.h
** all at once, else f->keys at a time. */
static void pack_block(const struct flash *f, const struct flash_workspace *x, char *keys,
    int64_t sample, int64_t kv, int64_t k0, int64_t n)
{
  gemm_pack(f->product, true, n, f->d, flash_at(f, &f->k, sample, kv, k0), f->k.row, keys);
  const int64_t each = f->attends ? n : f->keys;
  for (int64_t k = 0; k < n; k += each)
    gemm_pack(f->product, false, f->dv, MIN(each, n - k),
        flash_at(f, &f->v, sample, kv, k0 + k), f->v.row,
        x->v + (size_t)(k / f->keys) * get_value_bytes(f));
}

/* Computes the output of queries q0 .. q1 - 1 of the heads of key head kv. Returns a code. */
static int forward_task(const struct flash *f, int64_t sample, int64_t kv, int64_t q0, int64_t q1)
{
  struct flash_workspace x;
  struct flash_rows b;
  const struct flash_span span = flash_span_of_group(f, sample, kv, q0, q1);
  divide_scratch(f, f->scratch + (size_t)parallel_index() * f->bytes, &x);
  /* packing pays only if several blocks of rows use it */
  const bool one_block = f->tq == 1 ? f->group <= FLASH_QUERIES
                                    : f->group == 1 && q1 - q0 <= FLASH_QUERIES;
  char *packed_k = x.k;
  if (one_block) x.k = NULL;
  x.only_block = one_block && span.lo < span.hi && span.hi - span.lo <= FLASH_WIDE;
  int64_t rows = 0;
  for (int64_t i = 0; flash_cut_rows(f, sample, kv, q0, q1, i, &b); i++) {
    if (!x.only_block && !(x.k && f->attends))
      flash_clear(f, b.m, f->dv, flash_rows_at(f, &f->y, &b), flash_row_step(&f->y, &b));
    for (int64_t k = 0; k < b.m; k++) x.greatest[rows + k] = -INFINITY, x.sum[rows + k] = 0;
    rows += b.m;
  }
  for (int64_t k0 = span.lo; k0 < span.hi; k0 += FLASH_WIDE) {
    const int64_t n = MIN(FLASH_WIDE, span.hi - k0);
    bool finite = !flash_restricts(f);
    if (f->tq == 1) {
      flash_prefetch(f, flash_at(f, &f->k, sample, kv, k0), f->k.row, n, f->d);
      flash_prefetch(f, flash_at(f, &f->v, sample, kv, k0), f->v.row, n, f->dv);
    }
    if (!one_block) {
      pack_block(f, &x, packed_k, sample, kv, k0, n);
      finite = finite || flash_is_finite(f, n, f->dv, flash_at(f, &f->v, sample, kv, k0), f->v.row);
    }
    for (int64_t i = 0, row = 0; flash_cut_rows(f, sample, kv, q0, q1, i, &b); row += b.m, i++) {
      const struct flash_span seen = flash_find_span(f, &b);
      if (seen.lo < k0 + n && seen.hi > k0)
        TRY(forward_block(f, &x, &b, kv, k0, n, finite, row));
    }
  }
  for (int64_t i = 0, row = 0; flash_cut_rows(f, sample, kv, q0, q1, i, &b); row += b.m, i++)
    finish_rows(f, &b, x.greatest + row, x.sum + row);
  return TY_OK;
}

static void forward_range(int64_t begin, int64_t end, void *context)
{
  struct forward_job *j = context;
  const struct flash *f = &j->f;
  const int64_t chunk = flash_chunk(f), chunks = (f->tq + chunk - 1) / chunk;
  for (int64_t i = begin; i < end && !stop_wanted(); i++) {
    const int64_t head = i / chunks, q0 = i % chunks * chunk;
    int code = forward_task(
        f, head / f->kv_heads, head % f->kv_heads, q0, MIN(q0 + chunk, f->tq));
    if (code) __atomic_store_n(&j->failed, code, __ATOMIC_RELAXED);
  }
}

static size_t forward_scratch_bytes(const struct call *c)
{
  const struct flash f = flash_make(c, 0);
  return flash_spans_bytes(&f) + divide_scratch(&f, NULL, NULL) * (size_t)parallel_threads();
}

static int flash_forward(struct call *c)
{
  struct forward_job j = { .f = flash_make(c, 0) };
  struct flash *f = &j.f;
  f->scratch = (char *)c->tmp + flash_spans_bytes(f);
  f->bytes = divide_scratch(f, NULL, NULL);
  flash_find_spans(f, c->tmp);
  const int64_t chunk = flash_chunk(f), chunks = (f->tq + chunk - 1) / chunk;
  const double work = (double)count_task_rows(f) * (double)f->tk * (double)(f->d + f->dv),
               cost = f->tq == 1 ? FLASH_STEP_NS : NS_PRODUCT;
  parallel_for_stoppable(f->batch * f->kv_heads * chunks,
      cost * MAX(work, 1), forward_range, &j);
  return j.failed ? fail(j.failed, "out of memory for the product of a block") : TY_OK;
}

static const struct kernel cpu[] = {
  { .name = "flash", .run = flash_forward, .types = T_FLOAT | T_INT, .scratch = forward_scratch_bytes, .flags = K_PRECISION }, { 0 }
};
static const struct kernel back_cpu[] = {
  { .name = "flash", .run = flash_backward, .types = T_FLOAT | T_INT, .scratch = flash_backward_scratch, .flags = K_PRECISION }, { 0 }
};

const struct op op_flash_attention[] = {
  { .name = "_contrib_attention", .back = "_backward_contrib_attention",
    .doc = "softmax(scale query key^T + bias) value of each head, computed in blocks: no array of queries x keys exists, and backward "
           "finds the weights again. query (N, Tq, heads * d), key (N, Tk, kv_heads * d), value (N, Tk, kv_heads * dv), output (N, "
           "Tq, heads * dv), or as layout says. mask (not 0: the key counts) and bias broadcast to (N, heads, Tq, Tk); valid_length "
           "and offset are (N,). An input that is given by name needs no use_NAME. A key that does not count adds nothing, whatever "
           "it holds; a query for which none counts gives 0, or NaN as empty says. Gradients of query, key, value and bias.",
    .in = "query key value mask bias valid_length offset", .in_of = input_ports, .out = "output {logsum}", .param = params,
    .param_size = sizeof(struct flash_param), .check = flash_check, .shape = flash_shapes, .type = flash_types, .grad_of = gradient_reads,
    .flags = OP_RANDOM | OP_NEVER_AGAIN, .draws = drops_weights, .cpu = cpu, .back_cpu = back_cpu },
  { 0 }
};
