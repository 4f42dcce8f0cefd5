#include "ops/gemm.h"

#include <map>

#include <gtest/gtest.h>

#include "cpu_targets.h"

namespace qkscope {
namespace {

// The shape of the tile shows which code is called.
TEST(Gemm, TheTargetInUseIsTheOneThatRuns) {
  const std::map<std::string, std::pair<std::int64_t, std::int64_t>> shapes = {
      {"avx512", {12, 32}}, {"avx2", {4, 24}}, {"sse4", {4, 12}}, {"neon", {8, 8}}};
  for_each_cpu_target([&](const std::string& name) {
    ASSERT_FALSE(cpu_targets().empty());  // asking changes nothing
    const auto found = gemm::tile_shape();
    EXPECT_EQ(std::pair(found.rows, found.columns), shapes.at(name));
  });
}

}  // namespace
}  // namespace qkscope
