// How one call of the C interface runs: its threads, its cancellation flag and the spans it reports.
#pragma once
#include <time.h>

#include "../cuzk.h"
#include "thread_pool.hpp"

namespace cuzk {

inline bool is_call(const cuzk_call *call) {
  return !call || (call->flags == 0 && (call->spans || call->span_capacity == 0));
}

class Run {
 public:
  explicit Run(cuzk_call *call) : call_(call), threads_(resolve(call ? call->threads : 0)) {
    if (call_) call_->span_count = 0;
  }

  static unsigned resolve(uint32_t threads) {
    if (threads == 0) return ThreadPool::processors();
    return threads < ThreadPool::max_threads ? threads : ThreadPool::max_threads;
  }

  unsigned threads() const { return threads_; }
  bool cancelled() const { return call_ && call_->cancel && *call_->cancel != 0; }

  // f(task, slot) for each task in [0, tasks), slot below threads(). Once the call is cancelled the tasks left are
  // skipped. False when cancelled.
  template <class F>
  bool parallel(size_t tasks, F &&f) {
    struct Context {
      Run *run;
      F *f;
    } context{this, &f};
    Job job;
    job.body = [](void *p, size_t task, unsigned slot) {
      Context &c = *static_cast<Context *>(p);
      if (!c.run->cancelled()) (*c.f)(task, slot);
    };
    job.context = &context;
    job.tasks = tasks;
    job.helpers = threads_ - 1;
    ThreadPool::instance().run(job);
    return !cancelled();
  }

  // f(begin, end, slot) over [0, n) in pieces of at most `piece`.
  template <class F>
  bool ranges(uint64_t n, uint64_t piece, F &&f) {
    return parallel((n + piece - 1) / piece, [&](size_t task, unsigned slot) {
      const uint64_t begin = task * piece;
      f(begin, begin + piece < n ? begin + piece : n, slot);
    });
  }

  void add_span(uint32_t kind, uint32_t detail, int64_t start_ns, int64_t end_ns) {
    if (!call_ || !call_->spans || call_->span_count >= call_->span_capacity) return;
    call_->spans[call_->span_count++] = {start_ns, end_ns, kind, detail};
  }

  static int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
  }

 private:
  cuzk_call *call_;
  unsigned threads_;
};

// Reports the time from its construction to its destruction; made by the calling thread only.
class SpanTimer {
 public:
  SpanTimer(Run &run, uint32_t kind, uint32_t detail = 0)
      : run_(run), kind_(kind), detail_(detail), start_ns_(Run::now_ns()) {}
  SpanTimer(const SpanTimer &) = delete;
  SpanTimer &operator=(const SpanTimer &) = delete;
  ~SpanTimer() { run_.add_span(kind_, detail_, start_ns_, Run::now_ns()); }

 private:
  Run &run_;
  uint32_t kind_, detail_;
  int64_t start_ns_;
};

// The lowest of the indices that several threads report.
class LowestIndex {
 public:
  void report(uint64_t index) {
    uint64_t seen = lowest_.load(std::memory_order_relaxed);
    while (index < seen && !lowest_.compare_exchange_weak(seen, index, std::memory_order_relaxed)) {
    }
  }
  bool any() const { return value() != UINT64_MAX; }
  uint64_t value() const { return lowest_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> lowest_{UINT64_MAX};
};

}  // namespace cuzk
