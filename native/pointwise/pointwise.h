/* pointwise.h - straight-line scalar code of one element-wise group: parsed from formulas,
** joined by fusion, run over blocks on the CPU, or printed as CUDA source.
**
** A pointwise program computes in one dtype (float32, float64, int32 or int64; see pw_dtype);
** loads and stores convert the others. Order of calls: pw_new, then pw_load / pw_number /
** pw_formula / pw_store in any order, then pw_seal, then pw_run any number of times (thread
** safe: a sealed pointwise program never changes).
*/
#pragma once
#include "kernel/kernel.h"
#include "kernel/reduce/reduce.h"

struct pw_program;
/* operands of one pointwise program: loads + stores */
enum { PW_ARGS = 32 };
/* What the names of a formula mean. */
struct pw_env {
  /* register of letter 'a'.. 'z'; -1: unknown. Assignments change it */
  int var[26];
  /* value of $name, and the operand it is read from at run time, or -1: it is part of the
  ** program; false: there is no such parameter. NULL: there are none */
  bool (*parameter)(
      const struct pw_env *env, const char *name, size_t n, double *value, int *operand);
  /* for `parameter` */
  const struct op *op;
  const void *param;
  /* > 0: the k-th number among op's parameters is operand numbers + k */
  int numbers;
};
struct pw_program *pw_new(int dtype);
void pw_free(struct pw_program *t);
/* Returns the register that holds an operand's element, the same one each time. */
int  pw_load(struct pw_program *t, int operand);
int  pw_number(struct pw_program *t, double value);
/* Compiles a formula; TY_EVALUE names the column. */
int  pw_formula(struct pw_program *t, const char *text, struct pw_env *env, int *reg);
void pw_store(struct pw_program *t, int operand, int reg);
/* Returns the value as if stored in dtype and loaded again: half types round, integers wrap. */
int  pw_cast(struct pw_program *t, int reg, int dtype);
/* Drops dead code and allocates registers; TY_EUNSUPPORTED: the program is too long. */
int  pw_seal(struct pw_program *t);
/* Prints a program as one line like a formula. */
int  pw_print(const struct pw_program *t, struct text *out);
/* How a pointwise program's CUDA source takes its operands: forms as cuda_source.c says. */
enum { PW_GENERAL, PW_NARROW, PW_DENSE, PW_PACKED };
/* Elements of a pack, whose address is a multiple of its size. */
enum { PW_PACK = 4 };
struct pw_cuda {
  int form, n, ndim;
  const int *dtypes;
  uint32_t single;                                    /* dense forms: operands of one element */
  uint32_t numbers;                                   /* as in struct pw_loop */
  int together;                                       /* dense forms: loops of a launch; 0: one */
};
static inline bool pw_cuda_number(const struct pw_cuda *how, int k)
{
  return how->numbers >> k & 1;
}
/* Prints what programs of t's dtype need; then a kernel `name`, whose argument is a struct. */
void pw_cuda_begin(const struct pw_program *t, struct text *out);
void pw_cuda_kernel(
    const struct pw_program *t, const struct pw_cuda *how, const char *name, struct text *out);
/* Prints, instead of the kernel, `element(args, i)`, which stores all results of element i but that
** for operand `but`, and returns that, of the operand's file type (half types as their bits). */
void pw_cuda_element(const struct pw_program *t, const struct pw_cuda *how, const char *name,
    int but, struct text *out);
/* Prints pw_cuda_begin and the kernel. */
int pw_cuda(
    const struct pw_program *t, const struct pw_cuda *how, const char *name, struct text *out);
/* Returns the compute dtype for operands: float64 if any is; else float32 if any is a float; else
** int64 if any is; else int32. */
int  pw_dtype(const ty_desc *d, int n);

/* The iteration space of one pointwise program: dims with per-operand strides (elements; 0 =
** broadcast), adjacent dims joined. */
struct pw_loop {
  int     ndim;
  int     n;                                          /* operands */
  uint32_t numbers;                                   /* operands in the host's memory, as bits */
  int64_t dim[TY_MAXDIM], count;
  int8_t  dtype[PW_ARGS];
  /* per operand; last, as a loop that is kept ends after those it has */
  int64_t stride[PW_ARGS][TY_MAXDIM];
};
/* Returns the bytes of a loop over n operands. */
static inline size_t pw_loop_bytes(int n)
{
  return offsetof(struct pw_loop, stride) + sizeof(int64_t[TY_MAXDIM]) * (size_t)n;
}
/* Makes the loop over a space; operands are aligned to the right and broadcast. */
int  pw_loop_make(struct pw_loop *l, const ty_desc *space, const ty_desc *operand, int n);
/* Runs a program on the device's queue; parallel inside. */
int pw_run(
    int device, const struct pw_program *t, const struct pw_loop *l, void *const *operand);
/* Declares that runs by this thread on the device do not depend on each other from `begin` on and
** may be started together; without it they are all started. */
int pw_together(int device, bool begin);
/* A reduction at the end of a program: instead of being stored in `operand`, whose descriptor in
** the loop is that of the space, elements are reduced over axes of the space into the operand's
** bytes, which hold elements of `dtype`. */
struct pw_end { int operand, kind, finish, dtype; struct reduce over; };
/* Returns whether programs on the device may end so. */
bool pw_can_end(int device);
/* Returns the bytes of scratch; 0: nothing is kept. */
size_t pw_end_scratch(int device, const struct pw_end *end);
int pw_run_end(int device, const struct pw_program *t, const struct pw_loop *l,
    void *const *operand, const struct pw_end *end, void *tmp);
/* Sums over axes that dst has as 1 or lacks. */
int sum_to(int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);

/* The same on a kind of device that is no CPU. `forget`: the program is freed; what was made
** of it (pw_made) goes. */
struct pw_device {
  int (*run)(
      int device, const struct pw_program *t, const struct pw_loop *l, void *const *operand);
  int (*together)(int device, bool begin);
  size_t (*end_scratch)(const struct pw_end *end);
  int (*run_end)(int device, const struct pw_program *t, const struct pw_loop *l,
      void *const *operand, const struct pw_end *end, void *tmp);
  int (*sum_to)(
      int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);
  void (*forget)(void *made);
};
void pw_register(int kind, const struct pw_device *d);
/* Returns where a back end keeps what it has made of a program; atomic, NULL at first. */
void **pw_made(const struct pw_program *t);

/* Returns a parameter as the reference keeps it: float32. volatile: gcc 12 takes a vector of such
** pairs of conversions away. */
static inline double to_single(double v)
{
  volatile float f = (float)v;
  return (double)f;
}
