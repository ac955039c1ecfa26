/* folder.c - the entries of a folder (ty_folder_list). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/system.h"
#include "tensor/tensor.h"

/* Adds "d" or "f" and the name, with its final 0. */
static int add_entry(int folder, const struct dirent *e, struct text *out)
{
  struct stat info;
  if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) return TY_OK;
  bool inner = fstatat(folder, e->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
  text_add(out, "%s%s", inner ? "d" : "f", e->d_name);
  text_put(out, "", 1);
  NEED(!out->lost, TY_EMEMORY, "out of memory");
  return TY_OK;
}

int ty_folder_list(const char *path, ty_tensor **out)
{
  NEED(path && out, TY_ETYPE, "folder_list: null argument");
  struct text list = { 0 };
  *out = NULL;
  int fd = sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    fail(TY_EIO, "cannot read the folder '%s': %s", path, strerror(errno));
    if (fd >= 0) sys_close(fd);
    fail_argument(path, NULL, NULL);
    return TY_EIO;
  }
  int code = TY_OK;
  errno = 0;
  for (struct dirent *e; code == TY_OK && (e = readdir(d)); errno = 0)
    code = add_entry(dirfd(d), e, &list);
  if (code == TY_OK && errno)
    code = fail(TY_EIO, "cannot read the folder '%s': %s", path, strerror(errno));
  closedir(d);
  const ty_desc desc = { .dtype = TY_U8, .device = TY_CPU, .ndim = 1, .dim = { (int64_t)list.n } };
  if (code == TY_OK && list.n) code = ty_tensor_new(&desc, out);
  if (code == TY_OK && list.n) code = ty_tensor_write(*out, list.s, list.n);
  text_done(&list);
  return code;
}
