/* flash_attention_backward.c - the gradients of _contrib_attention.
**
** The weights of a block are recomputed: P = e^(S - logsum), with scores S = scale Q K^T + bias,
** times e^-rest if the rounding error of logsum matters. With D = the sum over a row of dY Y: dV +=
** P^T dY, dS = P (dY V^T - D), dK += scale dS^T Q, dQ += scale dS K, dbias += dS. Dropout's factors
** are drawn again; they multiply P in dV, and dY V^T.
*/
#include "operators/nn/flash_attention.h"
#include "kernel/vec/softmax.h"

/* A call of backward. */
struct back_job {
  struct flash f;
  struct flash_side dy;                               /* gradient of the output */
  struct flash_side dq, dk, dv;                       /* results, with p NULL if unused */
  struct flash_grid dbias;                            /* result; x NULL: unused */
  int64_t units[4];                                   /* dbias: tasks along each of its axes */
  bool keys_apart;                                    /* tasks compute either dq or dk and dv */
  bool weighs;                                        /* weights are computed by gemm_weights */
  bool scores;                                        /* products are computed by gemm_score */
  int failed;                                         /* code of a task that failed; atomic */
};

/* A thread's piece of scratch, for one task. Members q to dy_finite are for up to BACK_BLOCKS
** blocks of rows, in sequence; the others for the current block, or the current keys. */
struct flash_back_workspace {
  char *q;                                            /* Q: scaled queries */
  char *dy;                                           /* dY */
  char *dq;                                           /* sums of dQ, without the scale */
  double *mean;                                       /* D */
  bool *q_finite;                                     /* per block: its queries are finite */
  bool *dy_finite;                                    /* per block: dY Y of its rows is finite */
  char *p;                                            /* P: weights */
  char *ds;                                           /* dS */
  char *k;                                            /* K^T, packed as a right side */
  char *v;                                            /* V^T, packed as a right side */
  char *kt;                                           /* K, packed as a right side */
  char *dk;                                           /* sums of dK */
  char *dv;                                           /* sums of dV */
};

/* Largest rounding error of a logsum for which weights are not corrected: about 16 roundings of
** their dtype. */
#define LEAST_REST_F32 0x1p-20
#define LEAST_REST_F64 0x1p-49

/* blocks of rows whose queries and gradients stay in the second-level cache while all keys are
** read */
enum { BACK_BLOCKS = 16 };

/* Sets the pointers of a workspace at base. Returns the bytes that it takes; base NULL: does
** nothing else. */
static size_t divide_back_scratch(const struct flash *f, char *base, struct flash_back_workspace *x)
{
  const int64_t most = flash_rows_most(f), keys = MIN(f->tk, FLASH_KEYS),
                all = f->tq == 1 ? f->group : f->group * f->tq,
                rows = MIN(all, most * BACK_BLOCKS);
  const size_t weights = (size_t)(most * gemm_score_row(keys)) * f->size;
  const size_t bytes[] = { (size_t)(rows * f->d) * f->size, (size_t)(rows * f->dv) * f->size,
    (size_t)(rows * f->d) * f->size, (size_t)rows * sizeof(double), BACK_BLOCKS, BACK_BLOCKS,
    weights, weights, gemm_pack_bytes(f->product, keys, f->d),
    gemm_pack_bytes(f->product, keys, f->dv), gemm_pack_bytes(f->product, f->d, keys),
    (size_t)(keys * f->d) * f->size, (size_t)(keys * f->dv) * f->size };
  enum { PARTS = sizeof bytes / sizeof *bytes };
  char *part[PARTS];
  size_t used = 0;
  for (int i = 0; i < PARTS; i++) {
    part[i] = base + used;
    used += align_up(bytes[i], ALIGN);
  }
  if (base)
    *x = (struct flash_back_workspace){ part[0], part[1], part[2], (double *)part[3],
      (bool *)part[4], (bool *)part[5], part[6], part[7], part[8], part[9], part[10], part[11],
      part[12] };
  return used;
}

