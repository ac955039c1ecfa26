/* registry.h - functions about operators for the core; operator files use op.h alone. */
#pragma once
#include "op/signature.h"

/* Registers an operator at run time; it is never removed. */
int    op_add(const struct op *op);
/* Returns the value of an attribute; NULL: it is not in the list. */
const char *attr_given(const ty_attr *attr, int n, const char *key);
/* Returns a parameter's type as text: "int in [1,] or None". */
const char *param_type(const struct param *p, char *buffer, size_t size);
/* Returns whether the operator has a parameter of that name. */
bool   op_has_param(const struct op *op, const char *key);
/* Returns a parameter's name as the operator's own text, which lives as long as it; NULL: there is
** no such parameter. */
const char *op_param_name(const struct op *op, const char *key);
/* Returns the value of a numeric parameter; *found tells whether there is one of that name. */
double op_number(const struct op *op, const void *param, const char *key, bool *found);
/* Returns a P_SHAPE parameter; NULL: there is none of that name. */
const struct dims *op_dims(const struct op *op, const void *param, const char *key);
/* Returns a P_FLOATS parameter; NULL: there is none of that name. */
const struct reals *op_reals(const struct op *op, const void *param, const char *key);
/* Returns whether `key` is a P_ENUM parameter with the value `word`. */
bool op_word(const struct op *op, const void *param, const char *key, const char *word);
/* Returns the name of the parameter that counts the inputs; "": there is none, and any number may
** be passed; NULL: the operator is not variadic. */
const char *op_variadic(const struct op *op);
/* Returns attr with the number of inputs of a variadic operator added, in `more`, which has space
** for *nattr + 1 entries; or attr itself if that is not needed. number: memory for the text. nin:
** -1 if unknown. */
const ty_attr *op_counted(
    const struct op *op, const ty_attr *attr, int *nattr, int nin, ty_attr *more, char number[16]);
bool   shape_parse(const char *s, struct dims *out);  /* "(2, 3)", "[2,3]", "2" */
/* Returns whether monitors call the operator's inputs by name, not input<i>. */
bool   monitor_input_named(const struct op *op);
/* Registers formula operators from the lines of a file, as ty_op_row writes them
** (user_formula.c). */
int    formula_define(const char *lines);
