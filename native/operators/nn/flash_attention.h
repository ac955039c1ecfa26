/* flash_attention.h - attention by blocks of queries and keys, without storing the matrix of all
** weights.
**
** Forward loops over blocks of keys. For each query it keeps the maximum score so far, the sum of
** e^(score - maximum), and the sum of values with these weights; when the maximum grows, both sums
** are rescaled. It stores the logarithm of the sum of e^score (`logsum`; infinity if no key
** counts), from which backward recomputes the weights of a block: weight = e^(score - logsum).
** Source: Dao et al., FlashAttention, arXiv:2205.14135 and 2307.08691.
*/
#pragma once
#include "kernel/gemm/attend.h"
#include "kernel/gemm/gemm.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct flash_param {
  int64_t heads, kv_heads, layout, packed, causal, window;
  int64_t use_mask, use_bias, use_valid_length, use_offset, empty;
  double scale, dropout;
};
/* values of `layout` */
enum { FLASH_NTC, FLASH_TNC, FLASH_NHTC };
/* values of `packed` */
enum { FLASH_APART, FLASH_KV, FLASH_QKV };

/* Where queries, keys and values are in the first inputs, and their gradients in the outputs of
** backward, according to `packed`. A head of an array may have several parts side by side; the
** queries are the first part of the first input. */
struct flash_packing {
  int inputs;                                         /* arrays of queries, keys and values */
  int q_parts;                                        /* parts of a head of the first input */
  int kv_parts;                                       /* parts of a head of the others */
  int key;                                            /* input with the keys */
  int key_part;
  int value;                                          /* input with the values */
  int value_part;
};
struct flash_packing flash_find_packing(const struct flash_param *p);

/* Indices of the optional inputs; -1: absent. */
struct flash_ports {
  int mask;
  int bias;
  int valid_length;
  int offset;
  int n;                                              /* number of all inputs */
};
struct flash_ports flash_make_ports(const struct flash_param *p);

/* One matrix (positions x size of a head) for each sample and head. */
struct flash_side {
  char *p;                                            /* the first matrix; NULL: unused */
  int64_t sample;                                     /* elements from one sample to the next */
  int64_t head;                                       /* from one head to the next */
  int64_t row;                                        /* from one position to the next */
};

/* Keys lo .. hi - 1, outside of which no key counts. */
struct flash_span { int64_t lo, hi; };

/* A mask or a bias, read as (sample, head, query, key). */
struct flash_grid {
  const struct operand *x;                            /* NULL: there is none */
  int64_t step[4];                                    /* elements along each axis; 0: broadcast */
};

/* A call. */
struct flash {
  const struct vec_ops *r;
  int dtype;
  int product;                                        /* gemm type of its products */
  size_t size;                                        /* bytes of an element */
  int64_t batch;                                      /* samples */
  int64_t heads;                                      /* of queries */
  int64_t kv_heads;                                   /* of keys and values */
  int64_t group;                                      /* query heads that read one key head */
  int64_t tq;                                         /* positions of queries */
  int64_t tk;                                         /* positions of keys */
  int64_t d;                                          /* numbers of a key */
  int64_t dv;                                         /* numbers of a value */
  double scale;                                       /* factor of the products */
  double empty;                                       /* result of a query without keys */
  bool causal;
  int64_t window;                                     /* 0: none */
  struct flash_side q, k, v, y;
  struct flash_grid mask, bias;
  struct flash_span *spans;                           /* flash_find_spans; NULL: none */
  /* Keys of a block of backward, a multiple of the columns of any panel of a product. Forward skips
  ** groups of this many keys at the ends of its blocks if no row sees them. */
  int64_t keys;
  const struct operand *valid_length;                 /* NULL: none */
  const struct operand *offset;                       /* NULL: none */
  /* logsum of each row, then for each row its rounding error: in float32 a maximum score of -1e9
  ** would lose all of the sum. NULL: unused. */
  void *logsum;
  struct drop drop;
  bool drops;                                         /* there is dropout */
  bool attends;                                       /* forward uses kernel/gemm/attend.h */
  char *scratch;                                      /* a piece for each thread */
  size_t bytes;                                       /* bytes of such a piece */
};

/* -- blocks ------------------------------------------------------------------------------------ */

enum {
  FLASH_QUERIES = 64,                                 /* rows of a block */
  /* keys of a block, see `keys` of struct flash */
  FLASH_KEYS = 128,
  /* the same if rows see a part of the keys, and there are at most FLASH_PART keys */
  FLASH_FEW_KEYS = 64,
  /* keys: with more, small blocks cost more than they save (1,024 keys, Zen 4, 2026-11) */
  FLASH_PART = 512,
  FLASH_WIDE = 4 * FLASH_KEYS,                        /* keys of a block of forward */
  FLASH_CHUNK = 256,                                  /* rows that share a packed block of keys */
  FLASH_LINE = 64,                                    /* bytes of a line of the caches */
};
/* nanoseconds of a multiply-add for single queries, which are bound by memory: a chunk takes about
** 5 us (2026-11-28) */
#define FLASH_STEP_NS (PARALLEL_CHUNK_NS / 32768)

/* Rows of one product: queries q0 .. q0 + m - 1 of one head, or, if each head has a single query,
** the queries of m heads. */
struct flash_rows {
  int64_t sample;
  int64_t head;                                       /* the first */
  int64_t q0;
  int64_t m;
  bool across;                                        /* rows are heads */
};

