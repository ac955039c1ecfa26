/* gemm.c - products of matrices, cut into blocks for the cores and for their caches.
**
** A product is cut into chunks of strips x panels (a strip: up to mr rows; a panel: nr columns),
** by its shape, the size of the team and that of the second cache. The sum over k is cut into runs
** of up to kc, for which the panels stay in the second cache and a strip in the first; every
** element is one chain of additions in the order of k within a run, and of runs in order, however
** chunks are cut. Where B has to be packed, the runs come one after the other, and a core packs the
** panels of a run for itself: it goes through a column of chunks with them. Small products skip all
** that: one call of the processor's block function, on B in place where its rows allow that.
*/
#include "kernel/gemm/inner.h"

/* Returns the steps of a run: kc, or for words that hold several elements equal parts, of whole
** vectors, so that no run is short. */
static int64_t gemm_choose_run(const struct gemm_type *t, int64_t k)
{
  return t->per > 1 && k > t->kc ? gemm_size_equal_parts(k, t->kc, t->per * t->w) : t->kc;
}

/* Returns the run of a product's sums that begins with step `done`. */
static struct gemm_block gemm_cut_run(const struct gemm_block *g, int64_t done, int64_t run)
{
  struct gemm_block part = *g;
  const bool last = g->k - done <= run;
  part.k = last ? g->k - done : run;
  part.from = g->from + done;
  part.add = g->add || done;
  part.bias = last ? g->bias : NULL;
  part.row_bias = last ? g->row_bias : NULL;
  part.act = last ? g->act : ACT_NONE;
  part.unit = last ? g->unit : NULL;
  return part;
}

void gemm_sum(const struct gemm_type *t, const struct gemm_block *g)
{
  if (g->k <= t->kc) {
    t->block(g);
    return;
  }
  const int64_t run = gemm_choose_run(t, g->k);
  for (int64_t done = 0; done < g->k && !stop_wanted(); done += run) {
    const struct gemm_block part = gemm_cut_run(g, done, run);
    t->block(&part);
  }
}

/* -- cutting ----------------------------------------------------------------------------------- */

struct gemm_job {
  const struct gemm_type *t;
  struct gemm_block g;                                /* the product, or a part of it */
  bool tb;
  bool pack;                                          /* b is not in panels yet */
  uint64_t part;                                      /* see gemm_take_part_number */
  int64_t rows;                                       /* rows of a chunk */
  int64_t cols;                                       /* columns of a chunk */
  int64_t down;                                       /* chunks in a column of chunks */
  int failed;
};

/* Returns how many bytes of panels a core reads again for each strip. */
static int64_t gemm_get_panel_cache(void)
{
  return MIN(MAX(cpu_second_cache() / 2, GEMM_CACHE), GEMM_CACHE_MOST);
}

/* Returns the number of columns of chunks: as few as the cache allows, since each reads all of A;
** more where there are few rows, so that each core packs its own. */
static int64_t gemm_choose_columns(const struct gemm_job *j, int64_t panels)
{
  const int64_t words = gemm_words(j->t, MIN(j->g.k, j->t->kc)) * j->t->nr,
                fit = MAX(1, gemm_get_panel_cache() / (words * j->t->word)), m = j->g.m;
  int64_t least = (panels + fit - 1) / fit;
  if (!j->pack) return least;
  if (m <= GEMM_LOW) return MAX(least, (panels + GEMM_LOW_PANELS - 1) / GEMM_LOW_PANELS);
  const int64_t most = (panels + GEMM_HIGH_PANELS - 1) / GEMM_HIGH_PANELS;
  return MAX(least, MIN(most, (GEMM_PANEL_ROWS + m - 1) / m));
}

/* Returns whether tiles multiply that type. */
static bool gemm_uses_tiles(const struct gemm_type *t)
{
  return t->per > 1 && cpu_multiplies_tiles();
}

/* Returns the multiply-adds up to which a product is one chunk. */
static double gemm_get_serial_work(const struct gemm_type *t)
{
  return GEMM_SERIAL_WORK * (gemm_uses_tiles(t) ? GEMM_TILES_SPEED : 1);
}

