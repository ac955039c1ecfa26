/* onednn.h - one direction of a convolution as oneDNN primitives: the convolution itself and the
** copies around it.
**
** `images` images of the batch are computed at once. Where the primitive needs a blocked layout,
** arrays are copied to or from it.
*/
#pragma once
#include "kernel/conv/conv.h"
#include "kernel/onednn.h"

enum { FORWARD, DATA, WEIGHT, SCALED, PARTS };        /* SCALED: forward with POST_SCALE */

struct onednn_shape {                                        /* of one direction */
  struct window window;
  const ty_desc *x, *w, *y;
  /* block: of the arrays, as in struct operand */
  int     which, act, block[OPERANDS];
  bool    bias, sum;                                  /* sum: onto what Y holds */
  /* the weight's rows are; its packed copy is kept for later runs */
  bool    scaled, keeps;
  /* products of bfloat16: what is read is rounded on its way in */
  bool    rounded;
  int64_t images;                                     /* at once */
  /* of the weight, of which `window` has one: a primitive computes these filters */
  int     parts;
  bool    divided;                                    /* run by one thread, beside others */
};

/* Bytes that a direction needs beside its arrays: blocked operands of `images` images, and the
** primitive's own. */
/* Bytes of copies in the primitive's own form; 0: none is needed. */
struct onednn_bytes {
  size_t x, y;
  size_t w;                                           /* of a weight's gradient */
  size_t packed;                                      /* of a weight */
  size_t pad;                                         /* scratch of the primitive */
};
/* Widens *r to what holds *o too. */
void    onednn_bytes_widen(struct onednn_bytes *r, const struct onednn_bytes *o);

struct onednn_primitive {
  enum { NEW, READY, UNABLE } made;
  int threads;                                        /* for which it was made */
  dnnl_stream_t stream;
  /* copy NULL: the primitive takes the plain array */
  dnnl_primitive_t conv, copy[OPERANDS];
  dnnl_memory_t outside[OPERANDS], inside[OPERANDS], bias, pad;
  /* where this team needs more than was planned */
  void *own_pad;
  int parts;
  size_t plain_part, packed_part;                     /* bytes of a part of the weight */
  /* blocked weight, part by part, of this version of that array and of its scale; or NULL */
  void *packed;
  uint64_t version, scale;
  const void *of;
};

/* Returns false where oneDNN has no primitive. */
bool    part_bytes(const struct onednn_shape *s, struct onednn_bytes *out);
void    part_make(struct onednn_primitive *p, const struct onednn_shape *s,
    const struct onednn_bytes *r);
void    part_release(struct onednn_primitive *p);
