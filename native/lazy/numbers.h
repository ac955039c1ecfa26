/* numbers.h - numbers that scripts compute, such as a learning rate: arguments of a program, not
** part of its structure.
**
** x * 0.5 is a call of _mul_scalar, whose number is an attribute. Calls of one operator on arrays
** of one shape, type and device have one form. The first number of a form stays an attribute, since
** most numbers are constants of the script. A call of the form with another number becomes
** broadcast_mul of x and an array of one element.
*/
#pragma once
#include "imperative/call_cache.h"

/* Returns the form of a call, a hash; 0: it has no number that could be an argument. *argument:
** whether its number (cached_call.number) is one. Notes the first number of a new form. The caller
** holds the lock of backlog.h. */
uint64_t number_form(struct cached_call *c, bool *argument);
/* Returns the operator that takes the number of a call that has a form as an array; *first: whether
** that array is its first input. */
const struct op *number_operator(const struct cached_call *c, bool *first);
