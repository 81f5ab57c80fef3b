// When the system lets a thread run.
#pragma once
#include <stdint.h>

namespace cuzk {

// Of the calling thread; inherited by the threads that it starts. Absolute niceness, and the time slice that it asks
// for, 0: the system's. Returns 0, or the errno of a system that refuses; slices are heeded by Linux from 6.12 on.
int schedule(int niceness, uint64_t slice_ns);
int niceness();

}  // namespace cuzk
