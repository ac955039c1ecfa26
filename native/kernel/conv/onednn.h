/* onednn.h - one direction of a convolution by oneDNN: its primitive, and copies to and from the
** layouts that it needs.
**
** One call of the primitive computes `images` images of the batch. */
#pragma once
#include "kernel/conv/conv.h"
#include "kernel/onednn.h"

/* Directions. SCALED: forward with POST_SCALE. */
enum { FORWARD, DATA, WEIGHT, SCALED, PARTS };

struct onednn_shape {                                        /* everything a primitive depends on */
  struct window window;
  const ty_desc *x, *w, *y;
  int     which, act;
  int     block[OPERANDS];                            /* operand.block of the arrays */
  bool    bias;
  bool    sum;                                        /* adds to Y */
  bool    scaled;                                     /* the weight's rows are scaled */
  bool    keeps;                                      /* the packed weight is kept between runs */
  /* operands are rounded to bfloat16 when they are copied in */
  bool    rounded;
  int64_t images;                                     /* images of a call */
  /* parts of the filters, each computed by one call; `window` has the filters of one */
  int     parts;
  /* each call runs on one thread, parallel to others */
  bool    divided;
  /* rows of the output per call, copied to scratch in blocks, without padding; 0: whole images */
  int64_t rows;
};

/* Bytes of scratch: copies of arrays in the primitive's layout (0: no copy is needed), and the
** primitive's own scratch. */
struct onednn_bytes {
  size_t x, y;
  size_t w;                                           /* the weight's gradient */
  size_t packed;                                      /* a weight */
  size_t pad;                                         /* the primitive's own scratch */
};
/* Sets each member of *r to the maximum of both. */
void    onednn_bytes_widen(struct onednn_bytes *r, const struct onednn_bytes *o);

struct onednn_primitive {
  enum { NEW, READY, UNABLE } made;
  int threads;                                        /* size of the team that it was made for */
  dnnl_stream_t stream;
  dnnl_primitive_t conv;
  dnnl_primitive_t copy[OPERANDS];                    /* copies arrays; NULL: no copy is needed */
  dnnl_memory_t outside[OPERANDS], inside[OPERANDS], bias, pad;
  /* own scratch, if this team needs more than was planned */
  void *own_pad;
  int parts;
  size_t plain_part;                                  /* bytes of a part of the plain weight */
  size_t packed_part;                                 /* bytes of a part of the packed one */
  /* packed weight, part by part, of array `of` with these versions of it and of its scale; NULL:
  ** none yet */
  void *packed;
  uint64_t version, scale;
  const void *of;
};

/* Finds the scratch for all team sizes. Returns false if oneDNN has no suitable primitive. */
bool    part_bytes(const struct onednn_shape *s, struct onednn_bytes *out);
/* Makes the primitive, its copies and memory objects; p->made is READY or UNABLE then. */
void    part_make(struct onednn_primitive *p, const struct onednn_shape *s,
    const struct onednn_bytes *r);
void    part_release(struct onednn_primitive *p);
