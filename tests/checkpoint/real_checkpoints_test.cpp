// The published files beside the project, where they are present.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "checkpoint/checkpoint.h"
#include "core/convert.h"
#include "core/folder.h"

namespace qkscope {
namespace {

const std::string kShared = QKSCOPE_SOURCE_DIR "/../shared";

#define NEEDS_SHARED(folder) \
  if (!is_folder(kShared + folder)) GTEST_SKIP() << kShared << folder << " is not there"

TEST(RealCheckpoints, EveryConfigurationIsRead) {
  NEEDS_SHARED("/checkpoints");
  int configurations = 0;
  for (const auto& model : names_in(kShared + "/checkpoints")) {
    const auto folder = kShared + "/checkpoints/" + model;
    if (!path_exists(folder + "/config.json")) continue;
    EXPECT_TRUE(load_config(folder).contains("model_type")) << model;
    ++configurations;
  }
  EXPECT_GE(configurations, 20);
}

TEST(RealCheckpoints, EveryIndexIsRead) {
  NEEDS_SHARED("/checkpoints");
  int indexes = 0;
  for (const auto& model : names_in(kShared + "/checkpoints")) {
    const auto folder = kShared + "/checkpoints/" + model;
    if (!path_exists(folder + "/model.safetensors.index.json")) continue;
    const auto names = indexed_tensor_names(folder);
    EXPECT_GT(names.size(), 300u) << model;
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << model;
    ++indexes;
  }
  EXPECT_GE(indexes, 2);
}

TEST(RealCheckpoints, TheEmbeddingIsAnAliasOfTheOutput) {
  NEEDS_SHARED("/weights/infinitensor-story");
  const auto checkpoint = Checkpoint::open(kShared + "/weights/infinitensor-story");
  ASSERT_TRUE(checkpoint.has("model.embed_tokens.weight"));
  EXPECT_EQ(checkpoint.tensor("model.embed_tokens.weight").bytes(),
            checkpoint.tensor("lm_head.weight").bytes());
  EXPECT_EQ(checkpoint.info("model.embed_tokens.weight").shape,
            (std::vector<std::int64_t>{2048, 128}));
  EXPECT_EQ(checkpoint.bytes(), 2624000u);
}

TEST(RealCheckpoints, EveryWeightIsANumber) {
  NEEDS_SHARED("/weights");
  for (const auto& model : names_in(kShared + "/weights")) {
    const auto checkpoint = Checkpoint::open(kShared + "/weights/" + model);
    for (const auto& name : checkpoint.names()) {
      const auto values = to_float32(checkpoint.tensor(name));
      const auto* begin = values.data<float>();
      EXPECT_TRUE(
          std::all_of(begin, begin + values.size(), [](float x) { return std::isfinite(x); }))
          << model << " " << name;
    }
  }
}

}  // namespace
}  // namespace qkscope
