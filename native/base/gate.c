/* gate.c - see gate.h. */
#include "base/gate.h"

#ifdef TY_TORTURE
#include <errno.h>
#include <unistd.h>

static struct gate { int64_t passed, at; int lasting, fault; } gates[GATES];

int gate_fault(int gate)
{
  struct gate *s = &gates[gate];
  const int64_t n = __atomic_add_fetch(&s->passed, 1, __ATOMIC_SEQ_CST);
  const int64_t at = __atomic_load_n(&s->at, __ATOMIC_SEQ_CST);
  const bool fails = at && (n == at || (n > at && __atomic_load_n(&s->lasting, __ATOMIC_SEQ_CST)));
  return fails ? __atomic_load_n(&s->fault, __ATOMIC_SEQ_CST) : 0;
}

bool ty_torture_lua(void) { return gate_fault(GATE_LUA) != 0; }

int64_t ty_torture(int gate, int64_t at, int lasting, int fault)
{
  struct gate *s = &gates[gate];
  __atomic_store_n(&s->at, 0, __ATOMIC_SEQ_CST);
  const int64_t n = __atomic_exchange_n(&s->passed, 0, __ATOMIC_SEQ_CST);
  __atomic_store_n(&s->lasting, lasting, __ATOMIC_SEQ_CST);
  __atomic_store_n(&s->fault, fault, __ATOMIC_SEQ_CST);
  __atomic_store_n(&s->at, at, __ATOMIC_SEQ_CST);
  return n;
}

/* -- streams: the C library calls these instead of the system ---------------------------------- */

static int file_descriptor(void *fd) { return (int)(intptr_t)fd; }

/* Returns how many bytes a call may read or write; -1: it must fail, with errno set. */
static ssize_t bytes_admitted(size_t n)
{
  const int fault = gate_fault(GATE_SYSTEM);
  if (fault > 0) errno = fault;
  return fault > 0 ? -1 : (ssize_t)(fault ? (n + 1) / 2 : n);
}

static ssize_t read_some(void *fd, char *to, size_t n)
{
  const ssize_t admitted = bytes_admitted(n);
  return admitted < 0 ? -1 : read(file_descriptor(fd), to, (size_t)admitted);
}

/* Writes for a stream. A failure is a return value of 0, unlike that of write(2); the C library
** treats a short count as one too. */
static ssize_t write_some(void *fd, const char *from, size_t n)
{
  const ssize_t admitted = bytes_admitted(n);
  const ssize_t done = admitted < 0 ? 0 : write(file_descriptor(fd), from, (size_t)admitted);
  if (admitted >= 0 && (size_t)admitted < n) errno = ENOSPC;
  return done < 0 ? 0 : done;
}

static int seek_to(void *fd, off64_t *offset, int whence)
{
  const off64_t at = lseek64(file_descriptor(fd), *offset, whence);
  if (at >= 0) *offset = at;
  return at < 0 ? -1 : 0;
}

static int close_it(void *fd)
{
  const int fault = gate_fault(GATE_SYSTEM);
  const int code = close(file_descriptor(fd));
  if (fault > 0) errno = fault;
  return fault > 0 ? -1 : code;
}

FILE *gate_stream(int fd, const char *mode)
{
  return fopencookie((void *)(intptr_t)fd, mode,
      (cookie_io_functions_t){ read_some, write_some, seek_to, close_it });
}
#else
typedef int gate_unused;                               /* a translation unit must not be empty */
#endif

#ifdef TY_COUNTS
void __gcov_dump(void);
void __gcov_reset(void);

void gate_counts(void)
{
  __gcov_dump();
  __gcov_reset(); /* a dump is written once unless counters are reset */
}
#endif
