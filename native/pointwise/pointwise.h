/* pointwise.h - pointwise programs: straight-line scalar code for a group of element-wise
** operators. Programs are parsed from formulas, joined by fusion, and run over blocks on the CPU or
** printed as CUDA source.
**
** A program computes in one dtype (float32, float64, int32 or int64; see pw_dtype); loads and
** stores convert from and to others. Order of calls: pw_new, then pw_load / pw_number / pw_formula
** / pw_store in any order, then pw_seal, then pw_run any number of times (thread safe: a sealed
** program never changes), pw_free.
*/
#pragma once
#include "kernel/kernel.h"
#include "kernel/reduce/reduce.h"

struct pw_program;
/* most operands of a program, loaded or stored */
enum { PW_ARGS = 32 };
/* What the names of a formula mean. */
struct pw_env {
  /* registers of letters a .. z; -1: unknown; assignments change them */
  int var[26];
  /* Finds $name: its value, and the operand from which it is read at run time, or -1 if the value
  ** is part of the program. Returns false if there is no such parameter. NULL: there are no
  ** parameters. */
  bool (*parameter)(
      const struct pw_env *env, const char *name, size_t n, double *value, int *operand);
  /* data of `parameter` */
  const struct op *op;
  const void *param;
  /* > 0: the k-th numeric parameter of op is operand numbers + k; 0: numbers are part of the
  ** program */
  int numbers;
};
/* Makes an empty program that computes in `dtype`. A failure while it is built is kept, and
** returned by pw_seal. NULL: out of memory. */
struct pw_program *pw_new(int dtype);
/* Frees a program and what back ends have compiled for it. */
void pw_free(struct pw_program *t);
/* Returns the register that holds an operand's element, the same one each time. */
int  pw_load(struct pw_program *t, int operand);
/* Returns a register that holds a number. */
int  pw_number(struct pw_program *t, double value);
/* Compiles a formula; *reg holds its result. TY_EVALUE names the column of the first mistake. */
int  pw_formula(struct pw_program *t, const char *text, struct pw_env *env, int *reg);
/* Stores a register to an operand. */
void pw_store(struct pw_program *t, int operand, int reg);
/* Returns a register with the value as if stored in dtype and loaded again: half types round,
** integers wrap. */
int  pw_cast(struct pw_program *t, int reg, int dtype);
/* Drops dead code and allocates registers; TY_EUNSUPPORTED: the program is too long. */
int  pw_seal(struct pw_program *t);
/* Prints a program as one line, like a formula. */
int  pw_print(const struct pw_program *t, struct text *out);
/* Forms of CUDA source, from the general to the fast (cuda_source.c). */
enum { PW_GENERAL, PW_NARROW, PW_DENSE, PW_PACKED };
/* Elements of a pack, which is aligned to its size. */
enum { PW_PACK = 4 };
struct pw_cuda {
  int form, n, ndim;
  const int *dtypes;
  /* dense forms: bits of operands of one element */
  uint32_t single;
  uint32_t numbers;                                   /* see struct pw_loop */
  /* dense forms: most loops of a launch; 0: one */
  int together;
};
static inline bool pw_cuda_number(const struct pw_cuda *how, int k)
{
  return how->numbers >> k & 1;
}
/* Prints the functions that programs of t's dtype need. */
void pw_cuda_begin(const struct pw_program *t, struct text *out);
/* Prints a kernel `name`, whose argument is a struct. */
void pw_cuda_kernel(
    const struct pw_program *t, const struct pw_cuda *how, const char *name, struct text *out);
/* Prints, instead of the kernel, a function `element(args, i)`, which stores the results of element
** i, except that for operand `but`, which it returns in the operand's dtype (half types as
** bits). */
void pw_cuda_element(const struct pw_program *t, const struct pw_cuda *how, const char *name,
    int but, struct text *out);
/* Prints the whole source: pw_cuda_begin, then the kernel. */
int pw_cuda(
    const struct pw_program *t, const struct pw_cuda *how, const char *name, struct text *out);
/* Returns the compute dtype for n operands: float64 if any is float64; else float32 if any is a
** float; else int64 if any is int64; else int32. */
int  pw_dtype(const ty_desc *d, int n);

/* The iteration space of a program: dims, adjacent ones joined where possible, with a stride per
** operand in elements (0: broadcast). */
struct pw_loop {
  int     ndim;
  int     n;                                          /* operands */
  uint32_t numbers;                                   /* bits of operands in host memory */
  int64_t dim[TY_MAXDIM], count;
  int8_t  dtype[PW_ARGS];
  /* per operand; last, so that a kept loop can be cut after its n operands */
  int64_t stride[PW_ARGS][TY_MAXDIM];
};
/* Returns the bytes of a loop that is cut after n operands. */
static inline size_t pw_loop_bytes(int n)
{
  return offsetof(struct pw_loop, stride) + sizeof(int64_t[TY_MAXDIM]) * (size_t)n;
}
/* Makes the loop over a space; operands broadcast to it, with axes aligned to the right. */
int  pw_loop_make(struct pw_loop *l, const ty_desc *space, const ty_desc *operand, int n);
/* Runs a program; call it on the device's queue. The CPU uses the team of the thread. */
int pw_run(
    int device, const struct pw_program *t, const struct pw_loop *l, void *const *operand);
/* With `begin`, declares that this thread's next runs on the device do not depend on each other and
** may be started together. Without it, ends that, and starts all of them. */
int pw_together(int device, bool begin);
/* A reduction at the end of a program: elements are not stored in `operand`, which has the shape of
** the space in the loop, but reduced over axes of the space. The operand's memory gets results of
** `dtype`. */
struct pw_end { int operand, kind, finish, dtype; struct reduce over; };
/* Returns whether programs on the device may end with a reduction. */
bool pw_can_end(int device);
/* Returns the bytes of scratch that pw_run_end needs in tmp. */
size_t pw_end_scratch(int device, const struct pw_end *end);
/* Runs a program that ends with a reduction, as pw_run does. */
int pw_run_end(int device, const struct pw_program *t, const struct pw_loop *l,
    void *const *operand, const struct pw_end *end, void *tmp);
/* Sums over the axes that dst lacks or has with size 1; on the device's queue. */
int sum_to(int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);

/* The functions above for a kind of device other than CPU. forget: frees what the back end has made
** of a program (pw_made), which is being freed. */
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
/* Registers them; call it before queues are made. */
void pw_register(int kind, const struct pw_device *d);
/* Returns the pointer in which a back end keeps what it has made of a program; access it
** atomically; NULL at first. */
void **pw_made(const struct pw_program *t);

/* Returns a parameter rounded to float32, as the reference has it. volatile: gcc 12 optimises
** vectors of these conversions away. */
static inline double to_single(double v)
{
  volatile float f = (float)v;
  return (double)f;
}
