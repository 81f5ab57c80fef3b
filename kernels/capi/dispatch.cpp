// Choice of the code path at run time, and the library's own facts.
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

#include "path_table.hpp"
#include "scheduling.hpp"
#include "source_hash.h"

namespace cuzk {

namespace portable {
extern const PathTable table;
}
#ifdef CUZK_HAVE_ADX
namespace adx {
extern const PathTable table;
}
#endif
#ifdef CUZK_HAVE_IFMA
namespace ifma {
extern const PathTable table;
}
#endif

namespace {

struct Candidate {
  const char *name;  // its features, joined by '+'
  const PathTable *table;
};

// The paths that this processor can run, best last.
std::vector<Candidate> candidates() {
  std::vector<Candidate> c{{"portable", &portable::table}};
#if defined(CUZK_HAVE_ADX) || defined(CUZK_HAVE_IFMA)
  __builtin_cpu_init();
#endif
#ifdef CUZK_HAVE_ADX
  const bool adx = __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("adx");
  if (adx) c.push_back({"bmi2+adx", &adx::table});
#endif
#ifdef CUZK_HAVE_IFMA
  if (adx && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512ifma"))
    c.push_back({"bmi2+adx+avx512ifma", &ifma::table});
#endif
  return c;
}

// Whether the comma-separated list `allowed` lets a path of these features, joined by '+', be used.
bool is_allowed(const std::string &name, const std::string &allowed) {
  if (name == "portable") return true;
  const std::string list = ",bmi2,adx," + allowed + ",";
  if (list.find(",portable,") != std::string::npos) return false;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('+', begin), name.size());
    if (list.find("," + name.substr(begin, end - begin) + ",") == std::string::npos) return false;
    begin = end + 1;
  }
  return true;
}

struct Choice {
  Candidate used{};
  std::string available;

  // CUZK_CPU_FEATURES, where set, lists the vector instructions that may be used: "" none, "avx512ifma"; bmi2 and adx
  // need not be named. "portable" is plain C++ alone.
  Choice() {
    const char *allowed = getenv("CUZK_CPU_FEATURES");
    for (const Candidate &c : candidates()) {
      if (!available.empty()) available += ",";
      available += c.name;
      if (!allowed || is_allowed(c.name, allowed)) used = c;
    }
  }
};

const Choice &choice() {
  static const Choice *const c = new Choice;  // never destroyed: workers may outlive static destructors
  return *c;
}

// How often this thread has given its processor up of itself.
long given_up() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

const PathTable &paths() { return *choice().used.table; }

}  // namespace cuzk

extern "C" {

const char *cuzk_source_hash(void) { return CUZK_SOURCE_HASH; }
const char *cuzk_isa(void) { return cuzk::choice().used.name; }
const char *cuzk_isa_available(void) { return cuzk::choice().available.c_str(); }
uint32_t cuzk_threads(void) { return cuzk::ThreadPool::processors(); }

int cuzk_run_before_pool(int niceness, uint64_t slice_ns) {
  const int refused = cuzk::schedule(cuzk::niceness(), slice_ns);
  if (refused == 0) cuzk::ThreadPool::instance().give_way(niceness);
  return refused;
}

int cuzk_has_to_wait(uint32_t microseconds, int (*acquire)(void), void (*release)(int)) {
  if (!acquire || !release) return -1;
  const timespec time{static_cast<time_t>(microseconds / 1000000), static_cast<long>(microseconds % 1000000) * 1000};
  nanosleep(&time, nullptr);
  const long before = cuzk::given_up();
  const int state = acquire();
  const bool waited = cuzk::given_up() != before;
  release(state);
  return waited;
}

}  // extern "C"