/* Packs keys k0 .. k0 + n - 1 of key head kv, and their values. Returns whether elements of dS that
** are 0 may be multiplied by the keys: all keys are finite, or none is hidden. */
static bool pack_keys(const struct flash *f, const struct flash_back_workspace *x, int64_t sample,
    int64_t kv, int64_t k0, int64_t n)
{
  const char *k = flash_at(f, &f->k, sample, kv, k0);
  flash_prefetch(f, k, f->k.row, n, f->d);
  flash_prefetch(f, flash_at(f, &f->v, sample, kv, k0), f->v.row, n, f->dv);
  gemm_pack(f->product, true, n, f->d, k, f->k.row, x->k);
  gemm_pack(f->product, true, n, f->dv, flash_at(f, &f->v, sample, kv, k0), f->v.row, x->v);
  gemm_pack(f->product, false, f->d, n, k, f->k.row, x->kt);
  return !flash_restricts(f) || flash_is_finite(f, n, f->d, k, f->k.row);
}

/* Returns x with the arrays of rows pointing to block number `block`, whose first row is number
** `at`. */
static struct flash_back_workspace get_rows(
    const struct flash *f, const struct flash_back_workspace *x, int64_t block, int64_t at)
{
  struct flash_back_workspace y = *x;
  y.q += (size_t)(at * f->d) * f->size;
  y.dy += (size_t)(at * f->dv) * f->size;
  y.dq += (size_t)(at * f->d) * f->size;
  y.mean += at;
  y.q_finite += block;
  y.dy_finite += block;
  return y;
}

/* Copies queries and dY of rows b to x, and computes D of each row. */
static void prepare_rows(
    const struct back_job *j, const struct flash_back_workspace *x, const struct flash_rows *b)
{
  const struct flash *f = &j->f;
  const char *dy = flash_rows_at(f, &j->dy, b), *y = flash_rows_at(f, &f->y, b);
  const int64_t dy_step = flash_row_step(&j->dy, b), y_step = flash_row_step(&f->y, b);
  flash_prefetch(f, flash_rows_at(f, &f->q, b), flash_row_step(&f->q, b), b->m, f->d);
  flash_prefetch(f, dy, dy_step, b->m, f->dv);
  flash_prefetch(f, y, y_step, b->m, f->dv);
  flash_scale_queries(f, b, x->q);
  *x->q_finite = !flash_restricts(f) || flash_is_finite(f, b->m, f->d, x->q, f->d);
  *x->dy_finite = true;
  for (int64_t i = 0; i < b->m; i++) {
    char *copy = vec_at(f->r, x->dy, i * f->dv);
    memcpy(copy, vec_at(f->r, dy, i * dy_step), (size_t)f->dv * f->size);
    x->mean[i] = f->r->dot(copy, vec_at(f->r, y, i * y_step), f->dv);
    *x->dy_finite &= isfinite(x->mean[i]) != 0;
  }
}

struct block_facts {
  bool restricted;                                    /* there may be keys that do not count */
  bool none;                                          /* no key counts: gradients are 0 */
};

/* Computes c (m x n) = a b, whose rows are gemm_score_row(n) apart, with rows of a (m x k) one
** after the other and packed b. Returns a code. */
static int multiply_packed(const struct back_job *j, int64_t m, int64_t n, int64_t k,
    const void *a, const void *b, void *c)
{
  const int64_t ld = gemm_score_row(n);
  if (!j->scores) return gemm_packed(j->f.product, false, m, n, k, a, k, b, c, ld, NULL);
  gemm_score(&(struct gemm_attend){
      .type = TY_F32, .m = m, .n = n, .d = k, .q = a, .k = b, .s = c, .lds = ld, .keys = n });
  return TY_OK;
}

