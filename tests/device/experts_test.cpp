// Kernels of mixtures of experts beside the CPU's operations (ops/experts.h).
#include "device/cuda/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "device/memory_plan.h"
#include "device_buffer.h"
#include "numerics/random.h"
#include "ops/experts.h"

namespace qkscope {
namespace {

struct MixtureSize {
  std::int64_t rows;
  std::int64_t k;
  std::int64_t experts;
};

const MixtureSize kMixtureSizes[] = {{1, 1, 1},   {1, 8, 128},  {5, 2, 4},
                                     {300, 3, 8}, {1025, 2, 4}, {4096, 8, 128}};

std::vector<float> drawn_values(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = 2.0f * static_cast<float>(random.normal());
  return values;
}

ConstTensorView view_of(const std::vector<float>& values, std::int64_t columns) {
  return {reinterpret_cast<const std::byte*>(values.data()),
          DType::f32,
          {std::ssize(values) / columns, columns}};
}

TensorView view_of(std::vector<float>& values, std::int64_t columns) {
  return {reinterpret_cast<std::byte*>(values.data()),
          DType::f32,
          {std::ssize(values) / columns, columns}};
}

struct Choice {
  std::vector<float> weights;  // (rows, k)
  std::vector<float> indices;  // (rows, k)
};

Choice choice_on_cpu(const std::vector<float>& logits, const MixtureSize& size, bool normalized) {
  const auto count = static_cast<std::size_t>(size.rows * size.k);
  Choice choice{std::vector<float>(count), std::vector<float>(count)};
  choose_experts(view_of(logits, size.experts), normalized, view_of(choice.weights, size.k),
                 view_of(choice.indices, size.k));
  return choice;
}

Choice choice_on_gpu(const std::vector<float>& logits, const MixtureSize& size, bool normalized) {
  const auto bytes = static_cast<std::size_t>(size.rows * size.k) * sizeof(float);
  const DeviceBuffer x(logits);
  const DeviceBuffer weights(bytes);
  const DeviceBuffer indices(bytes);
  cuda::choose_experts({.logits = x.get(),
                        .weights = weights.get<float>(),
                        .indices = indices.get<float>(),
                        .rows = size.rows,
                        .experts = size.experts,
                        .k = size.k,
                        .normalized = normalized,
                        .dtype = DType::f32},
                       nullptr);
  return {weights.download<float>(), indices.download<float>()};
}

struct SortedSlots {
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> row_of;
  std::vector<std::int32_t> slot_of;
  std::vector<std::int32_t> place_of;
  bool operator==(const SortedSlots&) const = default;
};

constexpr std::int64_t kFirstRow = 1000;

SortedSlots sorted_slots(const std::vector<float>& indices, const MixtureSize& size) {
  const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count) * 4; };
  const auto most = most_sorted_rows(size.rows * size.k, size.experts);
  const DeviceBuffer chosen(indices);
  DeviceBuffer counts(bytes(size.experts));
  DeviceBuffer row_of(bytes(most));
  DeviceBuffer slot_of(bytes(most));
  DeviceBuffer place_of(bytes(size.rows * size.k));
  for (auto* buffer : {&counts, &row_of, &slot_of, &place_of}) buffer->poison();
  cuda::sort_by_expert({.indices = chosen.get<float>(),
                        .rows = size.rows,
                        .k = size.k,
                        .experts = size.experts,
                        .unit = kExpertRowUnit,
                        .first_row = kFirstRow,
                        .counts = counts.get<std::int32_t>(),
                        .row_of = row_of.get<std::int32_t>(),
                        .slot_of = slot_of.get<std::int32_t>(),
                        .place_of = place_of.get<std::int32_t>()},
                       nullptr);
  return {counts.download<std::int32_t>(), row_of.download<std::int32_t>(),
          slot_of.download<std::int32_t>(), place_of.download<std::int32_t>()};
}

using CudaExperts = GpuTest<>;

// Softmaxes of the same float32 numbers; exp is the device's.
TEST_F(CudaExperts, AreChosenAsOnTheCpu) {
  for (const auto& size : kMixtureSizes)
    for (const bool normalized : {false, true}) {
      const auto logits = drawn_values(size.rows * size.experts, 3);
      const auto expected = choice_on_cpu(logits, size, normalized);
      const auto found = choice_on_gpu(logits, size, normalized);
      EXPECT_EQ(found.indices, expected.indices);
      for (std::size_t i = 0; i < expected.weights.size(); ++i)
        EXPECT_NEAR(found.weights[i], expected.weights[i], 1e-6);
    }
}

