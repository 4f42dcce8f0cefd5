#include "base/io/file_lock.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

// Returns whether `path` still names the open file: the previous holder may have deleted it.
bool still_there(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

bool lock(int file, int operation) {
  int result = 0;
  do {
    result = ::flock(file, operation);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

FileLock::FileLock(const std::string& file, Mode mode, Wait wait) {
  const int operation =
      (mode == Mode::exclusive ? LOCK_EX : LOCK_SH) | (wait == Wait::no ? LOCK_NB : 0);
  while (true) {
    file_ = FileDescriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file_.is_open() && errno == ENOENT) {  // the previous holder may have deleted the folder
      make_folders(parent_folder(file));
      continue;
    }
    if (!file_.is_open()) system_error("lock", file, errno);
    const bool locked = lock(file_.number(), operation);
    if (locked && still_there(file_.number(), file)) return;
    file_.close();
    if (!locked) return;
  }
}

bool FileLock::try_upgrade() const {
  return lock(file_.number(), LOCK_EX | LOCK_NB);
}

}  // namespace qkscope
