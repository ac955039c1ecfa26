/* tensor.h - a typed array: descriptor, storage and offset. Always dense, row-major. Reference
** counted. */
#pragma once
#include "base/convert.h"
#include "base/dtype.h"
#include "device/device.h"

struct ty_tensor {
  ty_desc  d;                                         /* d.device repeats storage->device */
  int64_t  offset;                                    /* bytes into the storage */
  size_t   bytes;                                     /* desc_bytes(&d) */
  struct storage *storage;                            /* holds a reference */
  int32_t  refs;
  int32_t  readonly;                                  /* writes through this tensor are refused */
  struct history *history;                            /* recorded call (lazy/history.h), or NULL */
  int32_t  history_out;                               /* the output of `history` that it is */
  int32_t  made;                                      /* why there is none: MADE_* */
};

/* Drops the history of a tensor that is freed. Set by room lazy. */
extern void (*tensor_drop_history)(struct history *h);

/* Returns the address of the first element. */
static inline void *tensor_at(const ty_tensor *t) { return (char *)t->storage->data + t->offset; }

/* Sets each byte other than 0 to 1: bools of files and callers, which kernels expect to be 0 or
** 1. */
void mend_bools(uint8_t *p, size_t n);

/* Returns the bytes of t, for a task's lists. */
static inline struct access tensor_access(const ty_tensor *t)
{
  const size_t begin = (size_t)t->offset;
  return (struct access){ t->storage, begin, begin + t->bytes, false };
}

/* Makes a tensor on a storage, `offset` bytes after its begin. Takes a reference to s. */
int tensor_on(const ty_desc *d, struct storage *s, int64_t offset, ty_tensor **out);

/* Makes a tensor in the caller's memory, as tensor_on does. It is no object of ty_live. Others may
** refer to it for a while; it ends by tensor_move to no storage. */
void tensor_init(ty_tensor *t, const ty_desc *d, struct storage *s, int64_t offset);

/* Moves a tensor that only the caller uses to another storage of its device, to which it takes a
** reference. NULL: to none; the tensor can be moved again. */
void tensor_move(ty_tensor *t, struct storage *s, int64_t offset);

/* Makes a tensor of zeros on a CPU. Pages of large ones are touched at their first use. */
int tensor_new_zeros(const ty_desc *d, ty_tensor **out);

/* Bytes that a process can address. Sums of sizes up to it do not overflow. */
#define TENSOR_BYTES_MAX ((int64_t)1 << 47)

/* Returns the number of elements: 0 while an axis or the number of axes is unknown, INT64_MAX if it
** does not fit. */
int64_t desc_count(const ty_desc *d);

/* Returns whether the known sizes have a product that fits. */
bool desc_countable(const ty_desc *d);

/* Returns the bytes of all elements, SIZE_MAX if the number does not fit. */
size_t desc_bytes(const ty_desc *d);

/* Returns TY_ESHAPE if d has more than TENSOR_BYTES_MAX bytes. */
int desc_check_size(const ty_desc *d);

/* Checks that shape and dtype of d are known and that its size is possible. */
int tensor_check_desc(const ty_desc *d);

/* Returns whether the number of axes and all of them are known. */
bool desc_known(const ty_desc *d);

/* Returns whether both have the same axes. */
bool desc_same_shape(const ty_desc *a, const ty_desc *b);

/* Returns an axis counted from 0; a negative one counts from the end. */
static inline int axis_in(int64_t axis, int ndim) { return (int)(axis < 0 ? axis + ndim : axis); }

/* Takes a reference to a file of arrays (file_arrays.c) and returns it. ty_file_free drops it. */
ty_file *file_keep(ty_file *f);
