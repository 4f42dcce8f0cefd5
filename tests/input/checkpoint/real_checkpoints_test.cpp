// Published files next to the project, if present.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/core/convert.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "input/checkpoint/checkpoint.h"
#include "paths.h"

namespace qkscope {
namespace {

// Returns the folders in ../shared/`part`; prints a note and returns none if it does not exist.
std::vector<std::string> shared(const std::string& part) {
  const auto folder = std::filesystem::path(source_path()) / ".." / "shared" / part;
  std::vector<std::string> folders;
  if (is_folder(folder))
    for (const auto& name : entry_names(folder)) folders.push_back(folder / name);
  else
    fmt::print("{} is not there\n", folder.string());
  return folders;
}

TEST(RealCheckpoints, EveryConfigIsParsed) {
  const auto folders = shared("checkpoints");
  if (folders.empty()) GTEST_SKIP() << "no published configurations beside the project";
  int configurations = 0;
  for (const auto& folder : folders) {
    if (!path_exists(folder + "/config.json")) continue;
    EXPECT_TRUE(load_config(folder).contains("model_type")) << folder;
    ++configurations;
  }
  EXPECT_GE(configurations, 20);
}

TEST(RealCheckpoints, EveryShardIndexIsParsed) {
  const auto folders = shared("checkpoints");
  if (folders.empty()) GTEST_SKIP() << "no published indexes beside the project";
  int indexes = 0;
  for (const auto& folder : folders) {
    if (!path_exists(folder + "/model.safetensors.index.json")) continue;
    const auto names = read_shard_index(folder).names;
    EXPECT_GT(names.size(), 300u) << folder;
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << folder;
    ++indexes;
  }
  EXPECT_GE(indexes, 2);
}

TEST(RealCheckpoints, TiedEmbeddingsAreAliases) {
  const auto folder = std::filesystem::path(source_path()) / "../shared/weights/infinitensor-story";
  if (!is_folder(folder)) GTEST_SKIP() << folder << " is not there";
  const auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.has_tensor("model.embed_tokens.weight"));
  EXPECT_EQ(checkpoint.tensor("model.embed_tokens.weight").bytes(),
            checkpoint.tensor("lm_head.weight").bytes());
  EXPECT_EQ(checkpoint.tensor_info("model.embed_tokens.weight").shape,
            (std::vector<std::int64_t>{2048, 128}));
  EXPECT_EQ(checkpoint.size_bytes(), 2624000u);
}

TEST(RealCheckpoints, AllWeightsAreFinite) {
  const auto folders = shared("weights");
  if (folders.empty()) GTEST_SKIP() << "no trained weights beside the project";
  for (const auto& folder : folders) {
    const auto checkpoint = Checkpoint::open(folder);
    for (const auto& name : checkpoint.tensor_names()) {
      const auto values = to_float32(checkpoint.tensor(name));
      const auto* begin = values.data<float>();
      EXPECT_TRUE(
          std::all_of(begin, begin + values.size(), [](float x) { return std::isfinite(x); }))
          << folder << " " << name;
    }
  }
}

}  // namespace
}  // namespace qkscope
