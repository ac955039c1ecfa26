/* row.h - a kernel described by a table row: its family and name, the words with which it is
** compiled, its arguments.
**
** Most kernels need no other host code. Words and arguments are texts that name the operands of a
** call:
**
**   words       "T=$i0 UNIT=#o0 INDEX=^o0 TEAM=%3":
**               $i0      the type of input 0
**               #o0      the unsigned integer type with the size of an element of output 0
**               ^o0      the type of indices of the elements of output 0
**               %3       int64 number 3 of the struct that `sizes` fills, at byte 24
**   arguments   "o0 i0 i1 s", in the order of the kernel's parameters:
**               o0 i0    the address of output 0, of input 0; NULL if the operand does not exist
**               i0~      the same, of an input that the kernel changes
**               s        the struct that `sizes` fills
**               s0 s1    the part of that struct from byte 0, from byte 8 on: a number or a struct
**               -        NULL
**               tmp      the call's scratch
**               add      int32: whether to add to output 0
**               key      struct draw_key of the call's random numbers
**               fault op where the kernel reports errors (kernels/fault.cuh), and cuda_origin's
**                        result */
#pragma once
#include "cuda/family.h"

struct cuda_row {
  enum cuda_family family;
  const char *kernel;
  const char *words;
  const char *arguments;
  /* Fills in `s`, at most CUDA_ROW_BYTES bytes, and returns the number of threads; below 0: do not
  ** launch the kernel. NULL: the number of threads, and s0, is the number of elements of output
  ** 0. */
  int64_t (*sizes)(const struct call *c, void *s);
  uint32_t zeros;                                     /* bit k: set out[k] to 0 first */
};

enum { CUDA_ROW_BYTES = 4096 };                       /* CUDA's limit for a kernel's parameters */

/* The `run` function of kernels whose `row` is a struct cuda_row. Launches nothing if the call
** wants none of the outputs that the kernel writes. */
int cuda_run_row(struct call *c);

/* Launches n threads of a kernel, for functions that launch several kernels. words: as in a row,
** but without %k. params: addresses of the kernel's parameters. */
int cuda_start(const struct call *c, enum cuda_family family, const char *kernel, const char *words,
    int64_t n, void **params);
/* Does the same; words is a format. */
int cuda_start_words(const struct call *c, enum cuda_family family, const char *kernel, int64_t n,
    void **params, const char *words, ...) __attribute__((format(printf, 6, 7)));

/* The fields of a struct kernel that make it a row; the arguments are those of struct cuda_row. */
#define CUDA_ROW(...) .run = cuda_run_row, .row = &(const struct cuda_row){ __VA_ARGS__ }
