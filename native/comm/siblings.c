/* siblings.c - which rank of this host is stopped, and a guard over the end of all. Ranks cannot
** hear each other while MPI begins or ends; then the system is asked of the processes that their
** launcher has started, whose environments say which ranks they are.
*/
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/system.h"
#include "comm/comm.h"

/* The beginning of a file of /proc, with a zero behind it; its length. */
static size_t read_proc(char *text, size_t size, int pid, const char *name)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  int file = sys_open(path, O_RDONLY, 0);
  size_t n = 0;
  ssize_t got;
  if (file < 0) return text[0] = 0, 0;
  while ((got = sys_pread(file, text + n, size - 1 - n, (off_t)n)) > 0) n += (size_t)got;
  sys_close(file);
  text[n] = 0;
  return n;
}

enum { FIELD_STATE = 3, FIELD_START = 22, STAT = 512 };

/* A field of /proc/PID/stat from the third one on, with a space before it; NULL: no process. */
static const char *stat_field(char text[STAT], int pid, int field)
{
  read_proc(text, STAT, pid, "stat");
  const char *at = strrchr(text, ')');
  for (int i = 2; at && i < field; i++) at = strchr(at + 1, ' ');
  return at;
}

/* 'R', 'S', 'T' ...; 0: no process, or one that has ended */
static char state_of(int pid)
{
  char text[STAT];
  const char *at = stat_field(text, pid, FIELD_STATE);
  return at && !strchr("ZX", at[1]) ? at[1] : 0;
}

static bool is_stopped(int pid)
{
  char state = state_of(pid);
  return state == 'T' || state == 't';
}

/* When a process began, in ticks, 0 where it has ended: its number may be another one's by now. */
static unsigned long long began(int pid)
{
  char text[STAT];
  const char *at = state_of(pid) ? stat_field(text, pid, FIELD_START) : NULL;
  return at ? strtoull(at, NULL, 10) : 0;
}

/* As the launchers say it: OpenMPI, MPICH and Intel, PMIx, Slurm. */
static int rank_of(int pid)
{
  static const char *const told[] = {
    "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK=", "SLURM_PROCID="
  };
  static char text[1 << 17];
  size_t n = read_proc(text, sizeof text, pid, "environ");
  for (int i = 0; i < COUNT(told); i++)
    for (const char *p = text; p < text + n; p += strlen(p) + 1)
      if (!strncmp(p, told[i], strlen(told[i]))) return atoi(p + strlen(told[i]));
  return -1;
}

/* What a launcher has started here and has not ended. */
static int list_ranks(int launcher, int *pid, int most)
{
  char text[1 << 14], name[64], *at = text, *end;
  int n = 0;
  snprintf(name, sizeof name, "task/%d/children", launcher);
  read_proc(text, sizeof text, launcher, name);
  for (long p = strtol(at, &end, 10); end != at && n < most; p = strtol(at, &end, 10)) {
    if (state_of((int)p)) pid[n++] = (int)p;
    at = end;
  }
  return n;
}

enum { MOST = 1024, NAP_MS = 100 };

static void nap(int ms) { nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL); }

int comm_stopped_rank(void)
{
  int pid[MOST], n = list_ranks((int)getppid(), pid, MOST);
  for (int i = 0; i < n; i++)
    if (is_stopped(pid[i])) return rank_of(pid[i]);
  return -1;
}

/* Until all have ended, or some have and none of those that are left goes on. */
static void guard_ranks(int launcher, int patience_ms)
{
  int pid[MOST], n, most = 0;
  for (int stopped_ms = 0; (n = list_ranks(launcher, pid, MOST)) > 0;) {
    most = MAX(most, n);
    bool all = n < most;
    for (int i = 0; all && i < n; i++) all = is_stopped(pid[i]);
    stopped_ms = all ? stopped_ms + NAP_MS : 0;
    if (stopped_ms > patience_ms) {
      char text[100];
      int size = snprintf(text, sizeof text,
          "tycho: the ranks are done, but rank %d does not end: it is stopped\n", rank_of(pid[0]));
      sys_tell(text, (size_t)size);
      for (int i = 0; i < n; i++) kill(pid[i], SIGKILL);
      return;
    }
    nap(NAP_MS + n); /* a host may have many */
  }
}

/* A process that starts ranks and does nothing else: no daemon, no shell. */
static bool is_launcher(int pid)
{
  static const char *const names[] = { "mpirun\n", "mpiexec\n", "orterun\n", "prterun\n" };
  char text[64];
  read_proc(text, sizeof text, pid, "comm");
  for (int i = 0; i < COUNT(names); i++)
    if (!strcmp(text, names[i])) return true;
  return false;
}

/* A launcher that has lost a rank may wait for itself (OpenMPI 4.1.4 with PMIx 4.2.2). It waits for
** the end of the ranks' streams as well, so that its own has to do for the text. */
static void guard_launcher(int launcher, unsigned long long since, int patience_ms)
{
  static const char text[] =
      "tycho: all ranks have ended, but the launcher does not: it is ended too\n";
  char path[64];
  sys_close(STDERR_FILENO);
  for (int ms = 0; ms <= patience_ms; ms += NAP_MS) {
    if (!since || began(launcher) != since) return;
    nap(NAP_MS);
  }
  snprintf(path, sizeof path, "/proc/%d/fd/%d", launcher, STDERR_FILENO);
  dup2(sys_open(path, O_WRONLY | O_APPEND, 0), STDERR_FILENO);
  sys_tell(text, sizeof text - 1);
  kill(launcher, SIGKILL);
}

void comm_guard(void)
{
  int self = (int)getpid(), launcher = (int)getppid(), first;
  bool speaks = rank_of(self) >= 0 && list_ranks(launcher, &first, 1) > 0 && first == self;
  if (!speaks || sys_fork()) return;
  int patience_ms = 1000 * (int)env_number("TYCHO_COMM_PATIENCE", 15);
  unsigned long long since = began(launcher);
  setsid(); /* signals to the ranks are not for the guard */
  signal(SIGTERM, SIG_DFL);
  sys_close(STDIN_FILENO);
  sys_close(STDOUT_FILENO);
  close_range(STDERR_FILENO + 1, ~0u, 0);
  guard_ranks(launcher, patience_ms);
  if (is_launcher(launcher)) guard_launcher(launcher, since, patience_ms);
  _exit(0);
}
