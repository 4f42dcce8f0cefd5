// Progress of a long run: one updating line on a terminal, plain lines at intervals otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "qkscope/text.h"

namespace qkscope {

class Progress {
 public:
  struct Options {
    std::string what;         // "capture", first on the line
    std::string unit;         // "examples"
    std::int64_t total = 0;   // 0: not known
    std::int64_t before = 0;  // of the total, done before this run: they say nothing about its pace
    bool quiet = false;       // prints nothing
    std::FILE* out = nullptr;  // null: where the program wants progress (qkscope/log.h)
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
