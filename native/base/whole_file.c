/* whole_file.c - see whole_file.h. Memory is a file's size, or up to twice the bytes read if the
** size is unknown (a pipe) or the file grows meanwhile.
*/
#include <errno.h>
#include <sys/stat.h>
#include "base/base.h"
#include "base/system.h"
#include "base/whole_file.h"

enum { PIECE_BYTES = 1 << 16 };

static int read_all(FILE *f, const char *path, char **data, size_t *n)
{
  struct stat st;
  size_t capacity = !fstat(fileno(f), &st) && st.st_size > 0 ? (size_t)st.st_size + 1 : PIECE_BYTES;
  *data = mem_new(capacity);
  NEED(*data, TY_EMEMORY, "out of memory: the file '%s'", path);
  for (;;) {
    size_t got = fread(*data + *n, 1, capacity - *n, f);
    *n += got;
    if (*n < capacity && !got)
      return ferror(f) ? fail(TY_EIO, "cannot read '%s': %s", path, strerror(errno)) : TY_OK;
    if (*n < capacity) continue;
    char *grown = mem_grow(*data, capacity = capacity * 2 + PIECE_BYTES);
    NEED(grown, TY_EMEMORY, "out of memory: the file '%s'", path);
    *data = grown;
  }
}

int file_read(const char *path, char **data, size_t *n)
{
  FILE *f = sys_fopen(path, "rb");
  *data = NULL;
  *n = 0;
  int code = f ? read_all(f, path, data, n)
               : fail(TY_EIO, "cannot open '%s': %s", path, strerror(errno));
  if (f) fclose(f);
  if (!code) return (*data)[*n] = 0, TY_OK;
  fail_argument(path, NULL, NULL);
  mem_free(*data);
  return code;
}