TEST_F(CudaExperts, OfEqualLogitsTheFirstIsChosen) {
  const MixtureSize size{2, 3, 6};
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, 2, 2, 1, 2, 0, -infinity, 0, -infinity, 0, 1, -infinity};
  EXPECT_EQ(choice_on_gpu(logits, size, true).indices, (std::vector<float>{1, 2, 4, 4, 1, 3}));
}

TEST_F(CudaExperts, HaveTheirSlotsInOrderAndFilledUp) {
  for (const auto& size : kMixtureSizes) {
    const auto indices =
        choice_on_cpu(drawn_values(size.rows * size.experts, 5), size, false).indices;
    const auto by_expert = rows_by_expert(view_of(indices, size.k), size.experts);
    const auto found = sorted_slots(indices, size);
    std::size_t at = 0;
    for (std::int64_t expert = 0; expert < size.experts; ++expert) {
      const auto slots = by_expert.of(expert);
      ASSERT_EQ(found.counts[static_cast<std::size_t>(expert)], std::ssize(slots));
      const auto end =
          at + static_cast<std::size_t>(cuda::filled_up(std::ssize(slots), kExpertRowUnit));
      for (const auto slot : slots) {
        ASSERT_EQ(found.slot_of[at], slot);
        ASSERT_EQ(found.row_of[at], kFirstRow + slot / size.k);
        ASSERT_EQ(found.place_of[static_cast<std::size_t>(slot)], static_cast<std::int32_t>(at));
        ++at;
      }
      for (; at < end; ++at) {
        ASSERT_EQ(found.slot_of[at], 0);
        ASSERT_EQ(found.row_of[at], kFirstRow);
      }
    }
    EXPECT_EQ(sorted_slots(indices, size), found);
  }
}

// What an edit may have written.
TEST_F(CudaExperts, NumbersThatAreNoExpertsOrStandTwiceAreNotCounted) {
  const MixtureSize size{4, 2, 4};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto counted = [&](const std::vector<float>& indices) {
    const auto counts = sorted_slots(indices, size).counts;
    return std::accumulate(counts.begin(), counts.end(), 0);
  };
  EXPECT_EQ(counted({0, 1, 2, 3, 3, 0, 1, 2}), 8);
  for (const float wrong : {-1.0f, 4.0f, 1.5f, nan, 3.0f})
    EXPECT_EQ(counted({0, 1, 2, 3, 3, wrong, 1, 2}), 7) << wrong;
}

TEST_F(CudaExperts, AddUpByTheirWeights) {
  const MixtureSize size{37, 3, 8};
  const std::int64_t n = 130;
  const auto x = drawn_values(size.rows * size.k * n, 7);
  const auto weights = drawn_values(size.rows * size.k, 8);
  std::vector<std::int32_t> places(static_cast<std::size_t>(size.rows * size.k));
  std::iota(places.rbegin(), places.rend(), 0);
  for (const auto dtype : {DType::f32, DType::bf16, DType::f16}) {
    const DeviceBuffer on_device(encoded(x, dtype));
    const DeviceBuffer by(weights);
    const DeviceBuffer at(places);
    DeviceBuffer y(static_cast<std::size_t>(size.rows * n) * dtype_size(dtype));
    y.poison();
    cuda::combine_experts({.x = on_device.get(),
                           .weights = by.get<float>(),
                           .places = at.get<std::int32_t>(),
                           .y = y.get(),
                           .rows = size.rows,
                           .k = size.k,
                           .n = n,
                           .factor = 0.5f,
                           .dtype = dtype},
                          nullptr);
    const auto rounded = decoded(encoded(x, dtype), dtype);
    const auto found = decoded(y.download<std::byte>(), dtype);
    // Half a step of the type, and sums that may be fused.
    const double step = dtype == DType::f32 ? 1e-6 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-10;
    for (std::int64_t row = 0; row < size.rows; ++row)
      for (std::int64_t i = 0; i < n; ++i) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < size.k; ++j) {
          const auto slot = static_cast<std::size_t>(row * size.k + j);
          sum += 0.5 * static_cast<double>(weights[slot]) *
                 static_cast<double>(rounded[static_cast<std::size_t>(places[slot] * n + i)]);
        }
        EXPECT_NEAR(found[static_cast<std::size_t>(row * n + i)], sum, step * std::abs(sum) + 1e-5);
      }
  }
}

}  // namespace
}  // namespace qkscope