/* Returns the number of queries of a head in a task. */
static inline int64_t flash_chunk(const struct flash *f)
{
  return MAX(1, FLASH_CHUNK / f->group / FLASH_QUERIES) * FLASH_QUERIES;
}
/* Returns the most rows that a block of this call has. */
static inline int64_t flash_rows_most(const struct flash *f)
{
  return f->tq == 1 ? MIN(f->group, FLASH_QUERIES) : MIN(f->tq, FLASH_QUERIES);
}
/* Returns the address of a row of a sample and head. */
static inline char *flash_at(const struct flash *f, const struct flash_side *s, int64_t sample,
    int64_t head, int64_t row)
{
  return s->p + (size_t)(sample * s->sample + head * s->head + row * s->row) * f->size;
}
/* Returns the address of the first of rows b in s. */
static inline char *flash_rows_at(
    const struct flash *f, const struct flash_side *s, const struct flash_rows *b)
{
  return flash_at(f, s, b->sample, b->head, b->q0);
}
/* Returns the elements from one of rows b to the next in s. */
static inline int64_t flash_row_step(const struct flash_side *s, const struct flash_rows *b)
{
  return b->across ? s->head : s->row;
}
/* Prefetches n rows of `size` elements, `step` elements apart, into the second-level cache: rows of
** a head are too far apart for the hardware prefetcher. Always inline, since gcc removes calls of a
** function that only prefetches. */
static inline __attribute__((always_inline)) void flash_prefetch(
    const struct flash *f, const char *row, int64_t step, int64_t n, int64_t size)
{
  for (int64_t i = 0; i < n; i++, row += (size_t)step * f->size)
    for (size_t byte = 0; byte < (size_t)size * f->size; byte += FLASH_LINE)
      __builtin_prefetch(row + byte, 0, 2);
}
/* Returns the number of all rows. */
static inline int64_t flash_count_rows(const struct flash *f)
{
  return f->batch * f->heads * f->tq;
}
/* Returns the index of row i of b among all rows (sample, head, query). */
static inline int64_t flash_row_number(
    const struct flash *f, const struct flash_rows *b, int64_t i)
{
  return (b->sample * f->heads + b->head) * f->tq + b->q0 + i;
}

/* Describes a call. first: index of its first input in c->in: 0 forward, 1 backward, where in[0] is
** the gradient of the output. */
struct flash flash_make(const struct call *c, int first);
/* Returns part `part` of x, each of whose heads has `parts` parts side by side. */
struct flash_side flash_make_side(
    const struct flash_param *p, const struct operand *x, int64_t heads, int parts, int part);
/* Describes a mask or a bias; its missing leading axes are broadcast. */
struct flash_grid flash_make_grid(const struct operand *x);
/* Returns the index in a grid of the element for row i of b and key k0. */
int64_t flash_grid_element(
    const struct flash_grid *g, const struct flash_rows *b, int64_t i, int64_t k0);
/* Returns the bytes of scratch of flash_find_spans. */
size_t flash_spans_bytes(const struct flash *f);
/* Finds the keys that a bias hides from each block of rows: it lowers their scores so far that
** their weight is 0, as additive masks do. flash_find_span leaves them out from then on. base:
** flash_spans_bytes bytes. */
void flash_find_spans(struct flash *f, char *base);
/* Finds block i of the rows of a task: queries q0 .. q1 - 1 of all heads that read key head kv.
** Returns false if there are no more. */
bool flash_cut_rows(const struct flash *f, int64_t sample, int64_t kv, int64_t q0, int64_t q1,
    int64_t i, struct flash_rows *b);
/* Returns the span of keys that rows of a task see. */
struct flash_span flash_span_of_group(
    const struct flash *f, int64_t sample, int64_t kv, int64_t q0, int64_t q1);
/* Returns the span of keys that rows of b see. */
struct flash_span flash_find_span(const struct flash *f, const struct flash_rows *b);
/* Writes the queries of rows b, times the scale, contiguously. */
void flash_scale_queries(const struct flash *f, const struct flash_rows *b, char *out);
/* Returns whether some rows may not see some keys of their span. */
static inline bool flash_restricts(const struct flash *f)
{
  return f->mask.x || f->bias.x || f->causal || f->window;
}
/* Adds the bias to the scores s (rows ld apart) of keys k0 .. k0 + n - 1, and sets those of keys
** that a row must not see to -infinity. Returns whether there may be such keys. */
bool flash_restrict(const struct flash *f, const struct flash_rows *b, char *s, int64_t ld,
    int64_t k0, int64_t n);
/* Computes c (m x n) += op(a) b. Elements of a that are 0 add nothing, even for infinities and NaN
** in b. */
void flash_multiply_nonzero(const struct flash *f, bool ta, int64_t m, int64_t n, int64_t k,
    const char *a, int64_t lda, const char *b, int64_t ldb, char *c, int64_t ldc);
/* Returns whether n elements in each of `rows` rows are finite. May return false if they are so
** large that the sum of their squares overflows. */
bool flash_is_finite(const struct flash *f, int64_t rows, int64_t n, const char *x, int64_t step);
/* Sets n elements in each of `rows` rows to 0. */
void flash_clear(const struct flash *f, int64_t rows, int64_t n, char *x, int64_t step);

/* The backward kernel. Inputs: gradient of the output, the inputs, output, logsum. */
int    flash_backward(struct call *c);
size_t flash_backward_scratch(const struct call *c);
