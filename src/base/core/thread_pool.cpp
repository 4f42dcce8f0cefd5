#include "base/core/thread_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <new>
#include <sstream>
#include <string_view>
#include <thread>

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "base/core/error.h"
#include "base/core/log.h"

namespace qkscope {
namespace {

thread_local bool inside_parallel_for = false;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the number of cores in the affinity mask, limited by the cgroup's CPU quota.
int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  const int quota = cgroup_cpu_limit(read_file("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota > 0 ? std::min(cores, quota) : cores;
}

int clamp_thread_count(int wanted) {
  const int most = std::max(64, 8 * available_cores());
  if (wanted > most) log::warn("{} threads are too many for this machine; taking {}", wanted, most);
  return std::min(wanted, most);
}

constexpr std::chrono::microseconds kSpinTime{50};

class ThreadPool {
 public:
  // Starts fewer worker threads if the system refuses some; the calling thread always takes part.
  // Delegates to ThreadPool(), so that ~ThreadPool() joins the threads if logging throws.
  explicit ThreadPool(int threads) : ThreadPool() {
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    try {
      while (thread_count() < threads) workers_.emplace_back([this] { run_worker_loop(); });
    } catch (const std::exception& error) {
      log::warn("only {} of {} threads could be started ({}); going on with those", thread_count(),
                threads, error.what());
    }
  }

  ~ThreadPool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  int thread_count() const { return static_cast<int>(workers_.size()) + 1; }

  void run_job(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    const std::lock_guard one_at_a_time(run_mutex_);
    const Job job{&body, count};
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      next_.store(0);
      failed_ = nullptr;
      ++generation_;
    }
    wake_.notify_all();
    run_available_indices(job);
    spin_until([this] { return busy_ == 0; });
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // workers that wake up from here on find no job
    idle_.wait(lock, [this] { return busy_ == 0; });
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  ThreadPool() = default;

  struct Job {
    const std::function<void(std::int64_t)>* body;
    std::int64_t count;
  };

  void run_worker_loop() {
    std::uint64_t seen = 0;
    while (const Job* job = wait_for_job(seen)) {
      run_available_indices(*job);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) idle_.notify_one();
    }
  }

  // Blocks until there is a new job; returns nullptr when the pool is being destroyed.
  const Job* wait_for_job(std::uint64_t& seen) {
    const auto called = [&] { return stopping_ || generation_ != seen; };
    while (true) {
      spin_until(called);
      std::unique_lock lock(mutex_);
      wake_.wait(lock, called);
      if (stopping_) return nullptr;
      seen = generation_;
      if (job_ == nullptr) continue;
      ++busy_;
      return job_;
    }
  }

  // Spins (at most kSpinTime) before the caller sleeps on a condition variable: waking a thread
  // takes tens of microseconds, and the steps of a forward pass follow each other faster than that.
  template <typename Condition>
  static void spin_until(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kSpinTime;
    while (!condition() && std::chrono::steady_clock::now() < until) continue;
  }

  void run_available_indices(const Job& job) {
    inside_parallel_for = true;
    try {
      for (std::int64_t i = next_++; i < job.count; i = next_++) (*job.body)(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failed_) failed_ = std::current_exception();
      next_.store(job.count);
    }
    inside_parallel_for = false;
  }

  std::vector<std::thread> workers_;
  std::mutex run_mutex_;  // serialises concurrent run_job() calls
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  const Job* job_ = nullptr;
  std::atomic<std::int64_t> next_{0};
  std::exception_ptr failed_;
  // The atomics below are written under mutex_; spin_until() reads them without the mutex.
  std::atomic<int> busy_ = 0;  // workers inside the current job
  std::atomic<std::uint64_t> generation_ = 0;
  std::atomic<bool> stopping_ = false;
};

// Holds the current pool. Worker threads do not exist in a forked child: the child leaks the
// inherited pool and creates a new one of the same size on first use.
struct GlobalPool {
  std::mutex mutex;
  std::shared_ptr<ThreadPool> pool;
  int wanted = 0;  // threads; 0: one per core
};

GlobalPool& global_pool() {
  static auto* global = [] {
    pthread_atfork([] { global_pool().mutex.lock(); }, [] { global_pool().mutex.unlock(); },
                   [] {
                     auto& inherited = global_pool();
                     // Leak the inherited pool: its threads exist only in the parent process.
                     new std::shared_ptr<ThreadPool>(std::move(inherited.pool));
                     inherited.mutex.unlock();
                     inside_parallel_for = false;
                   });
    return new GlobalPool;  // never destroyed: threads may compute at process exit
  }();
  return *global;
}

std::shared_ptr<ThreadPool> current_pool() {
  auto& current = global_pool();
  const std::lock_guard lock(current.mutex);
  if (!current.pool)
    current.pool =
        std::make_shared<ThreadPool>(current.wanted > 0 ? current.wanted : available_cores());
  return current.pool;
}

}  // namespace

int cgroup_cpu_limit(const std::string& membership, const std::string& root) {
  constexpr std::string_view kVersion2 = "0::";
  const auto line = membership.starts_with(kVersion2) ? 0 : membership.find("\n0::") + 1;
  if (line == 0 && !membership.starts_with(kVersion2)) return 0;
  const auto begin = line + kVersion2.size();
  auto group = membership.substr(begin, membership.find('\n', begin) - begin);
  int least = 0;
  while (true) {
    std::istringstream limit(read_file(root + group + "/cpu.max"));
    double quota = 0, period = 0;  // microseconds; "max" is no quota
    if (limit >> quota >> period && quota > 0 && period > 0) {
      const int cores = static_cast<int>(std::ceil(std::min(quota / period, 1e6)));
      least = least == 0 ? cores : std::min(least, cores);
    }
    if (!group.starts_with('/') || group == "/") return least;
    group.resize(group.rfind('/'));
  }
}

void set_thread_count(int count) {
  translate_exceptions([&] {
    auto replacement =
        std::make_shared<ThreadPool>(count > 0 ? clamp_thread_count(count) : available_cores());
    auto& current = global_pool();
    const std::lock_guard lock(current.mutex);
    current.wanted = count > 0 ? replacement->thread_count() : 0;
    current.pool.swap(replacement);
  });
}

int thread_count() {
  return translate_exceptions([] { return current_pool()->thread_count(); });
}

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  if (count <= 0) return;
  if (inside_parallel_for || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  current_pool()->run_job(count, body);
}

void parallel_for_ranges(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body) {
  parallel_for((count + grain - 1) / grain,
               [&](std::int64_t i) { body(i * grain, std::min(count, (i + 1) * grain)); });
}

void request_huge_pages(void* memory, std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Advisory: ignore errors.
  if (std::align(kHugePage, kHugePage, memory, bytes) != nullptr)
    ::madvise(memory, bytes, MADV_HUGEPAGE);
}

void request_huge_pages() {
  // Two blocks of 30 MiB, because malloc allocates blocks above M_MMAP_THRESHOLD, at most 32 MiB,
  // by mmap and not on the heap. The analyses of one attention head need about 60 MiB.
  constexpr std::size_t kBytes = std::size_t{30} << 20;
  std::array<std::unique_ptr<std::byte[]>, 2> blocks;
  for (auto& block : blocks) {
    block.reset(new (std::nothrow) std::byte[kBytes]);
    if (block) request_huge_pages(block.get(), kBytes);
  }
}

}  // namespace qkscope
