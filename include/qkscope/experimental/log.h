// What the library says while it works. It is silent until a program asks to hear it.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "qkscope/version.h"

namespace qkscope {

enum class LogLevel { debug, info, warning, error };

// Called from any thread, also from several at once. What it throws is dropped.
using LogCallback = std::function<void(LogLevel level, std::string_view message)>;

// From now on messages of `least` and above go to the callback; an empty one stops them.
QKSCOPE_API void set_log_callback(LogCallback callback, LogLevel least = LogLevel::info);

// Long operations show their progress there: one updating line on a terminal, plain lines at
// intervals otherwise. Null, as in the beginning: nowhere.
QKSCOPE_API void set_progress_output(std::FILE* out);

// The progress of one long operation.
class QKSCOPE_API Progress {
 public:
  struct Options {
    std::string what;         // "capture", first on the line
    std::string unit;         // "examples"
    std::int64_t total = 0;   // 0: not known
    std::int64_t before = 0;  // of the total, done before this run: they say nothing about its pace
    bool quiet = false;       // prints nothing
    std::FILE* out = nullptr;  // null: where set_progress_output() says
  };

  explicit Progress(Options options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` units are finished; `detail` ends the line ("512 tokens/s").
  void update(std::int64_t done, const std::string& detail = {});
  // Prints the last state once more and leaves the line.
  void finish();

 private:
  std::string line() const;
  void print(bool last);

  Options options_;
  bool terminal_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point printed_;
  std::int64_t done_ = 0;
  std::string detail_;
  std::string shown_;
  bool finished_ = false;
};

}  // namespace qkscope
