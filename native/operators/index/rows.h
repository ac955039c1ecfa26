/* rows.h - rows of an array that coordinates name. */
#pragma once
#include "op/infer.h"

/* Infers the shape of the rows of `array` that `index` (M, ...) names by M coordinates each. */
int indexed_rows_shape(struct infer *s, const ty_desc *array, const ty_desc *index, ty_desc *rows);
