// Implements qkscope/capture.h.
#include "qkscope/capture.h"

#include <utility>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/yaml/yaml_config.h"
#include "capture/run/capture_plan.h"
#include "capture/run/capture_run.h"
#include "qkscope/experimental/engine.h"
#include "qkscope/experimental/store.h"
#include "qkscope/hub.h"

namespace qkscope {
CaptureConfig read_capture_config(const std::string& file,
                                  const std::vector<std::string>& overrides) {
  return translate_exceptions([&] {
    auto config = read_capture_config(load_yaml(file, overrides));
    config.file = file;
    return config;
  });
}

CaptureConfig parse_capture_config(const std::string& yaml,
                                   const std::vector<std::string>& overrides) {
  return translate_exceptions(
      [&] { return read_capture_config(parse_yaml(yaml, "config", overrides)); });
}

void fetch_capture_inputs(const CaptureConfig& config, const FetchOptions& options) {
  translate_exceptions([&] {
    const auto& dataset = config.dataset;  // first: a mistake in it shows before the large download
    fetch_dataset(fetch_input(dataset.path, options), dataset.name.value_or(""), dataset.split,
                  options);
    if (config.engine != kNativeEngine) return;  // the engine fetches model and tokenizer
    const auto& tokenizer = config.tokenizer;
    if (tokenizer.name != config.model.name || tokenizer.revision != config.model.revision) {
      auto small_files = options;
      small_files.weights = false;
      const auto name = fetch_input(tokenizer.name, small_files);
      if (!tokenizer.revision)
        fetch_tokenizer(name, options);
      else if (!path_exists(name))
        fetch_checkpoint(name, *tokenizer.revision, small_files);
    }
    fetch_checkpoint(fetch_input(config.model.name, options), config.model.revision.value_or(""),
                     options);
  });
}

CapturePlan::CapturePlan(std::shared_ptr<const RunPlan> plan)
    : plan_(std::move(plan)),
      config_(&plan_->config),
      model_(&plan_->model),
      device_(plan_->backend.device),
      workers_(plan_->workers.size()),
      dtype_(plan_->backend.dtype),
      memory_(&plan_->memory),
      heads_(&plan_->manifest.groups),
      eligible_layers_(&plan_->selection.eligible_layers),
      excluded_layers_(&plan_->selection.excluded_layers) {}

CapturePlan make_plan(const CaptureConfig& config, const ComputeOptions& compute) {
  return make_plan(config, compute, nullptr);
}

CapturePlan make_plan(const CaptureConfig& config, const ComputeOptions& compute,
                      std::shared_ptr<ExternalEngine> engine) {
  return translate_exceptions([&] {
    return CapturePlan(
        std::make_shared<const RunPlan>(make_run_plan(config, compute, std::move(engine))));
  });
}

std::string_view outcome_name(CaptureResult::Outcome outcome) {
  constexpr std::string_view kNames[] = {"finished", "already finished", "part finished",
                                         "interrupted"};
  return kNames[static_cast<std::size_t>(outcome)];
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CaptureResult, examples, tokens, rows, non_finite, seconds,
                                   load_seconds, forward_seconds, input_seconds, assembly_seconds)

std::string result_json(const CaptureResult& result) {
  return translate_exceptions([&] {
    Json json = result;
    json["outcome"] = outcome_name(result.outcome);
    return json.dump(2);
  });
}

CaptureResult run_capture(const CapturePlan& plan, const CaptureOptions& options) {
  return translate_exceptions([&] { return run_capture(plan.run_plan(), options); });
}

CaptureResult run_capture_shards(const CapturePlan& plan, std::int64_t count,
                                 const CaptureOptions& options) {
  return translate_exceptions([&] {
    auto shard_options = options;
    for (std::int64_t index = 0; index < count; ++index) {
      shard_options.shard = {index, count};
      const auto result = run_capture(plan.run_plan(), shard_options);
      if (result.outcome != RunOutcome::part_finished) return result;
    }
    return merge_capture(plan.config().output.data_root, options.quiet);
  });
}

}  // namespace qkscope
