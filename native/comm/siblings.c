/* siblings.c - finds stopped ranks on this host, and a watcher process for the end of all ranks.
** There are no heartbeats while MPI starts or ends; /proc shows the processes that the launcher has
** started, and their environments say which ranks they are. A rank that ends in order reports that
** to the watcher, which names the others: launchers do not know ranks any more that MPI has
** released. */
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

/* Reads the beginning of a file in /proc/PID and appends a zero byte. Returns its length. */
static size_t process_read_file(char *text, size_t size, int pid, const char *name)
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

enum {
  FIELD_STATE = 3,                                    /* in /proc/PID/stat, from 1 (proc(5)) */
  FIELD_START = 22,                                   /* in the same file */
  STAT = 512                                          /* bytes of a buffer for it */
};

/* Returns a field of /proc/PID/stat (3 or more), with a space before it, in `text`; NULL: there is
** no such process. */
static const char *process_find_field(char text[STAT], int pid, int field)
{
  process_read_file(text, STAT, pid, "stat");
  const char *at = strrchr(text, ')');
  for (int i = 2; at && i < field; i++) at = strchr(at + 1, ' ');
  return at;
}

/* Returns the state of a process: 'R', 'S', 'T' ...; 0: it does not exist or has ended. */
static char process_get_state(int pid)
{
  char text[STAT];
  const char *at = process_find_field(text, pid, FIELD_STATE);
  return at && !strchr("ZX", at[1]) ? at[1] : 0;
}

static bool process_is_stopped(int pid)
{
  char state = process_get_state(pid);
  return state == 'T' || state == 't';
}

/* Returns when a process started, in clock ticks; 0: it has ended. It identifies a process whose
** number may be reused. */
static unsigned long long process_get_start(int pid)
{
  char text[STAT];
  const char *at = process_get_state(pid) ? process_find_field(text, pid, FIELD_START) : NULL;
  return at ? strtoull(at, NULL, 10) : 0;
}

/* Returns the rank of a process from its environment; -1: none. The variables are those of OpenMPI,
** MPICH and Intel, PMIx, Slurm. */
static int process_get_rank(int pid)
{
  static const char *const variables[] = {
    "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK=", "SLURM_PROCID="
  };
  static char text[1 << 17];
  size_t n = process_read_file(text, sizeof text, pid, "environ");
  for (int i = 0; i < COUNT(variables); i++)
    for (const char *p = text; p < text + n; p += strlen(p) + 1)
      if (!strncmp(p, variables[i], strlen(variables[i]))) return atoi(p + strlen(variables[i]));
  return -1;
}

/* Lists the ranks that a launcher has started on this host and that have not ended. Returns how
** many. */
static int launcher_list_ranks(int launcher, int *pid, int most)
{
  char text[1 << 14], name[64], *at = text, *end;
  int n = 0;
  snprintf(name, sizeof name, "task/%d/children", launcher);
  process_read_file(text, sizeof text, launcher, name);
  for (long p = strtol(at, &end, 10); end != at && n < most; p = strtol(at, &end, 10)) {
    if (process_get_state((int)p)) pid[n++] = (int)p;
    at = end;
  }
  return n;
}

enum {
  MAX_PROCESSES = 1024, /* most processes of a launcher on this host */
  NAP_MS        = 100   /* between two checks of them */
};

int comm_stopped_rank(void)
{
  int pid[MAX_PROCESSES], n = launcher_list_ranks((int)getppid(), pid, MAX_PROCESSES);
  for (int i = 0; i < n; i++)
    if (process_is_stopped(pid[i])) return process_get_rank(pid[i]);
  return -1;
}

/* -- the watcher ------------------------------------------------------------------------------- */

/* Makes the address of an abstract socket, named after the launcher. Returns its length. */
static socklen_t watcher_address(struct sockaddr_un *a, int launcher)
{
  *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
  int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "tycho-watcher-%d", launcher);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

void comm_leaves(void)
{
  struct sockaddr_un a;
  struct timeval most = { 1, 0 };
  int pid = (int)getpid(), s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (s < 0) return;
  setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  socklen_t n = watcher_address(&a, (int)getppid());
  sendto(s, &pid, sizeof pid, MSG_NOSIGNAL, (struct sockaddr *)&a, n);
  sys_close(s);
}

/* Opens the socket to which ranks report; -1: failed. */
static int watcher_open_socket(int launcher)
{
  struct sockaddr_un a;
  socklen_t n = watcher_address(&a, launcher);
  int socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_fd >= 0 && bind(socket_fd, (struct sockaddr *)&a, n)) return sys_close(socket_fd), -1;
  return socket_fd;
}

/* A rank that the watcher has seen. */
struct sibling {
  int pid, rank;
  /* runs this program, and so reports its end */
  bool alike;
  bool left;                                          /* has reported its end */
};
struct siblings { int n; bool reported; struct sibling rank[MAX_PROCESSES]; };

/* Returns whether a process runs this program in this network namespace: from another one reports
** would not arrive. */
static bool process_is_alike(int pid)
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

static struct sibling *siblings_find(struct siblings *s, int pid)
{
  for (int i = 0; i < s->n; i++)
    if (s->rank[i].pid == pid) return &s->rank[i];
  return NULL;
}

/* Adds new processes. Checks again the known ones that were not alike, since they may not have
** called exec at the last check. */
static void siblings_add(struct siblings *s, const int *pid, int n)
{
  for (int i = 0; i < n; i++) {
    struct sibling *r = siblings_find(s, pid[i]);
    if (!r && s->n < MAX_PROCESSES)
      *(r = &s->rank[s->n++]) = (struct sibling){ pid[i], -1, false, false };
    if (r && !r->alike && process_is_alike(r->pid))
      r->alike = true, r->rank = process_get_rank(r->pid);
  }
}

