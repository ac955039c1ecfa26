/* infer.h - the argument of an operator's shape() and type(), and helpers for them. */
#pragma once
#include "tensor/tensor.h"

/* shape() reads and writes ndim and dim only, type() dtype only. Both are called repeatedly as more
** becomes known, must fill in all that follows from what is known (inputs from outputs, too), and
** return TY_OK while something is unknown. */
struct op;
struct port;
struct infer {
  const struct op *op;
  const void *param;
  int         nin, nout;
  ty_desc    *in;
  ty_desc    *out;                                    /* with hidden and private ones */
};
/* Merges a shape into a slot (an element of `in` or `out`); a dim of 0 is unknown. Conflicts fail
** with TY_ESHAPE, here and below. */
int  shape_is(struct infer *s, ty_desc *slot, int ndim, const int64_t *dim);
/* Merges the known dims of `with` into a slot. */
int  shape_as(struct infer *s, ty_desc *slot, const ty_desc *with);
/* Merges the known dims of two slots into each other. */
int  shape_both(struct infer *s, ty_desc *a, ty_desc *b);
/* Merges one dim into a slot whose ndim is known. */
int  shape_dim(struct infer *s, ty_desc *slot, int axis, int64_t size);
/* Merges a dtype into a slot; TY_NODTYPE is unknown. Conflicts fail with TY_EDTYPE. */
int  type_is(struct infer *s, ty_desc *slot, int dtype);
/* Merges the dtypes of two slots into each other. */
int  type_both(struct infer *s, ty_desc *a, ty_desc *b);
/* Infers the dtype of labels, lengths or indices, which are integers below n (n < 1: unknown). An
** unknown one becomes that of `data`, or float32 if that is a half type that cannot represent them.
** A known one must be able to represent them. */
int  type_index(struct infer *s, ty_desc *slot, const ty_desc *data, int64_t n);
/* Checks that a slot's dtype represents all integers below n, as op_infer does for op.indices. */
int  index_fits(struct infer *s, const ty_desc *slot, int64_t n);
/* Fails if a dtype, of `slot` or with NULL of the parameter dtype, does not represent all of n
** positions; TY_OK while either is unknown. instead: advice in the error about a slot. */
int  positions_fit(struct infer *s, const ty_desc *slot, int dtype, int64_t n, const char *instead);
/* Fails with TY_EVALUE if positions must not have the dtype that a parameter asks for. */
int  check_position_dtype(int64_t dtype);
/* Makes all inputs and outputs of one dtype, as for operators with type = NULL. */
int  type_all(struct infer *s);
/* Makes all inputs and outputs of one shape, as for operators with shape = NULL. */
int  shape_all(struct infer *s);
/* Fails, naming the argument of `slot`, unless that is NULL. Returns code. */
int infer_fail(struct infer *s, int code, const ty_desc *slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Sets *out to an axis, of which a negative one counts from the end; TY_EVALUE if it is out of
** range. */
int  infer_axis(struct infer *s, int64_t axis, int ndim, int *out);
/* Runs one operator's shape() or type() (what: INFER_*), or their defaults. */
enum { INFER_SHAPES = 1, INFER_TYPES = 2 };
int  op_infer(struct infer *s, int what);

/* Makes the last failure, that of an inference, name the operator, the node (NULL: none) and the
** shapes or, for INFER_TYPES, the dtypes of several inputs. Returns code. */
int infer_explain(int code, int what, const char *op, const char *node, const struct port *in,
    const ty_desc *d, int n);