/* Returns the number of chunks that are enough for the team. */
static int64_t gemm_count_wanted(const struct gemm_job *j)
{
  const int threads = parallel_threads();
  const int64_t most = j->g.full ? GEMM_CHUNKS_IN_PLACE : GEMM_CHUNKS;
  return threads == 1 ? 1 : MIN(most, threads * GEMM_CORE_CHUNKS);
}

/* Halves chunks until there are enough of them. Each column of chunks packs its panels and copies
** its strips (with tiles a copy takes as long as the products of some panels), so chunks that pack
** or copy lose rows before columns. A side that is read in place is read faster in long pieces of
** its rows. */
static int64_t gemm_choose_chunks(struct gemm_job *j)
{
  const struct gemm_type *t = j->t;
  const int64_t strips = (j->g.m + t->mr - 1) / t->mr, panels = (j->g.n + t->nr - 1) / t->nr,
                across = gemm_choose_columns(j, panels);
  const int64_t fewest = gemm_uses_tiles(t) ? GEMM_TILES_PANELS : 1;
  int64_t s = strips, p = (panels + across - 1) / across,
          enough = gemm_count_wanted(j), least = j->pack ? 2 : 1;
  while ((double)(s * t->mr) * (double)(p * t->nr) * (double)j->g.k > gemm_get_serial_work(t)) {
    if ((strips + s - 1) / s * ((panels + p - 1) / p) >= enough) break;
    const bool down = j->pack || j->g.copy || s * t->mr > p * t->nr || p == 1 ||
        (p + 1) / 2 < fewest;
    if ((s + 1) / 2 >= least && s > 1 && down)
      s = (s + 1) / 2;
    else if (p > 1)
      p = (p + 1) / 2;
    else
      break;
  }
  j->rows = s * t->mr;
  j->cols = p * t->nr;
  j->down = (strips + s - 1) / s;
  return j->down * ((panels + p - 1) / p);
}

static struct gemm_block gemm_cut_chunk(const struct gemm_job *j, int64_t i)
{
  struct gemm_block g = j->g;
  int64_t r = i % j->down * j->rows, c = i / j->down * j->cols;
  g.m = MIN(j->rows, g.m - r);
  g.n = MIN(j->cols, g.n - c);
  g.a = (const char *)g.a + r * g.ars * j->t->element;
  g.c = (char *)g.c + (r * g.ldc + c) * j->t->word;
  g.strip = gemm_height(g.m, j->t->mr) * g.ars;
  if (g.bias) g.bias = (const char *)g.bias + c * j->t->word;
  if (g.unit) g.unit += r, g.scale += c, g.zero_term += c;
  if (j->pack)
    g.b = (const char *)g.b + c * (j->tb ? g.ldb : 1) * j->t->element;
  else
    g.b = (const char *)g.b + (g.full ? c : c / j->t->nr * g.panel) * j->t->word;
  return g;
}

/* Computes a chunk whose panels this thread packs, unless it packed them for its last chunk.
** Threads do not share panels, since writing to memory that other cores have cached is slow. */
static void gemm_pack_and_multiply(struct gemm_job *j, struct gemm_block g, int64_t column)
{
  bool is_same;
  char *panels = gemm_scratch(
      gemm_panel_bytes(j->t, j->cols, g.k), j->part + (uint64_t)column, &is_same);
  if (!panels) {
    __atomic_store_n(&j->failed, TY_EMEMORY, __ATOMIC_RELAXED);
    return;
  }
  if (!is_same) gemm_panels(j->t, j->tb, g.n, g.k, g.b, g.ldb, panels);
  g.b = panels;
  g.panel = gemm_words(j->t, g.k) * j->t->nr;
  j->t->block(&g);
}

static void gemm_multiply_range(int64_t begin, int64_t end, void *context)
{
  struct gemm_job *j = context;
  for (int64_t i = begin; i < end; i++) {
    struct gemm_block g = gemm_cut_chunk(j, i);
    if (j->pack)
      gemm_pack_and_multiply(j, g, i / j->down);
    else
      gemm_sum(j->t, &g);
  }
}

