/* check.h - what block.cc and launch.cc ask of each other, and what the checker is told. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string>

struct Launch;
bool launch_broken(void);
uint64_t launch_random(void);

/* A launch begins; one of its blocks does. */
void check_launch(const Launch &l);
void check_block(void);
/* device memory may lie here */
void check_arena(const char *p, size_t bytes);
/* bytes exist from now on (not written yet), or no longer */
void check_memory(const char *p, size_t bytes, bool there);
/* the host's side wrote bytes; a copy wrote what it read, or left it unwritten */
void check_written(const void *p, size_t bytes);
/* whether all has been written, as far as is known */
bool check_read(const void *p, size_t bytes);
void check_copied(const void *to, const void *from, size_t bytes);
/* a part of a module, whose variables kernels share; it is gone */
void check_module(const char *p, size_t bytes, bool writable);
void check_unload(const char *p);
/* host memory that the next launch may read */
void check_parameters(const void *p, size_t bytes);

/* Distinct bytes of device memory that the last launch read, and wrote; 0 where nothing watches. */
struct Moved { uint64_t read, written; };
Moved check_moved(void);

/* asked of the driver's side: pinned memory, which kernels may touch; words for an address */
bool is_pinned(const void *p, size_t bytes);
std::string describe_address(const void *p);
