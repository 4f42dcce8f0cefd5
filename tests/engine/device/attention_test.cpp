#include "engine/device/cuda/attention/attention.h"

#include <bit>
#include <tuple>

#include <gtest/gtest.h>

#include "attention_case.h"

namespace qkscope {
namespace {

// Key tiles are 64 rows long (32 for heads above 128 and for float32, 16 for heads above 256),
// query blocks at most 128.
const std::vector<std::int32_t> kOne = {495}, kPacked = {1, 2, 63, 64, 65, 300};
constexpr std::int64_t kAllRows = 495;
const std::vector<Mask> kMasks = {
    {.name = "causal", .sequences = kOne, .gap = 0},
    {.name = "causal, tiles counted by the block", .sequences = kOne, .begins = false},
    {.name = "window of 20", .sequences = kOne, .window = 20},
    {.name = "window of 150", .sequences = kOne, .window = 150, .begins = false, .gap = 0},
    {.name = "packed", .sequences = kPacked},
    {.name = "packed, rows at odd addresses", .sequences = kPacked, .begins = false, .gap = 3},
    {.name = "packed, window of 70", .sequences = kPacked, .window = 70, .gap = 3},
    {.name = "packed, every 7th query", .sequences = kPacked, .every = 7, .gap = 0},
    {.name = "few queries, window of 20", .sequences = kOne, .window = 20, .every = 97},
};

// The kernel's z of the queries, its rows `gap` elements apart, as bytes; what was not written is
// all ones.
std::vector<std::byte> kernel_z(const FusedRows& rows, const Ranges& ranges, const Mask& mask) {
  const auto& heads = rows.heads;
  const auto queries = static_cast<std::int64_t>(ranges.rows.size());
  const auto element = static_cast<std::int64_t>(dtype_size(rows.dtype));
  // The chosen rows of q, side by side with the stride of the fused rows.
  std::vector<float> q(static_cast<std::size_t>(queries * rows.stride), 0.0f);
  for (std::int64_t i = 0; i < queries; ++i)
    std::copy_n(rows.q(ranges.rows[static_cast<std::size_t>(i)], 0), heads.n_heads * heads.d_head,
                q.data() + i * rows.stride);
  const DeviceBuffer q_device(encoded(q, rows.dtype));
  const DeviceBuffer first(ranges.first), last(ranges.last), sequence(ranges.sequence);
  const auto z_stride = heads.n_heads * heads.d_value + mask.gap;
  DeviceBuffer z(static_cast<std::size_t>(queries * z_stride * element));
  z.poison();
  cuda::AttentionArguments arguments{{.q = q_device.get(),
                                      .k = rows.on_device(rows.k(0, 0)),
                                      .row_stride = rows.stride,
                                      .k_stride = rows.stride,
                                      .n_heads = heads.n_heads,
                                      .n_kv_heads = heads.n_kv_heads,
                                      .d_head = heads.d_head,
                                      .scale = rows.scale(),
                                      .dtype = rows.dtype}};
  arguments.v = rows.on_device(rows.v(0, 0));
  arguments.z = z.get();
  arguments.v_stride = rows.stride;
  arguments.z_stride = z_stride;
  arguments.first_key = first.get<std::int32_t>();
  arguments.last_key = last.get<std::int32_t>();
  arguments.sequence_begin = mask.begins ? sequence.get<std::int32_t>() : nullptr;
  arguments.queries = queries;
  arguments.d_value = heads.d_value;
  cuda::compute_attention(arguments, nullptr);
  return z.download<std::byte>();
}

class AttentionKernel : public GpuTest<testing::TestWithParam<std::tuple<DType, std::int64_t>>> {};

void expect_plain_softmax_and_nothing_else(DType dtype, std::int64_t d_head, std::int64_t d_value) {
  for (const std::int64_t group : {1, 2, 4, 8})
    for (const std::int64_t gap : {0, 3, 8}) {
      const HeadShape heads{2 * group, 2, d_head, d_value};
      const FusedRows rows(kAllRows, heads, gap, dtype);
      for (const auto& mask : kMasks) {
        if (mask.gap != gap) continue;
        SCOPED_TRACE(mask.name + ", queries per key head: " + std::to_string(group));
        const auto ranges = ranges_of(mask);
        const auto bytes = kernel_z(rows, ranges, mask);
        const auto z = decoded(bytes, dtype);
        const auto width = heads.n_heads * d_value, z_stride = width + gap;
        double worst = 0.0;
        for (std::size_t i = 0; i < ranges.rows.size(); ++i) {
          const float* row = z.data() + static_cast<std::int64_t>(i) * z_stride;
          ASSERT_TRUE(std::all_of(row, row + width, [](float x) { return std::isfinite(x); }))
              << "query " << i;
          ASSERT_TRUE(std::all_of(row + width, row + z_stride, [](float x) { return x != x; }))
              << "after query " << i;
          // Over the four groups every query is compared, over the queries every head.
          if (i % 4 != static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(group)) - 1))
            continue;
          const auto head = static_cast<std::int64_t>(i + i / 16) % heads.n_heads;
          worst = std::max(worst, error_share(rows, ranges, i, head, row + head * d_value));
        }
        EXPECT_LE(worst, 1.0);
      }
    }
}