/* Returns a number that no other part of any product has, so that a thread never takes panels of
** another part for this one's. The low 24 bits are 0; a column of chunks is added to them. */
static uint64_t gemm_take_part_number(void)
{
  static uint64_t parts;
  return __atomic_add_fetch(&parts, (uint64_t)1 << 24, __ATOMIC_RELAXED);
}

/* Returns the part of a product with `cols` columns from `column` on, and k terms from `from`
** on. */
static struct gemm_job gemm_cut_part(
    const struct gemm_job *j, int64_t column, int64_t cols, int64_t from, int64_t k)
{
  struct gemm_job x = *j;
  const bool last = from + k >= j->g.k;
  x.g.n = MIN(cols, j->g.n - column);
  x.g.k = MIN(k, j->g.k - from);
  x.g.a = (const char *)j->g.a + from * j->g.acs * j->t->element;
  x.g.b = (const char *)j->g.b +
      (j->tb ? column * j->g.ldb + from : from * j->g.ldb + column) * j->t->element;
  x.g.c = (char *)j->g.c + column * j->t->word;
  x.g.add = j->g.add || from;
  x.g.bias = last && j->g.bias ? (const char *)j->g.bias + column * j->t->word : NULL;
  x.g.act = last ? j->g.act : ACT_NONE;
  x.part = gemm_take_part_number();
  return x;
}

static int gemm_run_packing(const struct gemm_job *j)
{
  const int64_t cols = gemm_size_equal_parts(j->g.n, GEMM_BLOCK_COLUMNS, j->t->nr),
                deep = gemm_size_equal_parts(
                    j->g.k, j->t->kc, j->t->per > 1 ? j->t->per * j->t->w : 1);
  for (int64_t c = 0; c < j->g.n; c += cols)
    for (int64_t k = 0; k < j->g.k && !stop_wanted(); k += deep) {
      struct gemm_job x = gemm_cut_part(j, c, cols, k, deep);
      parallel_chunks_stoppable(gemm_choose_chunks(&x), 1, gemm_multiply_range, &x);
      if (x.failed)
        return fail_memory(
            "product", gemm_panel_bytes(j->t, x.cols, deep), mem_bytes(), 0);
    }
  return TY_OK;
}

/* Returns whether copying a strip saves time: several panels use it, and its rows share sets of the
** first cache, or A is read across its rows. */
static bool gemm_is_awkward(const struct gemm_block *g, const struct gemm_type *t)
{
  int64_t bytes = (g->ars == 1 ? g->acs : g->ars) * t->element;
  return g->n >= GEMM_COPY_PANELS * t->nr &&
      (bytes % GEMM_CACHE_STRIDE == 0 || (g->ars == 1 && bytes > GEMM_ACROSS_BYTES));
}

/* Returns whether each run of a product's sums is computed for all rows before the next run: where
** many rows read more panels than a cache holds. */
static bool gemm_wants_runs(const struct gemm_job *j)
{
  return j->t->per > 1 && j->g.k > j->t->kc && j->g.m > GEMM_LOW &&
      gemm_words(j->t, j->g.k) * j->g.n * j->t->word > gemm_get_panel_cache();
}

/* Computes a product run by run, each in chunks. */
static void gemm_multiply_runs(const struct gemm_job *j)
{
  const int64_t run = gemm_choose_run(j->t, j->g.k);
  for (int64_t done = 0; done < j->g.k && !stop_wanted(); done += run) {
    struct gemm_job x = *j;
    x.g = gemm_cut_run(&j->g, done, run);
    parallel_chunks_stoppable(gemm_choose_chunks(&x), 1, gemm_multiply_range, &x);
  }
}

static int gemm_run_job(struct gemm_job *j)
{
  j->g.copy = j->t->copies || gemm_is_awkward(&j->g, j->t);
  double work = (double)j->g.m * (double)j->g.n * (double)j->g.k;
  if (j->pack) return gemm_run_packing(j);
  if (work <= gemm_get_serial_work(j->t))
    gemm_sum(j->t, &j->g);
  else if (gemm_wants_runs(j))
    gemm_multiply_runs(j);
  else
    parallel_chunks_stoppable(gemm_choose_chunks(j), 1, gemm_multiply_range, j);
  return TY_OK;
}

