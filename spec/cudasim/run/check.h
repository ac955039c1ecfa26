/* check.h - interface of the checker, and what block.cc and launch.cc use of each other. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string>

struct Launch;
bool launch_broken(void);
uint64_t launch_random(void);

/* Notes that a launch begins. */
void check_launch(const Launch &l);
/* Notes that a block of the launch begins. */
void check_block(void);
/* Registers the arena, in which device memory is allocated. */
void check_arena(const char *p, size_t bytes);
/* Notes that bytes are allocated and not written (there), or freed. */
void check_memory(const char *p, size_t bytes, bool there);
/* Notes that the host's side wrote bytes. */
void check_written(const void *p, size_t bytes);
/* Returns whether all bytes have been written, as far as is known. */
bool check_read(const void *p, size_t bytes);
/* Notes a copy: bytes at `to` count as written where those at `from` do. */
void check_copied(const void *to, const void *from, size_t bytes);
/* Registers a part of a module, whose variables kernels share. */
void check_module(const char *p, size_t bytes, bool writable);
/* Forgets a part of a module. */
void check_unload(const char *p);
/* Notes host memory that the next launch may read. */
void check_parameters(const void *p, size_t bytes);

/* Distinct bytes of device memory that the last launch read, and wrote; 0 where nothing watches. */
struct Moved { uint64_t read, written; };
Moved check_moved(void);

/* Returns whether bytes are pinned memory, which kernels may touch. Defined by the driver's
** side. */
bool is_pinned(const void *p, size_t bytes);
/* Describes an address for a report. Defined by the driver's side. */
std::string describe_address(const void *p);