/* Computes p, with dropout, and ds of rows b: parts of x->p and x->ds, whose q, dy and mean are of
** these rows, too. Returns a code. */
static int find_rows_gradients(const struct back_job *j, const struct flash_back_workspace *x,
    const struct flash_rows *b, int64_t k0, int64_t n, struct block_facts *facts)
{
  const struct flash *f = &j->f;
  const struct vec_ops *r = f->r;
  const int64_t ld = gemm_score_row(n);
  TRY(multiply_packed(j, b->m, n, f->d, x->q, x->k, x->p));
  facts->restricted = flash_restrict(f, b, x->p, ld, k0, n);
  facts->none = facts->restricted;
  for (int64_t i = 0; i < b->m; i++) {
    void *p = vec_at(r, x->p, i * ld);
    const int64_t row = flash_row_number(f, b, i);
    const double logsum = r->get(f->logsum, row),
                 rest = r->get(f->logsum, flash_count_rows(f) + row),
                 sum = j->weighs ? gemm_weights(p, n, (float)logsum)
                                 : r->softmax->exp_sum(p, p, logsum, n);
    if (sum != 0) facts->none = false;
    if (fabs(rest) > (f->dtype == TY_F64 ? LEAST_REST_F64 : LEAST_REST_F32))
      r->affine(p, p, exp(-rest), 0, n);
  }
  if (facts->none) {
    flash_clear(f, b->m, n, x->ds, ld);
    return TY_OK;
  }
  TRY(multiply_packed(j, b->m, n, f->dv, x->dy, x->v, x->ds));
  for (int64_t i = 0; i < b->m; i++) {
    const int64_t first = flash_row_number(f, b, i) * f->tk + k0;
    void *p = vec_at(r, x->p, i * ld), *ds = vec_at(r, x->ds, i * ld);
    if (f->drops) r->dropout(ds, ds, NULL, &f->drop, first, n);
    r->softmax->soft_gap(ds, p, ds, x->mean[i], n);
    if (f->drops) r->dropout(p, p, NULL, &f->drop, first, n);
  }
  return TY_OK;
}

/* Computes x->p with dropout, and x->ds of a block: in float32 as many rows at a time as stay in
** the first cache. Returns a code. */
static int find_score_gradients(const struct back_job *j, const struct flash_back_workspace *x,
    const struct flash_rows *b, int64_t k0, int64_t n, struct block_facts *facts)
{
  const struct flash *f = &j->f;
  const int64_t each = j->scores ? gemm_attend_rows(TY_F32, b->m) : b->m, ld = gemm_score_row(n);
  *facts = (struct block_facts){ false, true };
  for (int64_t i = 0; i < b->m; i += each) {
    struct flash_rows rows = *b;
    struct flash_back_workspace part = *x;
    struct block_facts of_rows;
    *(b->across ? &rows.head : &rows.q0) += i;
    rows.m = MIN(each, b->m - i);
    part.q = vec_at(f->r, x->q, i * f->d);
    part.dy = vec_at(f->r, x->dy, i * f->dv);
    part.mean += i;
    part.p = vec_at(f->r, x->p, i * ld);
    part.ds = vec_at(f->r, x->ds, i * ld);
    TRY(find_rows_gradients(j, &part, &rows, k0, n, &of_rows));
    facts->restricted |= of_rows.restricted;
    facts->none &= of_rows.none;
  }
  return TY_OK;
}

/* Computes c (m x n) = a^T b, or with add c += a^T b; rows of a (k x m) are lda apart. skips:
** elements of a that are 0 add nothing even if b is not finite. Returns a code. */
static int add_product(const struct flash *f, bool skips, bool add, int64_t m, int64_t n,
    int64_t k, const char *a, int64_t lda, const char *b, char *c)
{
  if (!skips) return gemm_one(f->product, true, false, m, n, k, 1, a, lda, b, n, add, c, n);
  if (!add) flash_clear(f, m, n, c, n);
  flash_multiply_nonzero(f, true, m, n, k, a, lda, b, n, c, n);
  return TY_OK;
}

/* -- gradients of queries, keys and values ----------------------------------------------------- */

/* A task: queries q0 .. q1 - 1 of the heads of key head kv against keys k0 .. k1 - 1. */
struct gradient_part {
  int64_t sample, kv, q0, q1, k0, k1;
  bool query;                                         /* computes the gradient of the queries */
  bool keys;                                          /* computes those of keys and values */
};

