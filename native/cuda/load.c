/* load.c - loads CUDA's libraries at their first use: the driver, NVRTC of the toolkit, and those
** that some kernels need.
**
** The folders of TYCHO_CUDA_PATH (separated by colons, since Python wheels have one folder per
** library) are searched first, then the system's path by soname, then CUDA_HOME. A driver supports
** toolkits up to its own version, so libraries of toolkit 13 are not searched for if it supports
** only CUDA 12. Nothing is linked: the same library runs on machines without a GPU, and reports
** what is missing, and which packages have it, when gpu(i) is used. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>
#include "base/system.h"
#include "cuda/cuda.h"
#include "device/platform.h"

/* CUDA 12.0 comes with driver 525.60.13 (CUDA's release notes, table of minimum versions) */
enum { LEAST_DRIVER = 12000, NEW_TOOLKIT = 13000 };
#define LEAST_PACKAGE "525"

struct cu_functions cu_api;
struct nvrtc_functions nvrtc_api;

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* result of loading: TY_OK, or a code with its text */
static int state;
static char reason[2048];
static int driver_version, nvrtc_version;

int cuda_driver_version(void) { return driver_version; }
int cuda_nvrtc_version(void) { return nvrtc_version; }

/* toolkits that a driver supports: 13 and 12, or 12 only */
enum { TOOLKIT_13, TOOLKIT_12, TOOLKITS };
static int best_toolkit(void)
{
  return driver_version && driver_version < NEW_TOOLKIT ? TOOLKIT_12 : TOOLKIT_13;
}

struct library {
  const char *name, *what, *disable;
  const char *soname[3];                              /* alternatives, but see of_toolkit */
  bool of_toolkit;                                    /* soname has one name for each toolkit */
  /* other versions, which are reported but not loaded */
  const char *others[4];
  const char *version;                                /* function that returns it as a size_t */
  int by;                                             /* factor of the major version in it */
  const char *pip[TOOLKITS];                          /* its package in PyPI */
  const char *apt[TOOLKITS];                          /* its package in NVIDIA's repository */
};
static const struct library libraries[] = {
  [CUDA_DRIVER] = { .name = "driver", .what = "the CUDA driver", .disable = "cuda",
    .soname = { "libcuda.so.1", "libcuda.so" } },
  [CUDA_NVRTC] = { .name = "NVRTC", .what = "NVRTC, the compiler of CUDA's toolkit",
    .disable = "cuda", .soname = { "libnvrtc.so.13", "libnvrtc.so.12" },
    .others = { "libnvrtc.so.11.2", "libnvrtc.so.11.1", "libnvrtc.so.11.0" }, .of_toolkit = true,
    .pip = { "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12" },
    .apt = { "cuda-nvrtc-13-0", "cuda-nvrtc-12-9" } },
  [CUDA_CUBLASLT] = { .name = "cublasLt", .what = "cublasLt", .disable = "cublaslt",
    .soname = { "libcublasLt.so.13", "libcublasLt.so.12" }, .others = { "libcublasLt.so.11" },
    .version = "cublasLtGetVersion", .by = 10000, .of_toolkit = true,
    .pip = { "nvidia-cublas", "nvidia-cublas-cu12" },
    .apt = { "libcublas-13-0", "libcublas-12-9" } },
  [CUDA_CUDNN] = { .name = "cuDNN", .what = "cuDNN 9", .disable = "cudnn",
    .soname = { "libcudnn.so.9" }, .others = { "libcudnn.so.8", "libcudnn.so.7" },
    .version = "cudnnGetVersion", .by = 10000,
    .pip = { "nvidia-cudnn-cu13", "nvidia-cudnn-cu12" },
    .apt = { "libcudnn9-cuda-13", "libcudnn9-cuda-12" } },
  [CUDA_CUSOLVER] = { .name = "cuSOLVER", .what = "cuSOLVER", .disable = "cusolver",
    .soname = { "libcusolver.so.12", "libcusolver.so.11" }, .others = { "libcusolver.so.10" },
    .of_toolkit = true, .pip = { "nvidia-cusolver", "nvidia-cusolver-cu12" },
    .apt = { "libcusolver-13-0", "libcusolver-12-9" } },
  [CUDA_NCCL] = { .name = "NCCL", .what = "NCCL, which adds over several GPUs,",
    .disable = "nccl", .soname = { "libnccl.so.2" },
    .pip = { "nvidia-nccl-cu13", "nvidia-nccl-cu12" }, .apt = { "libnccl2", "libnccl2" } },
};

/* -- searching a library ----------------------------------------------------------------------- */

/* Opens folder/soname, or with n 0 a soname on the system's search path. If the file exists but
** does not load, which may be for lack of another library, appends the reason to `why`. */
static void *open_at(const char *folder, size_t n, const char *soname, struct text *why)
{
  char path[4096];
  snprintf(path, sizeof path, "%.*s%s%s", (int)n, folder, n ? "/" : "", soname);
  void *lib = sys_dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char *error = lib ? NULL : dlerror();
  bool exists = error && (n ? !access(path, F_OK) : strncmp(error, soname, strlen(soname)) != 0);
  if (exists && why) text_add(why, "; %s does not load: %s", path, error);
  return lib;
}

