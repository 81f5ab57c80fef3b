// One pool of worker threads for the whole process, shared by concurrent calls.
#pragma once
#include <stddef.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace cuzk {

// A loop of `tasks` independent pieces, taken one by one by the caller and at most `helpers` workers. It lies on its
// caller's stack; the pool only links it while it runs.
struct Job {
  void (*body)(void *context, size_t task, unsigned slot);
  void *context;
  size_t tasks;
  unsigned helpers;
  std::atomic<size_t> next{0};
  unsigned joined = 0, active = 0;  // under the pool's mutex
  Job *link = nullptr;
};

class ThreadPool {
 public:
  static constexpr unsigned max_threads = 256;

  static ThreadPool &instance();
  // Processors in this process's affinity mask, at most max_threads.
  static unsigned processors();

  // Runs job's body once for each task; returns when all are done. Slots of those that run at the same time differ and
  // are at most job.helpers; the caller's is 0.
  void run(Job &job);

  // Workers give way to other threads of the process: they run at this absolute niceness, from their next job on.
  void give_way(int niceness);

 private:
  ThreadPool() = default;
  void work();
  void spawn(unsigned wanted);
  static void drain(Job &job, unsigned slot);
  static void reset_after_fork();

  std::mutex mutex_;
  std::condition_variable work_, done_;
  Job *jobs_ = nullptr;
  unsigned workers_ = 0;
  std::optional<int> niceness_;
};

}  // namespace cuzk
