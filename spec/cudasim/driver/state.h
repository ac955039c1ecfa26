/* state.h - the lock, and what it guards. */
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
/* Returns the number of live objects of other libraries, by kind (library.cc). */
std::map<std::string, long> &library_objects();