/* Adds the contributions of rows b and keys k0 .. k0 + n - 1 to the sums in x of part t. finite:
** result of pack_keys. *some tells whether the sums of the keys have contributions. Returns a
** code. */
static int add_block_gradients(const struct back_job *j, const struct flash_back_workspace *x,
    const struct gradient_part *t, const struct flash_rows *b, int64_t k0, int64_t n, bool finite,
    bool *some)
{
  const struct flash *f = &j->f;
  const int64_t ld = gemm_score_row(n);
  struct block_facts facts;
  TRY(find_score_gradients(j, x, b, k0, n, &facts));
  if (facts.none) return TY_OK;
  if (t->keys && j->dv.p)
    TRY(add_product(
        f, facts.restricted && !*x->dy_finite, *some, n, f->dv, b->m, x->p, ld, x->dy, x->dv));
  if (t->keys && j->dk.p)
    TRY(add_product(
        f, facts.restricted && !*x->q_finite, *some, n, f->d, b->m, x->ds, ld, x->q, x->dk));
  *some = true;
  if (!t->query || !j->dq.p) return TY_OK;
  if (facts.restricted && !finite) {
    flash_multiply_nonzero(f, false, b->m, f->d, n, x->ds, ld,
        flash_at(f, &f->k, t->sample, t->kv, k0), f->k.row, x->dq, f->d);
    return TY_OK;
  }
  return gemm_packed(f->product, false, b->m, f->d, n, x->ds, ld, x->kt, x->dq, f->d,
      &(struct gemm_epilogue){ .add = true });
}

/* Stores the sums of `have` keys from k0 on as their gradients, and 0 for further ones up to k0 + n
** - 1. add: adds the sums to those of earlier rows. */
static void store_key_gradients(const struct flash *f, const struct gradient_part *t,
    const struct flash_side *to, const char *sums, int64_t k0, int64_t have, int64_t n,
    int64_t size, bool add)
{
  char *row = flash_at(f, to, t->sample, t->kv, k0);
  if (!add) flash_clear(f, n - have, size, vec_at(f->r, row, have * to->row), to->row);
  for (int64_t i = 0; i < have; i++, row += (size_t)to->row * f->size) {
    const void *from = vec_at(f->r, sums, i * size);
    if (add)
      f->r->add(row, from, size);
    else
      memcpy(row, from, (size_t)size * f->size);
  }
}

/* Computes the gradients of part t for its blocks of rows from number `first` on, at most
** BACK_BLOCKS. Returns a code. */
static int compute_rows_gradients(const struct back_job *j, const struct flash_back_workspace *x,
    const struct gradient_part *t, int64_t first)
{
  const struct flash *f = &j->f;
  struct flash_rows b[BACK_BLOCKS];
  struct flash_back_workspace rows[BACK_BLOCKS];
  int64_t blocks = 0, at = 0;
  for (; blocks < BACK_BLOCKS &&
      flash_cut_rows(f, t->sample, t->kv, t->q0, t->q1, first + blocks, &b[blocks]);
      at += b[blocks++].m) {
    rows[blocks] = get_rows(f, x, blocks, at);
    prepare_rows(j, &rows[blocks], &b[blocks]);
  }
  if (t->query && j->dq.p) flash_clear(f, 1, at * f->d, x->dq, 0);
  const int64_t last = flash_span_of_group(f, t->sample, t->kv, t->q0, t->q1).hi;
  for (int64_t k0 = t->k0; k0 < t->k1; k0 += f->keys) {
    const int64_t all = MIN(f->keys, t->k1 - k0), n = MIN(all, last - k0);
    bool packed = false, finite = false, some = false;
    for (int64_t i = 0; i < blocks; i++) {
      const struct flash_span seen = flash_find_span(f, &b[i]);
      if (seen.lo >= k0 + n || seen.hi <= k0) continue;
      if (!packed) finite = pack_keys(f, x, t->sample, t->kv, k0, n);
      packed = true;
      TRY(add_block_gradients(j, &rows[i], t, &b[i], k0, n, finite, &some));
    }
    if (t->keys && j->dk.p)
      store_key_gradients(f, t, &j->dk, x->dk, k0, some ? n : 0, all, f->d, first > 0);
    if (t->keys && j->dv.p)
      store_key_gradients(f, t, &j->dv, x->dv, k0, some ? n : 0, all, f->dv, first > 0);
  }
  for (int64_t i = 0; i < blocks && t->query && j->dq.p; i++) {
    char *dq = flash_rows_at(f, &j->dq, &b[i]);
    for (int64_t k = 0; k < b[i].m; k++, dq += (size_t)flash_row_step(&j->dq, &b[i]) * f->size)
      f->r->affine(dq, vec_at(f->r, rows[i].dq, k * f->d), f->scale, 0, f->d);
  }
  return TY_OK;
}

