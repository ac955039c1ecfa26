/* source.h - sources of samples (ty_source_*): the fields of a sample, where each comes from, and
** the steps applied to it; and making one field of one sample on any thread. */
#pragma once
#include "io/record_file.h"
#include "io/transform.h"

enum { MOST_FIELDS = 16 };                            /* of a sample */

/* ROWS of an array, image FILES, IMAGES in records and their LABELS, arrays GIVEN with each
** batch. */
enum field_origin { ROWS, FILES, IMAGES, LABELS, GIVEN };

struct sample_field {
  enum field_origin origin;
  int flag;                                             /* argument of image_measure */
  int64_t count;                                        /* number of samples; GIVEN: 0 */
  ty_tensor *rows;
  const char *data;                                     /* of `rows` */
  ty_desc row;
  char **path;
  ty_image_step *step;
  int steps;
  int given;                                            /* index among the given arrays */
};

struct ty_source {
  int refs;
  int fields;
  int given;                                            /* number of fields that are GIVEN */
  struct sample_field field[MOST_FIELDS];
  struct record_file file;
  int64_t *offset;
  struct arena texts;
};

struct ty_source *source_keep(struct ty_source *r);

/* A field of a sample; a number has no dimensions. Its memory belongs to the source or the maker,
** and is valid until the maker's next call. */
struct sample_value { ty_desc d; const void *p; };

/* A thread's memory for making samples. Zero-initialised: empty. */
struct sample_maker { struct picture picture; struct buffer text; struct image_head head; };
void sample_maker_done(struct sample_maker *m);

/* Makes field i of a sample; call it for the fields of a sample in order. given: the sample's given
** arrays. */
int sample_make(const struct ty_source *r, int i, int64_t sample, ty_tensor *const *given,
    struct rng rng, struct sample_maker *m, struct sample_value *out);
