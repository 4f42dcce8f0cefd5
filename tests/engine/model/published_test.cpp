// Files of published models: every config.json is readable, and every index or shape list has the
// tensors that the loader needs.
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/json.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/model/model_config.h"
#include "input/checkpoint/checkpoint.h"
#include "paths.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

const fs::path kPublished = source_path("../shared/checkpoints");

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  if (fs::exists(kPublished))
    for (const auto& entry : fs::directory_iterator(kPublished)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// Base models share the configuration of their instruct model without quantisation.
Json config_of(const fs::path& folder) {
  if (fs::exists(folder / "config.json")) return load_config(folder.string());
  const auto sibling = kPublished / "mistralai__Ministral-3-3B-Instruct-2512";
  Json config = load_config(sibling.string());
  config.erase("quantization_config");
  return config;
}

TEST(Published, EveryConfigIsReadable) {
  if (folders().empty())
    GTEST_SKIP() << "no ../shared/checkpoints beside the project: nothing to read";
  for (const auto& folder : folders()) {
    if (!fs::exists(folder / "config.json")) continue;
    SCOPED_TRACE(folder.filename());
    const auto model = parse_model_config(load_config(folder.string()), "config.json");
    EXPECT_GT(parameter_count(model), 100'000'000);
    EXPECT_FALSE(expected_tensors(model).empty());
  }
}

TEST(Published, EveryIndexHasTheRequiredTensors) {
  if (folders().empty())
    GTEST_SKIP() << "no ../shared/checkpoints beside the project: nothing to read";
  int checked = 0;
  for (const auto& folder : folders()) {
    if (!fs::exists(folder / "model.safetensors.index.json")) continue;
    SCOPED_TRACE(folder.filename());
    const auto model = parse_model_config(load_config(folder.string()), "config.json");
    EXPECT_NO_THROW(detect_tensor_naming(model, read_shard_index(folder.string()).names,
                                         folder.filename().string()));
    ++checked;
  }
  EXPECT_GE(checked, 2);
}

TEST(Published, EveryShapeListMatchesTheConfig) {
  if (folders().empty())
    GTEST_SKIP() << "no ../shared/checkpoints beside the project: nothing to read";
  int checked = 0;
  for (const auto& folder : folders()) {
    const auto list = folder / "DERIVED_tensor_shapes.json";
    // The 14B model has no config.json beside its shape list, and no sibling of its size.
    if (!fs::exists(list) || folder.filename() == "mistralai__Ministral-3-14B-Instruct-2512")
      continue;
    SCOPED_TRACE(folder.filename());
    const Json shapes = load_json(list.string());
    std::vector<std::string> names;
    for (const auto& [name, entry] : shapes.items()) names.push_back(name);
    const auto model = parse_model_config(config_of(folder), "config.json");
    const auto prefix = detect_tensor_naming(model, names, folder.filename().string());
    for (const auto& spec : expected_tensors(model)) {
      const auto& entry = shapes[prefix.backbone + spec.name];
      const auto shape =
          (entry.is_object() ? entry["shape"] : entry).get<std::vector<std::int64_t>>();
      EXPECT_EQ(Shape(std::span(shape)), spec.shape) << spec.name;
    }
    ++checked;
  }
  EXPECT_GE(checked, 3);
}

}  // namespace
}  // namespace qkscope
