/* replay.c - a fuzzing program of the folder above without libFuzzer: it gets the files of the
** folders that are named, each once.
*/
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Without a sanitizer bytes are not counted (fuzz.h). */
int __sanitizer_install_malloc_and_free_hooks(
    void (*take)(const volatile void *, size_t), void (*give)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *p);
int __sanitizer_install_malloc_and_free_hooks(
    void (*take)(const volatile void *, size_t), void (*give)(const volatile void *))
{
  return 0;
}
size_t __sanitizer_get_allocated_size(const volatile void *p) { return 0; }

static int give(const char *path)
{
  enum { MOST = 1 << 20 };
  FILE *f = fopen(path, "rb");
  uint8_t *bytes = malloc(MOST);
  if (!f || !bytes) return perror(path), 0;
  const size_t n = fread(bytes, 1, MOST, f);
  fclose(f);
  uint8_t *exact = realloc(bytes, n ? n : 1);
  LLVMFuzzerTestOneInput(exact, n);
  free(exact);
  return 1;
}

int main(int argc, char **argv)
{
  int given = 0;
  for (int i = 1; i < argc; i++) {
    DIR *d = opendir(argv[i]);
    for (struct dirent *e; d && (e = readdir(d));) {
      char path[4096];
      snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
      if (*e->d_name != '.') given += give(path);
    }
    if (d) closedir(d);
  }
  printf("%d inputs\n", given);
  return given ? 0 : 1;
}
