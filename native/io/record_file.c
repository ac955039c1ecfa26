/* record_file.c - see record_file.h. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/system.h"
#include "io/record_file.h"

int record_file_open(struct record_file *f, const char *path)
{
  struct stat info;
  f->path = mem_text(path);
  if (!f->path) return TY_EMEMORY;
  f->fd = sys_open(path, O_RDONLY, 0);
  if (f->fd < 0 || fstat(f->fd, &info) != 0) {
    fail(TY_EIO, "cannot open '%s': %s", path, strerror(errno));
    fail_argument(path, NULL, NULL);
    return TY_EIO;
  }
  f->size = (int64_t)info.st_size;
  return TY_OK;
}

void record_file_close(struct record_file *f)
{
  if (f->fd >= 0) sys_close(f->fd);
  mem_free(f->path);
  *f = (struct record_file){ .fd = -1 };
}

int record_file_broken(const struct record_file *f, int64_t at, const char *what)
{
  fail(TY_EFORMAT, "'%s', byte %lld: %s", f->path, (long long)at, what);
  fail_argument(f->path, NULL, NULL);
  return TY_EFORMAT;
}

int record_file_bytes(const struct record_file *f, int64_t at, void *out, size_t n)
{
  for (size_t done = 0; done < n;) {
    ssize_t got = sys_pread(f->fd, (char *)out + done, n - done, (off_t)(at + (int64_t)done));
    if (got < 0) return fail(TY_EIO, "cannot read '%s': %s", f->path, strerror(errno));
    if (got == 0) return record_file_broken(f, at, "the file ends within a record");
    done += (size_t)got;
  }
  return TY_OK;
}

int record_file_head(const struct record_file *f, int64_t at, uint32_t *flag, int64_t *bytes)
{
  uint32_t head[2];
  if (at < 0 || at > f->size - RECORD_HEAD)
    return record_file_broken(f, at, "the file ends within the head of a record");
  TRY(record_file_bytes(f, at, head, RECORD_HEAD));
  if (head[0] != RECORD_MAGIC)
    return record_file_broken(f, at, "no record begins here (wrong magic)");
  *flag = head[1] >> 29;
  *bytes = head[1] & 0x1fffffff;
  if (*bytes > f->size - RECORD_HEAD - at)
    return record_file_broken(f, at, "the file ends within a record");
  return TY_OK;
}

int record_file_read(
    const struct record_file *f, int64_t at, struct buffer *text, int64_t *n, int64_t *next)
{
  const uint32_t magic = RECORD_MAGIC;
  uint32_t flag = RECORD_WHOLE;
  int64_t bytes = 0, total = 0;
  for (bool inside = false;; inside = true) {
    TRY(record_file_head(f, at, &flag, &bytes));
    if (inside != (flag == RECORD_MIDDLE || flag == RECORD_LAST))
      return record_file_broken(f, at, "the parts of a record are out of order");
    if (text) {
      size_t want = (size_t)(total + 4 + bytes);
      void *grown = want <= text->n ? text->p : mem_grow(text->p, want);
      if (!grown) return TY_EMEMORY;
      *text = (struct buffer){ grown, MAX(want, text->n) };
      if (inside) memcpy((char *)text->p + total, &magic, 4);
      TRY(record_file_bytes(
          f, at + RECORD_HEAD, (char *)text->p + total + (inside ? 4 : 0), (size_t)bytes));
    }
    total += bytes + (inside ? 4 : 0);
    at += RECORD_HEAD + (int64_t)align_up((size_t)bytes, 4);
    if (flag == RECORD_WHOLE || flag == RECORD_LAST) break;
  }
  *n = total;
  *next = at;
  return TY_OK;
}

/* -- images in records ------------------------------------------------------------------------- */

/* Offsets in the head of an image record. Its first word is the number of labels after the head; 0:
** one label, in the head. */
enum {
  IMAGE_LABEL = 4,
  IMAGE_ID    = 8, /* two words of 8 bytes */
  IMAGE_HEAD  = 24 /* its size */
};

int image_head_read(const char *text, int64_t n, struct image_head *out)
{
  uint32_t flag;
  NEED(n >= IMAGE_HEAD, TY_EFORMAT, "the record is shorter than the header of an image");
  memcpy(&flag, text, sizeof flag);
  memcpy(&out->id, text + IMAGE_ID, sizeof out->id);
  NEED((n - IMAGE_HEAD) / 4 >= flag, TY_EFORMAT, "the record ends within its labels");
  out->listed = flag > 0;
  out->labels = MAX(flag, 1);
  out->bytes = IMAGE_HEAD + 4 * (int64_t)flag;
  out->label = (const float *)(const void *)(text + (flag ? IMAGE_HEAD : IMAGE_LABEL));
  return TY_OK;
}
