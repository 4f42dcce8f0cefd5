// Helpers for KV cache tests: the small models of tests/golden, and texts of any length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "engine/forward/recorder.h"
#include "paths.h"
#include "qkscope/experimental/generate.h"

namespace qkscope {

using Ids = std::vector<std::int32_t>;

inline std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("")))
    if (std::filesystem::exists(entry.path() / "golden.safetensors"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline Model load_golden(const std::string& name) {
  return Model::load(golden_path(name), {.device = "cpu"});
}

inline Ids random_ids(std::int64_t count, std::int64_t vocabulary, unsigned seed) {
  std::mt19937 generator(seed);
  Ids ids(static_cast<std::size_t>(count));
  for (auto& id : ids)
    id = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocabulary));
  return ids;
}

// Edits the pattern of the first layer: every query attends to the first key only.
class EditsPattern : public Recorder {
 public:
  EditsPattern() : Recorder([](const std::string& n) { return n.starts_with("blocks.0.attn"); }) {}
  bool edits(HookPoint point) const override { return point.stage == Stage::pattern; }
  void edit(HookPoint, TensorView pattern) override {
    for (std::int64_t i = 0; i < pattern.size(); ++i) pattern.data<float>()[i] = 0.0f;
    pattern.data<float>()[0] = 1.0f;
  }
};

}  // namespace qkscope
