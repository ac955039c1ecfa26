/* record_file.h - random access to the records of a RecordIO file, by several threads at once.
** record.c describes the format, and reads and writes files sequentially. */
#pragma once
#include "io/workspace.h"

#define RECORD_MAGIC 0xced7230au                      /* first word of a record */
enum { RECORD_WHOLE, RECORD_FIRST, RECORD_MIDDLE, RECORD_LAST, RECORD_HEAD = 8 };

struct record_file { char *path; int fd; int64_t size; };

/* Opens a file; TY_EIO names it. A struct without an open file has fd -1, not 0. */
int  record_file_open(struct record_file *f, const char *path);
void record_file_close(struct record_file *f);
/* Fails with TY_EFORMAT: what is wrong with the record at byte `at`. */
int  record_file_broken(const struct record_file *f, int64_t at, const char *what);
/* Reads n bytes at `at`; TY_EFORMAT if the file ends before. */
int  record_file_bytes(const struct record_file *f, int64_t at, void *out, size_t n);
/* Reads the head of a part at `at`. flag: RECORD_*; bytes: length of what follows the head. */
int  record_file_head(const struct record_file *f, int64_t at, uint32_t *flag, int64_t *bytes);
/* Reads the record at `at`, joining its parts, into `text`, which grows (NULL: the record is only
** skipped). n: bytes of the record; next: offset of the next one. */
int  record_file_read(const struct record_file *f, int64_t at, struct buffer *text, int64_t *n,
    int64_t *next);

/* What precedes the image file in a record. `label` points into the record. listed: the labels
** follow the head, else there is one, in the head. bytes: length of head and labels. */
struct image_head { const float *label; int64_t labels, bytes, id; bool listed; };
int  image_head_read(const char *text, int64_t n, struct image_head *out);
