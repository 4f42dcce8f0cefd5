#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "attention_case.h"
#include "engine/device/cuda/attention/attention.h"

namespace qkscope {
namespace {

ModelConfig model_of(const FusedRows& rows) {
  ModelConfig model;
  model.n_heads = rows.heads.n_heads;
  model.n_kv_heads = rows.heads.n_kv_heads;
  model.d_head = rows.heads.d_head;
  if (rows.heads.d_value != rows.heads.d_head)
    model.latent = {.kv_rank = 1, .d_value = rows.heads.d_value};
  model.attention_softcap = rows.softcap;
  return model;
}

std::vector<Sequence> sequences_of(const Mask& mask) {
  std::vector<Sequence> sequences;
  std::int64_t begin = 0;
  for (const auto length : mask.sequences) {
    sequences.push_back({begin, length});
    begin += length;
  }
  return sequences;
}

struct Result {
  std::vector<std::byte> z;
  std::vector<float> lse;      // (rows, heads), base 2
  std::vector<float> largest;  // (rows, heads), not scaled
};

struct Heads {
  std::int64_t d_head;
  double softcap;
  std::int64_t d_value = d_head;
};

class HopperAttention : public GpuTest<testing::TestWithParam<std::tuple<DType, Heads>>> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const auto model = model_of(rows_of(1, shape(2, 1)));
    if (!cuda::HopperAttention(model, dtype(), 0, nullptr).has_kernel())
      GTEST_SKIP() << "this GPU is none of the Hopper generation, or FlashInfer was not there";
  }
  DType dtype() const { return std::get<0>(GetParam()); }
  std::int64_t d_value() const { return std::get<1>(GetParam()).d_value; }
  HeadShape shape(std::int64_t n_heads, std::int64_t n_kv_heads) const {
    return {n_heads, n_kv_heads, std::get<1>(GetParam()).d_head, d_value()};
  }
  FusedRows rows_of(std::int64_t count, const HeadShape& heads) const {
    return {count, heads, 0, dtype(), std::get<1>(GetParam()).softcap};
  }

  Result attend(const FusedRows& rows, const Mask& mask, bool row_stats = true) const {
    const auto model = model_of(rows);
    cuda::HopperAttention attention(model, dtype(), 0, nullptr);
    const auto count = ranges_of(mask).rows.size();
    const auto heads = static_cast<std::size_t>(rows.heads.n_heads);
    DeviceBuffer z(count * heads * static_cast<std::size_t>(d_value()) * dtype_size(dtype()));
    DeviceBuffer lse(count * heads * sizeof(float));
    DeviceBuffer largest(count * heads * sizeof(float));
    z.poison();
    lse.poison();
    largest.poison();
    attention.set_sequences(sequences_of(mask));
    cuda::AttentionArguments arguments{{.q = rows.device.get(),
                                        .k = rows.on_device(rows.k(0, 0)),
                                        .row_stride = rows.stride,
                                        .k_stride = rows.stride,
                                        .scale = rows.scale(),
                                        .window = mask.window}};
    arguments.v = rows.on_device(rows.v(0, 0));
    arguments.z = z.get();
    arguments.z_stride = rows.heads.n_heads * d_value();
    if (row_stats) arguments.row_stats = {lse.get<float>(), largest.get<float>()};
    attention.attend(arguments);
    return {z.download<std::byte>(), lse.download<float>(), largest.download<float>()};
  }
};

const std::vector<std::int32_t> kThousand = {1000},
                                kPackedThousand = {1, 2, 63, 64, 65, 128, 129, 548};

// Windows end inside a tile, at its edge, and beyond it.
TEST_P(HopperAttention, MatchesThePlainSoftmax) {
  for (const std::int64_t group : {1, 3, 8})
    for (const auto& sequences : {kThousand, kPackedThousand})
      for (const std::int32_t window : {0, 1, 20, 128, 300}) {
        SCOPED_TRACE(std::to_string(sequences.size()) + " sequences, window " +
                     std::to_string(window) + ", queries per key head: " + std::to_string(group));
        const auto heads = shape(2 * group, 2);
        const auto rows = rows_of(1000, heads);
        const Mask mask{.name = "", .sequences = sequences, .window = window, .gap = 0};
        const auto ranges = ranges_of(mask);
        const auto result = attend(rows, mask);
        const auto z = decoded(result.z, dtype());
        double worst = 0, worst_lse = 0, worst_largest = 0;
        for (std::size_t i = 0; i < ranges.rows.size(); i += 3) {
          const auto head = static_cast<std::int64_t>(i + i / 16) % heads.n_heads;
          const auto at = static_cast<std::int64_t>(i) * heads.n_heads + head;
          worst = std::max(worst, error_share(rows, ranges, i, head, z.data() + at * d_value()));
          std::vector<double> scores;
          plain_weights(rows, ranges.rows[i], head, ranges.first[i], ranges.last[i], scores);
          double sum = 0;
          for (const double score : scores) sum += std::exp(score);
          const double lse = result.lse[static_cast<std::size_t>(at)] * std::log(2.0);
          worst_lse = std::max(worst_lse, std::abs(lse - std::log(sum)));
          const double largest =
              static_cast<double>(result.largest[static_cast<std::size_t>(at)]) * rows.scale();
          worst_largest = std::max(
              worst_largest, std::abs(largest - *std::max_element(scores.begin(), scores.end())));
        }
        EXPECT_LE(worst, 1.0);
        // Scores reach 10: float32 sums of up to 256 products, and up to 1,000 exponentials.
        EXPECT_LE(worst_lse, 2e-5);
        EXPECT_LE(worst_largest, 2e-5);
      }
}

