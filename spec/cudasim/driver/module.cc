/* module.cc - compiled sources as modules. The "cubin" that the stand-in for NVRTC makes is a
** shared library. Each load gets a separate file, since two loads of one image are two modules with
** separate variables. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../run/check.h"
#include "../run/run.h"
#include "state.h"

Registry<CUmod_st> modules;
static std::set<const CUfunc_st *> &functions = *new std::set<const CUfunc_st *>;

bool function_lives(const CUfunc_st *f) { return functions.count(f) != 0; }

/* Returns the size of an image, which comes without a length: an ELF file ends with its table of
** sections. 0: it is no ELF file. */
static size_t image_bytes(const void *image)
{
  const ElfW(Ehdr) *h = (const ElfW(Ehdr) *)image;
  if (memcmp(h->e_ident, ELFMAG, SELFMAG)) return 0;
  return h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
}

static bool write_file(const char *path, const void *data, size_t bytes)
{
  FILE *f = fopen(path, "wb");
  if (!f) return false;
  bool good = fwrite(data, 1, bytes, f) == bytes;
  return !fclose(f) && good;
}

/* files to delete when the process ends */
static struct Kept : std::set<std::string> {
  ~Kept()
  {
    for (const std::string &path : *this) unlink(path.c_str());
  }
} kept;

static void *open_image(const void *image, size_t bytes, std::string *why)
{
  static int number;
  char path[512];
  snprintf(path, sizeof path, "%s/cudasim-%d-%d.so", find_setting("TMPDIR", "/tmp"), (int)getpid(),
      number++);
  void *so = write_file(path, image, bytes) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!so) {
    const char *error = dlerror();
    *why = error ? error : std::string("cannot write ") + path;
  }
  /* the checker names lines, which it reads from the file */
  if (atoi(find_setting("CUDASIM_CHECK", "0")) && so)
    kept.insert(path);
  else
    unlink(path);
  return so;
}

/* Registers the variables of a module as device memory. */
static void watch_variables(CUmod_st *m)
{
  link_map *map = nullptr;
  if (dlinfo(m->so, RTLD_DI_LINKMAP, &map) || !map) return;
  m->base = (char *)map->l_addr;
  auto watch = [](dl_phdr_info *i, size_t, void *data) {
    CUmod_st *m = (CUmod_st *)data;
    if ((char *)i->dlpi_addr != m->base) return 0;
    for (int k = 0; k < i->dlpi_phnum; k++) {
      const ElfW(Phdr) &p = i->dlpi_phdr[k];
      if (p.p_type != PT_LOAD) continue;
      check_module(m->base + p.p_vaddr, p.p_memsz, p.p_flags & PF_W);
      if (p.p_flags & PF_W) {
        m->variables = m->base + p.p_vaddr;
        range_add(m->variables, p.p_memsz, m->device, true);
      }
    }
    return 1;
  };
  dl_iterate_phdr(watch, m);
}

static CUresult load_module(CUmodule *out, const void *image)
{
  std::string why;
  NEED(out && image, CUDA_ERROR_INVALID_VALUE);
  if (runs_dry()) {
    *out = modules.add(new CUmod_st());
    (*out)->device = current_context()->device;
    return CUDA_SUCCESS;
  }
  size_t bytes = image_bytes(image);
  NEED(bytes, CUDA_ERROR_INVALID_IMAGE);
  void *so = open_image(image, bytes, &why);
  RULE(so, CUDA_ERROR_NO_BINARY_FOR_GPU, "%s", why.c_str());
  auto range = (void (*)(char **, char **))dlsym(so, "cudasim_shared_range");
  RULE(range, CUDA_ERROR_INVALID_IMAGE, "not made by the stand-in for NVRTC");
  CUmod_st *m = modules.add(new CUmod_st);
  char *end;
  m->so = so;
  m->device = current_context()->device;
  range(&m->shared, &end);
  m->shared_bytes = (size_t)(end - m->shared);
  watch_variables(m);
  *out = m;
  return CUDA_SUCCESS;
}

API cuModuleLoadData(CUmodule *out, const void *image)
{
  ENTER(CONTEXT);
  return load_module(out, image);
}

API cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned, CUjit_option *, void **)
{
  ENTER(CONTEXT);
  return load_module(out, image);
}

#define MODULE(m) \
  RULE(modules.has(m), CUDA_ERROR_INVALID_HANDLE, "not a module, or unloaded before"); \
  RULE(m->device == current_context()->device, CUDA_ERROR_INVALID_CONTEXT, \
      "a module of another device's context")

API cuModuleUnload(CUmodule m)
{
  ENTER(ENDING | UNSAFE);
  RULE(modules.has(m), CUDA_ERROR_INVALID_HANDLE, "not a module, or unloaded before");
  modules.live.erase(m);
  queue_wait_all(call.lock, m->device);
  for (auto &f : m->functions) functions.erase(f.second.get());
  if (m->so) {
    range_remove(m->variables);
    check_unload(m->variables);
    dlclose(m->so);
  }
  delete m;
  return CUDA_SUCCESS;
}

/* Finds a kernel by its own symbol: without extern "C" that has another name, as with nvcc. */
static const cudasim_kernel *find_kernel(void *so, const std::string &name)
{
  bool lowered = !name.compare(0, 8, "cudasim_");
  if (!lowered && !dlsym(so, name.c_str())) return nullptr;
  return (const cudasim_kernel *)dlsym(so, ("cudasim_kernel_" + name).c_str());
}

API cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
  ENTER(CONTEXT);
  NEED(out && name, CUDA_ERROR_INVALID_VALUE);
  MODULE(m);
  auto &f = m->functions[name];
  if (!f) {
    const cudasim_kernel *k = m->so ? find_kernel(m->so, name) : nullptr;
    if (!k && m->so) m->functions.erase(name);
    NEED(k || !m->so, CUDA_ERROR_NOT_FOUND);
    f.reset(new CUfunc_st{ m, k, name, 0 });
    functions.insert(f.get());
  }
  *out = f.get();
  return CUDA_SUCCESS;
}

API cuModuleGetGlobal_v2(CUdeviceptr *out, size_t *bytes, CUmodule m, const char *name)
{
  ENTER(CONTEXT);
  MODULE(m);
  void *p = dlsym(m->so, name);
  NEED(p, CUDA_ERROR_NOT_FOUND);
  Dl_info info;
  const ElfW(Sym) *symbol = nullptr;
  dladdr1(p, &info, (void **)&symbol, RTLD_DL_SYMENT);
  if (out) *out = (CUdeviceptr)p;
  if (bytes) *bytes = symbol ? symbol->st_size : 0;
  return CUDA_SUCCESS;
}
