/* cache.c - see cache.h. A file contains its key and a hash of its contents, so that neither
** colliding keys nor damaged files give wrong contents. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic_file.h"
#include "base/system.h"
#include "cuda/cache.h"

/* The head of a file; key and contents follow. */
struct header {
  char magic[8];                                      /* "TYCHOCU1" */
  uint64_t nkey;                                      /* bytes of the key */
  uint64_t nbytes;                                    /* bytes of the contents */
  uint64_t hash;                                      /* of the contents */
};
static const char MAGIC[8] = { 'T', 'Y', 'C', 'H', 'O', 'C', 'U', '1' };

uint64_t cache_hash(const char *s, size_t n)
{
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 1099511628211u;
  return h;
}

/* Writes the path of a key's file to `path`. make: creates the folder. Returns false if there is no
** folder. TYCHO_CACHE names the folder; if it is set but empty, the cache is off. */
static bool cache_path(const char *key, const char *ending, char *path, size_t size, bool make)
{
  const char *own = getenv("TYCHO_CACHE"), *xdg = env_text("XDG_CACHE_HOME", "");
  const char *home = env_text("HOME", "");
  const unsigned long long hash = cache_hash(key, strlen(key));
  char folder[3072];
  if (own)
    snprintf(folder, sizeof folder, "%s", own);
  else if (*xdg)
    snprintf(folder, sizeof folder, "%s/tycho", xdg);
  else
    snprintf(folder, sizeof folder, *home ? "%s/.cache/tycho" : "%s", home);
  if (!*folder) return false;
  for (char *s = strchr(folder + 1, '/'); make && s; s = strchr(s + 1, '/')) {
    *s = 0;
    sys_mkdir(folder, 0700);
    *s = '/';
  }
  if (make) sys_mkdir(folder, 0700);
  return snprintf(path, size, "%s/%016llx.%s", folder, hash, ending) < (int)size;
}

/* Opens a file that only this user can have written, since its contents run on the device. Returns
** NULL if there is none. */
static FILE *open_ours(const char *path)
{
  struct stat st;
  const int fd = sys_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
  const bool ours = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
      st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
  FILE *f = ours ? sys_fdopen(fd, "rb") : NULL;
  if (fd >= 0 && !f) sys_close(fd);
  return f;
}

static bool read_body(FILE *f, const struct header *h, const char *key, char **out, size_t *nout)
{
  const size_t n = strlen(key);
  if (memcmp(h->magic, MAGIC, sizeof MAGIC) || h->nkey != n) return false;
  if (h->nbytes > (uint64_t)1 << 30) return false;
  char *key_found = mem_new(n + 1), *bytes = mem_new((size_t)h->nbytes + 1);
  const bool good = key_found && bytes && fread(key_found, 1, n, f) == n &&
      !memcmp(key_found, key, n) && fread(bytes, 1, h->nbytes, f) == h->nbytes &&
      cache_hash(bytes, h->nbytes) == h->hash;
  mem_free(key_found);
  if (!good) return mem_free(bytes), false;
  *out = bytes;
  *nout = (size_t)h->nbytes;
  return true;
}

bool cache_read(const char *key, const char *ending, char **bytes, size_t *n)
{
  char path[4096];
  struct header h;
  FILE *f = cache_path(key, ending, path, sizeof path, false) ? open_ours(path) : NULL;
  if (!f) return false;
  bool good = fread(&h, sizeof h, 1, f) == 1 && read_body(f, &h, key, bytes, n);
  fclose(f);
  return good;
}

void cache_write(const char *key, const char *ending, const char *bytes, size_t n)
{
  char path[4096];
  struct target t;
  struct header h = { "", strlen(key), n, cache_hash(bytes, n) };
  memcpy(h.magic, MAGIC, sizeof MAGIC);
  if (!cache_path(key, ending, path, sizeof path, true) || target_open_private(&t, path)) return;
  bool good = fwrite(&h, sizeof h, 1, t.file) == 1 && fwrite(key, 1, h.nkey, t.file) == h.nkey &&
      fwrite(bytes, 1, n, t.file) == n;
  target_close(&t, good ? TY_OK : fail(TY_EIO, "cannot write %s", path));
}
