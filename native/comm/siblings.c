/* siblings.c - which rank of this host is stopped, and a guard over the end of all. Ranks cannot
** hear each other while MPI begins or ends; then the system is asked of the processes that their
** launcher has started, whose environments say which ranks they are. Who ends as it should tells
** the guard, which names the one that does not: launchers know no rank that MPI has let go.
*/
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

/* -- the guard --------------------------------------------------------------------------------- */

/* A socket without a file, named after the launcher. */
static socklen_t guard_address(struct sockaddr_un *a, int launcher)
{
  *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
  int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "tycho-guard-%d", launcher);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

void comm_leaves(void)
{
  struct sockaddr_un a;
  struct timeval most = { 1, 0 };
  int pid = (int)getpid(), s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (s < 0) return;
  setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  socklen_t n = guard_address(&a, (int)getppid());
  sendto(s, &pid, sizeof pid, MSG_NOSIGNAL, (struct sockaddr *)&a, n);
  sys_close(s);
}

/* -1: none */
static int open_ear(int launcher)
{
  struct sockaddr_un a;
  socklen_t n = guard_address(&a, launcher);
  int ear = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (ear >= 0 && bind(ear, (struct sockaddr *)&a, n)) return sys_close(ear), -1;
  return ear;
}

/* A rank that the guard has seen. `ours`: it runs the guard's program, which tells when it ends. */
struct sibling { int pid, rank; bool ours, left; };
struct siblings { int n; bool told; struct sibling rank[MOST]; };

/* In a network of its own a rank's words would not arrive. */
static bool runs_this(int pid)
{
  static const char *const same[] = { "exe", "ns/net" };
  for (int i = 0; i < COUNT(same); i++) {
    char path[64], self[64];
    struct stat other, own;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, same[i]);
    snprintf(self, sizeof self, "/proc/self/%s", same[i]);
    if (stat(path, &other) || stat(self, &own)) return false;
    if (other.st_ino != own.st_ino || other.st_dev != own.st_dev) return false;
  }
  return true;
}

static struct sibling *find(struct siblings *s, int pid)
{
  for (int i = 0; i < s->n; i++)
    if (s->rank[i].pid == pid) return &s->rank[i];
  return NULL;
}

static void meet(struct siblings *s, const int *pid, int n)
{
  for (int i = 0; i < n; i++) {
    struct sibling *r = find(s, pid[i]);
    if (!r && s->n < MOST) *(r = &s->rank[s->n++]) = (struct sibling){ pid[i], -1, false, false };
    if (r && !r->ours && runs_this(r->pid)) r->ours = true, r->rank = rank_of(r->pid);
  }
}

static void hear(struct siblings *s, int ear)
{
  int pid;
  while (recv(ear, &pid, sizeof pid, 0) == sizeof pid) {
    struct sibling *r = find(s, pid);
    if (r) r->left = true;
  }
}

/* Names those that have ended without a word; the others, who are ended then, are no news. */
static void tell_ended(struct siblings *s, int ear)
{
  bool ended[MOST];
  if (ear < 0 || s->told) return;
  for (int i = 0; i < s->n; i++) {
    const struct sibling *r = &s->rank[i];
    ended[i] = r->ours && !r->left && !state_of(r->pid);
  }
  hear(s, ear); /* what they said comes before their end */
  for (int i = 0; i < s->n; i++) {
    const struct sibling *r = &s->rank[i];
    if (!ended[i] || r->left) continue;
    char text[128];
    int size = snprintf(text, sizeof text,
        "tycho: rank %d (process %d) has ended without a word: it was killed, or it crashed\n",
        r->rank, r->pid);
    sys_tell(text, (size_t)size);
    s->told = true;
  }
}

/* Until all have ended, or some have and none of those that are left goes on. */
static void guard_ranks(int launcher, int ear, int patience_ms)
{
  static struct siblings all;
  int pid[MOST], n;
  for (int stopped_ms = 0;;) {
    n = list_ranks(launcher, pid, MOST);
    meet(&all, pid, n);
    tell_ended(&all, ear);
    if (!n) return;
    bool stopped = n < all.n;
    for (int i = 0; stopped && i < n; i++) stopped = is_stopped(pid[i]);
    stopped_ms = stopped ? stopped_ms + NAP_MS : 0;
    if (stopped_ms > patience_ms) {
      char text[100];
      int size = snprintf(text, sizeof text,
          "tycho: the ranks are done, but rank %d does not end: it is stopped\n", rank_of(pid[0]));
      sys_tell(text, (size_t)size);
      for (int i = 0; i < n; i++) kill(pid[i], SIGKILL);
      return;
    }
    /* a host may have many; few words wait at a time, so that they are taken at once */
    while (poll(&(struct pollfd){ ear, POLLIN, 0 }, 1, NAP_MS + n) > 0) hear(&all, ear);
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
  static bool done;
  if (done) return;
  done = true;
  int self = (int)getpid(), launcher = (int)getppid(), first;
  bool speaks = rank_of(self) >= 0 && list_ranks(launcher, &first, 1) > 0 && first == self;
  int ear = speaks ? open_ear(launcher) : -1;
  if (!speaks || sys_fork()) {
    if (ear >= 0) sys_close(ear);
    atexit(comm_leaves);
    return;
  }
  int patience_ms = 1000 * (int)env_number("TYCHO_COMM_PATIENCE", 15);
  unsigned long long since = began(launcher);
  setsid(); /* signals to the ranks are not for the guard */
  signal(SIGTERM, SIG_DFL);
  sys_close(STDIN_FILENO);
  sys_close(STDOUT_FILENO);
  ear = dup2(ear, STDERR_FILENO + 1);
  sys_close_from(STDERR_FILENO + 2);
  guard_ranks(launcher, ear, patience_ms);
  if (is_launcher(launcher)) guard_launcher(launcher, since, patience_ms);
  sys_exit(0);
}