static void *open_in(
    const char *folder, size_t n, const char *const *sonames, struct text *why)
{
  void *lib = NULL;
  for (int i = 0; sonames[i] && !lib; i++) lib = open_at(folder, n, sonames[i], why);
  return lib;
}

/* Opens the first of the sonames that is in TYCHO_CUDA_PATH, else on the system's path, else in
** CUDA_HOME. */
static void *open_anywhere(const char *const *sonames, struct text *why)
{
  const char *home = env_text("CUDA_HOME", "");
  char folder[4096];
  void *lib = NULL;
  for (const char *s = env_text("TYCHO_CUDA_PATH", ""); *s && !lib; s += *s == ':') {
    size_t n = strcspn(s, ":");
    if (n) lib = open_in(s, n, sonames, why);
    s += n;
  }
  if (!lib) lib = open_in("", 0, sonames, why);
  snprintf(folder, sizeof folder, "%s/lib64", home);
  if (!lib && *home) lib = open_in(folder, strlen(folder), sonames, why);
  return lib;
}

static void add_searched(struct text *t, const char *const *sonames)
{
  const char *own = env_text("TYCHO_CUDA_PATH", ""), *home = env_text("CUDA_HOME", "");
  for (int i = 0; sonames[i]; i++) text_add(t, "%s%s", i ? ", " : "", sonames[i]);
  text_add(t, " in");
  if (*own) text_add(t, " %s (TYCHO_CUDA_PATH),", own);
  text_add(t, " the system's folders%s%s%s", *home ? ", " : "", home,
      *home ? "/lib64 (CUDA_HOME)" : "");
}

/* Adds the installed libraries of other versions to the text. */
static void add_others(struct text *t, const struct library *l, int toolkit)
{
  const char *newer[2] = { toolkit == TOOLKIT_12 && l->of_toolkit ? l->soname[0] : NULL };
  void *lib = *newer ? open_anywhere(newer, NULL) : NULL;
  if (lib) text_add(t, "; there is %s, which needs a driver that serves CUDA 13", *newer);
  if (lib) dlclose(lib);
  for (int i = 0; i < COUNT(l->others) && l->others[i]; i++) {
    const char *other[2] = { l->others[i] };
    if (!(lib = open_anywhere(other, NULL))) continue;
    text_add(t, "; there is %s, another major version", *other);
    dlclose(lib);
  }
}

static void add_packages(struct text *t, const struct library *l, int toolkit)
{
  if (l->pip[toolkit])
    text_add(t, "; it comes with %s (pip; TYCHO_CUDA_PATH names the folder) or %s (apt, from "
        "NVIDIA's repository)", l->pip[toolkit], l->apt[toolkit]);
  else
    text_add(t, "; it comes with nvidia-driver and libcuda1 (Debian), nvidia-driver-%s or newer "
        "(Ubuntu) or cuda-drivers (NVIDIA's repository), in containers with "
        "nvidia-container-toolkit", LEAST_PACKAGE);
}

void *cuda_library(enum cuda_library which, struct text *missing)
{
  const struct library *l = &libraries[which];
  const int toolkit = best_toolkit();
  const char *const *sonames = l->soname + (l->of_toolkit ? toolkit : 0);
  struct text why = { 0 };
  if (env_disabled(l->disable)) {
    if (missing) text_add(missing, "TYCHO_DISABLE switches it off");
    return NULL;
  }
  void *lib = open_anywhere(sonames, missing ? &why : NULL);
  if (!lib && missing) {
    add_searched(missing, sonames);
    if (why.s) text_add(missing, "%s", why.s);
    add_others(missing, l, toolkit);
    add_packages(missing, l, toolkit);
  }
  text_done(&why);
  return lib;
}

int cuda_library_needed(enum cuda_library which, void **lib)
{
  const struct library *l = &libraries[which];
  struct text missing = { 0 };
  *lib = cuda_library(which, &missing);
  const char *toolkit = !l->of_toolkit            ? ""
      : best_toolkit() == TOOLKIT_12 ? " 12, which the driver serves,"
                                     : " 12 or 13,";
  int code = *lib ? TY_OK
                  : fail(TY_EDEVICE, "%s%s was not found; tried %s", l->what, toolkit,
                        missing.s ? missing.s : "nothing");
  text_done(&missing);
  return code;
}

/* -- the driver and NVRTC ---------------------------------------------------------------------- */

