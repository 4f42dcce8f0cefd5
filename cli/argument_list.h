// The words of a command line for another process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkscope::cli {

// What has no value is left out.
class ArgumentList {
 public:
  explicit ArgumentList(std::vector<std::string> words) : words_(std::move(words)) {}

  void add(const char* option, const std::string& value) {
    if (!value.empty()) words_.insert(words_.end(), {option, value});
  }
  void add(const char* option, std::int64_t value) {
    if (value > 0) add(option, std::to_string(value));
  }
  void add(const char* option, const std::vector<std::string>& values) {
    for (const auto& value : values) add(option, value);
  }
  void add_flag(const char* option, bool given) {
    if (given) words_.emplace_back(option);
  }

  const std::vector<std::string>& words() const { return words_; }

 private:
  std::vector<std::string> words_;
};

}  // namespace qkscope::cli
