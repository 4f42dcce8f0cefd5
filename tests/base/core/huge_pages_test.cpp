#include "base/core/huge_pages.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>

namespace qkscope {
namespace {

TEST(HugePages, BlocksAreAsTheyWereAskedForOrNot) {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  std::vector<int> before(1 << 20, 7);
  ask_for_huge_pages();
  std::vector<int> after(5 << 20);
  EXPECT_EQ(std::count(before.begin(), before.end(), 7), std::ssize(before));
  EXPECT_EQ(std::count(after.begin(), after.end(), 0), std::ssize(after));
}

}  // namespace
}  // namespace qkscope
