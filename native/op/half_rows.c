/* half_rows.c - see half_rows.h.
**
** Each block is a call of the kernel. Operands that are cut have size 1 along the leading axes
** except the last of these, which has the block's rows, so that axes keep their numbers. Inputs
** that all rows read are converted once. Scratch: those inputs, then per thread the kernel's
** scratch and the converted block. A kernel with a state, which its blocks share, runs them one
** after the other, each on all threads; these blocks are large.
*/
#include <stdatomic.h>
#include "base/cast.h"
#include "base/convert.h"
#include "base/parallel.h"
#include "op/half_rows.h"

enum {
  MOST = 8,                                           /* most inputs, and most outputs */
  /* bytes of a block as float32, which fits the first-level cache */
  BLOCK_BYTES = 12 << 10,
  FEW_ROWS = 8,                                       /* rows too few for several threads */
  CHUNK = 8,                                          /* blocks of a chunk: 5 to 10 us */
  /* elements of an operand, too few for several threads */
  PART_OF_A_THREAD = 1 << 15,
  /* bytes of a large block as float32, which fits the last-level cache */
  LARGE_BLOCK_BYTES = 8 << 20,
  ROWS_PER_THREAD = 2,                                /* least rows per thread of a large block */
  /* a large block has at least this many times the bytes that all rows read: a kernel may pack
  ** these for each block */
  WHOLE_SHARE = 4,
};

struct block_call { struct operand in[MOST], out[MOST]; };

static int64_t count_rows(const ty_desc *d, int lead)
{
  int64_t rows = 1;
  for (int a = 0; a < lead; a++) rows *= d->dim[a];
  return rows;
}

static bool is_whole(const struct kernel *k, const struct operand *x, int i)
{
  return k->whole >> i & 1 || x->d.dtype == TY_NODTYPE || !x->d.ndim;
}

/* Sets d to the shape of a block of `rows` rows. */
static void cut_rows(ty_desc *d, int lead, int64_t rows)
{
  for (int a = 0; a < lead; a++) d->dim[a] = 1;
  d->dim[lead - 1] = rows;
}

/* Returns whether every operand that is cut has the rows of input 0. */
static bool can_cut(const struct kernel *k, const struct call *c, int lead)
{
  const int64_t rows = count_rows(&c->in[0].d, lead);
  for (int i = 0; i < c->nin + c->nout; i++) {
    const bool in = i < c->nin;
    const struct operand *x = in ? &c->in[i] : &c->out[i - c->nin];
    if (x->block) return false;
    if (in ? is_whole(k, x, i) : x->d.dtype == TY_NODTYPE || !x->d.ndim) continue;
    if (x->d.ndim < lead || count_rows(&x->d, lead) != rows) return false;
  }
  return true;
}

/* Returns the call for rows first .. first + rows - 1 of the real operands. */
static struct call make_block_call(const struct kernel *k, const struct call *c,
    const struct operand *in, const struct operand *out, int lead, int64_t first, int64_t rows,
    struct block_call *b)
{
  struct call part = *c;
  for (int i = 0; i < c->nin + c->nout; i++) {
    const bool is_in = i < c->nin;
    struct operand *to = is_in ? &b->in[i] : &b->out[i - c->nin];
    *to = is_in ? in[i] : out[i - c->nin];
    if (is_in ? is_whole(k, to, i) : to->d.dtype == TY_NODTYPE || !to->d.ndim) continue;
    const int64_t all = count_rows(&to->d, lead), each = all ? desc_count(&to->d) / all : 0;
    cut_rows(&to->d, lead, rows);
    to->version = NULL;
    if (to->p) to->p = (char *)to->p + (size_t)(first * each) * dtype_size(to->d.dtype);
  }
  part.in = b->in;
  part.out = b->out;
  return part;
}

static size_t converted_bytes(const struct operand *real, const struct operand *as_f32)
{
  return real->d.dtype == as_f32->d.dtype ? 0 : align_up(desc_bytes(&as_f32->d), ALIGN);
}

