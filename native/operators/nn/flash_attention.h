/* flash_attention.h - attention in blocks of queries and keys, without the matrix of all weights.
**
** Forward keeps for each query the greatest score so far, the sum of the exponentials, and the sum
** of the values that they weigh; where the greatest score grows, the sums are scaled. It leaves
** the logarithm of the sum (`logsum`, infinity where no key counts), from which backward finds the
** weights of a block again: weight = e^(score - logsum). Source: Dao et al., FlashAttention,
** arXiv:2205.14135 and 2307.08691.
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
enum { FLASH_NTC, FLASH_TNC, FLASH_NHTC };            /* layout */
enum { FLASH_APART, FLASH_KV, FLASH_QKV };            /* packed */

/* positions of the optional inputs of a node, -1: absent */
struct flash_ports { int mask, bias, valid_length, offset, n; };
struct flash_ports flash_make_ports(const struct flash_param *p);

/* Matrices (positions x size of a head), one for each sample and head. */
struct flash_side {
  char *p;
  /* elements from one to the next */
  int64_t sample, head, row;
};

/* A mask or a bias, read as (sample, head, query, key); distance 0: broadcast along that axis. */
struct flash_grid { const struct operand *x; int64_t step[4]; };

struct flash {
  const struct vec_ops *r;
  int dtype, product;                                 /* product: type of its products (gemm.h) */
  size_t size;
  int64_t batch, heads, kv_heads, group;              /* group: query heads of a key head */
  int64_t tq, tk;                                     /* positions of queries and of keys */
  int64_t d, dv;                                      /* size of a key and of a value */
  double scale;
  double empty;                                       /* what a query without keys gives */
  bool causal;
  int64_t window;                                     /* 0: none */
  struct flash_side q, k, v, y;
  struct flash_grid mask, bias;
  const struct operand *valid_length, *offset;        /* NULL: none */
  void *logsum;                                       /* NULL: not wanted */
  struct drop drop;
  bool drops;
  bool tiles;                                         /* forward goes by attend.h */
  char *scratch;                                      /* of each thread, `bytes` each */
  size_t bytes;
};

/* -- blocks ------------------------------------------------------------------------------------ */

enum {
  FLASH_QUERIES = 64,                                 /* rows of a block */
  /* columns of a block: forward has several such side by side, of which it leaves out those that
  ** no row sees; a multiple of the columns of any panel of a product */
  FLASH_KEYS = 128,
  FLASH_WIDE = 4 * FLASH_KEYS,                        /* columns of a block forward */
  FLASH_CHUNK = 256,                                  /* rows that share a packed block of keys */
  FLASH_LINE = 64,                                    /* bytes that come from memory at once */
};
/* nanoseconds of a multiply-add of single queries, which wait for memory: a chunk takes some 5 us
** (2026-11-28) */
#define FLASH_STEP_NS (PARALLEL_CHUNK_NS / 32768)

/* Rows of one product: queries q0 .. q0 + m - 1 of one head or, where each head has one query, the
** queries of m heads. */
struct flash_rows {
  int64_t sample, head, q0, m;
  bool across;                                        /* rows are heads */
};

/* Keys that some of the rows see: lo .. hi - 1. */
struct flash_span { int64_t lo, hi; };

static inline int64_t flash_chunk(const struct flash *f)
{
  return MAX(1, FLASH_CHUNK / f->group / FLASH_QUERIES) * FLASH_QUERIES;
}
static inline int64_t flash_rows_most(const struct flash *f)
{
  return f->tq == 1 ? MIN(f->group, FLASH_QUERIES) : MIN(f->tq, FLASH_QUERIES);
}
static inline char *flash_at(const struct flash *f, const struct flash_side *s, int64_t sample,
    int64_t head, int64_t row)
{
  return s->p + (size_t)(sample * s->sample + head * s->head + row * s->row) * f->size;
}
/* Returns the first element of the rows in s; flash_row_step: the distance of its rows. */
static inline char *flash_rows_at(
    const struct flash *f, const struct flash_side *s, const struct flash_rows *b)
{
  return flash_at(f, s, b->sample, b->head, b->q0);
}
static inline int64_t flash_row_step(const struct flash_side *s, const struct flash_rows *b)
{
  return b->across ? s->head : s->row;
}
/* Returns the number of row i among all rows (sample, head, query). */
static inline int64_t flash_row_number(
    const struct flash *f, const struct flash_rows *b, int64_t i)
{
  return (b->sample * f->heads + b->head) * f->tq + b->q0 + i;
}

/* Reads a call whose inputs begin with in[0] forward; backward in[0] is the head gradient. */
struct flash flash_make(const struct call *c, int first);
/* Returns part `part` of x, of whose heads each has `parts` side by side. */
struct flash_side flash_make_side(
    const struct flash_param *p, const struct operand *x, int64_t heads, int parts, int part);
struct flash_grid flash_make_grid(const struct operand *x);
/* Makes b the rows number i of the task of queries q0 .. q1 - 1 of all heads that read key head kv.
** false: there are no more. */
bool flash_cut_rows(const struct flash *f, int64_t sample, int64_t kv, int64_t q0, int64_t q1,
    int64_t i, struct flash_rows *b);
/* Returns the keys that these queries see. */
struct flash_span flash_span_of_group(
    const struct flash *f, int64_t sample, int64_t kv, int64_t q0, int64_t q1);
/* Returns the keys that rows b see. */
struct flash_span flash_find_span(const struct flash *f, const struct flash_rows *b);
/* Writes the queries of rows b, times the scale, one after the other. */
void flash_scale_queries(const struct flash *f, const struct flash_rows *b, char *out);
/* Returns whether keys within the span of a block may not count. */
static inline bool flash_restricts(const struct flash *f)
{
  return f->mask.x || f->bias.x || f->causal || f->window;
}
/* Adds the bias to the scores of keys k0 .. k0 + n - 1, whose rows are ld apart, and makes those
** -infinity that do not count. Returns whether there may be such. */
bool flash_restrict(const struct flash *f, const struct flash_rows *b, char *s, int64_t ld,
    int64_t k0, int64_t n);
/* Computes c (m x n) += op(a) b, where elements of a that are 0 add nothing, whatever b holds. */
void flash_skip_zeros(const struct flash *f, bool ta, int64_t m, int64_t n, int64_t k,
    const char *a, int64_t lda, const char *b, int64_t ldb, char *c, int64_t ldc);
/* Returns whether n elements in each of `rows` rows are finite; false, too, where a sum of their
** squares is not. */
bool flash_is_finite(const struct flash *f, int64_t rows, int64_t n, const char *x, int64_t step);
void flash_clear(const struct flash *f, int64_t rows, int64_t n, char *x, int64_t step);

/* Computes the gradients; serves as `run`. */
int    flash_backward(struct call *c);
size_t flash_backward_scratch(const struct call *c);
