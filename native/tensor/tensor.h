/* tensor.h - a typed array: descriptor, storage and offset. Always dense, row-major. Reference
** counted. */
#pragma once
#include "base/convert.h"
#include "base/dtype.h"
#include "device/device.h"

struct ty_tensor {
  ty_desc  d;                                         /* d.device repeats storage->device */
  int64_t  offset;                                    /* bytes into the storage */
  struct storage *storage;
  int32_t  refs;
  int32_t  readonly;
  /* Where it comes from (lazy/history.h): a node, and which output of it; NULL: a plain array. */
  struct history *history;
  int32_t  history_out;
  int32_t  made;                                      /* without a history: why */
};
/* Drops the history of a tensor that is freed. */
extern void (*tensor_drop_history)(struct history *h);
static inline void *tensor_at(const ty_tensor *t) { return (char *)t->storage->data + t->offset; }
/* makes 1 of each byte other than 0: bools from files and callers, which kernels take for 0 or 1 */
void mend_bools(uint8_t *p, size_t n);
/* Returns the bytes of t, for a task's lists. */
struct access tensor_access(const ty_tensor *t);
/* keeps s */
int     tensor_on(const ty_desc *d, struct storage *s, int64_t offset, ty_tensor **out);
/* on a CPU; large ones are touched at first use */
int     tensor_new_zeros(const ty_desc *d, ty_tensor **out);
int64_t desc_count(const ty_desc *d);                 /* elements; 0 while anything is unknown */
/* what a process can address: sums of sizes below it do not overflow */
#define TENSOR_BYTES_MAX ((int64_t)1 << 47)
size_t  desc_bytes(const ty_desc *d);
/* TY_ESHAPE: more bytes than a machine has addresses */
int     desc_check_size(const ty_desc *d);
/* complete, of a known dtype, and countable */
int     tensor_check_desc(const ty_desc *d);
bool    desc_known(const ty_desc *d);                 /* every dim known */
bool    desc_same_shape(const ty_desc *a, const ty_desc *b);
/* the axis from 0; a negative one counts from the end */
static inline int axis_in(int64_t axis, int ndim) { return (int)(axis < 0 ? axis + ndim : axis); }
/* Takes a reference to a file of arrays (file_arrays.c); ty_file_free gives it back. */
ty_file *file_keep(ty_file *f);
