// Puts the temporary folders of a test on a file system in memory, because fsync on a disk takes
// most of the time of tests that write many small files.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace qkscope {

// Sets TMPDIR during its lifetime, unless the user has set it or /dev/shm has too little space.
class FoldersInMemory {
 public:
  FoldersInMemory() : set_(std::getenv("TMPDIR") == nullptr && has_space()) {
    if (set_) ::setenv("TMPDIR", kMemory, 0);
  }
  ~FoldersInMemory() {
    if (set_) ::unsetenv("TMPDIR");
  }
  FoldersInMemory(const FoldersInMemory&) = delete;
  FoldersInMemory& operator=(const FoldersInMemory&) = delete;

 private:
  static constexpr char kMemory[] = "/dev/shm";

  static bool has_space() {
    constexpr std::uintmax_t kBytes = std::uintmax_t{512} << 20;
    std::error_code error;
    const auto space = std::filesystem::space(kMemory, error);
    return !error && space.available >= kBytes;
  }

  bool set_;
};

}  // namespace qkscope