/* -- packed right side ------------------------------------------------------------------------- */

int gemm_packed(int dtype, bool ta, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
    const void *packed, void *c, int64_t ldc, const struct gemm_epilogue *e)
{
  const struct gemm_type *t = gemm_type(dtype);
  struct gemm_block g = { .m = m,
    .n = n,
    .k = k,
    .outer = 1,
    .a = a,
    .ars = ta ? 1 : lda,
    .acs = ta ? lda : 1,
    .b = packed,
    .panel = t->nr * gemm_words(t, k),
    .c = c,
    .ldc = ldc,
    .alpha = 1 };
  if (e) {
    g.bias = e->bias, g.act = e->act, g.add = e->add;
    g.unit = e->unit, g.scale = e->scale, g.zero_term = e->zero_term;
  }
  g.strip = gemm_height(m, t->mr) * g.ars;
  struct gemm_job j = { .t = t, .g = g };
  return gemm_run_job(&j);
}

/* -- plain ------------------------------------------------------------------------------------- */

static void gemm_scale_rows(int dtype, int64_t m, int64_t n, double beta, void *c, int64_t ldc)
{
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      if (dtype == TY_F64)
        ((double *)c)[i * ldc + j] *= beta;
      else
        ((float *)c)[i * ldc + j] *= (float)beta;
    }
}

static void gemm_clear_rows(size_t size, int64_t m, int64_t n, void *c, int64_t ldc)
{
  for (int64_t i = 0; i < m; i++) memset((char *)c + (size_t)(i * ldc) * size, 0, (size_t)n * size);
}

struct dots { const struct gemm_type *t; const struct gemm_block *g; };

static void gemm_run_dot_range(int64_t begin, int64_t end, void *context)
{
  const struct dots *d = context;
  const struct gemm_block *g = d->g;
  d->t->dots(g->m, end - begin, g->k, g->a, g->ars,
      (const char *)g->b + begin * g->ldb * d->t->element, g->ldb,
      (char *)g->c + begin * d->t->word, g->ldc, g->alpha, g->add);
}

static void gemm_run_dot_rows(int64_t begin, int64_t end, void *context)
{
  const struct dots *d = context;
  const struct gemm_block *g = d->g;
  d->t->dots(end - begin, g->n, g->k, (const char *)g->a + begin * g->ars * d->t->element,
      g->ars, g->b, g->ldb, (char *)g->c + begin * g->ldc * d->t->word, g->ldc, g->alpha,
      g->add);
}

/* Computes a product whose sides are contiguous along k and one of which is a few vectors. It waits
** for memory, so nothing is packed. */
static void gemm_run_dots(const struct gemm_type *t, const struct gemm_block *g)
{
  struct dots d = { t, g };
  bool wide = g->n > g->m;
  int64_t rest = (wide ? g->m : g->n) * g->k;
  int64_t all = wide ? g->n : g->m;
  int64_t grain = MAX(4, (int64_t)(GEMM_DOT_WORK / (double)rest) / 4 * 4); /* by fours */
  if ((double)rest * (double)all <= GEMM_DOT_SERIAL_WORK) grain = all;
  parallel_chunks_stoppable(all, grain, wide ? gemm_run_dot_range : gemm_run_dot_rows, &d);
}

static void gemm_add_row_range(int64_t begin, int64_t end, void *context)
{
  const struct dots *d = context;
  const struct gemm_block *g = d->g;
  const size_t size = d->t->element;
  for (int64_t j = begin; j < end; j += GEMM_ROW_COLUMNS) {
    const int64_t n = MIN(end - j, GEMM_ROW_COLUMNS);
    if (!g->add) gemm_clear_rows(size, g->m, n, (char *)g->c + (size_t)j * size, g->ldc);
    for (int64_t k = 0; k < g->k; k += GEMM_ROW_TERMS)
      for (int64_t i = 0; i < g->m; i++)
        d->t->add_rows(n, MIN(g->k - k, GEMM_ROW_TERMS),
            (const char *)g->a + (size_t)(i * g->ars + k * g->acs) * size, g->acs,
            (const char *)g->b + (size_t)(k * g->ldb + j) * size, g->ldb,
            (char *)g->c + (size_t)(i * g->ldc + j) * size);
  }
}

