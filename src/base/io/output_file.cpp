#include "base/io/output_file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/core/error.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRandomLetters = 16;  // in the name of a temporary file

// Returns 0 or the errno.
int sync_path(const std::string& path, int flags) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  return file.is_open() && ::fsync(file.fd()) == 0 ? 0 : errno;
}

// Returns whether `path` still names the open lock file: the previous holder may have deleted it.
bool path_refers_to_open_file(int file, const std::string& path) {
  struct stat opened = {};
  struct stat named = {};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// Acquires a flock. Returns false if another process holds it; throws if the file system cannot
// lock.
bool lock_file(int file, int operation, const std::string& path) {
  while (::flock(file, operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR)
      throw_failure(
          "{}: cannot lock: {}; choose a folder on a file system with flock, or set "
          "QKSCOPE_NO_LOCK=1 if nothing else writes there",
          path, std::strerror(errno));
  }
  return true;
}

bool are_locks_disabled() {
  const char* value = std::getenv("QKSCOPE_NO_LOCK");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

void write_all(const FileDescriptor& file, std::span<const std::byte> bytes,
               const std::string& path) {
  while (!bytes.empty()) {
    const auto count = ::write(file.fd(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void fsync_file(const std::string& path) {
  if (const int error = sync_path(path, 0); error != 0) throw_system_error("sync", path, error);
}

void fsync_folder(const std::string& path) {
  const int error = sync_path(path, O_DIRECTORY);
  // EINVAL: the file system cannot sync folders. EACCES: the folder is writable but not readable.
  if (error != 0 && error != EINVAL && error != EACCES) throw_system_error("sync", path, error);
}

void rename_durably(const std::string& from, const std::string& to) {
  fsync_file(from);
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_system_error("rename to", to, errno);
  fsync_folder(parent_folder(to));
}

// The name is random, because processes in different containers may have the same process id.
std::string temporary_path(const std::string& path) {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) throw_system_error("name", path, errno);
  return fmt::format("{}.{:0{}x}.tmp", path, bits, kRandomLetters);
}

FileDescriptor try_lock_temporary_file(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) return file;
  (void)::flock(file.fd(), LOCK_EX);  // without flock, stale files are not deleted
  if (!path_refers_to_open_file(file.fd(), path)) file.close();
  return file;
}

void remove_stale_temporaries(const std::string& folder, std::string_view prefix,
                              std::string_view suffix, std::size_t random_letters) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const auto name = entry->path().filename().string();
    if (name.size() != prefix.size() + random_letters + suffix.size() ||
        !name.starts_with(prefix) || !name.ends_with(suffix))
      continue;
    const FileDescriptor file(
        ::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    std::error_code stays;
    if (file.is_open() && ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(entry->path(), stays);
  }
}

FileDescriptor create_temporary_file(const std::string& path, std::string& temporary) {
  remove_stale_temporaries(parent_folder(path), fs::path(path).filename().string() + ".", ".tmp",
                           kRandomLetters);
  while (true) {
    temporary = temporary_path(path);
    FileDescriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file.is_open()) throw_system_error("write", path, errno);
    (void)::flock(file.fd(), LOCK_EX);
    if (path_refers_to_open_file(file.fd(), temporary)) return file;
  }
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  const auto folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder))
    reject("{}: cannot write: the folder {} does not exist; make it first", path, folder.string());
  if (fs::is_directory(path)) reject("{}: cannot write: it is a folder", path);
  file_ = create_temporary_file(path, temporary_);
}

OutputFile::~OutputFile() {
  if (file_.is_open()) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  write_all(file_, bytes, path_);
  written_ += bytes.size();
}

void OutputFile::commit() {
  if (::fsync(file_.fd()) != 0) throw_system_error("sync", path_, errno);
  // If the temporary file is missing, another process removed it: a retry may succeed.
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw_system_error("rename to", path_, errno == ENOENT ? EAGAIN : errno);
  file_.close();
  fsync_folder(parent_folder(path_));
}

void write_file(const std::string& path, std::string_view content) {
  OutputFile file(path);
  file.write(content);
  file.commit();
}

FileLock::FileLock(const std::string& file, LockMode mode, Blocking blocking) {
  const int operation =
      (mode == LockMode::exclusive ? LOCK_EX : LOCK_SH) | (blocking == Blocking::no ? LOCK_NB : 0);
  while (true) {
    file_ = FileDescriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file_.is_open() && errno == ENOENT) {  // the previous holder may have deleted the folder
      make_folders(parent_folder(file));
      continue;
    }
    if (!file_.is_open()) throw_system_error("lock", file, errno);
    const bool locked = are_locks_disabled() || lock_file(file_.fd(), operation, file);
    if (locked && path_refers_to_open_file(file_.fd(), file)) return;
    file_.close();
    if (!locked) return;
  }
}

bool FileLock::try_upgrade_to_exclusive() const {
  return are_locks_disabled() || lock_file(file_.fd(), LOCK_EX | LOCK_NB, "the lock file");
}

}  // namespace qkscope
