// Loaded with LD_PRELOAD, records the operations of a program on files below QKSCOPE_RECORD_BELOW
// to the file QKSCOPE_RECORD_TO, in the order in which they took effect. disk_model.h reads the
// records. QKSCOPE_KILL_AT="r .seg 2" kills the program right after its second rename to a path
// that ends in ".seg"; kill_points.h sets it. tests/simulation links this file with fault_of(),
// which makes operations fail.
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Called before an operation on a watched path. Returns the errno with which the operation fails,
// or 0; may reduce the number of bytes that a write accepts.
extern "C" int fault_of(char what, const char* path, std::size_t* bytes) __attribute__((weak));

namespace {

std::recursive_mutex order;  // held during an operation and its record

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int log_file() {
  static const int file =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, variable("QKSCOPE_RECORD_TO"),
                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  return file;
}

bool watched(const std::string& path) {
  static const std::string root = variable("QKSCOPE_RECORD_BELOW");
  return !root.empty() && path.starts_with(root);
}

std::string path_of(int file) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  char target[4096];
  const auto size = ::readlink(link, target, sizeof target);
  return size < 0 ? "" : std::string(target, static_cast<std::size_t>(size));
}

std::string absolute(int folder, const char* path) {
  if (path[0] == '/') return path;
  if (folder != AT_FDCWD) return path_of(folder) + "/" + path;
  char here[4096];
  return ::getcwd(here, sizeof here) == nullptr ? path : std::string(here) + "/" + path;
}

void kill_at_point(char what, const std::string& path) {
  static char wanted = 0;
  static std::string suffix;
  static int left = [] {
    int count = 0;
    std::istringstream(variable("QKSCOPE_KILL_AT")) >> wanted >> suffix >> count;
    return count;
  }();
  if (what == wanted && path.ends_with(suffix) && --left == 0) ::kill(::getpid(), SIGKILL);
}

// Writes letter | size, path | size, path | offset | size, data.
void record(char what, const std::string& path, const std::string& other = "",
            std::uint64_t offset = 0, const void* data = nullptr, std::uint64_t size = 0) {
  if (!watched(path)) return;
  kill_at_point(what, other.empty() ? path : other);
  if (*variable("QKSCOPE_RECORD_TO") == 0) return;
  std::string line(1, what);
  const auto add = [&](const void* bytes, std::uint64_t count) {
    line.append(reinterpret_cast<const char*>(&count), sizeof count);
    if (count > 0) line.append(static_cast<const char*>(bytes), count);
  };
  add(path.data(), path.size());
  add(other.data(), other.size());
  line.append(reinterpret_cast<const char*>(&offset), sizeof offset);
  add(data, size);
  if (::syscall(SYS_write, log_file(), line.data(), line.size()) != static_cast<long>(line.size()))
    std::abort();
}

bool fails(char what, const std::string& path, std::size_t* bytes = nullptr) {
  if (fault_of == nullptr || !watched(path)) return false;
  const int error = fault_of(what, path.c_str(), bytes);
  if (error != 0) errno = error;
  return error != 0;
}

int open_recorded(int folder, const char* path, int flags, mode_t mode) {
  const std::lock_guard lock(order);
  const auto name = absolute(folder, path);
  struct stat status {};
  const bool writes = (flags & (O_WRONLY | O_RDWR)) != 0 && watched(name);
  const bool there = writes && ::lstat(name.c_str(), &status) == 0;
  if (writes && fails('c', name)) return -1;
  const int file = static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
  if (file < 0 || !writes) return file;
  if (!there) record('c', name);
  if (there && (flags & O_TRUNC) != 0) record('t', name);
  return file;
}