/* Computes a product of a few rows whose right side is stored by rows, which are read once, in
** their order. Chunks are as wide as the threads allow, since parts of rows are slow to read; a
** column's sum does not depend on them. */
static void gemm_run_rows(const struct gemm_type *t, const struct gemm_block *g)
{
  struct dots d = { t, g };
  const double column = (double)g->m * (double)g->k, all = column * (double)g->n;
  const int64_t share = MIN((g->n - 1) / parallel_threads() + 1, GEMM_ROW_COLUMNS);
  int64_t grain = MAX(MAX(GEMM_ROW_LEAST, (int64_t)(GEMM_DOT_WORK / column)), share);
  grain = (grain + 15) / 16 * 16;
  if (all <= GEMM_DOT_SERIAL_WORK) grain = g->n;
  parallel_chunks_stoppable(g->n, grain, gemm_add_row_range, &d);
}

/* A pass over a product that other code computed, which does what tiles do with an epilogue. */
struct pass {
  const struct gemm_type *t;
  const struct gemm_epilogue *e;
  char *c;
  int64_t n, ldc;
};

static void gemm_finish_rows(int64_t begin, int64_t end, void *context)
{
  const struct pass *x = context;
  for (int64_t i = begin; i < end; i++) {
    char *row = x->c + i * x->ldc * x->t->word;
    if (x->e->bias) x->t->axpy(x->n, 1, x->e->bias, 1, row);
    x->t->act(x->e->act, x->n, row);
  }
}

void gemm_act(int dtype, int act, int64_t n, void *x) { gemm_type(dtype)->act(act, n, x); }

void gemm_gelu_back(int64_t n, const float *x, const float *g, float *out)
{
  gemm_type(TY_F32)->gelu_back(n, x, g, out);
}

static int gemm_run_epilogue(
    int dtype, int64_t m, int64_t n, void *c, int64_t ldc, const struct gemm_epilogue *e)
{
  struct pass x = { gemm_type(dtype), e, c, n, ldc };
  if (e && (e->bias || e->act))
    parallel_for_stoppable(m, cost_ns(GEMM_EPILOGUE_NS, n), gemm_finish_rows, &x);
  return TY_OK;
}

static int gemm_run_product(
    int dtype, bool ta, bool tb, struct gemm_block g, int64_t lda, const struct gemm_epilogue *e)
{
  const struct gemm_type *t = gemm_type(dtype);
  if (g.m == 1 && ta && lda == 1) ta = false, lda = g.k;
  if (g.n == 1 && !tb && g.ldb == 1) tb = true, g.ldb = g.k;
  g.ars = ta ? 1 : lda;
  g.acs = ta ? lda : 1;
  const bool epilogue = e && (e->bias || e->act);
  /* dots and rows need a pass for an epilogue, which integers do not have (t->axpy is NULL) */
  if (!ta && tb &&
      (g.m < GEMM_VECTORS || g.n < GEMM_VECTORS ||
          (g.m <= GEMM_FEW && g.k >= GEMM_LONG_SUM * g.m)) &&
      (t->axpy || !epilogue)) {
    gemm_run_dots(t, &g);
    return gemm_run_epilogue(dtype, g.m, g.n, g.c, g.ldc, e);
  }
  if (!tb && g.m < GEMM_VECTORS && g.n >= GEMM_ROW_LEAST && g.alpha == 1 && t->add_rows &&
      (double)g.n * (double)g.k > (double)(GEMM_ROW_ABOVE * g.m * g.m)) {
    gemm_run_rows(t, &g);
    return gemm_run_epilogue(dtype, g.m, g.n, g.c, g.ldc, e);
  }
  /* an epilogue would cost a library's product a further pass */
  if (t->per == 1 && !(epilogue && !ta) && blas_profitable(g.m, g.n, g.k)) {
    blas_gemm(dtype, ta, tb, g.m, g.n, g.k, g.alpha, g.a, lda, g.b, g.ldb, g.add, g.c, g.ldc);
    return gemm_run_epilogue(dtype, g.m, g.n, g.c, g.ldc, e);
  }
  g.outer = 1;
  g.panel = t->nr;
  g.strip = gemm_height(g.m, t->mr) * g.ars;
  if (e) g.bias = e->bias, g.act = e->act;
  struct gemm_job j = { .t = t,
    .g = g,
    .tb = tb,
    .pack = tb || t->per > 1 || (g.m > 2 * t->mr && (double)g.n * (double)g.k > GEMM_PACK_ABOVE) };
  j.g.full = !j.pack;
  return gemm_run_job(&j);
}

