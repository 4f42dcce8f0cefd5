#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>

#include "core/edge.h"
#include "core/log.h"

namespace qkscope {
namespace {

thread_local bool inside_parallel_for = false;

int cores_available() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

class Pool {
 public:
  // With as many threads as the system gives: the calling one is always there.
  explicit Pool(int threads) {
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    try {
      while (this->threads() < threads) workers_.emplace_back([this] { work(); });
    } catch (const std::exception& error) {
      log::warn("only {} of {} threads could be started ({}); going on with those", this->threads(),
                threads, error.what());
    }
  }

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    const std::lock_guard one_at_a_time(run_mutex_);
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      count_ = count;
      next_.store(0);
      failed_ = nullptr;
      busy_ = static_cast<int>(workers_.size());
      ++generation_;
    }
    wake_.notify_all();
    take_indices();
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return busy_ == 0; });
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  void work() {
    std::uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
        if (stopping_) return;
        seen = generation_;
      }
      take_indices();
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) idle_.notify_one();
    }
  }

  void take_indices() {
    inside_parallel_for = true;
    try {
      for (std::int64_t i = next_++; i < count_; i = next_++) (*body_)(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failed_) failed_ = std::current_exception();
      next_.store(count_);
    }
    inside_parallel_for = false;
  }

  std::vector<std::thread> workers_;
  std::mutex run_mutex_;  // two callers take turns
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  const std::function<void(std::int64_t)>* body_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::exception_ptr failed_;
  int busy_ = 0;
  std::uint64_t generation_ = 0;
  bool stopping_ = false;
};

// The pool and who may replace it. A child process has no worker threads: after fork it leaves what
// it inherited where it is and makes a pool of the same size when it needs one.
struct Slot {
  std::mutex mutex;
  std::shared_ptr<Pool> pool;
  int wanted = 0;  // threads; 0: one per core

  Slot();
};

Slot& slot() {
  static auto* slot =
      new Slot;  // never destroyed: a thread may still compute while the process ends
  return *slot;
}

Slot::Slot() {
  pthread_atfork([] { slot().mutex.lock(); }, [] { slot().mutex.unlock(); },
                 [] {
                   auto& inherited = slot();
                   new std::shared_ptr<Pool>(std::move(inherited.pool));  // not ours to destroy
                   inherited.mutex.unlock();
                   inside_parallel_for = false;
                 });
}

std::shared_ptr<Pool> pool() {
  auto& current = slot();
  const std::lock_guard lock(current.mutex);
  if (!current.pool)
    current.pool = std::make_shared<Pool>(current.wanted > 0 ? current.wanted : cores_available());
  return current.pool;
}

}  // namespace

void set_thread_count(int count) {
  at_edge([&] {
    auto replacement = std::make_shared<Pool>(count > 0 ? count : cores_available());
    auto& current = slot();
    const std::lock_guard lock(current.mutex);
    current.wanted = count;
    current.pool.swap(replacement);
  });
}

int thread_count() {
  return at_edge([] { return pool()->threads(); });
}

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  if (count <= 0) return;
  if (inside_parallel_for || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  pool()->run(count, body);
}

void parallel_ranges(std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t, std::int64_t)>& body) {
  parallel_for((count + grain - 1) / grain,
               [&](std::int64_t i) { body(i * grain, std::min(count, (i + 1) * grain)); });
}

}  // namespace qkscope
