#include "scheduling.hpp"

#include <errno.h>
#include <sys/resource.h>

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace cuzk {

#if defined(__linux__) && defined(SYS_sched_setattr)

namespace {

// struct sched_attr of linux/sched/types.h, version 0, which cannot be included beside every sched.h.
struct Attributes {
  uint32_t size = sizeof(Attributes), policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;
};
static_assert(sizeof(Attributes) == 48, "the kernel knows it by its size");

}  // namespace

int schedule(int niceness, uint64_t slice_ns) {
  if (sched_getscheduler(0) != SCHED_OTHER) return EINVAL;  // somebody chose it: it stays
  Attributes attributes;
  attributes.nice = niceness;
  attributes.runtime = slice_ns;
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0 ? 0 : errno;
}

int niceness() { return getpriority(PRIO_PROCESS, 0); }

#else

int schedule(int, uint64_t) { return ENOSYS; }
int niceness() { return 0; }

#endif

}  // namespace cuzk
