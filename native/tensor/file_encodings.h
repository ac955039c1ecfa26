/* file_encodings.h - how files of other engines write elements. Private to tensor. */
#pragma once
#include "tensor/tensor.h"

/* Elements are written in units: one element, or a block of several with common scales. */
struct file_encoding {
  const char *name;                                   /* NULL: the bytes of the dtype */
  int dtype;                                          /* of the elements once they are read */
  int bytes;                                          /* of a unit */
  int elements;                                       /* of a unit */
  /* n units; TY_EVALUE: an element that the dtype cannot hold */
  int (*decode)(void *to, const uint8_t *from, int64_t n);
};

/* Returns the row of TY_FILE_*, without TY_FILE_SWAPPED; NULL where there is none. */
const struct file_encoding *file_encoding_find(int encoding);
