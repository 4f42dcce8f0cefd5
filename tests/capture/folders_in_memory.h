// Puts the temporary folders of a test on a file system in memory, for tests that write or sync
// hundreds of small files.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace qkscope {

// Sets TMPDIR during its lifetime, unless the user has set it or there is no /dev/shm.
class FoldersInMemory {
 public:
  FoldersInMemory()
      : set_(std::getenv("TMPDIR") == nullptr && std::filesystem::is_directory(kMemory)) {
    if (set_) ::setenv("TMPDIR", kMemory, 0);
  }
  ~FoldersInMemory() {
    if (set_) ::unsetenv("TMPDIR");
  }
  FoldersInMemory(const FoldersInMemory&) = delete;
  FoldersInMemory& operator=(const FoldersInMemory&) = delete;

 private:
  static constexpr char kMemory[] = "/dev/shm";
  bool set_;
};

}  // namespace qkscope
