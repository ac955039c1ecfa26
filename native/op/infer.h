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
/* every input and output the same: what type = NULL does */
int  type_all(struct infer *s);
int  shape_all(struct infer *s);                      /* likewise: what shape = NULL does */
/* slot (or NULL) names the argument */
int infer_fail(struct infer *s, int code, const ty_desc *slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* negative from the end; TY_EVALUE outside */
int  axis_of(struct infer *s, int64_t axis, int ndim, int *out);
/* one operator's shapes or dtypes */
enum { INFER_SHAPES = 1, INFER_TYPES = 2 };
int  op_infer(struct infer *s, int what);
