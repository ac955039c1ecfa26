/* param.h - parameters of operators: fields of a struct, read from attribute texts. */
#pragma once
#include <math.h>
#include "base/base.h"

/* P_SHAPE: n = -1 is None; an entry may be NONE */
struct dims  { int64_t n; int64_t d[16]; };
struct ints  { int64_t n; int64_t d[128]; };          /* P_INTS: long lists */
struct reals { int64_t n; double  d[128]; };          /* P_FLOATS */
#define NONE INT64_MIN                                /* None, in P_INT and entries of lists */
#define INPUTS_RANGE "[1,1000000]"                    /* of counts of inputs, all of them given */
#define PORTS_RANGE "[1,65536]"                       /* of counts that make ports by themselves */
#define SIZES_RANGE "[-2147483648,2147483647]"        /* of sizes that are multiplied with others */

/* Types of parameters, with the fields that hold them and their None (if `none` allows it). */
enum {
  P_END,
  P_INT,   /* int64_t; NONE */
  P_FLOAT, /* double; NAN */
  P_BOOL,  /* int64_t; -1 */
  P_ENUM,  /* int64_t, an index of `choice`; -1 */
  P_DTYPE, /* int64_t; -1 */
  P_TEXT,  /* const char *; NULL */
  P_SHAPE, /* struct dims; n = -1 */
  P_INTS,  /* struct ints; n = -1 */
  P_FLOATS /* struct reals; n = -1 */
};
/* Where a parameter takes None: in its place, or as an entry of its list. */
enum { NONE_WHOLE = 1, NONE_ENTRY };
struct param {
  const char *name;
  int         type;
  size_t      at;                                     /* offsetof */
  /* default, as attribute text; NULL: required */
  const char *init;
  const char *doc;
  const char *choice;                                 /* P_ENUM: "relu|sigmoid|tanh" */
  /* "[1,]", "[0,1]": checked, of P_SHAPE each entry; NULL: any */
  const char *range;
  int         none;                                   /* NONE_*; 0: None is refused */
  /* P_ENUM: what to do instead of words that others have: "gelu selu: do this; swish: do that" */
  const char *elsewhere;
};
/* Fails with TY_EVALUE at a parameter, of whose value `format` is the text. */
int param_fail(const char *name, const char *expected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
