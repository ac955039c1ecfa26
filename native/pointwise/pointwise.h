/* pointwise.h - straight-line scalar code of one element-wise group: parsed from formulas,
** joined by fusion, run over blocks on the CPU, or printed as CUDA source.
**
** A tape computes in one dtype (float32, float64, int32 or int64; see tape_dtype); loads and
** stores convert the others. Order of calls: tape_new, then tape_load / tape_number /
** tape_formula / tape_store in any order, then tape_seal, then tape_run any number of times
** (thread safe: a sealed tape never changes).
*/
#pragma once
#include "op/op.h"

struct tape;
enum { TAPE_ARGS = 32 };                              /* operands of one tape: loads + stores */
struct tape_env {                                     /* what the names of a formula mean */
  /* register of letter 'a'.. 'z'; -1: unknown. Assignments change it */
  int var[26];
  /* $name: this operator's parameter; NULL: $names are unknown */
  const struct op *op; const void *param;
  /* > 0: the operator's P_FLOAT and P_INT parameters are not written into the tape: the k-th is
  ** operand numbers + k, one element read at run time */
  int numbers;
};
struct tape *tape_new(int dtype);
void tape_free(struct tape *t);
/* register that holds operand's element; the same one each time */
int  tape_load(struct tape *t, int operand);
int  tape_number(struct tape *t, double value);
/* TY_EVALUE names the column */
int  tape_formula(struct tape *t, const char *text, struct tape_env *env, int *reg);
void tape_store(struct tape *t, int operand, int reg);
/* value as if stored in dtype and loaded again: half types round, integers wrap */
int  tape_cast(struct tape *t, int reg, int dtype);
/* drops dead code, allocates registers; TY_EUNSUPPORTED: too long */
int  tape_seal(struct tape *t);
int  tape_length(const struct tape *t);               /* instructions */
/* one formula-like line, for the printed program */
int  tape_print(const struct tape *t, struct text *out);
/* CUDA C source of kernel `name` */
int  tape_cuda(const struct tape *t, const int *dtypes, int n, const char *name, struct text *out);
/* compute dtype for operands: float64 if any is; else float32 if any is a float; else int64 if
** any is; else int32 */
int  tape_dtype(const ty_desc *d, int n);

/* The iteration space of one tape: dims with per-operand strides (elements; 0 = broadcast),
** adjacent dims joined. */
struct tape_loop {
  int     ndim, n;                                    /* n operands */
  int64_t dim[TY_MAXDIM], count;
  int64_t stride[TAPE_ARGS][TY_MAXDIM];
  int8_t  dtype[TAPE_ARGS];
};
/* aligned to the right, broadcast */
int  tape_loop_make(struct tape_loop *l, const ty_desc *space, const ty_desc *operand, int n);
/* parallel inside */
int  tape_run(const struct tape *t, const struct tape_loop *l, void *const *operand);

/* Operators with rows as kernels of their own: what ty_call and unfused programs use.
** row_kernel: forward, broadcasting; row_back_kernel: all gradients, summed back over broadcast
** axes. */
extern const struct kernel row_kernel[], row_back_kernel[];
/* what its backward reads, as the text of op.grad: from the formulas */
const char *row_reads(const struct op *op);
/* the same, less what its enums and booleans exclude */
const char *row_reads_of(const struct op *op, const void *param);
/* forward, at once */
int row_apply(
    const struct op *op, const void *param, const struct arr *in, int nin, const struct arr *out);
/* cached, sealed, never freed. forward: operands in order: inputs, output 0, then mutated inputs
** again as stores backward: operands: what row_reads lists, then gradient k of each input */
int row_tape(
    const struct op *op, const void *param, int dtype, int backward, const struct tape **out);
/* over axes that dst has as 1 or lacks */
int  sum_to(void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);

/* A parameter as the reference keeps it: float32. volatile: gcc 12 takes a vector of such pairs
** of conversions away. */
static inline double to_single(double v)
{
  volatile float f = (float)v;
  return (double)f;
}
