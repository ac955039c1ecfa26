/* atomic_file.h - writing a file all or nothing.
**
** What is written goes to a fresh file in the same folder (links of the target are followed),
** which takes the target's place once it is complete and synced: readers see the old file or the
** new one. A target that is no regular file is written directly.
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
  bool beside;                                        /* a new file in the target's folder */
  bool unnamed;                                       /* that has no name yet */
};

int target_open(struct target *t, const char *path);  /* TY_EIO names the path */
/* Opens a file of a cache: 0600 from the first byte, and a link of its name is replaced. */
int target_open_private(struct target *t, const char *path);
/* Closes the file and puts it in place if `code`, that of the writing, is TY_OK; else the old file
** stays. */
int target_close(struct target *t, int code);
