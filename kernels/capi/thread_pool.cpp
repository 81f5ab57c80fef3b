#include "thread_pool.hpp"

#include <pthread.h>
#include <signal.h>

#include <new>
#include <system_error>
#include <thread>

#include "scheduling.hpp"

#ifdef __linux__
#include <sched.h>
#endif

namespace cuzk {

namespace {

// The pool is never destroyed: its workers are detached and may still wait on it while the process exits. After fork
// the child has no workers, and the mutex may have been held by a thread that is gone, so the child starts over with a
// fresh pool in the same place. A child may use the library, as long as the thread that forked was not itself inside a
// call.
alignas(ThreadPool) unsigned char storage[sizeof(ThreadPool)];

}  // namespace

ThreadPool &ThreadPool::instance() {
  static ThreadPool *const pool = [] {
    pthread_atfork(nullptr, nullptr, &ThreadPool::reset_after_fork);
    return new (storage) ThreadPool;
  }();
  return *pool;
}

void ThreadPool::reset_after_fork() { new (storage) ThreadPool; }

unsigned ThreadPool::processors() {
  unsigned n = 0;
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = static_cast<unsigned>(CPU_COUNT(&set));
#endif
  if (n == 0) n = std::thread::hardware_concurrency();
  if (n == 0) n = 1;
  return n < max_threads ? n : max_threads;
}

void ThreadPool::drain(Job &job, unsigned slot) {
  for (;;) {
    const size_t task = job.next.fetch_add(1, std::memory_order_relaxed);
    if (task >= job.tasks) return;
    job.body(job.context, task, slot);
  }
}

void ThreadPool::run(Job &job) {
  if (job.tasks == 0) return;
  if (job.helpers > job.tasks - 1) job.helpers = static_cast<unsigned>(job.tasks - 1);
  if (job.helpers == 0) {
    drain(job, 0);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    spawn(job.helpers);
    job.link = jobs_;
    jobs_ = &job;
  }
  for (unsigned i = 0; i < job.helpers; i++) work_.notify_one();
  drain(job, 0);
  std::unique_lock<std::mutex> lock(mutex_);
  for (Job **p = &jobs_; *p; p = &(*p)->link) {
    if (*p == &job) {
      *p = job.link;
      break;
    }
  }
  done_.wait(lock, [&] { return job.active == 0; });
}

void ThreadPool::give_way(int niceness) {
  std::lock_guard<std::mutex> lock(mutex_);
  niceness_ = niceness;
}

void ThreadPool::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  std::optional<int> niceness;
  for (;;) {
    Job *job = jobs_;
    while (job && (job->joined >= job->helpers || job->next.load(std::memory_order_relaxed) >= job->tasks))
      job = job->link;
    if (!job) {
      work_.wait(lock);
      continue;
    }
    const unsigned slot = ++job->joined;
    job->active++;
    const bool is_new = niceness != niceness_;
    niceness = niceness_;
    lock.unlock();
    if (is_new) schedule(*niceness, 0);  // not the slice that it inherited; one that may not stays as it is
    drain(*job, slot);
    lock.lock();
    if (--job->active == 0) done_.notify_all();
  }
}

// Workers block every signal, so that the process's handlers run on its own threads. When no more threads can be had,
// those that exist do the work.
void ThreadPool::spawn(unsigned wanted) {
  if (wanted > max_threads) wanted = max_threads;
  if (workers_ >= wanted) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (; workers_ < wanted; workers_++) std::thread([this] { work(); }).detach();
  } catch (const std::system_error &) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace cuzk
