#include "base/io/folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/core/thread_pool.h"

namespace qkscope {

namespace fs = std::filesystem;
namespace {

constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

}  // namespace

bool path_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

void check_regular_file(const std::string& path) {
  std::error_code ignored;
  const auto type = fs::status(path, ignored).type();
  if (type == fs::file_type::directory) reject("{}: a folder, expected a file", path);
  if (fs::exists(fs::file_status(type)) && type != fs::file_type::regular)
    reject("{}: not a regular file; copy what it gives into one first", path);
}

std::vector<std::string> entry_names(const std::string& folder) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
  } catch (const fs::filesystem_error& error) {
    throw_system_error("list the folder", folder, error.code().value());
  }
  std::ranges::sort(names);
  return names;
}

std::string parent_folder(const std::string& path) {
  auto parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string make_folders(const std::string& path) {
  if (path.empty() || is_folder(path)) return "";
  if (path.find("://") != std::string::npos)
    reject("{}: an address of an object store does not work here; give a local path", path);
  auto made = make_folders(fs::path(path).parent_path().string());
  // Sync existing folders too: another process may have created this one without syncing it yet.
  if (::mkdir(path.c_str(), 0777) != 0) {
    const int error = errno;
    if (error != EEXIST || !is_folder(path)) throw_system_error("make the folder", path, error);
  }
  fsync_folder(parent_folder(path));
  return made.empty() ? path : made;
}

FolderHandle::FolderHandle(const std::string& path)
    : path_(path), folder_(::open(path.c_str(), kOpenFolder)) {
  if (!folder_.is_open()) throw_system_error("open the folder", path, errno);
}

std::vector<std::string> FolderHandle::entry_names() const {
  const int copy = ::openat(folder_.fd(), ".", kOpenFolder);  // has its own read position
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy < 0 ? nullptr : ::fdopendir(copy),
                                                    &::closedir);
  if (!listing) throw_system_error("list the folder", path_, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const auto* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) throw_system_error("list the folder", path_, errno);
  std::ranges::sort(names);
  return names;
}

mode_t FolderHandle::mode_of(const std::string& name) const {
  struct stat status = {};
  const bool exists = ::fstatat(folder_.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  return exists ? status.st_mode : 0;
}

FolderHandle FolderHandle::open_subfolder(const std::string& name) const {
  FileDescriptor opened(::openat(folder_.fd(), name.c_str(), kOpenFolder | O_NOFOLLOW));
  if (opened.is_open()) return {path_of(name), std::move(opened)};
  const int error = errno;
  if (has_link(name))
    reject("{}: is a link, expected a folder; links inside a capture are not followed",
           path_of(name));
  throw_system_error("open the folder", path_of(name), error);
}

FolderHandle FolderHandle::make_folder(const std::string& name) const {
  if (::mkdirat(folder_.fd(), name.c_str(), 0777) == 0)
    sync();
  else if (errno != EEXIST)
    throw_system_error("make the folder", path_of(name), errno);
  return open_subfolder(name);
}

void FolderHandle::remove_file(const std::string& name) const {
  if (::unlinkat(folder_.fd(), name.c_str(), 0) != 0 && errno != ENOENT)
    throw_system_error("remove", path_of(name), errno);
}

void FolderHandle::remove_tree(const std::string& name) const {
  if (!has_folder(name)) return remove_file(name);
  {
    const auto inner = open_subfolder(name);
    const auto names = inner.entry_names();
    // Files are unlinked in parallel because unlinking a large file is slow.
    parallel_for(std::ssize(names),
                 [&](std::int64_t i) { inner.remove_tree(names[static_cast<std::size_t>(i)]); });
  }
  if (::unlinkat(folder_.fd(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    throw_system_error("remove the folder", path_of(name), errno);
}

bool FolderHandle::remove_empty_folder(const std::string& name) const {
  if (::unlinkat(folder_.fd(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
  if (errno == ENOTEMPTY || errno == EEXIST) return false;
  throw_system_error("remove the folder", path_of(name), errno);
}

void FolderHandle::move_file(const std::string& name, const FolderHandle& to) const {
  if (::renameat(folder_.fd(), name.c_str(), to.folder_.fd(), name.c_str()) != 0)
    throw_system_error("move a file to", to.path_of(name), errno);
}

void FolderHandle::sync() const {
  if (::fsync(folder_.fd()) != 0 && errno != EINVAL) throw_system_error("sync", path_, errno);
}

}  // namespace qkscope
