// Runs a test under every CPU target that the machine has.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/core/cpu_target.h"

namespace qkscope {

// Calls body(name) with each target in use, best first, and leaves the one that was in use before.
template <typename Body>
void for_each_cpu_target(Body body) {
  const auto before = cpu_target();
  for (const auto& name : cpu_targets()) {
    SCOPED_TRACE("CPU target " + name);
    force_cpu_target(name);
    body(name);
  }
  force_cpu_target(before);
}

// A test case per target: `class Linear : public EachCpuTarget {};`, TEST_P(Linear, ...), and
// QKSCOPE_EACH_CPU_TARGET(Linear); after them.
class EachCpuTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_cpu_target(GetParam()); }
  void TearDown() override { force_cpu_target(before_); }

 private:
  std::string before_ = cpu_target();
};

#define QKSCOPE_EACH_CPU_TARGET(suite)                                   \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite, testing::ValuesIn(cpu_targets()), \
                           [](const auto& target) { return target.param; })

}  // namespace qkscope
