/* infer.h - what shape() and type() of an operator are given, and the helpers that they call. */
#pragma once
#include "tensor/tensor.h"

/* shape() reads and writes ndim and dim only, type() dtype only; both may be called many times
** with more known each time, must fill in whatever follows (inputs from outputs too), and must
** return TY_OK while something is unknown. */
struct op;
struct infer {
  const struct op *op;
  const void *param;
  int         nin, nout;
  /* out: all outputs, hidden and private ones too */
  ty_desc    *in, *out;
};
/* merges; dim 0 is unknown; TY_ESHAPE on conflict */
int  shape_is(struct infer *s, ty_desc *slot, int ndim, const int64_t *dim);
/* slot takes what `with` knows */
int  shape_as(struct infer *s, ty_desc *slot, const ty_desc *with);
/* each takes what the other knows */
int  shape_both(struct infer *s, ty_desc *a, ty_desc *b);
/* one dim of a slot whose ndim is known */
int  shape_dim(struct infer *s, ty_desc *slot, int axis, int64_t size);
/* TY_NODTYPE: nothing to say */
int  type_is(struct infer *s, ty_desc *slot, int dtype);
int  type_both(struct infer *s, ty_desc *a, ty_desc *b);
/* Of labels, lengths and indices, whole numbers below n: a type that nothing says is that of data,
** float32 where that is a half type that does not hold them; given, it must hold them. n < 1: not
** known yet. */
int  type_index(struct infer *s, ty_desc *slot, const ty_desc *data, int64_t n);
/* the last of this alone, which op_infer does with what `indices` says */
int  index_fits(struct infer *s, const ty_desc *slot, int64_t n);
/* Fails where not all of n positions are numbers of the type, which is that of `slot` (NULL: of
** parameter dtype); TY_OK while either is unknown. instead: what to do about a slot. */
int  positions_fit(struct infer *s, const ty_desc *slot, int dtype, int64_t n, const char *instead);
/* the types that a parameter dtype of positions may have; TY_EVALUE */
int  check_position_dtype(int64_t dtype);
/* every input and output the same: what type = NULL does */
int  type_all(struct infer *s);
int  shape_all(struct infer *s);                      /* shapes: what shape = NULL does */
/* Fails with the argument that `slot` names (or NULL). */
int infer_fail(struct infer *s, int code, const ty_desc *slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* negative from the end; TY_EVALUE outside */
int  axis_of(struct infer *s, int64_t axis, int ndim, int *out);
/* one operator's shapes or dtypes */
enum { INFER_SHAPES = 1, INFER_TYPES = 2 };
int  op_infer(struct infer *s, int what);
