/* check.h - what block.cc and launch.cc ask of each other, and what the driver tells the checker
** of device memory. */
#pragma once
#include <stddef.h>
#include <stdint.h>

bool launch_broken(void);
uint64_t launch_random(void);

/* device memory may lie here */
void check_arena(const char *p, size_t bytes);
/* bytes exist from now on (nobody has written them), or no longer */
void check_memory(const char *p, size_t bytes, bool there);
/* the host's side wrote bytes; a copy wrote what it read, or left it unwritten */
void check_written(const void *p, size_t bytes);
void check_copied(const void *to, const void *from, size_t bytes);
/* a part of a module, whose variables kernels share */
void check_module(const char *p, size_t bytes, bool writable);
/* host memory that the next launch may read */
void check_parameters(const void *p, size_t bytes);
