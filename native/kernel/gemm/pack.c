/* pack.c - packed right sides: panels of `nr` columns, the last one as narrow as its vectors
** allow.
**
** Panel j begins at j * nr * k words; row p of a panel at p * width. Packing is parallel
** where it is long.
*/
#include "kernel/gemm/inner.h"

size_t gemm_panel_bytes(const struct gemm_type *t, int64_t n, int64_t k)
{
  int64_t columns = (n + t->w - 1) / t->w * t->w;
  return (size_t)(columns * gemm_words(t, k) * t->word);
}

size_t gemm_pack_bytes(int dtype, int64_t n, int64_t k)
{
  return gemm_panel_bytes(gemm_type(dtype), n, k);
}

struct packing {
  const struct gemm_type *t;
  bool tb;
  int64_t n, k, ldb;
  const char *b;
  char *out;
};

static void pack_rows(const struct packing *p, int64_t j, int64_t from, int64_t rows)
{
  const int64_t nr = p->t->nr, cols = MIN(p->n - j * nr, nr), width = cols > p->t->w ? nr : p->t->w;
  const char *b = p->b +
      (p->tb ? j * nr * p->ldb + from : j * nr + from * p->ldb) * p->t->element;
  char *out = p->out + (j * nr * gemm_words(p->t, p->k) + from / p->t->per * width) * p->t->word;
  (p->tb ? p->t->panel_t : p->t->panel)(rows, cols, b, p->ldb, out);
}

/* Packs panels. Where B is stored by rows, sixteen of its rows at a time are packed across all
** panels of the chunk, so that each row is read in one long piece. */
static void pack_range(int64_t begin, int64_t end, void *context)
{
  const struct packing *p = context;
  int64_t step = p->tb ? p->k : 16 * p->t->per;
  for (int64_t from = 0; from < p->k; from += step)
    for (int64_t j = begin; j < end; j++) pack_rows(p, j, from, MIN(step, p->k - from));
}

void gemm_panels(const struct gemm_type *t, bool tb, int64_t n, int64_t k, const void *b,
    int64_t ldb, void *out)
{
  struct packing p = { t, tb, n, k, ldb, b, out };
  int64_t each = (int64_t)t->nr * k;
  parallel_for((n + t->nr - 1) / t->nr, cost_ns(GEMM_PACK_NS, each), pack_range, &p);
}

void gemm_pack(int dtype, bool tb, int64_t n, int64_t k, const void *b, int64_t ldb, void *packed)
{
  gemm_panels(gemm_type(dtype), tb, n, k, b, ldb, packed);
}

/* -- kept by an instruction -------------------------------------------------------------------- */

/* Bytes of a weight, at most, that is kept packed: larger ones are packed piece by piece as they
** are used. */
enum { KEPT_WEIGHT_BYTES = 7 << 20 };

bool gemm_keeps(const struct call *c, const struct operand *weight)
{
  return c->state && weight->version && desc_bytes(&weight->d) <= KEPT_WEIGHT_BYTES;
}

void *gemm_kept_buffer(struct gemm_kept *s, const struct operand *weight, size_t bytes, bool *fresh)
{
  *fresh = s->packed && s->of == weight->p && weight->version && s->version == *weight->version;
  if (*fresh) return s->packed;
  if (!s->packed || s->bytes != bytes) {
    mem_free(s->packed);
    s->packed = mem_lines(bytes);
    s->bytes = bytes;
  }
  s->of = weight->p;
  s->version = weight->version ? *weight->version : 0;
  return s->packed;
}

const void *gemm_keep(struct gemm_kept *s, int type, const struct operand *weight, bool tb,
    int64_t n, int64_t k, int64_t ldb)
{
  bool fresh;
  void *packed = gemm_kept_buffer(s, weight, gemm_pack_bytes(type, n, k), &fresh);
  if (packed && !fresh) gemm_pack(type, tb, n, k, weight->p, ldb, packed);
  return packed;
}

size_t gemm_kept_bytes(const struct call *c) { return sizeof(struct gemm_kept); }

void gemm_kept_done(void *state)
{
  struct gemm_kept *s = state;
  mem_free(s->packed);
  s->packed = NULL;
}

const char *gemm_refuse(const struct call *c)
{
  static int off = -1;
  int known = __atomic_load_n(&off, __ATOMIC_RELAXED);
  if (known < 0) __atomic_store_n(&off, known = env_disabled("gemm"), __ATOMIC_RELAXED);
  return known ? "TYCHO_DISABLE names gemm" : NULL;
}

int gemm_type_for(const struct call *c, int dtype)
{
  const bool rounds = dtype == TY_F32 && c->precision == PRECISION_MEDIUM;
  return rounds && cpu_multiplies_narrow() ? GEMM_ROUNDED : dtype;
}

/* -- columns ----------------------------------------------------------------------------------- */

struct columns {
  const struct gemm_type *t;
  size_t size;
  int64_t m, n;
  const char *a;
  char *out;
  bool add;
};

void gemm_columns(const struct gemm_type *t, size_t size, int64_t m, int64_t n, const void *a,
    int64_t ld, void *out, bool add)
{
  double part[GEMM_SUM_COLUMNS];
  if (!add) memset(out, 0, (size_t)n * size);
  for (int64_t i = 0; i < m; i += GEMM_SUM_ROWS) {
    memset(part, 0, (size_t)n * size);
    for (int64_t r = i; r < MIN(i + GEMM_SUM_ROWS, m); r++)
      t->axpy(n, 1, (const char *)a + (size_t)(r * ld) * size, 1, part);
    t->axpy(n, 1, part, 1, out);
  }
}

static void pack_columns(int64_t begin, int64_t end, void *context)
{
  const struct columns *x = context;
  for (int64_t j = begin; j < end; j += GEMM_SUM_COLUMNS)
    gemm_columns(x->t, x->size, x->m, MIN(GEMM_SUM_COLUMNS, end - j), x->a + (size_t)j * x->size,
        x->n, x->out + (size_t)j * x->size, x->add);
}

void sum_columns(int dtype, int64_t m, int64_t n, const void *a, void *out, bool add)
{
  struct columns x = { gemm_type(dtype), dtype_size(dtype), m, n, a, out, add };
  const int64_t whole = MAX(1, GEMM_SUM_GRAIN / MAX(m, 1)) / GEMM_SUM_COLUMNS * GEMM_SUM_COLUMNS;
  parallel_chunks(n, MAX(GEMM_SUM_COLUMNS, whole), pack_columns, &x);
}

struct addition { const struct gemm_type *t; size_t size; const char *x; char *y; };

static void pack_add_range(int64_t begin, int64_t end, void *context)
{
  const struct addition *a = context;
  a->t->axpy(end - begin, 1, a->x + (size_t)begin * a->size, 1, a->y + (size_t)begin * a->size);
}

void add_to(int dtype, int64_t n, const void *x, void *y)
{
  struct addition a = { gemm_type(dtype), dtype_size(dtype), x, y };
  parallel_for(n, GEMM_ADD_NS, pack_add_range, &a);
}
