// A lock on a file that the system drops when the process ends, however it ends.
#pragma once

#include <string>

namespace qkscope {

class FileLock {
 public:
  enum class Mode { shared, exclusive };
  enum class Wait { no, yes };

  // Makes the file where it is not there. With Wait::no the lock may not be held afterwards.
  FileLock(const std::string& file, Mode mode, Wait wait);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

}  // namespace qkscope
