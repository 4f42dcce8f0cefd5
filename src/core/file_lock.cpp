#include "core/file_lock.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

namespace qkscope {
namespace {

// Whether the open file is still the one under the name: a process that finishes may remove it.
bool still_there(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

std::optional<FileLock> FileLock::take(const std::string& file, int operation) {
  while (true) {
    const int opened = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (opened < 0) system_error("lock", file, errno);
    FileLock lock(opened);
    int result = 0;
    do {
      result = ::flock(opened, operation);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno == EWOULDBLOCK) return {};
    if (result != 0) system_error("lock", file, errno);
    if (still_there(opened, file)) return lock;
  }
}

std::optional<FileLock> FileLock::attempt(const std::string& file, Mode mode) {
  return take(file, (mode == Mode::exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
}

FileLock FileLock::wait(const std::string& file) {
  return std::move(*take(file, LOCK_EX));
}

FileLock::~FileLock() {
  if (file_ >= 0) ::close(file_);
}

FileLock::FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

}  // namespace qkscope
