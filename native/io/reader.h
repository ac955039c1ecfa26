/* reader.h - a sequential source of samples: what differs between kinds of iterators. Batches and
** threads are in iter.c.
**
** A kind opens its files, sets the descriptors of a sample (`data`, `label`: without the batch
** axis) and writes one sample after the other to memory of that size; an epoch ends when `next`
** sets *more to false. Labels are float32. One thread at a time uses a reader. iter.c has the table
** of kinds.
*/
#pragma once
#include <zlib.h>
#include "tensor/tensor.h"

struct options { const ty_attr *attr; int n; };

/* Returns the text of an option, borrowed; `otherwise` if it is not given. */
const char *option_text(const struct options *o, const char *key, const char *otherwise);
/* Read an option of some type; TY_EVALUE if its text is invalid or, for integers, below `least`. */
int option_int(
    const struct options *o, const char *key, int64_t otherwise, int64_t least, int64_t *out);
int option_real(const struct options *o, const char *key, double otherwise, double *out);
int option_bool(const struct options *o, const char *key, bool otherwise, bool *out);
/* Reads an option that is a shape: "(1, 28, 28)". */
int option_shape(const struct options *o, const char *key, const char *otherwise, ty_desc *out);

struct reader {
  const struct reader_kind *kind;
  ty_desc data, label;
  /* number of the epoch, set before `rewind`: random choices depend on it */
  int64_t epoch;
};

struct reader_kind {
  const char *name;
  int  (*open)(const struct options *o, struct reader **out);
  int  (*next)(struct reader *r, void *data, float *label, bool *more);
  int  (*rewind)(struct reader *r);
  void (*close)(struct reader *r);
  bool drops;                                         /* incomplete batches are dropped */
  /* incomplete batches do not report `pad` */
  bool silent;
};

extern const struct reader_kind reader_mnist, reader_csv, reader_libsvm, reader_raw,
    reader_image_record, reader_image_det_record;

/* Computes the samples [*from, *to) of `count` that belong to part `index` of `parts`. */
static inline void cut_part(int64_t count, int64_t parts, int64_t index, int64_t *from, int64_t *to)
{
  *from = count * index / parts;
  *to = count * (index + 1) / parts;
}
/* Reads the options part_index and num_parts. */
int option_part(const struct options *o, int64_t *parts, int64_t *index);

/* -- files, plain or compressed by gzip -------------------------------------------------------- */

struct gz_stream {
  FILE *file;
  char *path;
  uint8_t *input;
  z_stream z;
  bool compressed;
  bool inside;                                        /* within a compressed member */
};

int  stream_open(struct gz_stream *s, const char *path); /* failures name the file */
/* Reads bytes; *got is less only at the end. */
int  stream_read(struct gz_stream *s, void *out, size_t bytes, size_t *got);
int  stream_rewind(struct gz_stream *s);
void stream_close(struct gz_stream *s);                  /* a zero-initialised one, too */

struct line_reader {
  struct gz_stream stream;
  char *text;
  size_t begin, end, capacity;
  /* number of the last line read; 0: none yet */
  int64_t number;
  /* a line feed now would belong to the last line */
  bool after_return;
};

/* Reads the next line that is not blank, without its end (a line feed, a carriage return or both);
** *line is NULL past the last one. The caller may write to it until the next call. A byte order
** mark of UTF-8 is skipped; UTF-16 fails with TY_EFORMAT. */
int  lines_next(struct line_reader *l, char **line);
int  lines_rewind(struct line_reader *l);
void lines_close(struct line_reader *l);
