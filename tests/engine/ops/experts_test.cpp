#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "error_message.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class Experts : public EachCpuTarget {};

struct Chosen {
  Chosen(std::int64_t rows, std::int64_t k) : weights({rows, k}), indices({rows, k}) {}
  Tensor weights;
  Tensor indices;
};

Chosen choose(const Tensor& logits, std::int64_t k, bool normalized) {
  Chosen chosen(logits.dim(0), k);
  choose_experts(logits, {.normalized = normalized}, {}, chosen.weights, chosen.indices);
  return chosen;
}

Tensor tensor_of(std::initializer_list<float> values, const Shape& shape) {
  Tensor tensor(shape);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

TEST_P(Experts, LargestLogitsAreChosenAndTiesGoToTheLowerIndex) {
  const auto logits = tensor_of({0.0f, 3.0f, 1.0f, 3.0f, -1.0f}, {1, 5});
  const auto chosen = choose(logits, 3, false);
  const float expected[] = {1.0f, 3.0f, 2.0f};
  double all = 0.0;
  for (int i = 0; i < 5; ++i) all += std::exp(static_cast<double>(logits.data<float>()[i]));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(chosen.indices.data<float>()[i], expected[i]);
    const double logit = logits.data<float>()[static_cast<int>(expected[i])];
    EXPECT_NEAR(chosen.weights.data<float>()[i], std::exp(logit) / all, 1e-6);
  }
}

TEST_P(Experts, NormalizedWeightsAreTheSoftmaxOverChosenExperts) {
  const auto logits = random_tensor({40, 13}, 1, 2.0f);
  const auto chosen = choose(logits, 4, true);
  for (std::int64_t row = 0; row < 40; ++row) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < 4; ++i) sum += chosen.weights.data<float>()[row * 4 + i];
    EXPECT_NEAR(sum, 1.0, 1e-6);
    const float* index = chosen.indices.data<float>() + row * 4;
    const auto logit = [&](std::int64_t i) {
      return static_cast<double>(
          logits.data<float>()[row * 13 + static_cast<std::int64_t>(index[i])]);
    };
    const float* weight = chosen.weights.data<float>() + row * 4;
    EXPECT_NEAR(weight[1] / weight[0], std::exp(logit(1) - logit(0)), 1e-5);
  }
}

// Group 0 has the larger sum of two scores, group 1 the largest score.
TEST_P(Experts, GroupsCountByTwoScoresOrByTheHighest) {
  const auto logits = tensor_of({1.0f, 0.9f, 1.2f, -3.0f}, {1, 4});
  for (const bool maximum : {false, true}) {
    Chosen chosen(1, 2);
    choose_experts(logits, {.groups = 2, .chosen_groups = 1, .group_maximum = maximum}, {},
                   chosen.weights, chosen.indices);
    EXPECT_EQ(chosen.indices.data<float>()[0], maximum ? 2.0f : 0.0f);
    EXPECT_EQ(chosen.indices.data<float>()[1], maximum ? 3.0f : 1.0f);
  }
}

TEST_P(Experts, NanLogitsPropagateToTheWeights) {
  const auto logits = tensor_of({0.0f, std::numeric_limits<float>::quiet_NaN(), 1.0f}, {1, 3});
  const auto chosen = choose(logits, 2, true);
  EXPECT_EQ(chosen.indices.data<float>()[0], 1.0f);
  EXPECT_TRUE(std::isnan(chosen.weights.data<float>()[0]));
}

TEST_P(Experts, ABiasChangesTheSelectionAndNotTheWeights) {
  const auto logits = tensor_of({0.0f, 2.0f, 1.0f, -1.0f}, {1, 4});
  const std::vector<float> bias = {0.0f, -1.0f, 0.0f, 0.7f};
  Chosen chosen(1, 2);
  choose_experts(logits, {.sigmoid = true, .weight_scale = 2.0}, bias, chosen.weights,
                 chosen.indices);
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  // Selection scores are 0.5, -0.12, 0.73 and 0.97.
  EXPECT_EQ(chosen.indices.data<float>()[0], 3.0f);
  EXPECT_EQ(chosen.indices.data<float>()[1], 2.0f);
  EXPECT_NEAR(chosen.weights.data<float>()[0], 2.0 * sigmoid(-1.0), 1e-6);
  EXPECT_NEAR(chosen.weights.data<float>()[1], 2.0 * sigmoid(1.0), 1e-6);
}

TEST_P(Experts, OnlyTheBestGroupsAreEligible) {
  // Sums of the two highest scores: the first group wins although it has not the highest score.
  const auto logits = tensor_of({1.0f, 1.0f, -9.0f, 3.0f, -9.0f, -9.0f}, {1, 6});
  Chosen chosen(1, 2);
  choose_experts(logits, {.normalized = true, .sigmoid = true, .groups = 2}, {}, chosen.weights,
                 chosen.indices);
  EXPECT_EQ(chosen.indices.data<float>()[0], 0.0f);
  EXPECT_EQ(chosen.indices.data<float>()[1], 1.0f);
  EXPECT_NEAR(chosen.weights.data<float>()[0], 0.5, 1e-6);
}

TEST_P(Experts, SlotsAreGroupedByExpert) {
  const auto indices = tensor_of({2, 0, 0, 1, 2, 1}, {3, 2});
  const auto rows = group_rows_by_expert(indices, 4);
  EXPECT_EQ(rows.begin, (std::vector<std::int64_t>{0, 2, 4, 6, 6}));
  EXPECT_EQ(rows.slots, (std::vector<std::int64_t>{1, 2, 3, 5, 0, 4}));
  EXPECT_TRUE(rows.expert_slots(3).empty());
}

