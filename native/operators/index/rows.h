/* rows.h - rows of an array that are selected by coordinates. */
#pragma once
#include "op/infer.h"

/* Infers the shape of the rows of `array` that `index` (M, ...) selects, by M coordinates per
** row. */
int indexed_rows_shape(struct infer *s, const ty_desc *array, const ty_desc *index, ty_desc *rows);
