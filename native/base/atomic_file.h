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
  /* written beside the target, which is a regular file or none yet; without a name so far */
  bool beside, unnamed;
};

int target_open(struct target *t, const char *path);  /* TY_EIO names the path */
/* of a cache: 0600 from the first byte, and a link in its place is replaced, not followed */
int target_open_private(struct target *t, const char *path);
/* code of the writing; the old file stays unless it is TY_OK */
int target_close(struct target *t, int code);
