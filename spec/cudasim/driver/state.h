/* state.h - the lock, and what hangs on it directly. */
#pragma once
#include "driver.h"

struct State {
  std::mutex lock;
  std::condition_variable changed;                    /* work was done, or there is some */
  bool started = false;
  std::string why;
};
extern State &state;
extern thread_local bool in_host_function;
void start_planning();
void start_memory();
void start_queues();
void start_leaks();
/* objects of other libraries that live, by kind (library.cc) */
std::map<std::string, long> &library_objects();