/* Computes the gradients of part t. Returns a code. */
static int compute_part_gradients(const struct back_job *j, const struct gradient_part *t)
{
  struct flash_back_workspace x;
  struct flash_rows b;
  divide_back_scratch(&j->f, j->f.scratch + (size_t)parallel_index() * j->f.bytes, &x);
  for (int64_t i = 0; i == 0 || flash_cut_rows(&j->f, t->sample, t->kv, t->q0, t->q1, i, &b);
      i += BACK_BLOCKS)
    TRY(compute_rows_gradients(j, &x, t, i));
  return TY_OK;
}

static int64_t count_chunks(int64_t n, int64_t chunk)
{
  return (n + chunk - 1) / chunk;
}

/* Returns the number of tasks of a key head: one for all, or one for each chunk of queries, then of
** keys. */
static int64_t count_head_tasks(const struct back_job *j)
{
  const struct flash *f = &j->f;
  if (!j->keys_apart) return 1;
  return count_chunks(f->tq, flash_chunk(f)) + count_chunks(f->tk, FLASH_CHUNK);
}

static void back_range(int64_t begin, int64_t end, void *context)
{
  struct back_job *j = context;
  const struct flash *f = &j->f;
  const int64_t each = count_head_tasks(j), of_queries = count_chunks(f->tq, flash_chunk(f));
  for (int64_t i = begin; i < end && !stop_wanted(); i++) {
    const int64_t head = i / each, which = i % each;
    struct gradient_part t = { .sample = head / f->kv_heads, .kv = head % f->kv_heads, .q1 = f->tq,
      .k1 = f->tk, .query = true, .keys = true };
    if (j->keys_apart && which < of_queries) {
      t.q0 = which * flash_chunk(f);
      t.q1 = MIN(t.q0 + flash_chunk(f), f->tq);
      t.keys = false;
    }
    else if (j->keys_apart) {
      t.k0 = (which - of_queries) * FLASH_CHUNK;
      t.k1 = MIN(t.k0 + FLASH_CHUNK, f->tk);
      t.query = false;
    }
    int code = compute_part_gradients(j, &t);
    if (code) __atomic_store_n(&j->failed, code, __ATOMIC_RELAXED);
  }
}

/* -- the gradient of the bias ------------------------------------------------------------------ */

/* Adds ds (m x n) of rows b and keys from k0 to the gradient of the bias. */
static void add_to_bias(const struct back_job *j, const struct flash_back_workspace *x,
    const struct flash_rows *b, int64_t k0, int64_t n)
{
  const struct vec_ops *r = j->f.r;
  const struct flash_grid *g = &j->dbias;
  for (int64_t i = 0; i < b->m; i++) {
    const int64_t to = flash_grid_element(g, b, i, k0);
    const void *ds = vec_at(r, x->ds, i * gemm_score_row(n));
    if (g->step[3])
      r->add(vec_at(r, g->x->p, to), ds, n);
    else
      r->set(g->x->p, to, r->get(g->x->p, to) + r->sum(ds, n));
  }
}

/* Computes unit number `unit` of dbias: a part of its elements, to which no other unit adds. */
static int compute_bias_unit(const struct back_job *j, int64_t unit)
{
  const struct flash *f = &j->f;
  struct flash_back_workspace x;
  int64_t lo[4], hi[4];
  const int64_t full[4] = { f->batch, f->heads, f->tq, f->tk },
                piece[4] = { 1, 1, FLASH_QUERIES, FLASH_KEYS };
  for (int a = 3; a >= 0; a--) {
    const int64_t i = unit % j->units[a];
    unit /= j->units[a];
    lo[a] = j->units[a] > 1 ? i * piece[a] : 0;
    hi[a] = j->units[a] > 1 ? MIN(lo[a] + piece[a], full[a]) : full[a];
  }
  divide_back_scratch(f, f->scratch + (size_t)parallel_index() * f->bytes, &x);
  for (int64_t sample = lo[0]; sample < hi[0]; sample++)
    for (int64_t head = lo[1]; head < hi[1]; head++)
      for (int64_t k0 = lo[3]; k0 < hi[3]; k0 += FLASH_KEYS) {
        const int64_t n = MIN(FLASH_KEYS, hi[3] - k0);
        pack_keys(f, &x, sample, head / f->group, k0, n);
        for (int64_t q0 = lo[2]; q0 < hi[2]; q0 += FLASH_QUERIES) {
          const struct flash_rows b = { sample, head, q0, MIN(FLASH_QUERIES, hi[2] - q0), false };
          const struct flash_span seen = flash_find_span(f, &b);
          struct block_facts facts;
          if (seen.lo >= k0 + n || seen.hi <= k0) continue;
          prepare_rows(j, &x, &b);
          TRY(find_score_gradients(j, &x, &b, k0, n, &facts));
          if (!facts.none) add_to_bias(j, &x, &b, k0, n);
        }
      }
  return TY_OK;
}

