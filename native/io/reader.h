/* reader.h - a source of samples, one after the other: what a kind of iterator is, apart from
** batches and threads.
**
** A kind opens its files, says what a sample looks like (`data`, `label`: descriptors without
** the batch axis) and gives sample after sample into memory of that size; `more` false ends an
** epoch. Labels are float32. A reader is used by one thread at a time. The rows of the kinds are
** in iter.c.
*/
#pragma once
#include <zlib.h>
#include "tensor/tensor.h"

struct options { const ty_attr *attr; int n; };

const char *option_text(const struct options *o, const char *key, const char *otherwise);
int option_int(
    const struct options *o, const char *key, int64_t otherwise, int64_t least, int64_t *out);
int option_real(const struct options *o, const char *key, double otherwise, double *out);
int option_bool(const struct options *o, const char *key, bool otherwise, bool *out);
/* Reads an option that is a shape: "(1, 28, 28)". */
int option_shape(const struct options *o, const char *key, const char *otherwise, ty_desc *out);

struct reader {
  const struct reader_kind *kind;
  ty_desc data, label;
  /* set before a rewind: what follows is a function of it */
  int64_t epoch;
};

struct reader_kind {
  const char *name;
  int  (*open)(const struct options *o, struct reader **out);
  int  (*next)(struct reader *r, void *data, float *label, bool *more);
  int  (*rewind)(struct reader *r);
  void (*close)(struct reader *r);
  bool drops;                                         /* an incomplete batch is dropped */
  /* an incomplete batch does not say how many rows it lacks */
  bool silent;
};

extern const struct reader_kind reader_mnist, reader_csv, reader_libsvm, reader_raw,
    reader_image_record, reader_image_det_record;

/* Finds the samples [*from, *to) of `count` that part `index` of `parts` reads. */
static inline void cut_part(int64_t count, int64_t parts, int64_t index, int64_t *from, int64_t *to)
{
  *from = count * index / parts;
  *to = count * (index + 1) / parts;
}
int option_part(const struct options *o, int64_t *parts, int64_t *index);

/* -- files, plain or compressed by gzip -------------------------------------------------------- */

struct gz_stream {
  FILE *file;
  char *path;
  uint8_t *input;
  z_stream z;
  bool compressed;
  bool inside;                                        /* a compressed member has not ended */
};

int  stream_open(struct gz_stream *s, const char *path); /* TY_EIO names the file */
/* Reads bytes; fewer at the end only. */
int  stream_read(struct gz_stream *s, void *out, size_t bytes, size_t *got);
int  stream_rewind(struct gz_stream *s);
void stream_close(struct gz_stream *s);                  /* zero-initialised is fine */

struct line_reader {
  struct gz_stream stream;
  char *text;
  size_t begin, end, capacity;
  int64_t number;                                       /* of the last line; 0: none was read */
  bool after_return;                                    /* a line feed belongs to the last line */
};

/* Reads the next line that is not blank, without its end, which is a line feed, a carriage return
** or both; NULL past the last; it may be written to. A byte order mark of UTF-8 is skipped,
** TY_EFORMAT: UTF-16. */
int  lines_next(struct line_reader *l, char **line);
int  lines_rewind(struct line_reader *l);
void lines_close(struct line_reader *l);