static int load_driver(void)
{
  void *lib;
  TRY(cuda_library_needed(CUDA_DRIVER, &lib));
#define FIND(name, symbol, arguments) \
  *(void **)&cu_api.name = dlsym(lib, symbol); \
  NEED(cu_api.name, TY_EDEVICE, "the CUDA driver is too old: it has no %s; " \
      LEAST_PACKAGE " or newer is needed", symbol);
  CU_FUNCTIONS(FIND)
#undef FIND
  TRY(cuda_check(cu_api.Init(0), "starting the CUDA driver"));
  TRY(cuda_check(cu_api.DriverGetVersion(&driver_version), "asking for the CUDA driver's version"));
  NEED(driver_version >= LEAST_DRIVER, TY_EDEVICE,
      "the CUDA driver serves CUDA %d.%d; at least %d.%d is needed, driver " LEAST_PACKAGE
      " or newer (nvidia-driver on Debian and Ubuntu, cuda-drivers in NVIDIA's repository)",
      driver_version / 1000, driver_version % 1000 / 10, LEAST_DRIVER / 1000,
      LEAST_DRIVER % 1000 / 10);
  return TY_OK;
}

static int load_nvrtc(void)
{
  int major = 0, minor = 0;
  void *lib;
  TRY(cuda_library_needed(CUDA_NVRTC, &lib));
#define FIND(name, symbol, arguments) \
  *(void **)&nvrtc_api.name = dlsym(lib, symbol); \
  NEED(nvrtc_api.name, TY_EDEVICE, "NVRTC is too old: it has no %s", symbol);
  NVRTC_FUNCTIONS(FIND)
#undef FIND
  NEED(!nvrtc_api.Version(&major, &minor), TY_EDEVICE, "NVRTC does not answer");
  nvrtc_version = major * 1000 + minor * 10;
  return TY_OK;
}

/* -- what tycho --platform says ---------------------------------------------------------------- */

int cuda_library_version(enum cuda_library which, void *lib)
{
  size_t (*ask)(void) = NULL;
  const char *name = libraries[which].version;
  if (name) *(void **)&ask = dlsym(lib, name);
  return ask ? (int)ask() : 0;
}

/* Adds "13.1.0" for 130100, where `by` is 10000. */
static void add_version(struct text *t, void *lib, enum cuda_library which)
{
  const struct library *l = &libraries[which];
  const int v = cuda_library_version(which, lib);
  if (v) text_add(t, "%d.%d.%d, ", v / l->by, v % l->by / 100, v % 100);
}

static void add_library(struct text *t, enum cuda_library which)
{
  struct text missing = { 0 };
  struct link_map *found = NULL;
  void *lib = cuda_library(which, &missing);
  text_add(t, "%-11s ", libraries[which].name);
  if (lib && !dlinfo(lib, RTLD_DI_LINKMAP, &found)) {
    add_version(t, lib, which);
    text_add(t, "%s\n", found->l_name);
  }
  else {
    text_add(t, "no: %s\n", missing.s ? missing.s : "out of memory");
  }
  if (lib) dlclose(lib);
  text_done(&missing);
}

/* Adds versions, then the path of each library or what is missing, if there is a driver. */
static void add_libraries(struct text *t)
{
  if (!driver_version) return;
  text_add(t, "            driver of CUDA %d.%d", driver_version / 1000,
      driver_version % 1000 / 10);
  if (nvrtc_version)
    text_add(t, ", NVRTC %d.%d", nvrtc_version / 1000, nvrtc_version % 1000 / 10);
  text_add(t, "\n");
  for (int i = CUDA_CUBLASLT; i <= CUDA_CUSOLVER; i++) add_library(t, i);
}

__attribute__((constructor)) static void register_platform(void)
{
  platform_register(add_libraries);
}

static void load_once(void)
{
  bool off = env_disabled(libraries[CUDA_DRIVER].disable);
  state = off ? fail(TY_EDEVICE, "TYCHO_DISABLE switches CUDA off") : load_driver();
  if (!state) state = load_nvrtc();
  if (state) snprintf(reason, sizeof reason, "%s", ty_error());
}

int cuda_load(void)
{
  pthread_once(&once, load_once);
  return state ? fail(state, "%s", reason) : TY_OK;
}

/* the device that failures of this thread name; -1: none yet */
static __thread int subject = -1;
void cuda_name_device(int id) { subject = id; }

/* Returns advice about an error of the machine's installation; "": none. */
static const char *advice_for(int result)
{
  switch (result) {
  case CU_STUB_LIBRARY:
    return "; libcuda is the toolkit's stub: the driver's own has to be found before it";
  case CU_NO_DEVICE:
    return "; nvidia-smi says what there is, CUDA_VISIBLE_DEVICES may hide it";
  case CU_SYSTEM_NOT_READY:
    return "; on a machine with NVSwitch nvidia-fabricmanager has to run";
  case CU_DRIVER_MISMATCH:
    return "; the driver's library and kernel module are of two versions, as after an update: "
           "restart the machine";
  default: return "";
  }
}

int cuda_check(int result, const char *what)
{
  const char *name = NULL, *text = NULL;
  char device[32] = "";
  if (!result) return TY_OK;
  cu_api.GetErrorName(result, &name); /* set: nothing is called before all functions are found */
  cu_api.GetErrorString(result, &text);
  if (subject >= 0) snprintf(device, sizeof device, "gpu(%d): ", subject);
  return fail(result == CU_OUT_OF_MEMORY ? TY_EMEMORY : TY_EDEVICE, "%s%s: %s (%s, %d)%s",
      device, what, text ? text : "an error", name ? name : "unknown", result, advice_for(result));
}
