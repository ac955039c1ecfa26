/* product.h - what the files of cublasLt's stand-in share: descriptors as attributes, and a product
** that is ready to run. */
#pragma once
#include <map>
#include "../library/library.h"
#include "../library/numbers.h"
#include "abi.h"

#define API extern "C" __attribute__((visibility("default"))) cublasStatus_t

/* -- descriptors (descriptors.cc) -------------------------------------------------------------- */

enum Kind { LAYOUT, PRODUCT, PREFERENCE };
struct Bag {
  Kind kind;
  std::map<int, int64_t> given;
  int64_t get(int attribute) const;                   /* given, or the library's default */
};
/* Returns what a handle of the interface refers to; NULL: destroyed, or of another kind. */
const Bag *find_bag(const void *handle, Kind kind);

/* -- products (product.cc, loops.cc) ----------------------------------------------------------- */

/* a matrix, or a batch of them; rs, cs: elements from row to row, from column to column */
struct Matrix {
  char *p = nullptr;
  cudasim::Number type;
  bool by_row;
  int64_t rows, cols, ld, rs, cs, batch, stride;
  char *of(int64_t i) const { return p + i * stride * (int64_t)cudasim::size_of(type); }
};

enum Epilogue { RELU = 2, BIAS = 4, DRELU = 8, BIAS_GRADIENT = 16, GELU = 32, DGELU = 64, AUX = 128,
  SUM_A = 256, SUM_B = 512 };

struct Product {
  Matrix a, b, c, d;                                  /* a, b: after their transpositions */
  int compute, epilogue;
  bool scales_on_device;
  cudasim::Number scale, bias_type, aux_type;
  const void *alpha, *beta;                           /* on the device; else: */
  double by[2];
  char *bias, *aux;
  int64_t bias_stride, aux_ld, aux_stride;            /* of a mask in bits */
  bool exact() const                                  /* sums of whole numbers */
  {
    return compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC;
  }
};
void run_product(const Product &p);
