/* load.c - finds CUDA's libraries when they are first asked for: the driver, which comes with the
** machine's GPU, NVRTC, which comes with the toolkit, and those that some kernels stand on.
**
** Where TYCHO_CUDA_PATH names a folder, libraries in it go before all others; then the system's
** search by soname; then CUDA_HOME. A driver serves toolkits up to its own: libraries of toolkit 13
** are not looked for where it serves CUDA 12. Nothing is linked: a machine without a GPU runs the
** same library, and is told what is missing only when it asks for gpu(i).
*/
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include "base/system.h"
#include "cuda/cuda.h"
#include "device/platform.h"

enum { LEAST_DRIVER = 12000, NEW_TOOLKIT = 13000 };

struct cu_functions cu_api;
struct nvrtc_functions nvrtc_api;

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* what became of it: TY_OK, or a code and its words */
static int state;
static char reason[1024];
static int driver_version, nvrtc_version;

int cuda_driver_version(void) { return driver_version; }
int cuda_nvrtc_version(void) { return nvrtc_version; }

static void *open_in(const char *folder, const char *const *sonames)
{
  void *lib = NULL;
  for (int i = 0; sonames[i] && !lib; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", sonames[i]);
    lib = sys_dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  return lib;
}

void *cuda_open(const char *const *sonames, struct text *tried)
{
  const char *own = env_text("TYCHO_CUDA_PATH", ""), *home = env_text("CUDA_HOME", "");
  char libraries[4096];
  snprintf(libraries, sizeof libraries, "%s/lib64", home);
  void *lib = *own ? open_in(own, sonames) : NULL;
  if (!lib) lib = open_in("", sonames);
  if (!lib && *home) lib = open_in(libraries, sonames);
  if (!lib && tried) {
    for (int i = 0; sonames[i]; i++) text_add(tried, "%s%s", i ? ", " : "", sonames[i]);
    text_add(tried, " in");
    if (*own) text_add(tried, " %s (TYCHO_CUDA_PATH),", own);
    text_add(tried, " the system's folders%s%s%s", *home ? ", " : "", home,
        *home ? "/lib64 (CUDA_HOME)" : "");
  }
  return lib;
}

/* libraries of the toolkit, whose names differ: toolkit 13's first, then toolkit 12's */
static void *open_toolkit(const char *const *sonames, struct text *tried)
{
  return cuda_open(sonames + (driver_version < NEW_TOOLKIT), tried);
}

struct library { const char *name, *disable, *soname[3]; bool of_toolkit; };
static const struct library libraries[] = {
  [CUDA_CUBLASLT] = { "cublasLt", "cublaslt", { "libcublasLt.so.13", "libcublasLt.so.12" }, true },
  [CUDA_CUDNN]    = { "cuDNN", "cudnn", { "libcudnn.so.9" }, false },
  [CUDA_CUSOLVER] = { "cuSOLVER", "cusolver", { "libcusolver.so.12", "libcusolver.so.11" }, true },
};

static void *open_library(const struct library *l, struct text *tried)
{
  if (!env_disabled(l->disable))
    return l->of_toolkit ? open_toolkit(l->soname, tried) : cuda_open(l->soname, tried);
  if (tried) text_add(tried, "TYCHO_DISABLE switches it off");
  return NULL;
}

void *cuda_library(enum cuda_library which) { return open_library(&libraries[which], NULL); }

static int missing(const char *what, const struct text *tried)
{
  return fail(TY_EDEVICE, "%s was not found; tried %s", what, tried->s ? tried->s : "nothing");
}

static int load_driver(void)
{
  static const char *const names[] = { "libcuda.so.1", "libcuda.so", NULL };
  struct text tried = { 0 };
  void *lib = cuda_open(names, &tried);
  int code = lib ? TY_OK : missing("the CUDA driver", &tried);
  text_done(&tried);
  TRY(code);
#define FIND(name, symbol, arguments) \
  *(void **)&cu_api.name = dlsym(lib, symbol); \
  NEED(cu_api.name, TY_EDEVICE, "the CUDA driver is too old: it has no %s", symbol);
  CU_FUNCTIONS(FIND)
#undef FIND
  TRY(cuda_told(cu_api.Init(0), "starting the CUDA driver"));
  TRY(cuda_told(cu_api.DriverGetVersion(&driver_version), "asking for the CUDA driver's version"));
  NEED(driver_version >= LEAST_DRIVER, TY_EDEVICE,
      "the CUDA driver serves CUDA %d.%d; at least %d.%d is needed", driver_version / 1000,
      driver_version % 1000 / 10, LEAST_DRIVER / 1000, LEAST_DRIVER % 1000 / 10);
  return TY_OK;
}

static int load_nvrtc(void)
{
  static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12", NULL };
  struct text tried = { 0 };
  int major = 0, minor = 0;
  void *lib = open_toolkit(names, &tried);
  const char *which = driver_version < NEW_TOOLKIT ? "12, which the driver serves," : "12 or 13,";
  char what[96];
  snprintf(what, sizeof what, "NVRTC, the compiler of CUDA's toolkit %s", which);
  int code = lib ? TY_OK : missing(what, &tried);
  text_done(&tried);
  TRY(code);
#define FIND(name, symbol, arguments) \
  *(void **)&nvrtc_api.name = dlsym(lib, symbol); \
  NEED(nvrtc_api.name, TY_EDEVICE, "NVRTC is too old: it has no %s", symbol);
  NVRTC_FUNCTIONS(FIND)
#undef FIND
  NEED(!nvrtc_api.Version(&major, &minor), TY_EDEVICE, "NVRTC does not answer");
  nvrtc_version = major * 1000 + minor * 10;
  return TY_OK;
}

/* What is used where there are devices: versions, then where each library lies. */
static void tell_libraries(struct text *t)
{
  text_add(t, "            driver of CUDA %d.%d, NVRTC %d.%d\n", driver_version / 1000,
      driver_version % 1000 / 10, nvrtc_version / 1000, nvrtc_version % 1000 / 10);
  for (int i = 0; i < COUNT(libraries); i++) {
    struct text tried = { 0 };
    struct link_map *found = NULL;
    void *lib = open_library(&libraries[i], &tried);
    bool there = lib && !dlinfo(lib, RTLD_DI_LINKMAP, &found);
    text_add(t, "%-11s %s%s\n", libraries[i].name, there ? "" : "no: ",
        there ? found->l_name : tried.s ? tried.s : "out of memory");
    if (lib) dlclose(lib);
    text_done(&tried);
  }
}

__attribute__((constructor)) static void register_platform(void)
{
  platform_register(tell_libraries);
}

static void load(void)
{
  bool off = env_disabled("cuda");
  state = off ? fail(TY_EDEVICE, "TYCHO_DISABLE switches CUDA off") : load_driver();
  if (!state) state = load_nvrtc();
  if (state) snprintf(reason, sizeof reason, "%s", ty_error());
}

int cuda_load(void)
{
  pthread_once(&once, load);
  return state ? fail(state, "%s", reason) : TY_OK;
}

/* the device that this thread's calls are for, -1: none yet */
static __thread int subject = -1;
void cuda_speaks_of(int id) { subject = id; }

int cuda_told(int result, const char *what)
{
  const char *name = NULL, *text = NULL;
  char device[32] = "";
  if (!result) return TY_OK;
  cu_api.GetErrorName(result, &name); /* there: nothing is called before all were found */
  cu_api.GetErrorString(result, &text);
  if (subject >= 0) snprintf(device, sizeof device, "gpu(%d): ", subject);
  return fail(result == CU_OUT_OF_MEMORY ? TY_EMEMORY : TY_EDEVICE, "%s%s: %s (%s, %d)", device,
      what, text ? text : "an error", name ? name : "unknown", result);
}
