/* system.c - see system.h: each function asks the gate, then the system. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/base.h"
#include "base/gate.h"
#include "base/system.h"

/* Returns whether the call must fail, with errno set. */
static bool gate_refuses(void)
{
  const int fault = gate_fault(GATE_SYSTEM);
  if (fault > 0) errno = fault;
  return fault > 0;
}

/* -- files ------------------------------------------------------------------------------------- */

int sys_open(const char *path, int flags, mode_t mode)
{
  int fd;
  do
    fd = gate_refuses() ? -1 : open(path, flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

ssize_t sys_pread(int fd, void *to, size_t n, off_t at)
{
  ssize_t got;
  do {
    const int fault = gate_fault(GATE_SYSTEM);
    if (fault > 0) errno = fault;
    got = fault > 0 ? -1 : pread(fd, to, fault ? (n + 1) / 2 : n, at);
  } while (got < 0 && errno == EINTR);
  return got;
}

int sys_fsync(int fd)
{
  int code;
  do
    code = gate_refuses() ? -1 : fsync(fd);
  while (code && errno == EINTR);
  return code;
}

int sys_close(int fd)
{
  const bool fails = gate_refuses();
  const int code = close(fd);                              /* it is closed in any case */
  return fails ? -1 : code;
}

void sys_close_from(int first) { syscall(SYS_close_range, first, ~0u, 0); }

int sys_link(int fd, const char *to)
{
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return gate_refuses() ? -1 : linkat(AT_FDCWD, path, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
}

void sys_tell(const char *text, size_t n)
{
  while (n) {
    ssize_t done = write(2, text, n);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text += done;
    n -= (size_t)done;
  }
}

int sys_rename(const char *from, const char *to) { return gate_refuses() ? -1 : rename(from, to); }
int sys_mkdir(const char *path, mode_t mode) { return gate_refuses() ? -1 : mkdir(path, mode); }
int sys_truncate(const char *path, off_t bytes)
{
  return gate_refuses() ? -1 : truncate(path, bytes);
}

char *sys_realpath(const char *path)
{
  if (gate_fault(GATE_MEMORY)) return errno = ENOMEM, NULL;
  return realpath(path, NULL);
}

#ifdef TY_TORTURE
FILE *sys_fopen(const char *path, const char *mode)
{
  const bool both = strchr(mode, '+') != NULL;
  const int access = both ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
  const int made = *mode == 'w' ? O_CREAT | O_TRUNC : *mode == 'a' ? O_CREAT | O_APPEND : 0;
  const int fd = sys_open(path, access | made, 0666);
  FILE *f = fd < 0 ? NULL : sys_fdopen(fd, mode);
  if (fd >= 0 && !f) close(fd);
  return f;
}

FILE *sys_fdopen(int fd, const char *mode) { return gate_refuses() ? NULL : gate_stream(fd, mode); }
FILE *ty_torture_open(const char *path, const char *mode) { return sys_fopen(path, mode); }
#else
FILE *sys_fopen(const char *path, const char *mode) { return fopen(path, mode); }
FILE *sys_fdopen(int fd, const char *mode) { return fdopen(fd, mode); }
#endif

/* -- pages ------------------------------------------------------------------------------------- */

void *sys_aligned(size_t align, size_t bytes)
{
  void *p = NULL;
  return gate_fault(GATE_MEMORY) || posix_memalign(&p, align, bytes) ? NULL : p;
}

void *sys_map(size_t bytes, int access)
{
  if (gate_fault(GATE_MEMORY)) return NULL;
  void *p = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

int sys_protect(void *pages, size_t bytes, int access)
{
  return gate_fault(GATE_MEMORY) ? -1 : mprotect(pages, bytes, access);
}

/* Touches as much stack as our deepest calls need, at start-up, when nothing can be lost: the stack
** of the main thread grows as it is used, and if it cannot, a signal ends the process. */
__attribute__((constructor, noinline)) static void reserve_stack(void)
{
  enum { RESERVE = 1 << 20 };
  struct rlimit most;
  void *reserve =
      mmap(NULL, RESERVE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserve == MAP_FAILED) return;
  munmap(reserve, RESERVE);
  if (gettid() != getpid() || getrlimit(RLIMIT_STACK, &most) || most.rlim_cur < 4 * RESERVE) return;
  volatile char *deepest = __builtin_alloca(RESERVE);
  *deepest = 0;
}

/* -- threads and libraries --------------------------------------------------------------------- */

static int forked;
static void note_fork(void) { __atomic_store_n(&forked, 1, __ATOMIC_RELAXED); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }
pid_t sys_fork(void) { return gate_refuses() ? -1 : fork(); }

void sys_before_end(void) { gate_counts(); }

#ifdef __GLIBC__
void sys_on_exit(void (*f)(int status, void *context), void *context) { on_exit(f, context); }
#else
static struct { void (*f)(int status, void *context); void *context; } at_exit;

static void call_at_exit(void) { at_exit.f(0, at_exit.context); }

void sys_on_exit(void (*f)(int status, void *context), void *context)
{
  at_exit.f = f;
  at_exit.context = context;
  atexit(call_at_exit);
}
#endif

void sys_exit(int status)
{
  sys_before_end();
  _exit(status);
}

bool sys_forked(void) { return __atomic_load_n(&forked, __ATOMIC_RELAXED); }

int sys_have_threads(void)
{
  NEED(!sys_forked(), TY_ESTATE,
      "this process is a fork of one that had used the engine, and has none of its threads; fork "
      "before the first use (in nginx: use it from init_worker_by_lua on), or start a program");
  return TY_OK;
}

void sys_join(pthread_t thread)
{
  if (!sys_forked()) pthread_join(thread, NULL);
}

int sys_thread(pthread_t *thread, void *(*run)(void *), void *context)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  return gate_refuses() ? EAGAIN : pthread_create(thread, NULL, run, context);
}

/* Operations of futex(2) on words of one process: musl's compiler lacks the kernel's header. */
enum { FUTEX_SLEEP = 0 | 128, FUTEX_WAKE_UP = 1 | 128 };

void sys_sleep_on(const uint32_t *word, uint32_t value)
{
  syscall(SYS_futex, word, FUTEX_SLEEP, value, NULL, NULL, 0);
}

void sys_wake(const uint32_t *word, int n)
{
  syscall(SYS_futex, word, FUTEX_WAKE_UP, n, NULL, NULL, 0);
}

/* Opens a library. If the gate refuses, it tries a name that does not exist, so that dlerror has a
** text. */
void *sys_dlopen(const char *name, int flags)
{
  return dlopen(gate_refuses() ? "/nowhere" : name, flags);
}
