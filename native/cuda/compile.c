/* compile.c - sources in CUDA C++ become functions of a device: compiled by NVRTC, kept for the
** process, and on disk for the next one.
**
** An image is known by all it follows from: options, architecture, compiler, source. A file of
** the cache repeats that text, so that neither two sources of one hash nor a damaged file can
** give a wrong kernel. Where the compiler does not know an architecture, PTX for the newest below
** it is compiled, which the driver translates.
*/
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic_file.h"
#include "base/system.h"
#include "cuda/cuda.h"

enum { BUCKETS = 1024, OPTIONS = 16 };
struct kernel_image {
  struct kernel_image *next;
  uint64_t hash;
  char *key;
  cu_module module[CUDA_DEVICES];
  char *bytes;
  size_t nbytes;
};
static struct kernel_image *images[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns a text's hash, FNV-1a. */
static uint64_t hash_of(const char *s, size_t n)
{
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 1099511628211u;
  return h;
}

/* -- the cache on disk ------------------------------------------------------------------------- */

/* What a file of the cache begins with, before the key and the image. */
struct header {
  char magic[8];                                      /* "TYCHOCU1" */
  uint64_t nkey;                                      /* bytes of the key */
  uint64_t nbytes;                                    /* bytes of the image */
  uint64_t hash;                                      /* of the image */
};

/* Gives the path of an image's file. Returns false where there is no folder for it. TYCHO_CACHE
** names one; empty: none. */
static bool cache_path(uint64_t hash, char *path, size_t size, bool make)
{
  const char *own = getenv("TYCHO_CACHE"), *xdg = env_text("XDG_CACHE_HOME", "");
  const char *home = env_text("HOME", "");
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
  return snprintf(path, size, "%s/%016llx.cubin", folder, (unsigned long long)hash) < (int)size;
}

static bool read_body(FILE *f, const struct header *h, struct kernel_image *m)
{
  size_t n = strlen(m->key);
  if (memcmp(h->magic, "TYCHOCU1", 8) || h->nkey != n) return false;
  if (h->nbytes > (uint64_t)1 << 30) return false;
  char *key = mem_new(n + 1), *bytes = mem_new((size_t)h->nbytes + 1);
  bool good = key && bytes && fread(key, 1, n, f) == n && !memcmp(key, m->key, n) &&
      fread(bytes, 1, h->nbytes, f) == h->nbytes && hash_of(bytes, h->nbytes) == h->hash;
  mem_free(key);
  if (good)
    m->bytes = bytes, m->nbytes = (size_t)h->nbytes;
  else
    mem_free(bytes);
  return good;
}

/* Opens a file of the cache that no other user may have written, as what is in it runs on the
** device. NULL: there is none. */
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

static bool read_image(struct kernel_image *m)
{
  char path[4096];
  struct header h;
  FILE *f = cache_path(m->hash, path, sizeof path, false) ? open_ours(path) : NULL;
  if (!f) return false;
  bool good = fread(&h, sizeof h, 1, f) == 1 && read_body(f, &h, m);
  fclose(f);
  return good;
}

/* Writes an image to the cache. A cache that cannot be written costs time only. */
static void write_image(const struct kernel_image *m)
{
  char path[4096];
  struct target t;
  struct header h = { "", strlen(m->key), m->nbytes, hash_of(m->bytes, m->nbytes) };
  memcpy(h.magic, "TYCHOCU1", 8);
  if (!cache_path(m->hash, path, sizeof path, true) || target_open_private(&t, path)) return;
  bool good = fwrite(&h, sizeof h, 1, t.file) == 1 &&
      fwrite(m->key, 1, h.nkey, t.file) == h.nkey &&
      fwrite(m->bytes, 1, m->nbytes, t.file) == m->nbytes;
  target_close(&t, good ? TY_OK : fail(TY_EIO, "cannot write %s", path));
}

/* -- NVRTC ------------------------------------------------------------------------------------- */

/* Architectures that NVRTC compiles for, in rising order; 0 ends them. */
static const int *known_archs(void)
{
  static int list[64];
  int n = 0;
  if (*list) return list;
  if (nvrtc_api.GetNumSupportedArchs(&n) || n >= COUNT(list) || nvrtc_api.GetSupportedArchs(list))
    *list = 0;
  return list;
}

int cuda_least_arch(void) { return *known_archs(); }

/* Returns the newest architecture that NVRTC knows up to this one: itself, or one whose PTX runs on
** it, too. */
static int compiled_arch(int arch)
{
  int known = 0;
  for (const int *a = known_archs(); *a; a++)
    if (*a <= arch) known = *a;
  return known ? known : arch;
}

static int log_of(nvrtc_program p, const char *name)
{
  size_t n = 0;
  char *log = !nvrtc_api.GetProgramLogSize(p, &n) ? mem_new(n + 1) : NULL;
  if (log) nvrtc_api.GetProgramLog(p, log);
  if (log) log[MIN(n, (size_t)600)] = 0; /* the first errors say it */
  int code = fail(TY_EINTERNAL, "the CUDA source of %s does not compile: %s", name,
      log ? log : "there is no log");
  mem_free(log);
  return code;
}

static int take_image(nvrtc_program p, bool ptx, struct kernel_image *m)
{
  size_t n = 0;
  int bad = ptx ? nvrtc_api.GetPTXSize(p, &n) : nvrtc_api.GetCUBINSize(p, &n);
  m->bytes = bad ? NULL : mem_new(n + 1);
  NEED(m->bytes, TY_EINTERNAL, "NVRTC gives no image of a kernel");
  m->nbytes = n;
  bad = ptx ? nvrtc_api.GetPTX(p, m->bytes) : nvrtc_api.GetCUBIN(p, m->bytes);
  NEED(!bad, TY_EINTERNAL, "NVRTC gives no image of a kernel");
  return TY_OK;
}

static int run_compiler(struct kernel_image *m, const char *source, const char *const *options,
    const char *name, int arch)
{
  nvrtc_program p;
  const char *list[OPTIONS + 2];
  char target[64];
  int known = compiled_arch(arch), n = 0;
  bool ptx = known != arch;
  snprintf(target, sizeof target, "--gpu-architecture=%s_%d", ptx ? "compute" : "sm", known);
  list[n++] = target;
  for (int i = 0; options && options[i] && n < OPTIONS; i++) list[n++] = options[i];
  NEED(!nvrtc_api.CreateProgram(&p, source, name, 0, NULL, NULL), TY_EMEMORY,
      "NVRTC takes no source");
  int code = nvrtc_api.CompileProgram(p, n, list) ? log_of(p, name) : take_image(p, ptx, m);
  nvrtc_api.DestroyProgram(&p);
  return code;
}

/* -- images in this process -------------------------------------------------------------------- */

/* Returns a text of all that the image follows from. */
static char *key_of(const char *source, const char *const *options, int arch)
{
  struct text t = { 0 };
  text_add(&t, "%d %d %d\n", arch, cuda_nvrtc_version(), cuda_driver_version());
  for (int i = 0; options && options[i]; i++) text_add(&t, "%s\n", options[i]);
  text_put(&t, source, strlen(source));
  char *key = t.lost ? NULL : mem_text(t.s);
  text_done(&t);
  return key;
}

static void drop_image(struct kernel_image *m)
{
  mem_free(m->key);
  mem_free(m->bytes);
  mem_free(m);
}

/* Compiles an image, or reads it from the cache. Call under the lock. */
static int make_image(char *key, uint64_t hash, const char *source, const char *const *options,
    const char *name, int arch, struct kernel_image **out)
{
  struct kernel_image *m = NEW(struct kernel_image);
  if (!m) return mem_free(key), TY_EMEMORY;
  m->key = key;
  m->hash = hash;
  int code = TY_OK;
  if (!read_image(m)) {
    code = run_compiler(m, source, options, name, arch);
    if (!code) write_image(m);
  }
  if (code) return drop_image(m), code;
  m->next = images[hash % BUCKETS];
  *out = images[hash % BUCKETS] = m;
  return TY_OK;
}

static int find_image(const char *source, const char *const *options, const char *name, int arch,
    struct kernel_image **out)
{
  char *key = key_of(source, options, arch);
  NEED(key, TY_EMEMORY, "out of memory");
  uint64_t hash = hash_of(key, strlen(key));
  for (struct kernel_image *m = images[hash % BUCKETS]; m; m = m->next) {
    if (m->hash != hash || strcmp(m->key, key)) continue;
    mem_free(key);
    *out = m;
    return TY_OK;
  }
  return make_image(key, hash, source, options, name, arch, out);
}

static int function_of(int device, const char *source, const char *const *options,
    const char *name, cu_function *out)
{
  struct kernel_image *m = NULL;
  cu_module *module;
  TRY(find_image(source, options, name, cuda_device(device)->arch, &m));
  module = &m->module[device_id(device)];
  if (!*module) TRY(cuda_check(cu_api.ModuleLoadData(module, m->bytes), "loading a kernel"));
  return cuda_check(cu_api.ModuleGetFunction(out, *module, name), "finding a kernel");
}

int cuda_compile(int device, const char *source, const char *const *options, const char *name,
    cu_function *out)
{
  TRY(cuda_enter(device));
  pthread_mutex_lock(&lock);
  int code = function_of(device, source, options, name, out);
  pthread_mutex_unlock(&lock);
  return code;
}

/* bytes of shared memory that every kernel may have */
enum { PLAIN_SHARED = 48 << 10 };

int cuda_launch(int device, cu_function f, int64_t blocks, int block, size_t shared, void **params)
{
  NEED(blocks > 0 && blocks <= INT32_MAX, TY_EUNSUPPORTED,
      "a kernel of %lld blocks cannot be launched", (long long)blocks);
  if (shared > PLAIN_SHARED)
    TRY(cuda_check(cu_api.FuncSetAttribute(f, CU_DYNAMIC_SHARED, (int)shared),
        "asking for shared memory"));
  cuda_count(device, 1, 0);
  return cuda_check(cu_api.LaunchKernel(f, (unsigned)blocks, 1, 1, (unsigned)block, 1, 1,
      (unsigned)shared, cuda_stream(device), params, NULL), "launching a kernel");
}
