// File descriptors, locks, and files that survive a power failure. Write order: first the data,
// then the folder entry, and only then anything that refers to the new name.
// docs/explanation/durability.md describes the guarantees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace qkscope {

// Owns a POSIX file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void close() {
    if (is_open()) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// Writes all bytes at the current position of an open file; `path` names it in error messages.
void write_all(const FileDescriptor& file, std::span<const std::byte> bytes,
               const std::string& path);
// fsync of the file's data.
void fsync_file(const std::string& path);
// fsync of the folder: makes created, renamed and removed entries durable.
void fsync_folder(const std::string& path);

// Renames a file durably: syncs its data, renames it, syncs the folder.
void rename_durably(const std::string& from, const std::string& to);

// Writes a file atomically: the data goes to a temporary file that commit() syncs and renames, so
// the path never holds a partial file.
class OutputFile {
 public:
  // Throws a bad-input error if the folder does not exist.
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // deletes the temporary file unless commit() succeeded

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

  std::uint64_t bytes_written() const { return written_; }

 private:
  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
  std::uint64_t written_ = 0;
};

// Returns a path in the folder of `path` for a temporary file, unique across processes and threads.
std::string temporary_path(const std::string& path);

// Every temporary file or folder is locked (flock) by the process that writes it. A free lock tells
// the next run that the writer was killed and that the file can be deleted.
//
// Deletes temporary files of killed processes next to `path`, then creates a new one and locks it.
FileDescriptor create_temporary_file(const std::string& path, std::string& temporary);
// Locks an existing temporary file or folder. Returns a closed descriptor if it does not exist.
FileDescriptor try_lock_temporary_file(const std::string& path);
// Deletes unlocked (abandoned) files and folders named PREFIX + random letters + SUFFIX.
void remove_stale_temporaries(const std::string& folder, std::string_view prefix,
                              std::string_view suffix, std::size_t random_letters);

// Writes a file with this content atomically (see OutputFile).
void write_file(const std::string& path, std::string_view content);

// An advisory file lock (flock), which the kernel releases when the process ends. A process that
// deletes the lock file must hold the lock and delete everything the lock protects first.
class FileLock {
 public:
  enum class LockMode { shared, exclusive };
  enum class Blocking { no, yes };

  // Creates the file and its folder if needed. With Blocking::no the constructor does not block,
  // and is_held() tells whether the lock was acquired. Throws an Error of kind failure if the file
  // system cannot lock; with QKSCOPE_NO_LOCK=1 in the environment, every lock counts as held.
  FileLock(const std::string& file, LockMode mode, Blocking blocking);

  bool is_held() const { return file_.is_open(); }

  // Upgrades a shared lock to an exclusive one without blocking. Returns false if another process
  // holds the lock; the shared lock may then be lost as well.
  bool try_upgrade_to_exclusive() const;

 private:
  FileDescriptor file_;
};

}  // namespace qkscope