/* Receives the reports that have arrived. */
static void siblings_receive_leaves(struct siblings *s, int socket_fd)
{
  int pid;
  while (recv(socket_fd, &pid, sizeof pid, 0) == sizeof pid) {
    struct sibling *r = siblings_find(s, pid);
    if (r) r->left = true;
  }
}

/* Reports the ranks that have ended without reporting it. Does so only once: ranks that end later
** are ended by the launcher. */
static void siblings_report_ended(struct siblings *s, int socket_fd)
{
  bool ended[MAX_PROCESSES];
  if (socket_fd < 0 || s->reported) return;
  for (int i = 0; i < s->n; i++) {
    const struct sibling *r = &s->rank[i];
    ended[i] = r->alike && !r->left && !process_get_state(r->pid);
  }
  siblings_receive_leaves(s, socket_fd); /* reports are sent before the rank ends */
  for (int i = 0; i < s->n; i++) {
    const struct sibling *r = &s->rank[i];
    if (!ended[i] || r->left) continue;
    char text[128];
    int size = snprintf(text, sizeof text,
        "tycho: rank %d (process %d) has ended without a word: it was killed, or it crashed\n",
        r->rank, r->pid);
    sys_tell(text, (size_t)size);
    s->reported = true;
  }
}

/* Waits until all ranks have ended. If some have, and all others are stopped, ends these after
** patience_ms. */
static void siblings_watch_ranks(int launcher, int socket_fd, int patience_ms)
{
  static struct siblings all;
  int pid[MAX_PROCESSES], n;
  for (int stopped_ms = 0;;) {
    n = launcher_list_ranks(launcher, pid, MAX_PROCESSES);
    siblings_add(&all, pid, n);
    siblings_report_ended(&all, socket_fd);
    if (!n) return;
    bool stopped = n < all.n;
    for (int i = 0; stopped && i < n; i++) stopped = process_is_stopped(pid[i]);
    stopped_ms = stopped ? stopped_ms + NAP_MS : 0;
    if (stopped_ms > patience_ms) {
      char text[100];
      int size = snprintf(text, sizeof text,
          "tycho: the ranks are done, but rank %d does not end: it is stopped\n",
          process_get_rank(pid[0]));
      sys_tell(text, (size_t)size);
      for (int i = 0; i < n; i++) kill(pid[i], SIGKILL);
      return;
    }
    /* wakes for each report: a socket can queue few, and a host may have many ranks */
    while (poll(&(struct pollfd){ socket_fd, POLLIN, 0 }, 1, NAP_MS + n) > 0)
      siblings_receive_leaves(&all, socket_fd);
  }
}

/* Returns whether a process only starts ranks (not a daemon or shell). */
static bool process_is_launcher(int pid)
{
  static const char *const names[] = { "mpirun\n", "mpiexec\n", "orterun\n", "prterun\n" };
  char text[64];
  process_read_file(text, sizeof text, pid, "comm");
  for (int i = 0; i < COUNT(names); i++)
    if (!strcmp(text, names[i])) return true;
  return false;
}

/* Ends a launcher that hangs after its ranks have ended, as one that has lost a rank may do
** (OpenMPI 4.1.4 with PMIx 4.2.2). Launchers also wait until the ranks' streams are closed, so
** messages go to the launcher's own stream. */
static void siblings_watch_launcher(int launcher, unsigned long long since, int patience_ms)
{
  static const char text[] =
      "tycho: all ranks have ended, but the launcher does not: it is ended too\n";
  char path[64];
  sys_close(STDERR_FILENO);
  for (int ms = 0; ms <= patience_ms; ms += NAP_MS) {
    if (!since || process_get_start(launcher) != since) return;
    nanosleep(&(struct timespec){ 0, NAP_MS * 1000000 }, NULL);
  }
  snprintf(path, sizeof path, "/proc/%d/fd/%d", launcher, STDERR_FILENO);
  dup2(sys_open(path, O_WRONLY | O_APPEND, 0), STDERR_FILENO);
  sys_tell(text, sizeof text - 1);
  kill(launcher, SIGKILL);
}

void comm_watch_ranks(void)
{
  static bool done;
  if (done) return;
  done = true;
  int self = (int)getpid(), launcher = (int)getppid(), first;
  bool speaks = process_get_rank(self) >= 0 && launcher_list_ranks(launcher, &first, 1) > 0 &&
      first == self;
  int socket_fd = speaks ? watcher_open_socket(launcher) : -1;
  if (!speaks || sys_fork()) {
    if (socket_fd >= 0) sys_close(socket_fd);
    atexit(comm_leaves);
    return;
  }
  int patience_ms = 1000 * (int)env_number("TYCHO_COMM_PATIENCE", 15);
  unsigned long long since = process_get_start(launcher);
  setsid(); /* keeps signals to the ranks from the watcher */
  signal(SIGTERM, SIG_DFL);
  sys_close(STDIN_FILENO);
  sys_close(STDOUT_FILENO);
  socket_fd = dup2(socket_fd, STDERR_FILENO + 1);
  sys_close_from(STDERR_FILENO + 2);
  siblings_watch_ranks(launcher, socket_fd, patience_ms);
  if (process_is_launcher(launcher)) siblings_watch_launcher(launcher, since, patience_ms);
  sys_exit(0);
}
