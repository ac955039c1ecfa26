/* file_encodings.h - encodings of elements in files of other engines. Private to tensor/. */
#pragma once
#include "tensor/tensor.h"

/* Elements are stored in units: one element, or a block of several that share scales. */
struct file_encoding {
  const char *name;                                   /* NULL: stored as the dtype is in memory */
  int dtype;                                          /* of the decoded elements */
  int bytes;                                          /* of a unit */
  int elements;                                       /* of a unit */
  /* Decodes n units; TY_EVALUE: the dtype cannot represent an element. */
  int (*decode)(void *to, const uint8_t *from, int64_t n);
};

/* Returns the entry of a TY_FILE_* without the bit TY_FILE_SWAPPED; NULL: there is none. */
const struct file_encoding *file_encoding_find(int encoding);
