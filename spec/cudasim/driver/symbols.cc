/* symbols.cc - cuGetProcAddress: a name without a version is the newest that is implemented. */
#include <dlfcn.h>
#include <string.h>
#include "state.h"

static void *find_symbol(const std::string &name)
{
  static const struct { const char *name, *symbol; } others[] = {
    { "cuGraphInstantiate", "cuGraphInstantiateWithFlags" },
  };
  static void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  for (auto &o : others)
    if (name == o.name) return dlsym(self, o.symbol);
  for (const char *version : { "_v3", "_v2", "" })
    if (void *p = dlsym(self, (name + version).c_str())) return p;
  return nullptr;
}

API cuGetProcAddress_v2(const char *name, void **out, int, cuuint64_t,
    CUdriverProcAddressQueryResult *result)
{
  NEED(name && out, CUDA_ERROR_INVALID_VALUE);
  *out = !strncmp(name, "cu", 2) ? find_symbol(name) : nullptr;
  if (result)
    *result = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