mode_t mode_of(int flags, std::va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

#define RECORDED_OPEN(NAME)                            \
  int NAME(const char* path, int flags, ...) {         \
    std::va_list arguments;                            \
    va_start(arguments, flags);                        \
    const auto mode = mode_of(flags, arguments);       \
    va_end(arguments);                                 \
    return open_recorded(AT_FDCWD, path, flags, mode); \
  }
RECORDED_OPEN(open)
RECORDED_OPEN(open64)

#define RECORDED_OPENAT(NAME)                              \
  int NAME(int folder, const char* path, int flags, ...) { \
    std::va_list arguments;                                \
    va_start(arguments, flags);                            \
    const auto mode = mode_of(flags, arguments);           \
    va_end(arguments);                                     \
    return open_recorded(folder, path, flags, mode);       \
  }
RECORDED_OPENAT(openat)
RECORDED_OPENAT(openat64)

ssize_t write(int file, const void* data, size_t size) {
  const std::lock_guard lock(order);
  const auto at = ::lseek(file, 0, SEEK_CUR);
  if (at >= 0 && fails('w', path_of(file), &size)) return -1;
  const auto count = ::syscall(SYS_write, file, data, size);
  if (count > 0 && at >= 0)
    record('w', path_of(file), "", static_cast<std::uint64_t>(at), data,
           static_cast<std::uint64_t>(count));
  return count;
}

#define RECORDED_PWRITE(NAME)                                              \
  ssize_t NAME(int file, const void* data, size_t size, off_t at) {        \
    const std::lock_guard lock(order);                                     \
    if (fails('w', path_of(file), &size)) return -1;                       \
    const auto count = ::syscall(SYS_pwrite64, file, data, size, at);      \
    if (count > 0)                                                         \
      record('w', path_of(file), "", static_cast<std::uint64_t>(at), data, \
             static_cast<std::uint64_t>(count));                           \
    return count;                                                          \
  }
RECORDED_PWRITE(pwrite)
RECORDED_PWRITE(pwrite64)

#define RECORDED_FTRUNCATE(NAME)                                                       \
  int NAME(int file, off_t size) noexcept {                                            \
    const std::lock_guard lock(order);                                                 \
    if (fails('t', path_of(file))) return -1;                                          \
    const auto result = static_cast<int>(::syscall(SYS_ftruncate, file, size));        \
    if (result == 0) record('t', path_of(file), "", static_cast<std::uint64_t>(size)); \
    return result;                                                                     \
  }
RECORDED_FTRUNCATE(ftruncate)
RECORDED_FTRUNCATE(ftruncate64)

#define RECORDED_SYNC(NAME)                                            \
  int NAME(int file) {                                                 \
    const std::lock_guard lock(order);                                 \
    if (fails('s', path_of(file))) return -1;                          \
    const auto result = static_cast<int>(::syscall(SYS_##NAME, file)); \
    if (result == 0) record('s', path_of(file));                       \
    return result;                                                     \
  }
RECORDED_SYNC(fsync)
RECORDED_SYNC(fdatasync)

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  const std::lock_guard lock(order);
  const auto a = absolute(from_folder, from);
  const auto b = absolute(to_folder, to);
  if (fails('r', b)) return -1;
  const auto result =
      static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, 0U));
  if (result == 0) record('r', a, b);
  return result;
}

int rename(const char* from, const char* to) noexcept {
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int link(const char* from, const char* to) noexcept {
  const std::lock_guard lock(order);
  const auto a = absolute(AT_FDCWD, from);
  const auto b = absolute(AT_FDCWD, to);
  if (fails('l', b)) return -1;
  const auto result = static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
  if (result == 0) record('l', a, b);
  return result;
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  const std::lock_guard lock(order);
  const auto name = absolute(folder, path);
  if (fails('u', name)) return -1;
  const auto result = static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
  if (result == 0) record('u', name);
  return result;
}

int unlink(const char* path) noexcept {
  return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char* path) noexcept {
  return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char* path) noexcept {
  struct stat status {};
  const bool folder = ::lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return unlinkat(AT_FDCWD, path, folder ? AT_REMOVEDIR : 0);
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  const std::lock_guard lock(order);
  const auto name = absolute(folder, path);
  if (fails('m', name)) return -1;
  const auto result = static_cast<int>(::syscall(SYS_mkdirat, folder, path, mode));
  if (result == 0) record('m', name);
  return result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  return mkdirat(AT_FDCWD, path, mode);
}

}  // extern "C"
