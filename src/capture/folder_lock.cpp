#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/data_root.h"
#include "core/error.h"

namespace qkscope {
namespace {

// Whether the open file is still the one under the name: a process that finishes removes it.
bool still_there(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

FolderLock::FolderLock(const std::string& file, Mode mode, const std::string& root) {
  const int operation = (mode == Mode::exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
  while (true) {
    file_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) system_error("lock", file, errno);
    if (::flock(file_, operation) != 0) {
      ::close(std::exchange(file_, -1));
      bad_input("{}: another capture is running into this folder; wait until it ends", root);
    }
    if (still_there(file_, file)) return;
    ::close(std::exchange(file_, -1));
  }
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

FolderLock::FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

}  // namespace qkscope
