// Compares head and position sampling with CPython and PyTorch (tools/make_sampling_golden.py).
#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/numerics/random.h"
#include "capture/writer/selection.h"
#include "paths.h"

namespace qkscope {
namespace {

const Json& golden() {
  static const Json json = load_json(source_path("tests/capture/run/sampling_golden.json"));
  return json;
}

template <typename Numbers>
std::string digest(const Numbers& numbers) {
  std::uint64_t value = 0xCBF29CE484222325ull;
  for (const auto number : numbers)
    value = (value ^ static_cast<std::uint64_t>(number)) * 0x100000001B3ull;
  return std::to_string(value);
}

TEST(PythonRandom, SamplesAsPythonDoes) {
  for (const auto& entry : golden()["heads"]) {
    PythonRandom random(entry["seed"].get<std::int64_t>());
    const auto drawn = random.sample(entry["n"], entry["count"]);
    ASSERT_EQ(drawn.size(), entry["count"].get<std::size_t>());
    EXPECT_EQ(digest(drawn), entry["digest"].get<std::string>()) << entry.dump();
  }
}

TEST(PythonRandom, SamplingAllGivesAPermutation) {
  auto drawn = PythonRandom(3).sample(50, 50);
  std::sort(drawn.begin(), drawn.end());
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_EQ(drawn[i], i);
}

SamplerOptions options_of(const Json& entry) {
  return {.type = entry["sampler"] == "uniform" ? SamplerType::uniform : SamplerType::log_uniform,
          .base_rate = entry["base_rate"],
          .min_bucket_size = entry["min_bucket_size"],
          .max_rows = {}};
}

TEST(PositionSampler, KeepsThePositionsThatTorchKeeps) {
  std::size_t kept = 0;
  for (const auto& entry : golden()["positions"]) {
    const auto key = std::stoll(entry["example"].get<std::string>());
    const auto seed = sampling_seed(key, entry["layer"], entry["kind"].get<std::string>()[0]);
    ASSERT_EQ(std::to_string(seed), entry["seed"].get<std::string>()) << entry.dump();
    const auto positions = PositionSampler(options_of(entry)).sample(seed, entry["length"]);
    EXPECT_EQ(positions.size(), entry["count"].get<std::size_t>()) << entry.dump();
    EXPECT_EQ(digest(positions), entry["digest"].get<std::string>()) << entry.dump();
    kept += positions.size();
  }
  EXPECT_GT(kept, 10000u);
}

TEST(PositionSampler, LogBucketsRoundAsFloat32Does) {
  const PositionSampler sampler(
      {.type = SamplerType::log_uniform, .min_bucket_size = 1, .max_rows = {}});
  const auto& cases = golden()["log_buckets"];
  for (std::size_t i = 0; i < cases["positions"].size(); ++i)
    EXPECT_EQ(sampler.bucket_of(cases["positions"][i]), cases["buckets"][i].get<int>())
        << "position " << cases["positions"][i];
  std::int32_t last = -1;
  std::vector<std::int64_t> first_of_each;
  for (std::int64_t position = 0; position < (1 << 22); ++position) {
    const auto bucket = sampler.bucket_of(position);
    if (bucket != last) first_of_each.push_back(position);
    last = bucket;
  }
  EXPECT_EQ(Json(first_of_each), cases["first_of_each"]);
}

TEST(PositionSampler, AllKeepsEveryPosition) {
  const PositionSampler sampler({.type = SamplerType::all, .min_bucket_size = 10, .max_rows = {}});
  EXPECT_EQ(sampler.sample(1, 25).size(), 25u);
  EXPECT_EQ(sampler.bucket_of(9), 0);
  EXPECT_EQ(sampler.bucket_of(10), 1);
}

TEST(PositionSampler, RatesAboveOneKeepAllOfABucket) {
  const PositionSampler sampler(
      {.type = SamplerType::log_uniform, .base_rate = 1e9, .min_bucket_size = 4, .max_rows = {}});
  EXPECT_EQ(sampler.sample(5, 1000).size(), 1000u);
}

TEST(PositionSampler, MaxRowsKeepsASubsetInOrder) {
  SamplerOptions options{.type = SamplerType::uniform, .min_bucket_size = 2, .max_rows = {}};
  const auto every = PositionSampler(options).sample(99, 1000);
  options.max_rows = 20;
  const auto some = PositionSampler(options).sample(99, 1000);
  ASSERT_EQ(some.size(), 20u);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  EXPECT_TRUE(std::includes(every.begin(), every.end(), some.begin(), some.end()));
  EXPECT_NE(some.front(), every.front());  // not just the first positions
  options.max_rows = 5000;
  EXPECT_EQ(PositionSampler(options).sample(99, 1000), every);
}

}  // namespace
}  // namespace qkscope
