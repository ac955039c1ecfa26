/* atomic_file.c - see atomic_file.h.
**
** Where the system supports unnamed files (O_TMPFILE), the new file gets its name .tycho-PID-N when
** it is complete, just before it is renamed: a killed process leaves nothing. Elsewhere it has that
** name from the start, and a killed process leaves it in the folder. Each writer holds a lock on
** its file, so the next write into the folder can tell abandoned files and removes them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic_file.h"
#include "base/system.h"

enum { TRIES = 100 }; /* names tried before giving up */

static int fail_write(const char *path)
{
  const int code = errno == ENOMEM ? TY_EMEMORY : TY_EIO;
  return fail(code, "cannot write '%s': %s", path, strerror(errno));
}

/* -- names ------------------------------------------------------------------------------------- */

/* Returns the length of a path up to its last slash, inclusive; 0: it has none. */
static int folder_length(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? (int)(slash + 1 - path) : 0;
}

static int next_name(struct target *t)
{
  static int serial;
  struct text name = { 0 };
  int n = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
  text_add(&name, "%.*s.tycho-%ld-%d", folder_length(t->path), t->path, (long)getpid(), n);
  mem_free(t->temporary);
  t->temporary = name.lost ? NULL : name.s;
  NEED(t->temporary, TY_EMEMORY, "out of memory");
  return TY_OK;
}

/* Returns whether a name is one that next_name makes. */
static bool is_temporary_name(const char *name)
{
  int end = 0;
  return sscanf(name, ".tycho-%*d-%*d%n", &end) == 0 && end && !name[end];
}

/* -- abandoned files --------------------------------------------------------------------------- */

static void remove_unlocked(const struct target *t, const char *name)
{
  struct text path = { 0 };
  text_add(&path, "%.*s%s", folder_length(t->path), t->path, name);
  int fd = path.lost ? -1 : sys_open(path.s, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
  if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB)) unlink(path.s);
  if (fd >= 0) sys_close(fd);
  text_done(&path);
}

/* Removes temporary files that killed processes have left in the target's folder; does nothing if
** the last call was for the same folder. Failures are ignored. */
static void remove_abandoned(const struct target *t)
{
  static uint64_t last;
  struct text name = { 0 };
  struct stat st = { 0 };
  text_add(&name, "%.*s.", folder_length(t->path), t->path);
  int fd = name.lost ? -1 : sys_open(name.s, O_RDONLY | O_DIRECTORY, 0);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (fd >= 0 && !d) sys_close(fd);
  text_done(&name);
  if (!d) return;
  fstat(dirfd(d), &st);
  const uint64_t here = (uint64_t)st.st_dev * 0x9E3779B97F4A7C15u ^ (uint64_t)st.st_ino;
  const bool known = __atomic_exchange_n(&last, here, __ATOMIC_RELAXED) == here;
  for (struct dirent *e; !known && (e = readdir(d));)
    if (is_temporary_name(e->d_name)) remove_unlocked(t, e->d_name);
  closedir(d);
}

/* -- opening ----------------------------------------------------------------------------------- */

/* Opens an unnamed file in the folder. *fd stays -1 if its file system does not support them. */
static int open_unnamed(struct target *t, mode_t mode, int *fd)
{
  struct text folder = { 0 };
  text_add(&folder, "%.*s.", folder_length(t->path), t->path);
  NEED(!folder.lost, TY_EMEMORY, "out of memory");
  *fd = access("/proc/self/fd", X_OK) ? -1 : sys_open(folder.s, O_TMPFILE | O_WRONLY, mode);
  text_done(&folder);
  t->unnamed = *fd >= 0;
  return TY_OK;
}

