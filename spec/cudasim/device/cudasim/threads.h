/* threads.h - where a thread is in its block and grid, and how a block waits for itself. */
#pragma once

extern "C" {
struct cudasim_grid { uint3 block; uint3 block_dim, grid_dim; };
struct cudasim_thread { uint3 index; unsigned lane, warp; };
extern struct cudasim_grid cudasim_grid;
/* the thread that runs */
extern struct cudasim_thread *cudasim_self;
/* Waits for all threads of the block and returns the sum of their `add`. `line` tells barriers
** apart. */
int cudasim_barrier(int line, int add);
[[noreturn]] void cudasim_trap(const char *what, int line);
long long cudasim_clock(void);
}
#define threadIdx (cudasim_self->index)
#define blockIdx (cudasim_grid.block)
#define blockDim (cudasim_grid.block_dim)
#define gridDim (cudasim_grid.grid_dim)
#define warpSize 32

#define __syncthreads() ((void)cudasim_barrier(__LINE__, 0))
#define __syncthreads_count(p) cudasim_barrier(__LINE__, !!(p))
#define __syncthreads_or(p) (cudasim_barrier(__LINE__, !!(p)) != 0)
#define __syncthreads_and(p) (cudasim_barrier(__LINE__, !(p)) == 0)
#define __trap() cudasim_trap("__trap()", __LINE__)
#undef assert
#define assert(x) ((x) ? (void)0 : cudasim_trap("assertion failed: " #x, __LINE__))

static inline void __threadfence() { __asm__ volatile("" ::: "memory"); }
static inline void __threadfence_block() { __asm__ volatile("" ::: "memory"); }
static inline void __threadfence_system() { __asm__ volatile("" ::: "memory"); }
static inline void __nanosleep(unsigned) {}
static inline long long clock64() { return cudasim_clock(); }
#ifndef CUDASIM_HOST
static inline int clock() { return (int)cudasim_clock(); }
#endif
static inline unsigned long long __globaltimer() { return (unsigned long long)cudasim_clock(); }