static void bias_range(int64_t begin, int64_t end, void *context)
{
  struct back_job *j = context;
  for (int64_t i = begin; i < end && !stop_wanted(); i++) {
    int code = compute_bias_unit(j, i);
    if (code) __atomic_store_n(&j->failed, code, __ATOMIC_RELAXED);
  }
}

/* Computes dbias. It is divided along the axes that are not broadcast: a sample, a head, a block of
** queries and a block of keys are a unit. */
static void compute_bias_gradient(struct back_job *j)
{
  const struct flash *f = &j->f;
  const int64_t full[4] = { f->batch, f->heads, count_chunks(f->tq, FLASH_QUERIES),
    count_chunks(f->tk, FLASH_KEYS) };
  int64_t units = 1;
  for (int a = 0; a < 4; a++) {
    j->units[a] = j->dbias.step[a] ? full[a] : 1;
    units *= j->units[a];
  }
  memset(j->dbias.x->p, 0, desc_bytes(&j->dbias.x->d));
  parallel_chunks_stoppable(units, 1, bias_range, j);
}

/* -- the kernel -------------------------------------------------------------------------------- */

enum {
  /* key heads: with fewer, queries and keys are divided */
  HEADS_FOR_CORES = 8,
  TASK_WORK = 400000,                                 /* least multiply-adds of a chunk */
};

int flash_backward(struct call *c)
{
  const struct flash_param *p = c->param;
  const struct flash_ports ports = flash_make_ports(p);
  struct back_job j = { .f = flash_make(c, 1) };
  struct flash *f = &j.f;
  const struct flash_packing z = flash_find_packing(p);
  j.dy = flash_make_side(p, &c->in[0], f->heads, 1, 0);
  j.dq = flash_make_side(p, &c->out[0], f->heads, z.q_parts, 0);
  j.dk = flash_make_side(p, &c->out[z.key], f->kv_heads, z.kv_parts, z.key_part);
  j.dv = flash_make_side(p, &c->out[z.value], f->kv_heads, z.kv_parts, z.value_part);
  f->scratch = (char *)c->tmp + flash_spans_bytes(f);
  f->bytes = divide_back_scratch(f, NULL, NULL);
  j.weighs = f->dtype == TY_F32 && gemm_attends(TY_F32, f->d, f->dv);
  j.scores = j.weighs && f->product == TY_F32;
  flash_find_spans(f, c->tmp);
  for (int i = 0; i < c->nout; i++)
    if ((i == ports.mask || i == ports.valid_length || i == ports.offset) && c->out[i].p)
      memset(c->out[i].p, 0, desc_bytes(&c->out[i].d));
  if (j.dq.p || j.dk.p || j.dv.p) {
    const int64_t heads = f->batch * f->kv_heads;
    const double work = (double)(f->group * f->tq) * (double)f->tk * (double)(f->d + f->dv);
    j.keys_apart = heads < HEADS_FOR_CORES && f->tq > FLASH_CHUNK && f->tk > FLASH_CHUNK;
    parallel_chunks_stoppable(heads * count_head_tasks(&j),
        j.keys_apart ? 1 : MAX(1, (int64_t)(TASK_WORK / MAX(work, 1))), back_range, &j);
  }
  if (ports.bias >= 0 && c->out[ports.bias].p) {
    j.dbias = flash_make_grid(&c->out[ports.bias]);
    compute_bias_gradient(&j);
  }
  return j.failed ? fail(j.failed, "out of memory for the product of a block") : TY_OK;
}

size_t flash_backward_scratch(const struct call *c)
{
  const struct flash f = flash_make(c, 1);
  return flash_spans_bytes(&f) + divide_back_scratch(&f, NULL, NULL) * (size_t)parallel_threads();
}
