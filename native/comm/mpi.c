/* mpi.c - finds libtycho_mpi.so (mpi_shim.c), which is built if there is an mpicc: at TYCHO_MPI,
** beside this library, or where the system looks. */
#include <dlfcn.h>
#include <pthread.h>
#include "base/system.h"
#include "comm/comm.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;
static char reason[1024];

/* Writes the folder of this library, with a final slash. */
static void mpi_find_own_folder(char *folder, size_t size)
{
  Dl_info info;
  folder[0] = 0;
  if (!dladdr((void *)(uintptr_t)mpi_find_own_folder, &info) || !info.dli_fname) return;
  snprintf(folder, size, "%s", info.dli_fname);
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[1] = 0;
  else
    folder[0] = 0;
}

/* Loads the library with RTLD_GLOBAL: MPI's plugins look up its symbols. */
static void mpi_load_library(void)
{
  const char *given = env_text("TYCHO_MPI", "");
  char folder[3072], path[4096];
  mpi_find_own_folder(folder, sizeof folder);
  snprintf(path, sizeof path, "%s", given);
  if (!*given) snprintf(path, sizeof path, "%slibtycho_mpi.so", folder);
  library = sys_dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library && !*given) { /* where packages of distributions put it */
    snprintf(path, sizeof path, "%stycho/libtycho_mpi.so", folder);
    library = sys_dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  }
  if (!library && !*given) library = sys_dlopen("libtycho_mpi.so", RTLD_NOW | RTLD_GLOBAL);
  if (!library) snprintf(reason, sizeof reason, "%s", dlerror());
}

int comm_mpi_open(const struct comm_ops **ops, struct comm_world **out)
{
  pthread_once(&once, mpi_load_library);
  NEED(library, TY_EDEVICE,
      "MPI cannot be used: %s. Its library is built where MPI is installed (on Debian: "
      "libopenmpi-dev, openmpi-bin), by make",
      reason);
  comm_mpi_fn open_world = (comm_mpi_fn)(uintptr_t)dlsym(library, "tycho_mpi_open");
  *ops = dlsym(library, "tycho_mpi");
  bool fits = open_world && *ops && (*ops)->size == sizeof(struct comm_ops);
  NEED(fits, TY_EDEVICE, "libtycho_mpi.so is not of this version: build both together");
  char why[512] = "";
  *out = open_world((int)env_number("TYCHO_COMM_PER_HOST", 0), why, sizeof why);
  NEED(*out, TY_EDEVICE, "MPI: %s", why);
  return TY_OK;
}
