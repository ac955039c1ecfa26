/* source.h - sources of samples (ty_source_*): the fields of a sample, where they come from, and
** the steps that change them; and how a thread makes one field of one sample. */
#pragma once
#include "io/record_file.h"
#include "io/transform.h"

enum { MOST_FIELDS = 16 };

/* ROWS of an array, image FILES, IMAGES of records and their LABELS, arrays GIVEN with the batch */
enum field_origin { ROWS, FILES, IMAGES, LABELS, GIVEN };

struct sample_field {
  enum field_origin origin;
  int flag;                                             /* of image_measure */
  int64_t count;                                        /* of samples; GIVEN: 0 */
  ty_tensor *rows;
  const char *data;                                     /* of rows */
  ty_desc row;
  char **path;
  ty_image_step *step;
  int steps;
  int given;                                            /* which of the given arrays */
};

struct ty_source {
  int refs;
  int fields;
  int given;                                            /* fields of given arrays */
  struct sample_field field[MOST_FIELDS];
  struct record_file file;
  int64_t *offset;
  struct arena texts;
};

struct ty_source *source_keep(struct ty_source *r);

/* A field of a sample; a number has no dimensions. It is in memory of the source or of the maker,
** and is good until the maker's next call. */
struct sample_value { ty_desc d; const void *p; };

/* What a thread makes samples with. Zero-initialised is fine. */
struct sample_maker { struct picture picture; struct buffer text; struct image_head head; };
void sample_maker_done(struct sample_maker *m);

/* Makes field i of a sample; fields of one sample come in order. given: the sample's arrays. */
int sample_make(const struct ty_source *r, int i, int64_t sample, ty_tensor *const *given,
    struct rng rng, struct sample_maker *m, struct sample_value *out);