/* Opens a file under a name that is free. If another process holds the lock for a moment
** (remove_unlocked), it is about to remove the file: the next name is tried. */
static int open_named(struct target *t, mode_t mode, int *fd)
{
  for (int tries = 0; tries < TRIES; tries++) {
    TRY(next_name(t));
    *fd = sys_open(t->temporary, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (*fd < 0 && errno != EEXIST) break;
    if (*fd < 0) continue;
    if (!flock(*fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) return TY_OK;
    sys_close(*fd);
    *fd = -1;
  }
  int code = fail_write(t->path);
  mem_free(t->temporary);
  t->temporary = NULL;
  return code;
}

/* Opens the new file. old: attributes of the file that it will replace, or NULL. A replacement
** starts as 0600 and then gets the old mode, so that others can never read what replaces a private
** file. */
static int open_beside(struct target *t, const struct stat *old, int *fd)
{
  const mode_t mode = old ? 0600 : 0666;
  remove_abandoned(t);
  TRY(open_unnamed(t, mode, fd));
  if (*fd < 0) TRY(open_named(t, mode, fd));
  t->beside = true;
  return old && fchmod(*fd, old->st_mode & 07777) ? fail_write(t->path) : TY_OK;
}

static int open_private(struct target *t, const char *path, int *fd)
{
  const struct stat ours = { .st_mode = 0600 };
  t->path = mem_text(path);
  NEED(t->path, TY_EMEMORY, "out of memory");
  return open_beside(t, &ours, fd);
}

static int open_descriptor(struct target *t, const char *path, int *fd)
{
  struct stat st;
  bool exists = !stat(path, &st);
  char *real = exists ? sys_realpath(path) : NULL;
  if (exists && !real) return fail_write(path); /* else a symbolic link would be replaced */
  t->path = mem_text(exists ? real : path);
  free(real);
  NEED(t->path, TY_EMEMORY, "out of memory");
  if (!exists || S_ISREG(st.st_mode)) return open_beside(t, exists ? &st : NULL, fd);
  *fd = sys_open(t->path, O_WRONLY, 0);
  return *fd < 0 ? fail_write(path) : TY_OK;
}

static int open_by(struct target *t, const char *path,
    int (*opener)(struct target *t, const char *path, int *fd))
{
  *t = (struct target){ .fd = -1 };
  int code = opener(t, path, &t->fd);
  if (!code && !(t->file = sys_fdopen(t->fd, "wb"))) code = fail_write(t->path);
  if (!code) return TY_OK;
  if (t->fd >= 0) sys_close(t->fd);
  return target_close(t, code);
}

int target_open(struct target *t, const char *path) { return open_by(t, path, open_descriptor); }

int target_open_private(struct target *t, const char *path)
{
  return open_by(t, path, open_private);
}

/* -- closing ----------------------------------------------------------------------------------- */

static int give_name(struct target *t)
{
  for (int tries = 0; tries < TRIES; tries++) {
    TRY(next_name(t));
    if (!sys_link(t->fd, t->temporary)) return TY_OK;
    if (errno != EEXIST) break;
  }
  int code = fail_write(t->path);
  mem_free(t->temporary);
  t->temporary = NULL;
  return code;
}

/* Syncs the folder, so that the new name survives a power cut like the bytes do. That the process
** may not read the folder, or that its file system cannot sync one, is no error. */
static int sync_folder(const struct target *t)
{
  struct text name = { 0 };
  text_add(&name, "%.*s.", folder_length(t->path), t->path);
  NEED(!name.lost, TY_EMEMORY, "out of memory");
  const int fd = sys_open(name.s, O_RDONLY | O_DIRECTORY, 0);
  text_done(&name);
  if (fd < 0) return errno == EACCES ? TY_OK : fail_write(t->path);
  const int code = sys_fsync(fd) && errno != EINVAL ? fail_write(t->path) : TY_OK;
  sys_close(fd);
  return code;
}

int target_close(struct target *t, int code)
{
  FILE *f = t->file;
  int lock = -1;
  if (!code && (ferror(f) || fflush(f))) code = fail_write(t->path);
  if (!code && t->beside && sys_fsync(t->fd)) code = fail_write(t->path);
  if (!code && t->beside) lock = dup(t->fd);              /* keeps the lock until the rename */
  if (!code && t->unnamed) {
    flock(t->fd, LOCK_EX | LOCK_NB);
    code = give_name(t);
  }
  if (f && fclose(f) && !code) code = fail_write(t->path);
  if (!code && t->beside && sys_rename(t->temporary, t->path)) code = fail_write(t->path);
  if (code && t->temporary) unlink(t->temporary);
  if (!code && t->beside) code = sync_folder(t);
  if (lock >= 0) sys_close(lock);
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
