#include "base/io/durable_file.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

// 0, or the error.
int sync(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (file < 0) return errno;
  const int error = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  return error;
}

}  // namespace

void sync_file(const std::string& path) {
  if (const int error = sync(path, 0); error != 0) system_error("sync", path, error);
}

void sync_folder(const std::string& path) {
  const int error = sync(path, O_DIRECTORY);
  // Some file systems cannot sync folders, and a folder that may be written may be hidden from
  // reading: there is nothing more to do for them.
  if (error != 0 && error != EINVAL && error != EACCES) system_error("sync", path, error);
}

void move_into_place(const std::string& from, const std::string& to) {
  sync_file(from);
  if (std::rename(from.c_str(), to.c_str()) != 0) system_error("rename to", to, errno);
  sync_folder(parent_folder(to));
}

}  // namespace qkscope
