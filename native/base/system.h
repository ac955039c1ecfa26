/* system.h - system calls that can fail: files, pages, threads, libraries. All of native/ makes
** these calls through this header (scripts/dev/check.lua reports others), so that tests can make
** each of them fail (gate.h). Results and errno are those of the functions of the same names. Calls
** that only give back (free, munmap, fclose of a file that was read) or advise (madvise) are made
** directly. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* -- files; calls are repeated after EINTR ----------------------------------------------------- */

int     sys_open(const char *path, int flags, mode_t mode);
ssize_t sys_pread(int fd, void *to, size_t n, off_t at);
int     sys_fsync(int fd);
int     sys_close(int fd);
/* Closes all descriptors from `first` on. */
void    sys_close_from(int first);
/* Gives an unnamed file a name. */
int     sys_link(int fd, const char *to);
/* Writes to standard error. Safe in a signal handler. */
void    sys_tell(const char *text, size_t n);
int     sys_rename(const char *from, const char *to);
int     sys_mkdir(const char *path, mode_t mode);
int     sys_truncate(const char *path, off_t bytes);
char   *sys_realpath(const char *path);                   /* to be freed */
/* Open a stream. Its reads and writes pass the gate too. */
FILE   *sys_fopen(const char *path, const char *mode);
FILE   *sys_fdopen(int fd, const char *mode);

/* -- pages, not counted here (device/blocks.c counts those of devices) ------------------------- */

void   *sys_aligned(size_t align, size_t bytes);          /* to be freed; NULL: out of memory */
void   *sys_map(size_t bytes, int access);                /* private; NULL: out of memory */
int     sys_protect(void *pages, size_t bytes, int access);

/* -- threads and libraries --------------------------------------------------------------------- */

int     sys_thread(pthread_t *thread, void *(*run)(void *), void *context);
pid_t   sys_fork(void);
/* Returns whether the process was forked after threads were started: it does not have them. */
bool    sys_forked(void);
int     sys_have_threads(void);                           /* TY_ESTATE if sys_forked() */
void    sys_join(pthread_t thread);                       /* does nothing if sys_forked() */
/* Sleeps until sys_wake is called for the word, unless it has another value. May return early. */
void    sys_sleep_on(const uint32_t *word, uint32_t value);
/* Wakes up to n threads that sleep on a word. */
void    sys_wake(const uint32_t *word, int n);
/* Ends the process at once, without running exit handlers. */
_Noreturn void sys_exit(int status);
/* Registers an exit handler. f gets the exit status, or 0 if the C library does not pass it
** (musl). */
void    sys_on_exit(void (*f)(int status, void *context), void *context);
/* Flushes coverage counters: call it before code that may end the process itself (MPI_Abort). */
void    sys_before_end(void);
void   *sys_dlopen(const char *name, int flags);
