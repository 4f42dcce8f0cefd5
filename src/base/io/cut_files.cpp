#include "base/io/cut_files.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "qkscope/experimental/text.h"

namespace qkscope {
namespace {

// Read by a signal handler, so there are no locks and no allocations in it; a long name is cut.
struct Mapping {
  std::atomic<const std::byte*> begin = nullptr;  // nullptr: free
  std::atomic<std::size_t> size = 0;
  std::array<char, 512> path{};
};

// Checkpoints have at most hundreds of shards; what does not fit is mapped all the same.
constinit std::array<Mapping, 1024> mappings;

// A mapping that is being written down: its place is taken, and no address lies in it yet.
const std::byte* const kTaken = reinterpret_cast<const std::byte*>(std::uintptr_t{1});

const Mapping* mapping_at(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto& mapping : mappings) {
    const auto* begin = mapping.begin.load();
    if (begin != nullptr && begin != kTaken && at >= begin && at < begin + mapping.size.load())
      return &mapping;
  }
  return nullptr;
}

void print(const char* text) {
  // Nothing can be done about a message that does not get through.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

extern "C" void say_which_file(int signal, siginfo_t* info, void*) {
  const auto* mapping = mapping_at(info->si_addr);
  if (mapping == nullptr) {  // not ours: as if we had not been here
    std::signal(signal, SIG_DFL);
    return;  // the same instruction raises it again
  }
  print("error: ");
  print(mapping->path.data());
  print(": the file was cut or its disk failed while it was read; restore it and run again\n");
  std::_Exit(1);
}

}  // namespace

// Without locks here too: a forked process inherits those that other threads held.
void list_mapping(std::span<const std::byte> bytes, const std::string& path) {
  const auto shown = printable(path).substr(0, Mapping{}.path.size() - 1);
  for (auto& mapping : mappings) {
    const std::byte* free = nullptr;
    if (!mapping.begin.compare_exchange_strong(free, kTaken)) continue;
    std::copy(shown.begin(), shown.end(), mapping.path.begin());
    mapping.path[shown.size()] = '\0';
    mapping.size = bytes.size();
    mapping.begin = bytes.data();
    return;
  }
}

void unlist_mapping(const std::byte* begin) {
  for (auto& mapping : mappings) {
    const std::byte* found = begin;
    if (mapping.begin.compare_exchange_strong(found, nullptr)) return;
  }
}

void report_cut_files() {
  struct sigaction action {};
  action.sa_sigaction = say_which_file;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace qkscope
