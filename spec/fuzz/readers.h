/* readers.h - a reader of samples (io/reader.h) over a file: two epochs. */
#pragma once
#include "fuzz.h"
#include "io/reader.h"

enum { MOST_SAMPLES = 1 << 12 };

static inline void read_epoch(struct reader *r)
{
  char *row = calloc(1, desc_bytes(&r->data));
  float *label = calloc((size_t)desc_count(&r->label), sizeof *label);
  bool more = true;
  MUST(row && label);
  for (int i = 0; more && i < MOST_SAMPLES; i++)
    if (r->kind->next(r, row, label, &more)) break;
  free(row);
  free(label);
}

static inline void read_all(const struct reader_kind *kind, const ty_attr *attr, int n)
{
  struct options o = { attr, n };
  struct reader *r = NULL;
  if (kind->open(&o, &r)) return;
  read_epoch(r);
  if (!kind->rewind(r)) read_epoch(r);
  kind->close(r);
}

/* Compressed by gzip, a byte may stand for a thousand. */
static inline size_t unpacked(const uint8_t *data, size_t size)
{
  return size > 1 && data[0] == 0x1f && data[1] == 0x8b ? size * 1032 : size;
}
