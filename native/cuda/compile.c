/* compile.c - compiles CUDA C++ sources by NVRTC to functions of a device. Results are kept in the
** process and on disk.
**
** The key of an image is everything that it depends on: options, architecture, compiler, source
** without comments. If the compiler does not know the architecture, it compiles PTX for the newest
** lower one, which the driver translates. */
#include <pthread.h>
#include "cuda/cache.h"
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

/* -- NVRTC ------------------------------------------------------------------------------------- */

/* Returns the architectures that NVRTC supports, ascending, ended by 0. */
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

/* Returns the newest architecture known to NVRTC that is not above this one. */
static int compiled_arch(int arch)
{
  int known = 0;
  for (const int *a = known_archs(); *a; a++)
    if (*a <= arch) known = *a;
  return known ? known : arch;
}

static int fail_compile(nvrtc_program p, const char *name)
{
  size_t n = 0;
  char *log = !nvrtc_api.GetProgramLogSize(p, &n) ? mem_new(n + 1) : NULL;
  if (log) nvrtc_api.GetProgramLog(p, log);
  if (log) log[MIN(n, (size_t)600)] = 0; /* the first errors are enough */
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
  int code = nvrtc_api.CompileProgram(p, n, list) ? fail_compile(p, name) : take_image(p, ptx, m);
  nvrtc_api.DestroyProgram(&p);
  return code;
}

/* -- images in this process -------------------------------------------------------------------- */

/* Returns the end of the comment that begins at s; NULL if there is none. */
static const char *skip_comment(const char *s)
{
  if (s[0] != '/' || (s[1] != '/' && s[1] != '*')) return NULL;
  if (s[1] == '/') return s + strcspn(s, "\n");
  const char *end = strstr(s + 2, "*/");
  return end ? end + 2 : s + strlen(s);
}

/* Returns the end of the string or character constant that begins at s. */
static const char *skip_literal(const char *s)
{
  const char quote = *s++;
  while (*s && *s != quote && *s != '\n') s += *s == '\\' && s[1] ? 2 : 1;
  return *s == quote ? s + 1 : s;
}

/* Adds one line of a source without comments and trailing blanks, unless it is empty then. Returns
** the start of the next line. A comment of several lines belongs to the line on which it begins. */
static const char *add_code_line(struct text *t, const char *s)
{
  static const char directive[] = "#line ";
  const size_t begin = t->n;
  if (!strncmp(s, directive, sizeof directive - 1)) {
    text_add(t, "#line 1");
    s += sizeof directive - 1;
    s += strspn(s, "0123456789");
  }
  while (*s && *s != '\n') {
    const char *next = skip_comment(s);
    if (next) {
      text_put(t, " ", 1);
    }
    else {
      next = *s == '"' || *s == '\'' ? skip_literal(s) : s + 1;
      text_put(t, s, (size_t)(next - s));
    }
    s = next;
  }
  while (!t->lost && t->n > begin && t->s[t->n - 1] == ' ') t->s[--t->n] = 0;
  if (t->n > begin) text_put(t, "\n", 1);
  return *s ? s + 1 : s;
}

/* Returns the key of an image. It contains neither comments nor line numbers of the source, so that
** changing comments keeps the image. The key is itself a source that compiles to the image. */
static char *make_key(const char *source, const char *const *options, int arch)
{
  struct text t = { 0 };
  text_add(&t, "%d %d %d\n", arch, cuda_nvrtc_version(), cuda_driver_version());
  for (int i = 0; options && options[i]; i++) text_add(&t, "%s\n", options[i]);
  while (*source) source = add_code_line(&t, source);
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
  if (!cache_read(key, "cubin", &m->bytes, &m->nbytes)) {
    code = run_compiler(m, source, options, name, arch);
    if (!code) cache_write(key, "cubin", m->bytes, m->nbytes);
  }
  if (code) return drop_image(m), code;
  m->next = images[hash % BUCKETS];
  *out = images[hash % BUCKETS] = m;
  return TY_OK;
}

static int find_image(const char *source, const char *const *options, const char *name, int arch,
    struct kernel_image **out)
{
  char *key = make_key(source, options, arch);
  NEED(key, TY_EMEMORY, "out of memory");
  uint64_t hash = cache_hash(key, strlen(key));
  for (struct kernel_image *m = images[hash % BUCKETS]; m; m = m->next) {
    if (m->hash != hash || strcmp(m->key, key)) continue;
    mem_free(key);
    *out = m;
    return TY_OK;
  }
  return make_image(key, hash, source, options, name, arch, out);
}

static int load_function(int device, const char *source, const char *const *options,
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
  int code = load_function(device, source, options, name, out);
  pthread_mutex_unlock(&lock);
  return code;
}

/* Bytes of shared memory that a kernel may have without setting an attribute. */
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
