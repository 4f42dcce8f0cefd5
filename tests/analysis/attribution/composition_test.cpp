// Means of contributions over sampled pairs.
#include <cmath>
#include <map>

#include <gmock/gmock.h>

#include "error_message.h"
#include "golden_text.h"
#include "qkscope/experimental/attribution.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

std::vector<std::vector<std::int32_t>> some_texts() {
  const auto tokens = golden_tokens("qwen3");
  std::vector<std::vector<std::int32_t>> texts;
  for (const std::ptrdiff_t begin : {0, 40, 80})
    texts.emplace_back(tokens.begin() + begin, tokens.begin() + begin + 40);
  return texts;
}

Composition compose(const CompositionOptions& options) {
  const auto model = Model::load(golden_path("qwen3"), {.device = "cpu", .quiet = true});
  return composition(model, some_texts(), options);
}

double sum_of(const Table& table, const char* column, const std::string& side = {}) {
  double sum = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row)
    if (side.empty() || table.find("side")->texts[row] == side)
      sum += table.find(column)->reals[row];
  return sum;
}

TEST(Composition, ExplainedVarianceSumsToOne) {
  for (const bool uniform : {false, true}) {
    const auto found = compose({.heads = {{1, 3}}, .samples = 60, .uniform = uniform, .top = 5});
    EXPECT_NEAR(sum_of(found.pairs, "explained"), 1.0, 1e-9);
    EXPECT_NEAR(sum_of(found.components, "explained", "q"), 1.0, 1e-9);
    EXPECT_NEAR(sum_of(found.components, "explained", "k"), 1.0, 1e-9);
    EXPECT_EQ(found.pairs.rows(), 6);
    EXPECT_EQ(found.pairs.find("q_component")->texts.back(), "others");
    EXPECT_EQ(found.pairs.find("samples")->integers.front(), 60);
    EXPECT_EQ(found.pairs.find("texts")->integers.front(), 3);
  }
}

TEST(Composition, ComponentsAreMarginsOfThePairs) {
  const auto found = compose({.heads = {{1, 0}, {1, 2}}, .samples = 30, .top = 0});
  std::map<std::string, double> of_keys;
  for (std::size_t row = 0; row < static_cast<std::size_t>(found.pairs.rows()); ++row)
    if (found.pairs.find("head")->integers[row] == 2)
      of_keys[found.pairs.find("k_component")->texts[row]] += found.pairs.find("mean")->reals[row];
  std::size_t checked = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(found.components.rows()); ++row) {
    if (found.components.find("head")->integers[row] != 2 ||
        found.components.find("side")->texts[row] != "k")
      continue;
    EXPECT_NEAR(found.components.find("mean")->reals[row],
                of_keys[found.components.find("component")->texts[row]], 1e-9);
    EXPECT_GE(found.components.find("stderr")->reals[row], 0.0);
    ++checked;
  }
  EXPECT_EQ(checked, of_keys.size());
}

TEST(Composition, IsDrawnBySeed) {
  const CompositionOptions options{.heads = {{1, 1}}, .samples = 12};
  auto other = options;
  other.seed = 1;
  EXPECT_EQ(compose(options).pairs.to_csv(), compose(options).pairs.to_csv());
  EXPECT_NE(compose(options).pairs.to_csv(), compose(other).pairs.to_csv());
}

TEST(Composition, BadInputIsRefused) {
  EXPECT_THAT(bad_input_message([] {
                compose({.heads = {{1, 1}}, .samples = 2});
              }),
              HasSubstr("at least one per text"));
  EXPECT_THAT(bad_input_message([] { compose({.heads = {{5, 1}}}); }), HasSubstr("no head 5.1"));
}

}  // namespace
}  // namespace qkscope