// The second sequence of 150 rows repeats the first; other sequences stand before and between.
TEST_P(HopperAttention, BitsAreTheSameWhereverTheSequenceLiesAndTwice) {
  const auto heads = shape(4, 2);
  auto rows = rows_of(351, heads);
  std::copy_n(rows.values.begin() + 7 * rows.stride, 150 * rows.stride,
              rows.values.begin() + 201 * rows.stride);
  const DeviceBuffer repeated(encoded(rows.values, dtype()));
  require(cudaMemcpy(rows.device.get(), repeated.get(), rows.values.size() * dtype_size(dtype()),
                     cudaMemcpyDeviceToDevice));
  for (const std::int32_t window : {0, 40}) {
    const Mask mask{.name = "", .sequences = {7, 150, 1, 43, 150}, .window = window, .gap = 0};
    const auto z = attend(rows, mask).z;
    const auto row_bytes = static_cast<std::ptrdiff_t>(z.size() / 351);
    EXPECT_TRUE(std::equal(z.begin() + 7 * row_bytes, z.begin() + 157 * row_bytes,
                           z.begin() + 201 * row_bytes));
    EXPECT_EQ(z, attend(rows, mask).z) << "a second run";
    EXPECT_EQ(z, attend(rows, mask, false).z) << "without row sums";
  }
}

// Kernels for long texts take other tiles.
TEST_P(HopperAttention, ALongNeighbourChangesNoBit) {
  const auto heads = shape(4, 2);
  const auto rows = rows_of(9300, heads);
  for (const std::int32_t window : {0, 40}) {
    const auto alone = attend(rows, {.name = "", .sequences = {300}, .window = window, .gap = 0}).z;
    const auto both =
        attend(rows, {.name = "", .sequences = {300, 9000}, .window = window, .gap = 0}).z;
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), both.begin())) << "window " << window;
  }
}

// Scores have a standard deviation of 2, so that a cap of 3 changes most of them.
INSTANTIATE_TEST_SUITE_P(Types, HopperAttention,
                         testing::Combine(testing::Values(DType::bf16, DType::f16),
                                          testing::Values(Heads{64, 0}, Heads{96, 0}, Heads{128, 0},
                                                          Heads{256, 0}, Heads{128, 3},
                                                          Heads{256, 3}, Heads{192, 0, 128})),
                         [](const auto& parameters) {
                           const auto& heads = std::get<1>(parameters.param);
                           return std::string(dtype_name(std::get<0>(parameters.param))) + "_" +
                                  std::to_string(heads.d_head) + (heads.softcap > 0 ? "_cap" : "");
                         });

}  // namespace
}  // namespace qkscope

namespace qkscope::cuda {
namespace {

using Place = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

Place place_of(const AttentionTile& tile) {
  return {tile.begin, tile.tile, tile.head};
}

constexpr AttentionTiling kShape{.n_heads = 6, .n_kv_heads = 2, .d_head = 128, .rows = 128};

TEST(AttentionTiles, EveryTileOfEverySequenceAndHeadIsThereOnce) {
  const std::vector<Sequence> sequences = {{0, 1}, {1, 128}, {129, 129}, {258, 40000}};
  std::map<Place, int> count;
  for (const auto& tile : schedule_attention_tiles(sequences, kShape)) {
    ++count[place_of(tile)];
    EXPECT_LT(tile.tile * 128, tile.length);
  }
  std::size_t expected = 0;
  for (const auto& sequence : sequences)
    expected += static_cast<std::size_t>((sequence.length + 127) / 128 * 6);
  EXPECT_EQ(count.size(), expected);
  for (const auto& [place, times] : count) EXPECT_EQ(times, 1);
}

TEST(AttentionTiles, LongOnesComeFirstAndHeadsOfAKeyHeadLieSideBySide) {
  const std::vector<Sequence> sequences = {{0, 1000}, {1000, 300}};
  const auto tiles = schedule_attention_tiles(sequences, kShape);
  ASSERT_EQ(tiles.size(), (8u + 3u) * 6);
  for (std::size_t i = 3; i < tiles.size(); ++i) EXPECT_LE(tiles[i].tile, tiles[i - 3].tile);
  for (std::size_t i = 0; i < tiles.size(); i += 3)
    for (std::size_t k = 1; k < 3; ++k) {
      EXPECT_EQ(tiles[i + k].head, tiles[i].head + static_cast<std::int32_t>(k));
      EXPECT_EQ(tiles[i + k].tile, tiles[i].tile);
      EXPECT_EQ(tiles[i].head % 3, 0);
    }
}

// 40,000 tokens of keys and values of one head are 20 MB: more than is cached.
TEST(AttentionTiles, KeyHeadsThatDoNotFitIntoTheCacheComeOneAfterAnother) {
  const std::vector<Sequence> sequences = {{0, 40000}};
  const auto tiles = schedule_attention_tiles(sequences, kShape);
  const auto half = tiles.size() / 2;
  for (std::size_t i = 0; i < tiles.size(); ++i) EXPECT_EQ(tiles[i].head / 3, i < half ? 0 : 1);
  EXPECT_EQ(tiles[half].tile, tiles[0].tile);
}

}  // namespace
}  // namespace qkscope::cuda
