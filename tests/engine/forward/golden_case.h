// Golden cases (tests/golden/README.md) and demo checkpoints, and the distance of a tensor from the
// transformers result.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/json.h"
#include "engine/forward/forward.h"
#include "engine/model/model_config.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/safetensors.h"
#include "paths.h"
#include "recorder.h"

namespace qkscope {

namespace fs = std::filesystem;

struct Case {
  std::string folder;
  std::string config;  // a spelling of the configuration in that folder, or the GGUF file
  std::string answers;
  std::string name() const {
    std::string text = fs::path(folder).filename().string();
    if (config.ends_with(".json") && config != "config.json")
      text += "_" + fs::path(config).stem().extension().string().substr(1);
    std::replace(text.begin(), text.end(), '-', '_');
    return text;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Case& golden) {
  return out << golden.name();
}

inline std::vector<Case> golden_cases() {
  std::vector<Case> found;
  for (const auto& entry : fs::directory_iterator(source_path("tests/golden"))) {
    if (!fs::exists(entry.path() / "golden.safetensors")) continue;
    for (const auto& file : fs::directory_iterator(entry.path())) {
      const auto name = file.path().filename().string();
      if ((name.starts_with("config.") && name.ends_with(".json")) || name.ends_with(".gguf"))
        found.push_back(
            {entry.path().string(), name, (entry.path() / "golden.safetensors").string()});
    }
  }
  for (const auto& entry : fs::directory_iterator(source_path("share/demo/checkpoints")))
    found.push_back(
        {entry.path().string(), "config.json",
         source_path("tests/golden/demo/") + entry.path().filename().string() + ".safetensors"});
  std::sort(found.begin(), found.end(),
            [](const Case& a, const Case& b) { return a.name() < b.name(); });
  return found;
}

inline LoadedCheckpoint load_case(const Case& golden) {
  if (golden.config.ends_with(".gguf")) return load_unprocessed_checkpoint(golden.folder);
  LoadedCheckpoint model{Checkpoint::open(golden.folder), {}, {}};
  const auto path = golden.folder + "/" + golden.config;
  model.config = parse_model_config(load_config_file(path), path);
  model.weights = bind_weights(model.config, model.checkpoint);
  return model;
}

// Whether the model has a CUDA kernel for all of its computations.
inline bool runs_on_cuda(const Case& golden) {
  try {
    check_model_runs_on({Device::Kind::cuda, 0}, load_case(golden).config);
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline std::vector<std::int64_t> integers(const SafetensorsFile& file, const std::string& name) {
  const auto view = file.tensor(name);
  const auto* values = view.data<std::int64_t>();
  return {values, values + view.size()};
}

struct Difference {
  double maximal = 0.0;
  double squared = 0.0;
  double reference = 0.0;

  void add(float ours, float theirs) {
    if (std::isinf(theirs)) {  // a masked score
      if (ours != theirs) maximal = std::numeric_limits<double>::infinity();
      return;
    }
    const double d = static_cast<double>(ours) - static_cast<double>(theirs);
    maximal =
        std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(maximal, std::abs(d));
    squared += d * d;
    reference += static_cast<double>(theirs) * static_cast<double>(theirs);
  }
  double relative() const {
    return reference > 0.0 ? std::sqrt(squared / reference) : std::sqrt(squared);
  }
};

// The first axis of a stored tensor selects `rows` of ours; scores,
// patterns and recurrent states are stored in full.
inline Difference compare(const Tensor& ours, ConstTensorView theirs,
                          std::span<const std::int64_t> rows, bool by_row) {
  Difference difference;
  const auto width = by_row ? ours.size() / ours.dim(0) : ours.size();
  const auto count = by_row ? static_cast<std::int64_t>(rows.size()) : 1;
  EXPECT_EQ(theirs.size(), count * width);
  for (std::int64_t row = 0; row < count; ++row) {
    const float* a =
        ours.data<float>() + (by_row ? rows[static_cast<std::size_t>(row)] * width : 0);
    const float* b = theirs.data<float>() + row * width;
    for (std::int64_t i = 0; i < width; ++i) difference.add(a[i], b[i]);
  }
  return difference;
}

// Activations of one case on one backend, tensor by tensor.
struct GoldenRun {
  explicit GoldenRun(const Case& golden)
      : answers(golden.answers), rows(integers(answers, "rows")) {}

  Recorder run(Backend& backend) const {
    const auto ids = integers(answers, "token_ids");
    Batch batch;
    batch.add(std::vector<std::int32_t>(ids.begin(), ids.end()));
    const auto& stored = answers.header().tensors;
    Recorder recorder([&](const std::string& name) { return stored.contains(name); },
                      integers(answers, "pattern_rows"));
    forward(backend, batch, recorder);
    return recorder;
  }

  // Calls visit(name, difference) for every stored tensor.
  template <typename Visit>
  void compare_with(const Recorder& recorder, Visit visit) const {
    std::size_t compared = 0;
    for (const auto& [name, entry] : answers.header().tensors) {
      if (name == "token_ids" || name == "rows" || name == "pattern_rows") continue;
      const auto ours = recorder.seen.find(name);
      ASSERT_NE(ours, recorder.seen.end()) << name << " was not shown";
      const bool square = name.ends_with("hook_pattern") || name.ends_with("hook_attn_scores") ||
                          name.ends_with("hook_state");
      visit(name, compare(ours->second, answers.tensor(name), rows, !square));
      ++compared;
    }
    EXPECT_GT(compared, 5u);
  }

  SafetensorsFile answers;
  std::vector<std::int64_t> rows;
};

}  // namespace qkscope
