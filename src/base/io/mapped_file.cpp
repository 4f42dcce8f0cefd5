#include "base/io/mapped_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "qkscope/experimental/text.h"

namespace qkscope {
namespace {

// One mapped file. A signal handler reads the table of mappings, so an entry has no lock and no
// allocated memory; long paths are truncated.
struct FileMapping {
  std::atomic<const std::byte*> begin = nullptr;  // nullptr: unused entry
  std::atomic<std::size_t> size = 0;
  std::array<char, 512> path{};
};

// Table of mapped files, larger than the number of shards of any checkpoint. A file that is mapped
// while the table is full can be read, but if it is truncated, no error message names it.
constinit std::array<FileMapping, 1024> mappings;

// Marks a table entry that is being filled: an address outside any mapped file.
constexpr std::byte kReservedMark{};
constexpr const std::byte* kReserved = &kReservedMark;

const FileMapping* find_mapping_of_address(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto& mapping : mappings) {
    const auto* begin = mapping.begin.load();
    if (begin != nullptr && begin != kReserved && at >= begin && at < begin + mapping.size.load())
      return &mapping;
  }
  return nullptr;
}

void write_to_stderr(const char* text) {
  // Ignore write errors: the process is about to exit.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

extern "C" void handle_sigbus(int signal, siginfo_t* info, void*) {
  const auto* mapping = find_mapping_of_address(info->si_addr);
  if (mapping == nullptr) {  // not a file in the table
    std::signal(signal, SIG_DFL);
    return;  // the faulting instruction raises the signal again
  }
  static std::atomic_flag reported;
  if (reported.test_and_set())  // another thread reads the same file and is about to exit
    while (true) ::pause();
  write_to_stderr("error: ");
  write_to_stderr(mapping->path.data());
  write_to_stderr(
      ": the file was cut or its disk failed while it was read; restore it and run again\n");
  std::_Exit(1);
}

// Adds a mapping to the table. Lock-free: a forked child could inherit a held lock forever.
void register_file_mapping(std::span<const std::byte> bytes, const std::string& path) {
  const auto printable_path = printable(path).substr(0, FileMapping{}.path.size() - 1);
  for (auto& mapping : mappings) {
    const std::byte* free = nullptr;
    if (!mapping.begin.compare_exchange_strong(free, kReserved)) continue;
    std::copy(printable_path.begin(), printable_path.end(), mapping.path.begin());
    mapping.path[printable_path.size()] = '\0';
    mapping.size = bytes.size();
    mapping.begin = bytes.data();
    return;
  }
}

void unregister_file_mapping(const std::byte* begin) {
  for (auto& mapping : mappings) {
    const std::byte* found = begin;
    if (mapping.begin.compare_exchange_strong(found, nullptr)) return;
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  check_regular_file(path);
  // O_NONBLOCK: opening a pipe without a writer would block forever.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) throw_system_error("open", path, errno);
  struct stat status = {};
  if (::fstat(file.fd(), &status) != 0) throw_system_error("stat", path, errno);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // mmap refuses a length of 0
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (address == MAP_FAILED) throw_system_error("map", path, errno);
  data_ = {static_cast<const std::byte*>(address), MunmapDeleter{size}};
  register_file_mapping(bytes(), path_);
}

void MappedFile::MunmapDeleter::operator()(const std::byte* data) const {
  unregister_file_mapping(data);
  ::munmap(const_cast<std::byte*>(data), size);
}

void report_truncated_mappings() {
  struct sigaction action = {};
  action.sa_sigaction = handle_sigbus;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

std::size_t count_free_file_descriptors() {
  struct rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  std::error_code none;  // without /proc, no descriptor is counted
  const std::filesystem::directory_iterator open("/proc/self/fd", none);
  const auto count = static_cast<std::size_t>(std::distance(open, {}));
  return static_cast<std::size_t>(limit.rlim_cur) - std::min<std::size_t>(count, limit.rlim_cur);
}

std::string read_text_file(const std::string& path) {
  return translate_exceptions([&] { return std::string(MappedFile(path).text()); });
}

}  // namespace qkscope
