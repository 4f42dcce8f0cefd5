// The simulated system of simulate.py, loaded with LD_PRELOAD together with
// tests/capture/run/file_recorder.cpp: file operations fail or kill the process, the clock jumps,
// sleeps are short, process ids are equal, and flock may be missing.
//
// QKSCOPE_FAULTS="SEED NAME=VALUE ..." configures it; QKSCOPE_FAULT_LOG receives a line for each
// fault. Whether an operation fails depends on the seed, the operation, its path and how often it
// was applied to this path. The decision does not depend on the order in which threads run, so a
// seed gives the same faults again.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

// Probabilities are in parts per million of file operations.
struct Settings {
  std::uint64_t seed = 0;
  std::map<std::string, std::int64_t> values;

  std::int64_t value(const char* name) const {
    const auto found = values.find(name);
    return found == values.end() ? 0 : found->second;
  }
};

const Settings& settings() {
  static const Settings read = [] {
    Settings result;
    const char* text = std::getenv("QKSCOPE_FAULTS");
    std::istringstream words(text == nullptr ? "" : text);
    words >> result.seed;
    for (std::string word; words >> word;) {
      const auto equals = word.find('=');
      result.values[word.substr(0, equals)] = std::stoll(word.substr(equals + 1));
    }
    return result;
  }();
  return read;
}

// SplitMix64: a hash of the state whose output bits are all usable.
std::uint64_t mix(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

std::uint64_t hash(std::uint64_t seed, std::string_view text) {
  for (const char c : text) seed = mix(seed ^ static_cast<unsigned char>(c));
  return seed;
}

bool is_random_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

// Replaces random names (16 hexadecimal digits) and times (20261116T130501) in a path, which differ
// from run to run.
std::string without_random_parts(std::string_view path) {
  std::string result;
  while (!path.empty()) {
    std::size_t digits = 0;
    while (digits < path.size() && is_random_digit(path[digits])) ++digits;
    const bool time = digits == 8 && path.size() >= 15 && path[8] == 'T';
    if (time) digits = 15;
    if (digits >= 15)
      result += '#';
    else
      result += path.substr(0, digits);
    path.remove_prefix(digits);
    if (!path.empty()) result += path.front();
    path.remove_prefix(path.empty() ? 0 : 1);
  }
  return result;
}

void log_fault(const std::string& line) {
  static const int file =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, std::getenv("QKSCOPE_FAULT_LOG"),
                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const auto text = line + "\n";
  if (::syscall(SYS_write, file, text.data(), text.size()) != static_cast<long>(text.size()))
    std::abort();
}

void wait_real(std::int64_t nanoseconds) {
  const timespec time{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  ::syscall(SYS_nanosleep, &time, nullptr);
}

// One operation on one path, with random numbers of its own.
class Operation {
 public:
  Operation(char what, const char* path) {
    static std::mutex mutex;
    static std::map<std::string, int> counts;
    static const std::string root = std::getenv("QKSCOPE_RECORD_BELOW");
    const auto name = without_random_parts(std::string_view(path).substr(root.size()));
    const std::lock_guard lock(mutex);
    name_ = std::string(1, what) + " " + name;
    name_ += " " + std::to_string(++counts[name_]);
    state_ = hash(settings().seed, name_);
  }

  bool happens(const char* fault) {
    return static_cast<std::int64_t>(next() % 1'000'000) < settings().value(fault);
  }
  std::uint64_t next() { return state_ = mix(state_); }
  void log(const char* fault) const { log_fault(std::string(fault) + ": " + name_); }

 private:
  std::string name_;
  std::uint64_t state_ = 0;
};

bool adds_data(char what) {
  return what == 'w' || what == 'c' || what == 'm' || what == 'l';
}

// The disk is full once the process has written as many bytes as `space`. Space is not given back.
bool is_full(char what, std::size_t bytes) {
  static std::atomic<std::int64_t> written{0};
  const auto space = settings().value("space");
  if (space == 0 || !adds_data(what)) return false;
  constexpr std::int64_t kEntry = 64;  // bytes that a new name takes
  return (written += static_cast<std::int64_t>(bytes) + kEntry) > space;
}

std::atomic<std::int64_t> slept{0};  // nanoseconds that sleeps were shortened by

constexpr std::int64_t kShorter = 100;  // factor by which waiting is shortened
constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t nanoseconds_of(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

timespec time_of(std::int64_t nanoseconds) {
  return {nanoseconds / kSecond, nanoseconds % kSecond};
}

std::int64_t real_now(clockid_t clock) {
  timespec time{};
  ::syscall(SYS_clock_gettime, clock, &time);
  return nanoseconds_of(time);
}

// The time that the program sees.
std::int64_t simulated_now(clockid_t clock) {
  const auto now = real_now(clock) + slept;
  return clock == CLOCK_REALTIME ? now + settings().value("clock") * kSecond : now;
}

int sleep_shortly(std::int64_t nanoseconds) {
  wait_real(nanoseconds / kShorter);
  slept += nanoseconds - nanoseconds / kShorter;
  return 0;
}

// Waits for a condition variable until a simulated time: `wait` gets the real one.
template <typename Wait>
int wait_shortly(clockid_t clock, const timespec* until, Wait wait) {
  const auto left = std::max<std::int64_t>(0, nanoseconds_of(*until) - simulated_now(clock));
  const auto end = time_of(real_now(clock) + left / kShorter);
  const int result = wait(&end);
  if (result == ETIMEDOUT) slept += left - left / kShorter;
  return result;
}

}  // namespace

extern "C" {

int fault_of(char what, const char* path, std::size_t* bytes) {
  Operation operation(what, path);
  if (operation.happens("slow")) wait_real(static_cast<std::int64_t>(operation.next() % 2'000'000));
  if (operation.happens("kill")) {
    operation.log("kill");
    ::syscall(SYS_kill, ::syscall(SYS_getpid), SIGKILL);
  }
  if (is_full(what, bytes == nullptr ? 0 : *bytes)) {
    operation.log("disk full");
    return ENOSPC;
  }
  if (operation.happens("error")) {
    operation.log("I/O error");
    return EIO;
  }
  if (bytes != nullptr && *bytes > 1 && operation.happens("short")) {
    operation.log("short write");
    *bytes = 1 + operation.next() % (*bytes - 1);
  }
  if (bytes != nullptr && operation.happens("interrupt")) {
    operation.log("interrupted");
    return EINTR;
  }
  return 0;
}

int flock(int file, int operation) noexcept {
  if (const auto error = settings().value("flock"); error != 0) {
    log_fault("no flock");
    errno = static_cast<int>(error);
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, file, operation));
}

pid_t getpid() noexcept {
  const auto pid = settings().value("pid");
  return static_cast<pid_t>(pid != 0 ? pid : ::syscall(SYS_getpid));
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
    return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  *time = time_of(simulated_now(clock));
  return 0;
}

int nanosleep(const timespec* time, timespec*) {
  return sleep_shortly(nanoseconds_of(*time));
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec*) {
  const auto end = nanoseconds_of(*time);
  const auto left = (flags & TIMER_ABSTIME) != 0 ? end - simulated_now(clock) : end;
  return left > 0 ? sleep_shortly(left) : 0;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  using Function = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
  return wait_shortly(clock, until,
                      [&](const timespec* end) { return next(condition, mutex, clock, end); });
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  using Function = int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*);
  static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "pthread_cond_timedwait"));
  return wait_shortly(CLOCK_REALTIME, until,
                      [&](const timespec* end) { return next(condition, mutex, end); });
}

}  // extern "C"