/* Returns the number of rows of a block. each: bytes of a row as float32; whole: bytes that all
** rows read. All blocks of a kernel with a state have the same size, since the state may depend on
** shapes. */
static int64_t block_rows(const struct kernel *k, int64_t rows, int64_t each, size_t whole)
{
  if (!k->state) return MAX(1, BLOCK_BYTES / MAX(1, each));
  const int64_t bytes = MAX(LARGE_BLOCK_BYTES, WHOLE_SHARE * (int64_t)whole);
  int64_t block = MAX(ROWS_PER_THREAD * parallel_threads(), bytes / MAX(1, each));
  while (block < rows && rows % block) block++;
  return block;
}

bool half_rows_plan(struct invoke *v, const struct kernel *k, const struct call *c)
{
  const int lead = k->lead && v->call.device == TY_CPU ? k->lead(c) : 0;
  v->rows = 0;
  if (lead <= 0 || c->nin > MOST || c->nout > MOST || v->changes || c->epilogue ||
      !can_cut(k, c, lead))
    return false;
  const int64_t rows = count_rows(&c->in[0].d, lead);
  if (rows < FEW_ROWS) return false;
  size_t bytes = 0, whole = 0, part_bytes = 0;
  for (int i = 0; i < c->nin; i++)
    if (is_whole(k, &c->in[i], i))
      whole += converted_bytes(&v->call.in[i], &c->in[i]);
    else
      bytes += desc_bytes(&c->in[i].d);
  for (int i = 0; i < c->nout; i++) bytes += desc_bytes(&c->out[i].d);
  const int64_t block = block_rows(k, rows, (int64_t)bytes / rows, whole);
  if (block >= rows) return false;
  struct block_call b;
  const struct call part = make_block_call(k, c, c->in, c->out, lead, 0, block, &b);
  v->kernel_scratch = k->scratch ? align_up(k->scratch(&part), ALIGN) : 0;
  for (int i = 0; i < c->nin; i++)
    if (!is_whole(k, &c->in[i], i)) part_bytes += converted_bytes(&v->call.in[i], &part.in[i]);
  for (int i = 0; i < c->nout; i++) part_bytes += converted_bytes(&v->call.out[i], &part.out[i]);
  v->rows = block;
  v->lead = lead;
  v->part_bytes = v->kernel_scratch + part_bytes;
  v->scratch = whole + v->part_bytes * (size_t)(k->state ? 1 : parallel_threads());
  return true;
}

struct rows_pass {
  const struct invoke *v;
  const struct call *c;                               /* in, out: the real operands */
  /* inputs, those that all rows read converted */
  const struct operand *in;
  char *threads;
  int64_t rows;
  atomic_int code;
};

/* The block of a thread: its call, with operands of the kernel's dtypes. Converted ones keep their
** address from block to block. */
struct running_block {
  struct block_call real, as_f32;
  /* bytes from a block to the next; 0: converted */
  int64_t step[2 * MOST];
  struct call part;
  int64_t rows;
};

/* Assigns memory from `at` on to operands whose dtype differs from the kernel's. Returns its
** end. */
static char *assign_converted(const struct operand *real, struct operand *as_f32,
    const struct operand *types, int n, char *at)
{
  for (int i = 0; i < n; i++) {
    as_f32[i] = real[i];
    if (real[i].d.dtype == types[i].d.dtype) continue;
    as_f32[i].d.dtype = types[i].d.dtype;
    if (!real[i].p) continue;
    as_f32[i].p = at;
    at += align_up(desc_bytes(&as_f32[i].d), ALIGN);
  }
  return at;
}

/* Prepares the call of rows first .. first + rows - 1. tmp: the thread's scratch, for the kernel
** and then for converted operands. */
static void make_block(const struct rows_pass *x, int64_t first, int64_t rows, char *tmp,
    struct running_block *b)
{
  const struct invoke *v = x->v;
  b->rows = rows;
  b->part = make_block_call(v->kernel, x->c, x->in, x->c->out, v->lead, first, rows, &b->real);
  const int nin = b->part.nin, nout = b->part.nout;
  char *at = assign_converted(
      b->real.in, b->as_f32.in, v->half_in, nin, tmp + v->kernel_scratch);
  assign_converted(b->real.out, b->as_f32.out, v->half_out, nout, at);
  for (int i = 0; i < nin + nout; i++) {
    const struct operand *y = i < nin ? &b->real.in[i] : &b->real.out[i - nin];
    const bool whole = i < nin ? is_whole(v->kernel, y, i) : y->d.dtype == TY_NODTYPE || !y->d.ndim;
    b->step[i] = whole || !y->p ? 0 : (int64_t)desc_bytes(&y->d);
  }
  b->part.in = b->as_f32.in;
  b->part.out = b->as_f32.out;
  b->part.stored = b->real.out;
  b->part.tmp = tmp;
}

