// Log messages and progress lines. Both are off until a program turns them on.
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

// Log callback. Several threads may call it concurrently; exceptions that it throws are ignored.
using LogCallback = std::function<void(LogLevel level, std::string_view message)>;

// Sends all later messages of level `least` and above to the callback. An empty callback turns
// logging off.
QKSCOPE_API void set_log_callback(LogCallback callback, LogLevel least = LogLevel::info);

// Sets where long operations print their progress: one updating line on a terminal, a plain line
// every ten seconds otherwise. nullptr (the default) prints nothing.
QKSCOPE_API void set_progress_output(std::FILE* out);

// Prints the progress of one long operation.
class QKSCOPE_API Progress {
 public:
  struct Options {
    std::string what;          // first word of the line, such as "capture"
    std::string unit;          // plural, such as "examples"
    std::int64_t total = 0;    // units; 0 if unknown
    std::int64_t before = 0;   // units done by an earlier run; left out of the speed estimate
    bool quiet = false;        // prints nothing
    std::FILE* out = nullptr;  // nullptr: the file of set_progress_output()
  };

  explicit Progress(Options options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Reports that `done` units are finished; `detail` ("512 tokens/s") is appended to the line.
  void update(std::int64_t done, const std::string& detail = {});
  // Prints the final progress line and ends it with a line feed.
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
