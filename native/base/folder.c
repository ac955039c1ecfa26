/* folder.c - folders: made with those above them, kept from other users, listed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base.h"
#include "base/system.h"

static int cannot_make(const char *path)
{
  return fail(TY_EIO, "cannot make the folder '%s': %s", path, strerror(errno));
}

/* Makes one folder. One that is there already stays as it is. */
static int make_one(const char *path, mode_t mode)
{
  struct stat st;
  if (!sys_mkdir(path, mode)) return TY_OK;
  const int why = errno;
  if (!stat(path, &st) && S_ISDIR(st.st_mode)) return TY_OK;
  errno = why == EEXIST ? ENOTDIR : why;
  return cannot_make(path);
}

/* A folder in a place that everybody may write to can be made by anybody in advance. */
static int check_private(const char *path)
{
  struct stat st;
  if (lstat(path, &st)) return cannot_make(path);
  NEED(S_ISDIR(st.st_mode), TY_EIO, "'%s' is a link or a file, not a folder of this user", path);
  NEED(st.st_uid == geteuid(), TY_EIO, "the folder '%s' belongs to another user", path);
  NEED(!(st.st_mode & 077), TY_EIO, "the folder '%s' is open to other users; chmod 700 closes it",
      path);
  return TY_OK;
}

int ty_folder_make(const char *path, int is_private)
{
  NEED(path && *path, TY_ETYPE, "ty_folder_make: the path is missing");
  char *part = mem_text(path);
  NEED(part, TY_EMEMORY, "out of memory");
  int code = TY_OK;
  for (char *s = strchr(part + 1, '/'); s && !code; s = strchr(s + 1, '/')) {
    *s = 0;
    code = make_one(part, 0777);
    *s = '/';
  }
  mem_free(part);
  TRY(code);
  TRY(make_one(path, is_private ? 0700 : 0777));
  return is_private ? check_private(path) : TY_OK;
}

static bool is_folder(int folder, const char *name)
{
  struct stat st;
  return !fstatat(folder, name, &st, 0) && S_ISDIR(st.st_mode);
}

/* Adds a name and its zero byte; a folder's name ends in a slash. */
static void add_name(struct text *names, int folder, const char *name)
{
  if (!strcmp(name, ".") || !strcmp(name, "..")) return;
  text_put(names, name, strlen(name));
  if (is_folder(folder, name)) text_put(names, "/", 1);
  text_put(names, "", 1);
}

static int read_names(const char *path, struct text *names)
{
  const int fd = sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    const int code = fail(TY_EIO, "cannot read the folder '%s': %s", path, strerror(errno));
    if (fd >= 0) sys_close(fd);
    return code;
  }
  errno = 0;
  for (struct dirent *e; (e = readdir(d)); errno = 0) add_name(names, fd, e->d_name);
  const int code = errno ? fail(TY_EIO, "cannot read the folder '%s': %s", path, strerror(errno))
                         : TY_OK;
  closedir(d);
  return code;
}

int ty_folder_list(const char *path, char *names, size_t size, size_t *needed)
{
  NEED(path && needed && (names || !size), TY_ETYPE,
      "ty_folder_list: the path or the room for names is missing");
  struct text list = { 0 };
  int code = read_names(path, &list);
  if (!code && list.lost) code = fail(TY_EMEMORY, "out of memory");
  *needed = code ? 0 : list.n;
  if (!code && list.n <= size && list.n) memcpy(names, list.s, list.n);
  text_done(&list);
  return code;
}