/* Moves a call to the next block of equally many rows. */
static void move_block(struct running_block *b)
{
  const int nin = b->part.nin;
  for (int i = 0; i < nin + b->part.nout; i++) {
    struct operand *y = i < nin ? &b->real.in[i] : &b->real.out[i - nin],
                   *f = i < nin ? &b->as_f32.in[i] : &b->as_f32.out[i - nin];
    if (!b->step[i]) continue;
    const bool own = f->p == y->p;
    y->p = (char *)y->p + b->step[i];
    if (own) f->p = y->p;
  }
}

/* Converts part of an operand, in parallel unless the caller is in a parallel region. */
static void convert_part(void *to, int to_type, const void *from, int from_type, int64_t n)
{
  if (n <= PART_OF_A_THREAD)
    cast_between(from_type, to_type)(to, from, n);
  else
    dtype_convert(to, to_type, from, from_type, n);
}

/* Converts to float32 the operands that have converted copies. Bit i of `read`: operand i is
** read. */
static void widen_operands(const struct operand *real, const struct operand *as_f32, int n,
    uint32_t read)
{
  for (int i = 0; i < n; i++)
    if (real[i].p != as_f32[i].p && (i > 31 || read >> i & 1))
      convert_part(as_f32[i].p, TY_F32, real[i].p, real[i].d.dtype, desc_count(&real[i].d));
}

static void run_blocks(int64_t begin, int64_t end, void *context)
{
  struct rows_pass *x = context;
  const struct invoke *v = x->v;
  char *tmp = x->threads + v->part_bytes * (size_t)parallel_index();
  struct running_block b = { .rows = 0 };
  for (int64_t i = begin; i < end && !atomic_load_explicit(&x->code, memory_order_relaxed); i++) {
    const int64_t first = i * v->rows, rows = MIN(v->rows, x->rows - first);
    if (rows != b.rows)
      make_block(x, first, rows, tmp, &b);
    else
      move_block(&b);
    widen_operands(b.real.in, b.as_f32.in, b.part.nin, ~0u);
    widen_operands(b.real.out, b.as_f32.out, b.part.nout, b.part.add);
    const int code = v->kernel->run(&b.part);
    if (code) atomic_store(&x->code, code);
    for (int j = 0; j < b.part.nout; j++) {
      const struct operand *y = &b.real.out[j], *f = &b.as_f32.out[j];
      if (y->p != f->p) convert_part(y->p, y->d.dtype, f->p, TY_F32, desc_count(&y->d));
    }
  }
}

int half_rows_run(const struct invoke *v, const struct call *c)
{
  struct operand in[MOST];
  char *at = c->tmp;
  for (int i = 0; i < c->nin; i++) {
    in[i] = c->in[i];
    if (!is_whole(v->kernel, &in[i], i) || !converted_bytes(&c->in[i], &v->half_in[i])) continue;
    in[i].d.dtype = v->half_in[i].d.dtype;
    if (!in[i].p) continue;
    dtype_convert(at, TY_F32, in[i].p, c->in[i].d.dtype, desc_count(&in[i].d));
    in[i].p = at;
    at += align_up(desc_bytes(&in[i].d), ALIGN);
  }
  struct rows_pass x = { v, c, in, at, count_rows(&c->in[0].d, v->lead), TY_OK };
  const int64_t blocks = (x.rows + v->rows - 1) / v->rows;
  if (v->kernel->state)
    run_blocks(0, blocks, &x);
  else
    parallel_chunks_stoppable(blocks, CHUNK, run_blocks, &x);
  return x.code;
}
