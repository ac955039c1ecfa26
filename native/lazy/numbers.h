/* numbers.h - numbers that scripts compute, such as a learning rate: arguments of a program, not
** part of its structure.
**
** x * 0.5 is a call of _mul_scalar, whose number is an attribute. The first number of a call of
** some form (operator, shape, type) stays an attribute, since most are constants of the script. A
** call of the same form with another number is taken as broadcast_mul of x and an array of one
** element.
*/
#pragma once
#include "imperative/call_cache.h"

/* Returns the form of a call, as a hash of it without its number (cached_call.number); 0: it has no
** number that could be an argument. *argument: whether the number is one. Notes the number of a
** form that is new. Call it under the lock of backlog.h. */
uint64_t number_form(struct cached_call *c, bool *argument);
/* Returns the operator that takes the number of such a call as an array; *first: whether that array
** is its first input. */
const struct op *number_operator(const struct cached_call *c, bool *first);
