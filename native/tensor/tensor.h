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
  int32_t  history_out;                               /* which output of `history` it is */
  int32_t  made;                                      /* MADE_*: why `history` is NULL */
};

/* Called with the history of a tensor that is freed. Set by lazy/. */
extern void (*tensor_drop_history)(struct history *h);

/* Returns the address of the first element. */
static inline void *tensor_at(const ty_tensor *t) { return (char *)t->storage->data + t->offset; }

/* Sets each byte other than 0 to 1. For bools from files and callers: kernels expect 0 or 1. */
void mend_bools(uint8_t *p, size_t n);

/* Returns the access to all bytes of t, for a task's lists. */
static inline struct access tensor_access(const ty_tensor *t)
{
  const size_t begin = (size_t)t->offset;
  return (struct access){ t->storage, begin, begin + t->bytes, false };
}

/* Makes a tensor over a storage, `offset` bytes from its start. Adds a reference to s. */
int tensor_on(const ty_desc *d, struct storage *s, int64_t offset, ty_tensor **out);

/* Makes a tensor as tensor_on does, but in memory of the caller, and ty_live does not count it.
** Others may hold references to it for a while. End it with tensor_move(t, NULL, 0). */
void tensor_init(ty_tensor *t, const ty_desc *d, struct storage *s, int64_t offset);

/* Moves a tensor that only the caller uses to another storage on its device, and adds a reference
** to that. s NULL: it has no storage until it is moved again. */
void tensor_move(ty_tensor *t, struct storage *s, int64_t offset);

/* Makes a tensor of zeros on a CPU. A large one takes memory page by page, when it is first
** used. */
int tensor_new_zeros(const ty_desc *d, ty_tensor **out);

/* Bytes that a process can address. Sums of a few sizes up to it do not overflow. */
#define TENSOR_BYTES_MAX ((int64_t)1 << 47)

/* Returns the number of elements: 0 while an axis or ndim is unknown, INT64_MAX on overflow. */
int64_t desc_count(const ty_desc *d);

/* Returns whether the product of the known axes fits in 64 bits. */
bool desc_countable(const ty_desc *d);

/* Returns the bytes of all elements; SIZE_MAX on overflow. */
size_t desc_bytes(const ty_desc *d);

/* Returns TY_ESHAPE if d has more than TENSOR_BYTES_MAX bytes. */
int desc_check_size(const ty_desc *d);

/* Checks that shape and dtype of d are known and that its size is possible. */
int tensor_check_desc(const ty_desc *d);

/* Returns whether ndim and all axes are known. */
bool desc_known(const ty_desc *d);

/* Returns whether both have the same axes. */
bool desc_same_shape(const ty_desc *a, const ty_desc *b);

/* Returns an axis counted from 0; a negative one counts from the end. */
static inline int axis_in(int64_t axis, int ndim) { return (int)(axis < 0 ? axis + ndim : axis); }

/* Takes a reference to a file of arrays (file_arrays.c) and returns it. ty_file_free drops it. */
ty_file *file_keep(ty_file *f);
