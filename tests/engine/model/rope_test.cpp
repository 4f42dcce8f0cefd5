// RoPE frequencies have the bits of transformers (tests/golden/rope_frequencies.json).
#include <bit>
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/json.h"
#include "engine/model/model_config.h"
#include "engine/ops/elementwise.h"
#include "paths.h"

namespace qkscope {
namespace {

RopeConfig rope_of(const Json& entry) {
  RopeConfig rope;
  const auto& parameters = entry["rope_parameters"];
  const double partial = parameters.value("partial_rotary_factor", 1.0);
  rope.dim = static_cast<std::int64_t>(entry["head_dim"].get<double>() * partial);
  rope.max_positions = entry["max_position_embeddings"];
  return read_rope(rope, ConfigReader(parameters, "rope_parameters"));
}

int distance(float a, float b) {
  return std::abs(std::bit_cast<std::int32_t>(a) - std::bit_cast<std::int32_t>(b));
}

// PyTorch uses SLEEF for whole vector blocks and the C library for the remainder, so only the
// blocks are machine-independent. Without SLEEF, and in the remainder, a power may be off by one
// ULP and its reciprocal by two.
TEST(Rope, FrequenciesMatchTransformersBitForBit) {
  constexpr int kUlps = 2;
  const Json table = load_json(source_path("tests/golden/rope_frequencies.json"));
  int exact = 0;
  int total = 0;
  for (const auto& entry : table) {
    const auto frequencies = rope_frequencies(rope_of(entry), entry["sequence_length"]);
    const auto& expected = entry["inv_freq"];
    ASSERT_EQ(frequencies.inverse.size(), expected.size()) << entry["name"];
    const auto vectorised = entry["vectorised"].get<std::size_t>();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto bits =
          static_cast<std::uint32_t>(std::stoul(expected[i].get<std::string>(), nullptr, 16));
      const int off = distance(frequencies.inverse[i], std::bit_cast<float>(bits));
      EXPECT_LE(off, power_uses_sleef() && i < vectorised ? 0 : kUlps)
          << entry["name"] << " frequency " << i;
      exact += off == 0 ? 1 : 0;
      ++total;
    }
    const auto factor = std::strtod(entry["attention_factor"].get<std::string>().c_str(), nullptr);
    EXPECT_EQ(frequencies.attention_factor, static_cast<float>(factor)) << entry["name"];
  }
  std::printf("%d of %d frequencies equal to the bit (%s)\n", exact, total,
              power_uses_sleef() ? "SLEEF" : "no SLEEF");
  EXPECT_GT(total, 1000);
}

TEST(Rope, OnlyDynamicAndLongropeDependOnTheLength) {
  const Json table = load_json(source_path("tests/golden/rope_frequencies.json"));
  for (const auto& entry : table) {
    const auto rope = rope_of(entry);
    const bool same = rope_frequencies(rope, 1).inverse == rope_frequencies(rope, 1 << 20).inverse;
    const bool depends = rope.type == RopeType::dynamic || rope.type == RopeType::longrope;
    EXPECT_EQ(same, !depends) << entry["name"];
  }
}

// Gemma 4: the first pairs have the frequencies of a rotation of the whole head.
TEST(Rope, ProportionalRopeRotatesTheFirstPairs) {
  RopeConfig rope;
  rope.theta = 1e6;
  rope.dim = 16;
  const auto whole = rope_frequencies(rope, 1).inverse;
  rope.type = RopeType::proportional;
  rope.rotated_pairs = 3;
  rope.factor = 8.0;
  const auto found = rope_frequencies(rope, 1);
  ASSERT_EQ(found.inverse.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(found.inverse[i], i < 3 ? whole[i] / 8.0f : 0.0f) << i;
  EXPECT_EQ(found.attention_factor, 1.0f);
  EXPECT_EQ(rope_type_name(rope.type), "proportional");
}

TEST(Rope, InvalidParametersAreNamedInTheError) {
  RopeConfig base;
  base.dim = 8;
  base.max_positions = 64;
  const auto complaint = [&](const char* json) -> std::string {
    try {
      const Json parameters = Json::parse(json);
      read_rope(base, ConfigReader(parameters, "rope_scaling"));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint(R"({"rope_type": "spiral"})").find("'spiral'"), std::string::npos);
  EXPECT_NE(complaint(R"({"rope_type": "linear"})").find("'factor' is missing"), std::string::npos);
  EXPECT_NE(complaint(R"({"rope_type": "linear", "factor": -1})").find("'factor' is -1"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"rope_type": "linear", "factor": "2"})").find("'factor' is \"2\""),
            std::string::npos);
  EXPECT_NE(complaint(R"({"rope_type": "longrope", "short_factor": [1], "long_factor": [1,1,1,1]})")
                .find("expected 4"),
            std::string::npos);
  EXPECT_NE(
      complaint(
          R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1})")
          .find("high_freq_factor"),
      std::string::npos);
  EXPECT_NE(complaint(R"({"rope_type": "longrope", "original_max_position_embeddings": 1,
                          "short_factor": [1,1,1,1], "long_factor": [1,1,1,1]})")
                .find("'original_max_position_embeddings' is 1"),
            std::string::npos);
  EXPECT_EQ(complaint(R"({"type": "linear", "factor": 2})"), "");
}

}  // namespace
}  // namespace qkscope
