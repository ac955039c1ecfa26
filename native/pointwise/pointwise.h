/* pointwise.h - straight-line scalar code of one element-wise group: parsed from formulas,
** joined by fusion, run over blocks on the CPU, or printed as CUDA source.
**
** A pointwise program computes in one dtype (float32, float64, int32 or int64; see pw_dtype);
** loads and stores convert the others. Order of calls: pw_new, then pw_load / pw_number /
** pw_formula / pw_store in any order, then pw_seal, then pw_run any number of times (thread
** safe: a sealed pointwise program never changes).
*/
#pragma once
#include "op/op.h"

struct pw_program;
/* operands of one pointwise program: loads + stores */
enum { PW_ARGS = 32 };
struct pw_env {                                     /* what the names of a formula mean */
  /* register of letter 'a'.. 'z'; -1: unknown. Assignments change it */
  int var[26];
  /* $name: this operator's parameter; NULL: $names are unknown */
  const struct op *op; const void *param;
  /* > 0: the operator's P_FLOAT and P_INT parameters are not written into the pointwise program:
  ** the k-th is operand numbers + k, one element read at run time */
  int numbers;
};
struct pw_program *pw_new(int dtype);
void pw_free(struct pw_program *t);
/* register that holds operand's element; the same one each time */
int  pw_load(struct pw_program *t, int operand);
int  pw_number(struct pw_program *t, double value);
/* TY_EVALUE names the column */
int  pw_formula(struct pw_program *t, const char *text, struct pw_env *env, int *reg);
void pw_store(struct pw_program *t, int operand, int reg);
/* value as if stored in dtype and loaded again: half types round, integers wrap */
int  pw_cast(struct pw_program *t, int reg, int dtype);
/* drops dead code, allocates registers; TY_EUNSUPPORTED: too long */
int  pw_seal(struct pw_program *t);
/* one formula-like line, for the printed program */
int  pw_print(const struct pw_program *t, struct text *out);
/* CUDA C source of kernel `name` */
int pw_cuda(
    const struct pw_program *t, const int *dtypes, int n, const char *name, struct text *out);
/* compute dtype for operands: float64 if any is; else float32 if any is a float; else int64 if
** any is; else int32 */
int  pw_dtype(const ty_desc *d, int n);

/* The iteration space of one pointwise program: dims with per-operand strides (elements; 0 =
** broadcast), adjacent dims joined. */
struct pw_loop {
  int     ndim, n;                                    /* n operands */
  int64_t dim[TY_MAXDIM], count;
  int64_t stride[PW_ARGS][TY_MAXDIM];
  int8_t  dtype[PW_ARGS];
};
/* aligned to the right, broadcast */
int  pw_loop_make(struct pw_loop *l, const ty_desc *space, const ty_desc *operand, int n);
/* parallel inside */
int  pw_run(const struct pw_program *t, const struct pw_loop *l, void *const *operand);

/* Operators with rows as kernels of their own: what ty_call and unfused programs use.
** formula_kernel: forward, broadcasting; formula_back_kernel: all gradients, summed back over
** broadcast axes. */
extern const struct kernel formula_kernel[], formula_back_kernel[];
/* what its backward reads, as the text of op.grad: from the formulas */
const char *formula_reads(const struct op *op);
/* the same, less what its enums and booleans exclude */
const char *formula_reads_of(const struct op *op, const void *param);
/* forward, at once */
int formula_apply(
    const struct op *op, const void *param, const struct operand *in, int nin, const struct operand *out);
/* over axes that dst has as 1 or lacks */
int  sum_to(void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);

/* A parameter as the reference keeps it: float32. volatile: gcc 12 takes a vector of such pairs
** of conversions away. */
static inline double to_single(double v)
{
  volatile float f = (float)v;
  return (double)f;
}
