/* family.h - our own kernels. A family is a file of CUDA C++ in kernels/, embedded as text. Its
** kernels are compiled one at a time, for the dtypes and constants of a call. A kernel begins with
** a line `extern "C" __global__ void NAME(` and ends with the next line that is `}`. */
#pragma once
#include "cuda/cuda.h"

/* the files of kernels/, by name */
#define CUDA_FAMILIES(_) \
  _(act_product) \
  _(batch_norm) \
  _(bias) \
  _(boxes) \
  _(branches) \
  _(cells) \
  _(channels) \
  _(choice) \
  _(convert) \
  _(correlation) \
  _(counts) \
  _(ctc) \
  _(decoding) \
  _(deform) \
  _(density) \
  _(diagonal) \
  _(dropout) \
  _(entropy) \
  _(factors) \
  _(finite) \
  _(flash_attention) \
  _(fourier) \
  _(hawkes) \
  _(images) \
  _(levels) \
  _(losses) \
  _(move) \
  _(norm_rows) \
  _(pool) \
  _(proposal) \
  _(quantized) \
  _(random) \
  _(ranges) \
  _(recurrence) \
  _(reduce) \
  _(regions) \
  _(resample) \
  _(resize) \
  _(rows) \
  _(sampler) \
  _(scan) \
  _(search) \
  _(sequence) \
  _(softmax) \
  _(softmax_loss) \
  _(sort) \
  _(reduce_back) \
  _(taps) \
  _(transpose) \
  _(triangular) \
  _(tune) \
  _(turn) \
  _(unfold) \
  _(updates)

enum cuda_family {
#define ID(name) FAMILY_##name,
  CUDA_FAMILIES(ID)
#undef ID
};

enum {
  CUDA_BLOCK = 256,                                   /* threads of a block, in all families */
  CUDA_WORDS = 384,                                   /* most bytes of a call's words */
};

/* Finds kernel `name` of a family, compiled with `defines`: a printf format for "T=float N=3",
** where each word makes a #define. Compiled kernels are kept, by these words and the address of
** `name`, which must stay valid. */
int cuda_family(int device, enum cuda_family family, const char *name, cu_function *out,
    const char *defines, ...) __attribute__((format(printf, 5, 6)));
/* Does the same without formatting. */
int cuda_family_find(int device, enum cuda_family family, const char *name, const char *defines,
    cu_function *out);
/* Compiles a kernel with the text `before` in front of the definitions. The result is not kept. */
int cuda_family_compile(int device, enum cuda_family family, const char *before,
    const char *defines, const char *name, cu_function *out);
/* Returns the name of a dtype in kernels/prelude.cuh: "float", "f16", "i32" ... */
const char *cuda_type(int dtype);
/* Returns the name of the unsigned integer of 1, 2, 4, 8 or 16 bytes: "u8", "u32" ... */
const char *cuda_unit(size_t size);
/* Returns the type of indices for n elements. */
static inline const char *cuda_index(int64_t n) { return n <= INT32_MAX ? "u32" : "i64"; }
/* Returns how many blocks of CUDA_BLOCK threads to launch for n threads: at most as many as keep
** the device busy. */
int64_t cuda_blocks(int device, int64_t n);
/* Launches n threads, or as many as keep the device busy. */
int  cuda_run(const struct call *c, cu_function f, int64_t n, void **params);
/* Returns the elements of a load of 16 bytes, if a line of n is a multiple of that and each array
** (NULL: absent) is aligned to it; else 1. */
int  cuda_pack(int dtype, int64_t n, void *const *arrays, int count);
/* Returns how many packs of a row of k elements each of `threads` threads keeps in registers: a
** power of two, at most `most` elements. 0: the row is too long, or shorter than the team. */
int  cuda_held(int64_t k, int threads, int pack, int most);
/* Returns how many threads (a team, kernels/team.cuh) work on each of `rows` rows of k elements,
** which are `inner` apart. */
int  cuda_team(int64_t rows, int64_t k, int64_t inner);

/* Returns op_kernels.what of the call's operator, which tells operators apart that share
** kernels. */
static inline int cuda_what(const struct call *c) { return op_backend_kernels(c->op)->what; }
/* Returns a numeric parameter of the call's operator; `otherwise` if there is none of that name. */
double cuda_number(const struct call *c, const char *name, double otherwise);
static inline bool cuda_flag(const struct call *c, const char *name)
{
  return cuda_number(c, name, 0) > 0;
}

static inline bool cuda_word(const struct call *c, const char *name, const char *word)
{
  return op_word(c->op, c->param, name, word);
}

/* A number in the type that kernels compute in (computes<T> of kernels/prelude.cuh). */
union cuda_scalar { float narrow; double wide; };
static inline union cuda_scalar cuda_make_scalar(int dtype, double v)
{
  union cuda_scalar s = { .wide = v };
  if (dtype != TY_F64) s.narrow = (float)v;
  return s;
}

/* The key of a call's random numbers, struct draw_key of kernels/draw.cuh. */
struct cuda_draw_key {
  uint64_t seed, counter;
  uint32_t node;
  const struct rng_state *rng_on_device;
};
static inline struct cuda_draw_key cuda_draw_key(const struct call *c)
{
  const struct run *r = c->run;
  return (struct cuda_draw_key){ r->rng.seed, r->rng.counter, c->node, r->rng_on_device };
}

/* Returns `bytes` of scratch at *at, and advances *at. */
static inline void *cuda_piece(char **at, size_t bytes)
{
  void *p = *at;
  *at += align_up(bytes, ALIGN);
  return p;
}

int cuda_convert(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n);
/* Writes or adds factor * from to `to`, of the same dtype. Does nothing if `to` is unused. */
int cuda_times(const struct call *c, const struct operand *to, const struct operand *from,
    double factor, bool add);
/* Zeros an operand; its p may be NULL. */
int cuda_zero(const struct call *c, const struct operand *x);

/* Returns the bytes of `count` keys (kernels/keys.cuh) and of the scratch that sorts them. */
size_t cuda_keys_bytes(int64_t count);
/* Sorts `count` keys in lines of n, stably. *keys and space have cuda_keys_bytes(count) bytes each;
** *keys is set to the one with the result. */
int cuda_sort_keys(const struct call *c, void **keys, void *space, int64_t count, int64_t n);
/* Does the same for keys of which only the lowest `bits` bits may differ from 0. */
int cuda_sort_bits(
    const struct call *c, void **keys, void *space, int64_t count, int64_t n, int bits);
/* Kernels that copy input 0 to output 0 (losses.c). */
extern const struct kernel cuda_copies[];
/* moves.c */
extern const struct primitives cuda_primitives;
/* random.c */
struct random_numbers;
int cuda_numbers(int device, const struct random_numbers *r, void *y, int dtype, int64_t n);
/* Float dtypes; kernels compute with half types in float32. */
enum { T_FLOATS = T_FLOAT | T(TY_F16) | T(TY_BF16) };
