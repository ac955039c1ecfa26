/* record_file.h - records of a RecordIO file at places that are known, read by several threads.
** (record.c reads and writes such files from one end to the other, and describes them.) */
#pragma once
#include "io/workspace.h"

#define RECORD_MAGIC 0xced7230au
enum { RECORD_WHOLE, RECORD_FIRST, RECORD_MIDDLE, RECORD_LAST, RECORD_HEAD = 8 };

struct record_file { char *path; int fd; int64_t size; };

/* Opens a file; TY_EIO names it. fd is -1 where there is none: a zero-initialised struct is not
** valid. */
int  record_file_open(struct record_file *f, const char *path);
void record_file_close(struct record_file *f);
/* Returns TY_EFORMAT: what is wrong with the record at byte `at`. */
int  record_file_broken(const struct record_file *f, int64_t at, const char *what);
int  record_file_bytes(const struct record_file *f, int64_t at, void *out, size_t n);
/* Reads the head at `at`. flag: RECORD_WHOLE ...; bytes: of what follows it. */
int  record_file_head(const struct record_file *f, int64_t at, uint32_t *flag, int64_t *bytes);
/* Reads the parts of the record at `at`, with the magic between them, into `text`, which grows
** (NULL: nothing is kept). n: its bytes; next: where the next record begins. */
int  record_file_read(const struct record_file *f, int64_t at, struct buffer *text, int64_t *n,
    int64_t *next);

/* What precedes the file of an image in a record. listed: the labels follow the head, else there is
** one, in it. */
struct image_head { const float *label; int64_t labels, bytes, id; bool listed; };
int  image_head_read(const char *text, int64_t n, struct image_head *out);
