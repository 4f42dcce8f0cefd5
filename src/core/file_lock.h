// A lock on a file that the system drops when the process ends, however it ends.
#pragma once

#include <optional>
#include <string>

namespace qkscope {

class FileLock {
 public:
  enum class Mode { shared, exclusive };

  // Makes the file where it is missing. Nothing when another process or object holds the lock.
  static std::optional<FileLock> attempt(const std::string& file, Mode mode);
  // Exclusive, once whoever holds it lets go.
  static FileLock wait(const std::string& file);

  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int file) : file_(file) {}
  static std::optional<FileLock> take(const std::string& file, int operation);

  int file_ = -1;
};

}  // namespace qkscope
