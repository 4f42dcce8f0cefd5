#include "cli/model_options.h"

#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "cli/logging.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"
#include "qkscope/forward.h"
#include "qkscope/hub.h"

namespace qkscope::cli {
namespace {

// Merges a dotted override: "rope_scaling.factor=4.0" becomes {"rope_scaling": {"factor": 4.0}}.
void add_override(Json& merged, const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    reject("--set: found '{}', expected KEY=VALUE (rope_scaling.factor=4.0)", text);
  Json value = Json::parse(text.substr(equals + 1), nullptr, false);
  if (value.is_discarded()) value = text.substr(equals + 1);
  const auto keys = split(text.substr(0, equals), '.');
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) value = Json{{*key, value}};
  merged.update(value, true);
}

}  // namespace

void ModelArguments::add_to(CLI::App& command) {
  start_section(command, "Model");
  command
      .add_option("--model", name,
                  "Checkpoint folder, GGUF file, a model id of the Hugging Face Hub, or an address "
                  "(s3://bucket/path)")
      ->required();
  command.add_option("--revision", revision, "Branch, tag or commit of a model id (default: main)");
  command.add_option("--device", device, "Where the model runs; auto: a GPU if there is one")
      ->capture_default_str();
  command
      .add_option("--dtype", dtype,
                  "Type of weights and activations on a GPU; the CPU computes in float32")
      ->capture_default_str();
  command.add_option("--device-memory", device_memory,
                     "Limit of GPU memory, as in 8GiB (default: the free memory)");
  command
      .add_option(
          "--set", overrides,
          "Merge a value into config.json: rope_scaling.factor=4.0; dots separate nested keys; "
          "repeatable")
      ->allow_extra_args(false);
}

std::string ModelArguments::fetch(bool quiet) const {
  const auto wanted = parse_compute_dtype(dtype, "--dtype");
  if (choose_device(device).kind == Device::Kind::cpu && wanted != DType::f32)
    warn("--dtype {}: the CPU computes in float32", dtype);
  return fetch_checkpoint(fetch_input(name, {.quiet = quiet}), revision, {.quiet = quiet});
}

ModelOptions ModelArguments::options(std::int64_t longest_batch) const {
  ModelOptions options;
  options.device = device;
  options.dtype = dtype;
  options.longest_batch = longest_batch;
  if (!device_memory.empty()) options.device_memory = parse_bytes(device_memory, "--device-memory");
  Json merged = Json::object();
  for (const auto& text : overrides) add_override(merged, text);
  options.config_overrides = merged.dump();
  return options;
}

Model ModelArguments::load(const std::string& folder, std::int64_t longest_batch) const {
  return Model::load(folder, options(longest_batch));
}

}  // namespace qkscope::cli
