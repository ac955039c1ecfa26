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
  int     which, act;
  int     block[OPERANDS];                            /* of the arrays, as in struct operand */
  bool    bias;
  bool    sum;                                        /* onto what Y holds */
  bool    scaled;                                     /* the weight's rows are */
  bool    keeps;                                      /* the weight's packed copy, for later runs */
  /* products of bfloat16: what is read is rounded on its way in */
  bool    rounded;
  int64_t images;                                     /* at once */
  /* of the weight, of which `window` has one: a primitive computes these filters */
  int     parts;
  bool    divided;                                    /* run by one thread, beside others */
  /* rows of the output at once, of blocks in scratch, without zeros around; 0: whole images */
  int64_t rows;
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
  dnnl_primitive_t conv;
  dnnl_primitive_t copy[OPERANDS];                    /* NULL: it takes the plain array */
  dnnl_memory_t outside[OPERANDS], inside[OPERANDS], bias, pad;
  /* where this team needs more than was planned */
  void *own_pad;
  int parts;
  size_t plain_part;                                  /* bytes of a part of the plain weight */
  size_t packed_part;                                 /* of the packed one */
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