TEST_P(Experts, InvalidExpertIndicesThrow) {
  const auto message = [](std::initializer_list<float> row) {
    const auto indices = tensor_of(row, {1, 2});
    return bad_input_message([&] { group_rows_by_expert(indices, 3); });
  };
  EXPECT_NE(message({0.0f, 3.0f}).find("expert index 3 in row 0"), std::string::npos);
  EXPECT_NE(message({0.5f, 1.0f}).find("expected the number of an expert, 0 to 2"),
            std::string::npos);
  EXPECT_NE(message({-1.0f, 1.0f}).find("expert index -1"), std::string::npos);
  EXPECT_NE(message({2.0f, 2.0f}).find("chooses expert 2 twice"), std::string::npos);
  message({std::numeric_limits<float>::quiet_NaN(), 1.0f});
}

struct Mixture {
  static constexpr std::int64_t kExperts = 5, kModel = 24, kMlp = 37, kPerToken = 2;

  Mixture() {
    for (unsigned i = 0; i < kExperts; ++i) {
      const auto linear = [&](std::int64_t out, std::int64_t in, unsigned seed) {
        matrices.push_back(random_tensor({out, in}, 10 * i + seed, 0.3f));
        const auto bias = random_tensor({out}, 10 * i + seed + 3);
        return Linear{{matrices.back(), 1.0f},
                      {bias.data<float>(), bias.data<float>() + bias.size()}};
      };
      experts.push_back(
          {linear(kMlp, kModel, 0), linear(kMlp, kModel, 1), linear(kModel, kMlp, 2)});
    }
  }

  Tensor run(ConstTensorView x, ConstTensorView logits) const {
    const auto rows = x.dim(0);
    Chosen chosen(rows, kPerToken);
    choose_experts(logits, {.normalized = true}, {}, chosen.weights, chosen.indices);
    const auto by_expert = group_rows_by_expert(chosen.indices, kExperts);
    Tensor gate({rows, kPerToken, kMlp});
    Tensor up(gate.shape());
    Tensor y({rows, kModel});
    project_experts_gate_up(x, by_expert, experts, {}, gate, up);
    apply_gated_activation({Activation::silu}, gate, up, gate);
    project_experts_down(gate, by_expert, experts, chosen.weights, y);
    return y;
  }

  // Reference in float64: every expert for every row.
  std::vector<double> reference(const float* x, const float* logits) const {
    std::vector<std::int64_t> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
    double all = 0.0;
    for (int i = 0; i < kPerToken; ++i)
      all += std::exp(static_cast<double>(logits[order[static_cast<std::size_t>(i)]]));
    std::vector<double> y(kModel);
    for (int i = 0; i < kPerToken; ++i) {
      const auto number = order[static_cast<std::size_t>(i)];
      const auto& expert = experts[static_cast<std::size_t>(number)];
      std::vector<double> in(x, x + kModel);
      auto gate = multiply(expert.gate, in);
      const auto up = multiply(expert.up, in);
      for (std::size_t j = 0; j < gate.size(); ++j)
        gate[j] = gate[j] / (1.0 + std::exp(-gate[j])) * up[j];
      const auto out = multiply(expert.down, gate);
      for (std::size_t j = 0; j < y.size(); ++j)
        y[j] += std::exp(static_cast<double>(logits[number])) / all * out[j];
    }
    return y;
  }

  static std::vector<double> multiply(const Linear& linear, const std::vector<double>& x) {
    std::vector<double> y(linear.bias.begin(), linear.bias.end());
    for (std::size_t row = 0; row < y.size(); ++row)
      for (std::size_t i = 0; i < x.size(); ++i)
        y[row] +=
            static_cast<double>(linear.weight.values.data<float>()[row * x.size() + i]) * x[i];
    return y;
  }

  std::vector<Tensor> matrices;
  std::vector<ExpertWeights> experts;
};

// Enough rows that one expert needs several chunks.
TEST_P(Experts, MixtureMatchesFloat64) {
  const Mixture mixture;
  const std::int64_t rows = 3 * kMostExpertRows;
  const auto x = random_tensor({rows, Mixture::kModel}, 1);
  const auto logits = random_tensor({rows, Mixture::kExperts}, 2);
  const auto y = mixture.run(x, logits);
  for (std::int64_t row = 0; row < rows; row += 97) {
    const auto expected = mixture.reference(x.data<float>() + row * Mixture::kModel,
                                            logits.data<float>() + row * Mixture::kExperts);
    for (std::int64_t i = 0; i < Mixture::kModel; ++i)
      ASSERT_NEAR(y.data<float>()[row * Mixture::kModel + i], expected[static_cast<std::size_t>(i)],
                  2e-5)
          << row;
  }
}

TEST_P(Experts, ARowDoesNotDependOnOtherRows) {
  const Mixture mixture;
  const auto x = random_tensor({50, Mixture::kModel}, 3);
  const auto logits = random_tensor({50, Mixture::kExperts}, 4);
  const auto together = mixture.run(x, logits);
  for (const std::int64_t row : {0, 7, 49}) {
    const auto alone = mixture.run(x.view().rows(row, row + 1), logits.view().rows(row, row + 1));
    EXPECT_EQ(std::memcmp(alone.view().bytes(), together.view().rows(row, row + 1).bytes(),
                          alone.view().size_bytes()),
              0)
        << row;
  }
}

QKSCOPE_EACH_CPU_TARGET(Experts);

}  // namespace
}  // namespace qkscope
