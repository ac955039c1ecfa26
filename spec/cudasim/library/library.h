/* library.h - what the stand-ins of CUDA's other libraries ask of the driver's: whether a function
** may go on, work on a stream, and which memory that work reads and writes. Implemented in
** driver/library.cc. */
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "../driver/abi.h"

namespace cudasim {
#pragma GCC visibility push(default)

/* A function of a library begins: 0; `broken` where this thread has no context or an error sticks
** to it; or what CUDASIM_FAIL plans for the name, `refused` where it plans no code. */
int enter(const char *name, int refused, int broken);
/* The same for functions that need no context. */
int enter_anywhere(const char *name, int refused);
/* What a correct program never does: said on stderr and counted. Returns `code`. */
int misuse(int code, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* device of this thread's context; of a stream (-1: not one that lives) */
int current_device();
int device_of(CUstream s);
bool is_device_memory(const void *p);
/* compute capability, as 90 */
int architecture();

/* How a library call uses memory. Memory that it reads must have been written; scratch is filled
** with NaN before the call, and counts as not written after it. */
enum Use { READS = 1, WRITES = 2, UPDATES = 3, SCRATCH = 4 };
/* `rows` pieces of `bytes` bytes, `step` bytes apart. */
struct Region {
  const char *name;
  const void *p;
  size_t bytes;
  Use use;
  size_t rows = 1, step = 0;
};
typedef std::function<void()> Job;
/* One entry of the stream, like a launch. Where a region is not there, the work is not done, and
** the error sticks. way: which of a library's ways does it, 0 its first; others than
** CUDASIM_FASTEST take twice as long by the clock of events, and costs say their number. */
CUresult give(CUstream s, const char *name, std::vector<Region> regions, Job job, int way = 0);

/* The same for work that may not begin before `ready`: it waits for another rank, of this process
** or another. Such a stream must not capture. */
CUresult give_when(CUstream s, const char *name, std::vector<Region> regions, Job job,
    std::function<bool()> ready);

/* Objects of a kind that live, for the report of leaks: one more, or less. */
void live(const char *kind, int change);

#pragma GCC visibility pop
}
