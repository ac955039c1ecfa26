/* cublaslt.h - the part of cublasLt that is used here, declared by hand (see driver.h). */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "cuda/driver.h"

typedef struct lt_handle *lt_handle;
typedef struct lt_product *lt_product;                /* cublasLtMatmulDesc_t */
typedef struct lt_layout *lt_layout;
typedef struct lt_preference *lt_preference;
struct lt_algorithm { uint64_t data[8]; };
struct lt_choice {
  struct lt_algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

enum { LT_F32 = 0, LT_F64 = 1, LT_F16 = 2, LT_BF16 = 14 };                 /* cudaDataType */
enum { LT_BY_F32 = 68, LT_BY_F64 = 70, LT_BY_TF32 = 77 };                  /* cublasComputeType_t */
enum { LT_TRANSA = 3, LT_TRANSB = 4, LT_EPILOGUE = 7, LT_BIAS = 8, LT_BIAS_TYPE = 26 };
/* CUBLASLT_EPILOGUE_*. LT_SUMS_B is BGRADB: writes the sums of the columns of op(B) to the bias. */
enum { LT_DEFAULT = 1, LT_RELU = 2, LT_ADD_BIAS = 4, LT_RELU_BIAS = 6, LT_SUMS_B = 512 };
enum { LT_BATCH = 5, LT_STRIDE = 6, LT_WORKSPACE = 1 };
/* cublasLtMatmulPreferenceAttributes_t: alignment of A; those of B, C and D follow. */
enum { LT_ALIGNED = 5 };

#define LT_FUNCTIONS(_) \
  _(Create,              "cublasLtCreate", (lt_handle *)) \
  _(MatmulDescCreate,    "cublasLtMatmulDescCreate", (lt_product *, int, int)) \
  _(MatmulDescDestroy,   "cublasLtMatmulDescDestroy", (lt_product)) \
  _(MatmulDescSet,       "cublasLtMatmulDescSetAttribute", \
    (lt_product, int, const void *, size_t)) \
  _(LayoutCreate,        "cublasLtMatrixLayoutCreate", \
    (lt_layout *, int, uint64_t, uint64_t, int64_t)) \
  _(LayoutDestroy,       "cublasLtMatrixLayoutDestroy", (lt_layout)) \
  _(LayoutSet,           "cublasLtMatrixLayoutSetAttribute", \
    (lt_layout, int, const void *, size_t)) \
  _(PreferenceCreate,    "cublasLtMatmulPreferenceCreate", (lt_preference *)) \
  _(PreferenceDestroy,   "cublasLtMatmulPreferenceDestroy", (lt_preference)) \
  _(PreferenceSet,       "cublasLtMatmulPreferenceSetAttribute", \
    (lt_preference, int, const void *, size_t)) \
  _(Choose,              "cublasLtMatmulAlgoGetHeuristic", \
    (lt_handle, lt_product, lt_layout, lt_layout, lt_layout, lt_layout, lt_preference, int, \
     struct lt_choice *, int *)) \
  _(Matmul,              "cublasLtMatmul", \
    (lt_handle, lt_product, const void *, const void *, lt_layout, const void *, lt_layout, \
     const void *, const void *, lt_layout, void *, lt_layout, const struct lt_algorithm *, \
     void *, size_t, cu_stream))

#define DECLARE(name, symbol, arguments) int (*name) arguments;
struct lt_functions { LT_FUNCTIONS(DECLARE) };
#undef DECLARE
