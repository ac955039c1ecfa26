/* siblings.c - which rank of this host is stopped. Ranks cannot hear each other while MPI begins or
** ends; then the system is asked of the processes that this one's launcher has started, whose
** environments say which ranks they are.
*/
#include <signal.h>
#include <time.h>
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

/* What a launcher has started here. */
static int list_ranks(int launcher, int *pid, int most)
{
  char text[1 << 14], name[64], *at = text, *end;
  int n = 0;
  snprintf(name, sizeof name, "task/%d/children", launcher);
  read_proc(text, sizeof text, launcher, name);
  for (long p = strtol(at, &end, 10); end != at && n < most; p = strtol(at, &end, 10)) {
    pid[n++] = (int)p;
    at = end;
  }
  return n;
}

enum { MOST = 1024, NAP_MS = 100, PATIENCE_MS = 12000 };

int comm_stopped_rank(void)
{
  int pid[MOST], n = list_ranks((int)getppid(), pid, MOST);
  for (int i = 0; i < n; i++)
    if (is_stopped(pid[i])) return rank_of(pid[i]);
  return -1;
}

/* Until all have ended, or none of those that are left goes on. */
static void guard(int launcher)
{
  int pid[MOST], n;
  for (int stopped_ms = 0; (n = list_ranks(launcher, pid, MOST)) > 0;) {
    bool all = true;
    for (int i = 0; all && i < n; i++) all = is_stopped(pid[i]);
    stopped_ms = all ? stopped_ms + NAP_MS : 0;
    if (stopped_ms > PATIENCE_MS) {
      char text[100];
      int size = snprintf(text, sizeof text,
          "tycho: the ranks are done, but rank %d does not end: it is stopped\n", rank_of(pid[0]));
      sys_tell(text, (size_t)size);
      for (int i = 0; i < n; i++) kill(pid[i], SIGKILL);
      return;
    }
    nanosleep(&(struct timespec){ 0, NAP_MS * 1000000 }, NULL);
  }
}

void comm_guard_end(void)
{
  int launcher = (int)getppid(), first;
  if (list_ranks(launcher, &first, 1) < 1 || first != (int)getpid() || sys_fork()) return;
  signal(SIGTERM, SIG_DFL);
  sys_close(STDIN_FILENO);
  sys_close(STDOUT_FILENO);
  close_range(STDERR_FILENO + 1, ~0u, 0);
  guard(launcher);
  _exit(0);
}
