/* library.h - the driver's interface for the stand-ins of CUDA's other libraries: checks at the
** beginning of a function, work on a stream, and the memory that this work reads and writes.
** Implemented in driver/library.cc. */
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "../driver/abi.h"

namespace cudasim {
#pragma GCC visibility push(default)

/* Begins a function of a library. Returns 0; `broken` where this thread has no context or an error
** sticks to it; or the code that CUDASIM_FAIL plans for the name, `refused` where it plans none. */
int enter_call(const char *name, int refused, int broken);
/* Begins a function that needs no context. */
int enter_anywhere(const char *name, int refused);
/* Reports on stderr and counts what a correct program never does. Returns code. */
int report_misuse(int code, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the device of this thread's context. */
int current_device();
/* Returns the device of a stream; -1: it is freed or was never made. */
int device_of(CUstream s);
bool is_device_memory(const void *p);
/* Returns the compute capability, as 90. */
int find_architecture();

/* How a library call uses memory. Memory that it reads must have been written. Scratch is filled
** with NaN before the call and counts as not written after it. */
enum Use { READS = 1, WRITES = 2, UPDATES = 3, SCRATCH = 4 };
/* a region: `rows` pieces of `bytes` bytes, `step` bytes apart */
struct Region {
  const char *name;
  const void *p;
  size_t bytes;
  Use use;
  size_t rows = 1, step = 0;
};
typedef std::function<void()> Job;
/* Submits one entry of a stream, like a launch. If a region is not device memory, the work is not
** done, and the error sticks. way: number of the library's algorithm. All but CUDASIM_FASTEST take
** twice as long by the clock of events; costs contain numbers other than 0. */
CUresult give_work(CUstream s, const char *name, std::vector<Region> regions, Job job, int way = 0);

/* Submits work that may not begin before `ready`: it waits for another rank, of this process or
** another. The stream must not capture. */
CUresult give_when(CUstream s, const char *name, std::vector<Region> regions, Job job,
    std::function<bool()> ready);

/* Adds `change` to the number of live objects of a kind, for the report of leaks. */
void count_object(const char *kind, int change);

#pragma GCC visibility pop
}
