/* folder.c - makes folders, with their parents, and checks that they are private. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base.h"
#include "base/system.h"

static int cannot_make(const char *path)
{
  return fail(TY_EIO, "cannot make the folder '%s': %s", path, strerror(errno));
}

/* Makes one folder. One that exists stays as it is. */
static int make_one(const char *path, mode_t mode)
{
  struct stat st;
  if (!sys_mkdir(path, mode)) return TY_OK;
  const int why = errno;
  if (!stat(path, &st) && S_ISDIR(st.st_mode)) return TY_OK;
  errno = why == EEXIST ? ENOTDIR : why;
  return cannot_make(path);
}

/* Checks that a folder belongs to this user and is closed to others: where everyone may write
** (/tmp), anyone could have made it in advance. */
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