int gemm_one(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
    const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
  if (m <= 0 || n <= 0) return TY_OK;
  if (n == 1 && m > 1 && ldc == 1)
    return gemm_one(dtype, !tb, !ta, 1, m, k, alpha, b, ldb, a, lda, beta, c, m);
  if (beta != 0 && beta != 1) gemm_scale_rows(dtype, m, n, beta, c, ldc);
  if (k <= 0 && beta == 0) gemm_clear_rows((size_t)gemm_type(dtype)->word, m, n, c, ldc);
  if (k <= 0) return TY_OK;
  struct gemm_block g = { .m = m,
    .n = n,
    .k = k,
    .a = a,
    .b = b,
    .ldb = ldb,
    .c = c,
    .ldc = ldc,
    .alpha = alpha,
    .add = beta != 0 };
  return gemm_run_product(dtype, ta, tb, g, lda, NULL);
}

int gemm_fused(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a,
    int64_t lda, const void *b, int64_t ldb, void *c, int64_t ldc, const struct gemm_epilogue *e)
{
  struct gemm_block g = { .m = m,
    .n = n,
    .k = k,
    .a = a,
    .b = b,
    .ldb = ldb,
    .c = c,
    .ldc = ldc,
    .alpha = 1,
    .add = e->add };
  return gemm_run_product(dtype, ta, tb, g, lda, e);
}

/* -- a batch ----------------------------------------------------------------------------------- */

struct batch {
  int dtype, failed;
  bool ta, tb;
  int64_t m, n, k, sa, sb, sc;
  double alpha, beta;
  const char *a, *b;
  char *c;
};

static void gemm_run_product_range(int64_t begin, int64_t end, void *context)
{
  struct batch *x = context;
  const struct gemm_type *t = gemm_type(x->dtype);
  for (int64_t i = begin; i < end && !stop_wanted(); i++) {
    int code = gemm_one(x->dtype, x->ta, x->tb, x->m, x->n, x->k, x->alpha,
        x->a + i * x->sa * t->element, x->ta ? x->m : x->k, x->b + i * x->sb * t->element,
        x->tb ? x->k : x->n, x->beta, x->c + i * x->sc * t->word, x->n);
    if (code) __atomic_store_n(&x->failed, code, __ATOMIC_RELAXED);
  }
}

int gemm_batch(int dtype, bool ta, bool tb, int64_t batch, int64_t m, int64_t n, int64_t k,
    double alpha, const void *a, int64_t sa, const void *b, int64_t sb, double beta, void *c,
    int64_t sc)
{
  struct batch x = { dtype, 0, ta, tb, m, n, k, sa, sb, sc, alpha, beta, a, b, c };
  double work = (double)m * (double)n * (double)MAX(k, 1);
  if (work > GEMM_LARGE_WORK)
    gemm_run_product_range(0, batch, &x); /* each is large: cut inside */
  else
    parallel_for_stoppable(batch, NS_PRODUCT * MAX(work, 1), gemm_run_product_range, &x);
  return x.failed ? fail_memory("product", 0, mem_bytes(), 0) : TY_OK;
}
