#include "engine/ops/key_kernels.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "engine/ops/gemm.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Reference: softmax of one column over several panels, in float64.
struct PlainColumn {
  std::vector<double> scores;

  double highest() const {
    return std::accumulate(scores.begin(), scores.end(), -std::numeric_limits<double>::infinity(),
                           [](double a, double b) { return std::max(a, b); });
  }
  double sum() const {
    double total = 0.0;
    for (const double score : scores) total += std::exp(score - highest());
    return total;
  }
};

class Panel : public EachCpuTarget {
 protected:
  void SetUp() override {
    EachCpuTarget::SetUp();
    columns_ = gemm::tile_shape().columns;
    const auto count = static_cast<std::size_t>(columns_);
    highest_.assign(count, kLowest);
    sum_.assign(count, 0.0f);
    z_.assign(2 * count, 1.0f);
    plain_.resize(count);
  }

  // Adds the next block of keys; column c sees [first(c), end(c)).
  template <typename First, typename End>
  Tensor next(std::int64_t keys, unsigned seed, First first, End end) {
    auto scores = random_tensor({keys, columns_}, seed, 3.0f);
    std::vector<float> firsts;
    std::vector<float> ends;
    std::int64_t all_first = 0;
    std::int64_t all_end = keys;
    for (std::int64_t column = 0; column < columns_; ++column) {
      firsts.push_back(static_cast<float>(first(column)));
      ends.push_back(static_cast<float>(end(column)));
      all_first = std::max<std::int64_t>(all_first, first(column));
      all_end = std::max<std::int64_t>(0, std::min<std::int64_t>(all_end, end(column)));
      for (auto key = std::max<std::int64_t>(0, first(column));
           key < std::min<std::int64_t>(keys, end(column)); ++key)
        plain_[static_cast<std::size_t>(column)].scores.push_back(
            scores.data<float>()[key * columns_ + column]);
    }
    keys::update_softmax({.scores = scores.data<float>(),
                          .keys = keys,
                          .columns = columns_,
                          .first = firsts.data(),
                          .end = ends.data(),
                          .all_first = all_first,
                          .all_end = all_end,
                          .highest = highest_.data(),
                          .sum = sum_.data(),
                          .z = z_.data(),
                          .z_rows = 2});
    return scores;
  }

  // Error bound of float32 sums of up to a hundred weights.
  void expect_plain() const {
    for (std::size_t column = 0; column < plain_.size(); ++column) {
      if (plain_[column].scores.empty()) {
        EXPECT_EQ(highest_[column], kLowest);
        EXPECT_EQ(sum_[column], 0.0f);
        continue;
      }
      EXPECT_EQ(highest_[column], static_cast<float>(plain_[column].highest()));
      EXPECT_NEAR(sum_[column] / plain_[column].sum(), 1.0, 2e-6) << column;
    }
  }

  std::int64_t columns_ = 0;
  std::vector<float> highest_;
  std::vector<float> sum_;
  std::vector<float> z_;
  std::vector<PlainColumn> plain_;
};

TEST_P(Panel, BlockwiseUpdatesMatchTheFullSoftmax) {
  const auto from_first = [](std::int64_t) { return 0; };
  for (const std::int64_t keys : {1, 3, 16, 37}) {
    next(keys, static_cast<unsigned>(keys), from_first, [&](std::int64_t) { return keys; });
    expect_plain();
  }
}

TEST_P(Panel, MaskedKeysHaveZeroWeight) {
  const std::int64_t keys = 40;
  const auto first = [](std::int64_t column) { return column - 3; };
  const auto end = [](std::int64_t column) { return column + 1; };
  const auto weights = next(keys, 5, first, end);
  expect_plain();
  for (std::int64_t key = 0; key < keys; ++key)
    for (std::int64_t column = 0; column < columns_; ++column)
      EXPECT_EQ(weights.data<float>()[key * columns_ + column] == 0.0f,
                key < first(column) || key >= end(column));
}

// A column without visible keys in a block keeps its state, also before its first visible key.
TEST_P(Panel, AFullyMaskedBlockChangesNothing) {
  const auto nothing = [](std::int64_t) { return 0; };
  const auto odd = [](std::int64_t column) { return column % 2 == 1 ? 20 : 0; };
  next(20, 6, nothing, odd);
  expect_plain();
  const auto highest = highest_;
  const auto sum = sum_;
  z_.assign(z_.size(), 5.0f);
  next(20, 7, nothing, nothing);
  EXPECT_EQ(highest_, highest);
  EXPECT_EQ(sum_, sum);
  for (std::size_t column = 1; column < plain_.size(); column += 2) EXPECT_EQ(z_[column], 5.0f);
  next(20, 8, nothing, [](std::int64_t) { return 20; });
  expect_plain();
}

TEST_P(Panel, ZIsRescaledWhenTheMaximumGrows) {
  next(
      8, 9, [](std::int64_t) { return 0; }, [](std::int64_t) { return 8; });
  const auto before = highest_;
  z_.assign(z_.size(), 1.0f);
  next(
      64, 10, [](std::int64_t) { return 0; }, [](std::int64_t) { return 64; });
  for (std::size_t i = 0; i < z_.size(); ++i) {
    const auto column = i % plain_.size();
    EXPECT_FLOAT_EQ(z_[i], std::exp(before[column] - highest_[column]));
  }
}

QKSCOPE_EACH_CPU_TARGET(Panel);

}  // namespace
}  // namespace qkscope