TEST_P(AttentionKernel, MatchesThePlainSoftmaxAndWritesNothingElse) {
  const auto [dtype, d_head] = GetParam();
  expect_plain_softmax_and_nothing_else(dtype, d_head, d_head);
}

class AttentionKernelValueWidths : public GpuTest<testing::TestWithParam<DType>> {};

TEST_P(AttentionKernelValueWidths, MayDifferFromThatOfKeys) {
  expect_plain_softmax_and_nothing_else(GetParam(), 24, 16);
  expect_plain_softmax_and_nothing_else(GetParam(), 12, 20);
  expect_plain_softmax_and_nothing_else(GetParam(), 192, 128);
  expect_plain_softmax_and_nothing_else(GetParam(), 320, 200);
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionKernelValueWidths,
                         testing::Values(DType::bf16, DType::f16, DType::f32),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

std::string parameter_name(const testing::TestParamInfo<std::tuple<DType, std::int64_t>>& info) {
  return std::string(dtype_name(std::get<0>(info.param))) + "_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionKernel,
                         testing::Combine(testing::Values(DType::bf16, DType::f16, DType::f32),
                                          testing::Values(8, 12, 16, 24, 64, 80, 96, 128, 256, 264,
                                                          512)),
                         parameter_name);

// The rows of z, as bytes, of the sequence that begins at row `begin`.
std::vector<std::byte> part_of(const std::vector<std::byte>& z, const Ranges& ranges,
                               std::int32_t begin) {
  const auto row_bytes = z.size() / ranges.rows.size();
  std::vector<std::byte> part;
  for (std::size_t i = 0; i < ranges.rows.size(); ++i)
    if (ranges.sequence[i] == begin)
      part.insert(part.end(), z.begin() + static_cast<std::ptrdiff_t>(i * row_bytes),
                  z.begin() + static_cast<std::ptrdiff_t>((i + 1) * row_bytes));
  return part;
}

class AttentionKernelBits
    : public GpuTest<testing::TestWithParam<std::tuple<DType, std::int64_t>>> {};

// The second sequence of 150 rows repeats the first; other sequences stand before and between.
TEST_P(AttentionKernelBits, AreTheSameWhereverTheSequenceLies) {
  const auto [dtype, d_head] = GetParam();
  const HeadShape heads{.n_heads = 4, .n_kv_heads = 2, .d_head = d_head};
  FusedRows rows(351, heads, 0, dtype);
  std::copy_n(rows.values.begin() + 7 * rows.stride, 150 * rows.stride,
              rows.values.begin() + 201 * rows.stride);
  const DeviceBuffer repeated(encoded(rows.values, dtype));
  require(cudaMemcpy(rows.device.get(), repeated.get(), rows.values.size() * dtype_size(dtype),
                     cudaMemcpyDeviceToDevice));
  for (const std::int32_t window : {0, 40}) {
    const Mask mask{.name = "", .sequences = {7, 150, 1, 43, 150}, .window = window, .gap = 0};
    const auto ranges = ranges_of(mask);
    const auto z = kernel_z(rows, ranges, mask);
    EXPECT_EQ(part_of(z, ranges, 7), part_of(z, ranges, 201));
    EXPECT_EQ(z, kernel_z(rows, ranges, mask)) << "a second run";
    // And alone among the queries: every 50th row holds 50, 100 and 150 of the first sequence.
    auto few = mask;
    few.every = 50;
    const auto few_ranges = ranges_of(few);
    const auto few_z = kernel_z(rows, few_ranges, few);
    const auto row_bytes = z.size() / ranges.rows.size();
    for (std::size_t i = 0; i < few_ranges.rows.size(); ++i) {
      const auto row = static_cast<std::size_t>(few_ranges.rows[i]);
      EXPECT_EQ(std::memcmp(few_z.data() + i * row_bytes, z.data() + row * row_bytes, row_bytes), 0)
          << "query " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionKernelBits,
                         testing::Combine(testing::Values(DType::bf16, DType::f16, DType::f32),
                                          testing::Values(64, 128, 256, 512)),
                         parameter_name);

// Rows whose elements lie more than 2^31 from the first: only those are ever touched.
class AttentionKernelOffsets : public GpuTest<> {};

TEST_F(AttentionKernelOffsets, PassTwoToThe31) {
  constexpr std::int64_t kStride = 6144, kBegin = 350000, kUsed = 100;
  constexpr auto kBytes = static_cast<std::size_t>((kBegin + kUsed) * kStride * 2);
  std::size_t available = 0, total = 0;
  require(cudaMemGetInfo(&available, &total));
  if (available < kBytes + (std::size_t{1} << 28))
    GTEST_SKIP() << "needs " << kBytes << " bytes of device memory, found " << available;
  const HeadShape heads{.n_heads = 2, .n_kv_heads = 1, .d_head = 64};
  const FusedRows rows(kUsed, heads, 0, DType::bf16);
  const DeviceBuffer far(kBytes);
  require(cudaMemcpy2D(far.get<std::byte>() + kBegin * kStride * 2, kStride * 2, rows.device.get(),
                       static_cast<std::size_t>(rows.stride * 2),
                       static_cast<std::size_t>(rows.stride * 2), kUsed, cudaMemcpyDeviceToDevice));
  auto ranges = ranges_of({.name = "", .sequences = {kUsed}});
  const auto near = kernel_z(rows, ranges, {.name = "", .sequences = {kUsed}, .gap = 0});
  for (auto* keys : {&ranges.first, &ranges.last, &ranges.sequence})
    for (auto& key : *keys) key += static_cast<std::int32_t>(kBegin);
  const DeviceBuffer first(ranges.first), last(ranges.last), sequence(ranges.sequence);
  DeviceBuffer z(near.size());
  z.poison();
  cuda::AttentionArguments arguments{{.q = rows.device.get(),
                                      .k = far.get<std::byte>() + 2 * 64 * 2,
                                      .row_stride = rows.stride,
                                      .k_stride = kStride,
                                      .n_heads = 2,
                                      .n_kv_heads = 1,
                                      .d_head = 64,
                                      .scale = rows.scale(),
                                      .dtype = DType::bf16}};
  arguments.v = far.get<std::byte>() + 3 * 64 * 2;
  arguments.z = z.get();
  arguments.v_stride = kStride;
  arguments.z_stride = 2 * 64;
  arguments.first_key = first.get<std::int32_t>();
  arguments.last_key = last.get<std::int32_t>();
  arguments.sequence_begin = sequence.get<std::int32_t>();
  arguments.queries = kUsed;
  arguments.d_value = 64;
  cuda::compute_attention(arguments, nullptr);
  EXPECT_EQ(z.download<std::byte>(), near);
}

}  // namespace
}  // namespace qkscope

namespace qkscope::cuda {
namespace {

constexpr AttentionLibraries kAll;
constexpr int kGpus[] = {75, 80, 86, 89, 90, 100, 103, 120};

AttentionKernel chosen(int capability, std::int64_t d_head, DType dtype = DType::bf16) {
  return choose_attention_kernel({.capability = capability, .dtype = dtype, .d_head = d_head},
                                 kAll);
}

TEST(AttentionChoice, FlashInferServesHopperAlone) {
  for (const int gpu : kGpus)
    for (const std::int64_t d_head : {64, 96, 128, 256})
      for (const auto dtype : {DType::bf16, DType::f16})
        EXPECT_EQ(chosen(gpu, d_head, dtype) == AttentionKernel::flash_infer, gpu == 90)
            << gpu << ", heads of " << d_head;
}

TEST(AttentionChoice, FlashInferServesLatentAttentionOnHopper) {
  for (const int gpu : kGpus)
    EXPECT_EQ(choose_attention_kernel({.capability = gpu, .d_head = 192, .d_value = 128}, kAll) ==
                  AttentionKernel::flash_infer,
              gpu == 90)
        << gpu;
  EXPECT_EQ(choose_attention_kernel({.capability = 90, .d_head = 128, .d_value = 64}, kAll),
            AttentionKernel::cudnn);
}

TEST(AttentionChoice, ChunksAreFlashInfersOrOurs) {
  for (const int gpu : kGpus)
    EXPECT_EQ(choose_attention_kernel({.capability = gpu, .d_head = 128, .chunks = true}, kAll),
              gpu == 90 ? AttentionKernel::flash_infer : AttentionKernel::own)
        << gpu;
}

TEST(AttentionChoice, HeadsItWasNotMeasuredForTakeCudnn) {
  for (const std::int64_t d_head : {32, 80, 112, 192})
    EXPECT_EQ(chosen(90, d_head), AttentionKernel::cudnn) << d_head;
}

TEST(AttentionChoice, OtherGpusTakeCudnnFromAmpereOn) {
  for (const int gpu : kGpus) {
    if (gpu == 90) continue;
    EXPECT_EQ(chosen(gpu, 128), gpu >= 80 ? AttentionKernel::cudnn : AttentionKernel::own) << gpu;
  }
}

TEST(AttentionChoice, WhatTheLibrariesDoNotKnowIsOurs) {
  for (const int gpu : kGpus) {
    EXPECT_EQ(chosen(gpu, 128, DType::f32), AttentionKernel::own) << gpu;
    EXPECT_EQ(
        choose_attention_kernel({.capability = gpu, .d_head = 128, .chosen_rows = true}, kAll),
        AttentionKernel::own)
        << gpu;
  }
}

TEST(AttentionChoice, CapsSinksAndScalesOfALayerAreFlashInfersOrOurs) {
  for (const int gpu : kGpus) {
    const auto kernel = gpu == 90 ? AttentionKernel::flash_infer : AttentionKernel::own;
    for (const std::int64_t d_head : {128, 256}) {
      const AttentionKernelCriteria plain{.capability = gpu, .d_head = d_head};
      auto changed = plain;
      changed.softcap = true;
      EXPECT_EQ(choose_attention_kernel(changed, kAll), kernel) << gpu;
      changed = plain;
      changed.sinks = true;
      EXPECT_EQ(choose_attention_kernel(changed, kAll), kernel) << gpu;
      changed = plain;
      changed.own_scale = true;
      EXPECT_EQ(choose_attention_kernel(changed, kAll), kernel) << gpu;
    }
    EXPECT_EQ(choose_attention_kernel({.capability = gpu, .d_head = 64, .softcap = true}, kAll),
              AttentionKernel::own)
        << gpu;
  }
}

TEST(AttentionChoice, ABuildWithoutALibraryTakesTheNext) {
  const AttentionKernelCriteria hopper{.capability = 90, .d_head = 128};
  EXPECT_EQ(choose_attention_kernel(hopper, {.flash_infer = false}), AttentionKernel::cudnn);
  EXPECT_EQ(choose_attention_kernel(hopper, {.flash_infer = false, .cudnn = false}),
            AttentionKernel::own);
}

}  // namespace
}  // namespace qkscope::cuda
