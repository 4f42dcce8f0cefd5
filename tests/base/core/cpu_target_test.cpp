#include "base/core/cpu_target.h"

#include <gmock/gmock.h>

#include "cpu_targets.h"
#include "error_message.h"

namespace qkscope {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(CpuTarget, TheTargetInUseIsAvailable) {
  EXPECT_THAT(cpu_targets(), Contains(cpu_target()));
}

TEST(CpuTarget, EveryTargetCanBeSelected) {
  for_each_cpu_target([](const std::string& name) { EXPECT_EQ(cpu_target(), name); });
}

TEST(CpuTarget, AnUnknownNameListsTheAvailableTargets) {
  const auto before = cpu_target();
  const auto message = bad_input_message([] { force_cpu_target("mmx"); });
  EXPECT_THAT(message, HasSubstr("'mmx' is not a target"));
  EXPECT_THAT(message, HasSubstr(cpu_targets().back()));
  EXPECT_EQ(cpu_target(), before);
}

}  // namespace
}  // namespace qkscope
