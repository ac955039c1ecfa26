/* atomic_file.c - writing a file all or nothing; see atomic_file.h. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic_file.h"
#include "base/system.h"

static int cannot(const char *path)
{
  int code = errno == ENOMEM ? TY_EMEMORY : TY_EIO;
  return fail(code, "cannot write '%s': %s", path, strerror(errno));
}

static int open_temporary(struct target *t, int *fd)
{
  static int serial;
  const char *slash = strrchr(t->path, '/');
  int folder = slash ? (int)(slash + 1 - t->path) : 0;
  for (int tries = 0; tries < 100; tries++) {
    struct text name = { 0 };
    int n = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
    text_add(&name, "%.*s.tycho-%ld-%d", folder, t->path, (long)getpid(), n);
    NEED(!name.lost, TY_EMEMORY, "out of memory");
    *fd = sys_open(name.s, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (*fd >= 0) {
      t->temporary = name.s;
      return TY_OK;
    }
    text_done(&name);
    if (errno != EEXIST) break;
  }
  return cannot(t->path);
}

static int open_descriptor(struct target *t, const char *path, int *fd)
{
  struct stat st;
  bool exists = !stat(path, &st);
  char *real = exists ? sys_realpath(path) : NULL;
  if (exists && !real) return cannot(path);             /* a link would be replaced, not followed */
  t->path = mem_text(exists ? real : path);
  free(real);
  NEED(t->path, TY_EMEMORY, "out of memory");
  if (exists && !S_ISREG(st.st_mode)) {
    *fd = sys_open(t->path, O_WRONLY, 0);
    return *fd < 0 ? cannot(path) : TY_OK;
  }
  TRY(open_temporary(t, fd));
  if (exists && fchmod(*fd, st.st_mode & 07777)) return cannot(path);
  return TY_OK;
}

int target_open(struct target *t, const char *path)
{
  *t = (struct target){ .fd = -1 };
  int code = open_descriptor(t, path, &t->fd);
  if (!code && !(t->file = sys_fdopen(t->fd, "wb"))) code = cannot(t->path);
  if (!code) return TY_OK;
  if (t->fd >= 0) sys_close(t->fd);
  return target_close(t, code);
}

int target_close(struct target *t, int code)
{
  FILE *f = t->file;
  if (!code && (ferror(f) || fflush(f))) code = cannot(t->path);
  if (!code && t->temporary && sys_fsync(t->fd)) code = cannot(t->path);
  if (f && fclose(f) && !code) code = cannot(t->path);
  if (!code && t->temporary && sys_rename(t->temporary, t->path)) code = cannot(t->path);
  if (code && t->temporary) unlink(t->temporary);
  mem_free(t->temporary);
  mem_free(t->path);
  return code;
}

int ty_file_write(const char *path, const void *const *part, const size_t *bytes, int n)
{
  struct target t;
  NEED(path && (part || !n), TY_ETYPE, "ty_file_write: the path or the bytes are missing");
  TRY(target_open(&t, path));
  for (int i = 0; i < n && !ferror(t.file); i++) fwrite(part[i], 1, bytes[i], t.file);
  return target_close(&t, TY_OK);
}
