/* platform.c - the text of `tycho --platform`: which processor, libraries and devices there are,
** and why others cannot be used.
**
** Optional libraries are opened here only to report their versions; the code that uses them opens
** them itself.
*/
#include <dlfcn.h>
#ifdef __aarch64__
#  include <sys/auxv.h>
#endif
#include <sys/utsname.h>
#include <unistd.h>
#include "base/system.h"
#include "device/collective.h"
#include "base/parallel.h"
#ifdef TY_DNNL
#include <oneapi/dnnl/dnnl.h>
#endif

/* -- processor --------------------------------------------------------------------------------- */

static void platform_add_processor(struct text *t)
{
  struct utsname u;
  text_add(t, "cpu         ");
  char line[256];
  FILE *f = sys_fopen("/proc/cpuinfo", "r"); /* Linux has no model name there on ARM */
  while (f && fgets(line, sizeof line, f)) {
    char *value = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
    if (!value) continue;
    value[strcspn(value, "\n")] = 0;
    text_add(t, "%s, ", value + 1 + (value[1] == ' '));
    break;
  }
  if (f) fclose(f);
  if (!uname(&u)) text_add(t, "%s (%s %s)", u.machine, u.sysname, u.release);
  text_add(t, "\nfeatures   ");
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
#  define FEATURE(name) \
    if (__builtin_cpu_supports(name)) text_add(t, " %s", name);
  FEATURE("sse4.2")
  FEATURE("avx")
  FEATURE("avx2")
  FEATURE("fma")
  FEATURE("avx512f") FEATURE("avx512bw") FEATURE("avx512dq") FEATURE("avx512vl")
      FEATURE("avx512vnni")
#  undef FEATURE
#elif defined __aarch64__
  const unsigned long have = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);
  if (have & HWCAP_ASIMD) text_add(t, " asimd");
  if (have & HWCAP_ASIMDDP) text_add(t, " asimddp");
  if (have & HWCAP_SVE) text_add(t, " sve");
  if (more & HWCAP2_BF16) text_add(t, " bf16");
  if (more & HWCAP2_I8MM) text_add(t, " i8mm");
#else
  text_add(t, " (not known for this architecture)");
#endif
  text_add(t, "\ncode path   %s", cpu_isa_name());
  if (*env_text("TYCHO_CPU", "")) text_add(t, " (TYCHO_CPU=%s)", env_text("TYCHO_CPU", ""));
  text_add(t, "\nthreads     %d of %ld processors%s\n", ty_threads(0),
      sysconf(_SC_NPROCESSORS_ONLN),
      device_sync() ? ", everything runs inline (TYCHO_SYNC=1)" : "");
}

/* -- libraries --------------------------------------------------------------------------------- */

/* Adds a line with the version that function `symbol` of the library returns, or says that no
** library of these names is installed. */
static void platform_add_library(struct text *t, const char *label, const char *disable,
    const char *const *names, const char *symbol)
{
  text_add(t, "%-11s ", label);
  if (disable && env_disabled(disable)) {
    text_add(t, "off (TYCHO_DISABLE)\n");
    return;
  }
  void *lib = NULL;
  for (int i = 0; names[i] && !lib; i++) lib = sys_dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
  if (!lib) {
    text_add(t, "no: not found:");
    for (int i = 0; names[i]; i++) text_add(t, " %s", names[i]);
    text_add(t, "\n");
    return;
  }
  const char *(*version)(void) = NULL;
  if (symbol) *(void **)&version = dlsym(lib, symbol);
  text_add(t, "%s\n", version ? version() : "yes");
  dlclose(lib);
}

static void platform_add_dnnl(struct text *t)
{
#ifdef TY_DNNL
  if (env_disabled("dnnl")) {
    text_add(t, "oneDNN      off (TYCHO_DISABLE)\n");
    return;
  }
  const dnnl_version_t *v = dnnl_version();
  text_add(t, "oneDNN      %d.%d.%d\n", v->major, v->minor, v->patch);
#else
  text_add(t, "oneDNN      no: not found when this was built\n");
#endif
}

static void (*add_back_end)(struct text *t);
void platform_register(void (*add)(struct text *t)) { add_back_end = add; }

static void platform_add_cuda(struct text *t)
{
  int n = ty_devices(TY_GPU), code = n ? TY_OK : device_open(TY_GPU);
  if (n)
    text_add(t, "CUDA        %d device%s\n", n, n == 1 ? "" : "s");
  else
    text_add(t, "CUDA        no: %s\n", ty_error());
  if (code) failure_drop(failure_take(code));
  text_add(t, "            what has run on which GPU: doc/gpu.md\n");
  if (add_back_end) add_back_end(t);
}

static void platform_add_collectives(struct text *t)
{
  char found[256];
  const struct collective_ops *ops = collective_ops();
  int code = ops ? ops->find(found, sizeof found) : TY_OK;
  if (!ops)
    text_add(t, "NCCL        no: this build has no code for it\n");
  else
    text_add(t, "NCCL        %s%s\n", code ? "no: " : "", code ? ty_error() : found);
  if (code) failure_drop(failure_take(code));
}

/* -- devices ----------------------------------------------------------------------------------- */

static void platform_add_device(struct text *t, int device)
{
  char name[32];
  int64_t total = 0, used = 0, pool = 0;
  text_add(t, "%-11s ", device_name(device, name, sizeof name));
  int code = ty_device_memory(device, &total, &used, &pool);
  if (code) {
    text_add(t, "no: %s\n", ty_error());
    failure_drop(failure_take(code));
    return;
  }
  const struct device_ops *ops = device_ops(device);
  if (ops->describe) ops->describe(device, t);
  text_add(t, "%.1f GiB of memory, %lld bytes in use by tensors, %lld by pools\n",
      (double)total / (1 << 30), (long long)used, (long long)pool);
}

const char *ty_platform(void)
{
  static const char *const blas[] = { "libopenblas.so.0", "libopenblas.so", NULL };
  static const char *const lapack[] = { "libopenblas.so.0", "liblapack.so.3", NULL };
  static const char *const jpeg[] = { "libjpeg.so.62", "libjpeg.so.8", NULL };
  static const char *const png[] = { "libpng16.so.16", NULL };
  static const char *const mpi[] = { "libmpi.so.40", NULL };
  static __thread char buffer[16384]; /* borrowed until this thread's next call */
  struct text t = { 0 };
  text_add(&t, "tycho       %s\n", ty_version());
  platform_add_processor(&t);
  platform_add_library(&t, "BLAS", "blas", blas, "openblas_get_config");
  platform_add_library(&t, "LAPACK", NULL, lapack, NULL);
  platform_add_dnnl(&t);
  platform_add_library(&t, "JPEG", NULL, jpeg, NULL);
  platform_add_library(&t, "PNG", NULL, png, NULL);
  platform_add_cuda(&t);
  platform_add_collectives(&t);
  platform_add_library(&t, "MPI", "mpi", mpi, NULL);
  platform_add_device(&t, TY_CPU);
  for (int i = 0; i < ty_devices(TY_GPU); i++) platform_add_device(&t, TY_GPU + i);
  if (mem_limit())
    text_add(&t, "limit       %lld bytes per device (TYCHO_MEM_LIMIT)\n", (long long)mem_limit());
  snprintf(buffer, sizeof buffer, "%s", t.s ? t.s : "out of memory");
  text_done(&t);
  return buffer;
}
