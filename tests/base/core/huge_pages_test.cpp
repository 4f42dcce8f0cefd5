#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>

#include "base/core/thread_pool.h"
#include "sanitized.h"

namespace qkscope {
namespace {

// Returns the VmFlags of the memory mapping that holds an address (proc_pid_smaps(5)).
std::string flags_of_mapping(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::istringstream header(line);
    if (header >> std::hex >> begin >> dash >> end && dash == '-')
      inside = begin <= wanted && wanted < end;
    if (inside && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST(HugePages, AreUsedWhereTheKernelGrantsThem) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer replaces the heap of glibc";
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  request_huge_pages();
  const std::vector<int> block(5 << 20);  // 20 MiB of the heap that the request has marked
  const auto flags = flags_of_mapping(block.data() + block.size() / 2);
  ASSERT_NE(flags, "");
  const bool granted = std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled");
  EXPECT_EQ(flags.find(" hg ") != std::string::npos, granted) << flags;
}

}  // namespace
}  // namespace qkscope
