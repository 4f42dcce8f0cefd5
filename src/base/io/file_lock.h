// Advisory file locks (flock) that the kernel releases when the process ends. A process that
// deletes the lock file must hold the lock and delete everything the lock protects first.
#pragma once

#include <string>

#include "base/io/file_descriptor.h"

namespace qkscope {

class FileLock {
 public:
  enum class Mode { shared, exclusive };
  enum class Wait { no, yes };

  // Creates the file and its folder if needed. With Wait::no the constructor does not block, and
  // held() tells whether the lock was acquired.
  FileLock(const std::string& file, Mode mode, Wait wait);

  bool held() const { return file_.is_open(); }

  // Upgrades a shared lock to an exclusive one without blocking. Returns false if another process
  // holds the lock; the shared lock may then be lost as well.
  bool try_upgrade() const;

 private:
  FileDescriptor file_;
};

}  // namespace qkscope
