/* infer.h - what shape() and type() of an operator are given, and the helpers that they call. */
#pragma once
#include "tensor/tensor.h"

/* shape() reads and writes ndim and dim only, type() dtype only; both may be called many times
** with more known each time, must fill in whatever follows (inputs from outputs too), and must
** return TY_OK while something is unknown. */
struct op;
struct port;
struct infer {
  const struct op *op;
  const void *param;
  int         nin, nout;
  ty_desc    *in;
  ty_desc    *out;                                    /* all of them, hidden and private ones too */
};
/* Merges dims into a slot; dim 0 is unknown. TY_ESHAPE on conflict. */
int  shape_is(struct infer *s, ty_desc *slot, int ndim, const int64_t *dim);
/* Merges what `with` knows into a slot. */
int  shape_as(struct infer *s, ty_desc *slot, const ty_desc *with);
/* Merges what each of two slots knows into the other. */
int  shape_both(struct infer *s, ty_desc *a, ty_desc *b);
/* Merges one dim into a slot whose ndim is known. */
int  shape_dim(struct infer *s, ty_desc *slot, int axis, int64_t size);
/* Merges a dtype into a slot; TY_NODTYPE: nothing is known. */
int  type_is(struct infer *s, ty_desc *slot, int dtype);
int  type_both(struct infer *s, ty_desc *a, ty_desc *b);
/* Infers the type of labels, lengths or indices, integers below n (n < 1: not known yet). An
** unknown one becomes that of data, float32 where that is a half type that does not hold them; a
** given one must hold them. */
int  type_index(struct infer *s, ty_desc *slot, const ty_desc *data, int64_t n);
/* Checks that a slot's type holds the integers below n: what op_infer does with `indices`. */
int  index_fits(struct infer *s, const ty_desc *slot, int64_t n);
/* Fails where not all of n positions are numbers of the type, which is that of `slot` (NULL: of
** parameter dtype); TY_OK while either is unknown. instead: what to do about a slot. */
int  positions_fit(struct infer *s, const ty_desc *slot, int dtype, int64_t n, const char *instead);
/* Checks that a parameter dtype of positions is one that it may have; TY_EVALUE. */
int  check_position_dtype(int64_t dtype);
/* Makes all inputs and outputs of one type: what type = NULL does. */
int  type_all(struct infer *s);
int  shape_all(struct infer *s);                      /* shapes: what shape = NULL does */
/* Fails with the argument that `slot` names (or NULL). */
int infer_fail(struct infer *s, int code, const ty_desc *slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Writes an axis counted from 0 to *out; a negative one counts from the end. TY_EVALUE outside. */
int  infer_axis(struct infer *s, int64_t axis, int ndim, int *out);
/* one operator's shapes or dtypes */
enum { INFER_SHAPES = 1, INFER_TYPES = 2 };
int  op_infer(struct infer *s, int what);

/* Makes the last failure, that of an inference, name the operator, the node (NULL: none) and the
** shapes or, for INFER_TYPES, the dtypes of several inputs. Returns code. */
int infer_explain(int code, int what, const char *op, const char *node, const struct port *in,
    const ty_desc *d, int n);
