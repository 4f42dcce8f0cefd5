// A lock on a file that the system drops when the process ends, however it ends. Who removes the
// file holds the lock and removes it last: what it protects is gone by then.
#pragma once

#include <string>

namespace qkscope {

class FileLock {
 public:
  enum class Mode { shared, exclusive };
  enum class Wait { no, yes };

  // Makes the file, and its folder, where they are not there. With Wait::no the lock may not be
  // held afterwards.
  FileLock(const std::string& file, Mode mode, Wait wait);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return file_ >= 0; }

  // Turns a shared lock into an exclusive one if nobody else holds it. Where that fails the shared
  // one may be lost too.
  bool try_alone() const;

 private:
  int file_ = -1;
};

}  // namespace qkscope
