/* system.h - the door to the operating system: what opens and writes files, takes pages, starts
** threads and loads libraries. No other file of native/ calls it for that (scripts/dev/check.lua
** reports those that do), so that a test can let each of these calls fail (gate.h). Results and
** errno are those of the functions of the same names. Calls that only give back (free, munmap,
** fclose of what was read) or only give advice (madvise) need no door. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* -- files; calls go on after EINTR ------------------------------------------------------------ */

int     sys_open(const char *path, int flags, mode_t mode);
ssize_t sys_pread(int fd, void *to, size_t n, off_t at);
int     sys_fsync(int fd);
int     sys_close(int fd);
/* Closes all descriptors from `first` on. */
void    sys_close_from(int first);
/* Gives the file of a descriptor, which has no name, one. */
int     sys_link(int fd, const char *to);
/* Writes to standard error. Safe in a handler of a signal. */
void    sys_tell(const char *text, size_t n);
int     sys_rename(const char *from, const char *to);
int     sys_mkdir(const char *path, mode_t mode);
int     sys_truncate(const char *path, off_t bytes);
char   *sys_realpath(const char *path);                   /* to be freed */
/* Opens a stream, whose reads and writes pass the gate too, by way of the descriptor. */
FILE   *sys_fopen(const char *path, const char *mode);
FILE   *sys_fdopen(int fd, const char *mode);

/* -- pages, neither counted nor limited (those of devices are, in device/blocks.c) ------------- */

void   *sys_aligned(size_t align, size_t bytes);          /* to be freed; NULL: out of memory */
void   *sys_map(size_t bytes, int access);                /* private; NULL: out of memory */
int     sys_protect(void *pages, size_t bytes, int access);

/* -- threads and libraries --------------------------------------------------------------------- */

int     sys_thread(pthread_t *thread, void *(*run)(void *), void *context);
pid_t   sys_fork(void);
/* Returns whether the process is a fork of one in which threads were started: it lacks them. */
bool    sys_forked(void);
int     sys_have_threads(void);                           /* TY_ESTATE in such a process */
void    sys_join(pthread_t thread);                       /* nothing in such a process */
/* Sleeps until sys_wake of the word; returns at once unless it has this value, at times early. */
void    sys_sleep_on(const uint32_t *word, uint32_t value);
/* Wakes at most n threads that sleep on a word. */
void    sys_wake(const uint32_t *word, int n);
/* Ends the process at once, without handlers of exit. */
_Noreturn void sys_exit(int status);
/* Calls f with the exit status and the context when the process ends by exit; with status 0 where
** the C library does not pass the status (musl). */
void    sys_on_exit(void (*f)(int status, void *context), void *context);
/* Flushes coverage counters: call it before code that may end the process itself (MPI_Abort). */
void    sys_before_end(void);
void   *sys_dlopen(const char *name, int flags);
