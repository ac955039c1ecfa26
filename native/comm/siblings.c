/* siblings.c - which rank of this host is stopped. Ranks cannot hear each other while MPI begins or
** ends; then the system is asked of the processes that this one's launcher has started, whose
** environments say which ranks they are.
*/
#include <unistd.h>
#include "base/system.h"
#include "comm/comm.h"

/* The beginning of a file of /proc, with a zero behind it; its length. */
static size_t read_proc(char *text, size_t size, int pid, const char *name)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  FILE *f = sys_fopen(path, "r");
  size_t n = f ? fread(text, 1, size - 1, f) : 0;
  if (f) fclose(f);
  text[n] = 0;
  return n;
}

static bool is_stopped(int pid)
{
  char text[512];
  read_proc(text, sizeof text, pid, "stat");
  const char *name_end = strrchr(text, ')');
  return name_end && (!strncmp(name_end, ") T", 3) || !strncmp(name_end, ") t", 3));
}

/* As the launchers say it: OpenMPI, MPICH and Intel, PMIx, Slurm. */
static int rank_of(int pid)
{
  static const char *const told[] = { "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK=",
    "SLURM_PROCID=" };
  static char text[1 << 17];
  size_t n = read_proc(text, sizeof text, pid, "environ");
  for (int i = 0; i < COUNT(told); i++)
    for (const char *p = text; p < text + n; p += strlen(p) + 1)
      if (!strncmp(p, told[i], strlen(told[i]))) return atoi(p + strlen(told[i]));
  return -1;
}

int comm_stopped_rank(void)
{
  char text[1 << 14], name[64], *at = text, *end;
  int parent = (int)getppid();
  snprintf(name, sizeof name, "task/%d/children", parent);
  read_proc(text, sizeof text, parent, name);
  for (long pid = strtol(at, &end, 10); end != at; pid = strtol(at, &end, 10)) {
    if (is_stopped((int)pid)) return rank_of((int)pid);
    at = end;
  }
  return -1;
}
