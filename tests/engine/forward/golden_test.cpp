// Golden cases and demo checkpoints: our activations against those of transformers.
#include "golden_case.h"

namespace qkscope {
namespace {

// Both sides compute in float32 with different summation orders; docs/explanation/numerics.md
// defines the bounds.
constexpr double kMaxDifference = 2e-4;
constexpr double kRelativeNorm = 1e-5;

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, AgreesWithTransformers) {
  const auto model = load_case(GetParam());
  const GoldenRun golden(GetParam());
  const auto recorder = golden.run(*make_backend(model));
  double worst = 0.0;
  double worst_relative = 0.0;
  golden.compare_with(recorder, [&](const std::string& name, const Difference& difference) {
    EXPECT_LT(difference.maximal, kMaxDifference) << name;
    EXPECT_LT(difference.relative(), kRelativeNorm) << name;
    worst = std::max(worst, difference.maximal);
    worst_relative = std::max(worst_relative, difference.relative());
  });
  std::printf("%s: maximal difference %.2e, relative norm %.2e\n", GetParam().name().c_str(), worst,
              worst_relative);
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(golden_cases()),
                         [](const auto& golden) { return golden.param.name(); });

}  // namespace
}  // namespace qkscope
