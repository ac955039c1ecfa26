/* registry.h - what the core (not an operator file) may ask the registry beyond op.h. */
#pragma once
#include "op/signature.h"

/* Registers an operator at run time; it is never removed. */
int    op_add(const struct op *op);
/* Returns the value of an attribute; NULL: it is not given. */
const char *attr_given(const ty_attr *attr, int n, const char *key);
/* Returns a parameter's type as text: "int in [1,] or None". */
const char *param_type(const struct param *p, char *buffer, size_t size);
bool   op_has_param(const struct op *op, const char *key);
/* Returns the operator's own text of a parameter's name; NULL: it has none of that name. */
const char *op_param_name(const struct op *op, const char *key);
/* Returns the value of a numeric parameter. */
double op_number(const struct op *op, const void *param, const char *key, bool *found);
/* Returns a parameter that is a list of axes or sizes; NULL: there is none of that name. */
const struct dims *op_dims(const struct op *op, const void *param, const char *key);
const struct reals *op_reals(const struct op *op, const void *param, const char *key);
/* Returns whether parameter `key` is one of some words and this one is chosen. */
bool op_word(const struct op *op, const void *param, const char *key, const char *word);
/* Returns the parameter that counts the inputs; "": they are as many as are given; NULL: the
** operator is not variadic. */
const char *op_variadic(const struct op *op);
const ty_attr *op_counted(
    const struct op *op, const ty_attr *attr, int *nattr, int nin, ty_attr *more, char number[16]);
bool   shape_parse(const char *s, struct dims *out);  /* "(2, 3)", "[2,3]", "2" */
/* Returns whether monitors call the operator's inputs by name, not input<i>. */
bool   monitor_input_named(const struct op *op);
/* Registers formula operators from a file, as ty_op_row writes them (user_formula.c). */
int    formula_define(const char *lines);
