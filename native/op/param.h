/* param.h - parameters of operators: fields of a struct, read from attribute texts. */
#pragma once
#include <math.h>
#include "base/base.h"

/* P_SHAPE; an entry may be NONE */
struct dims  { int64_t n; int64_t d[16]; };
struct ints  { int64_t n; int64_t d[128]; };          /* P_INTS: long lists */
struct reals { int64_t n; double  d[128]; };          /* P_FLOATS */
#define NONE INT64_MIN                                /* None, in P_INT and entries of lists */
/* number of inputs, all of which are passed */
#define INPUTS_RANGE "[1,1000000]"
#define PORTS_RANGE "[1,65536]"                       /* ports that a parameter counts */
#define SIZES_RANGE "[-2147483648,2147483647]"        /* sizes that are multiplied with others */

/* Types of parameters: type of the field, and its value for None (if `none` allows that). */
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
/* Bits that allow None: as the whole parameter, or as an entry of its list. */
enum { NONE_WHOLE = 1, NONE_ENTRY };
struct param {
  const char *name;
  int         type;
  size_t      at;                                     /* offsetof */
  /* default, as text of an attribute; NULL: the parameter is required */
  const char *init;
  const char *doc;
  const char *choice;                                 /* P_ENUM: "relu|sigmoid|tanh" */
  /* "[1,]", "[0,1]": allowed numbers, for P_SHAPE of each entry; NULL: any */
  const char *range;
  int         none;                                   /* NONE_*; 0: None is refused */
  /* P_ENUM: advice about words that other libraries accept: "gelu selu: do this; swish: do that" */
  const char *elsewhere;
};
/* Fails with TY_EVALUE at a parameter. format: prints the value that came. */
int param_fail(const char *name, const char *expected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
