/* atomic_file.h - replaces a file as a whole or not at all.
**
** Data goes to a new file in the folder of the target (symbolic links are followed), which is
** renamed over the target once it is complete and synced: readers see the old file or the new one.
** A target that is not a regular file, such as a pipe, is written directly.
**
**   struct target t;
**   TRY(target_open(&t, path));
**   return target_close(&t, put_everything(t.file));
*/
#pragma once
#include "base/base.h"

struct target {
  char *path, *temporary;
  FILE *file;
  int fd;
  /* fd is a new file in that folder */
  bool beside;
  bool unnamed;                                       /* this file has no name yet */
};

/* Opens the file to write and sets t->file. Fails with TY_EIO, which names the path; then there is
** nothing to close. */
int target_open(struct target *t, const char *path);
/* Does the same for a file of a cache: its mode is 0600 from the first byte on, and a symbolic link
** of that name is replaced, not followed. */
int target_open_private(struct target *t, const char *path);
/* Closes the file. With code TY_OK, the result of the writing, it becomes the target; otherwise the
** old file stays. Returns `code`, or what failed here. */
int target_close(struct target *t, int code);
