#include "cli/model_options.h"

#include "core/dtype.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/device.h"
#include "qkscope/hub.h"

namespace qkscope::cli {
namespace {

// "rope_scaling.factor=4.0" → {"rope_scaling": {"factor": 4.0}}
Json override_from(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    bad_input("--config-override: found '{}', expected KEY=VALUE (rope_scaling.factor=4.0)", text);
  Json value = Json::parse(text.substr(equals + 1), nullptr, false);
  if (value.is_discarded()) value = text.substr(equals + 1);
  const auto keys = split(text.substr(0, equals), '.');
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) value = Json{{*key, value}};
  return value;
}

}  // namespace

void ModelOptions::add_to(CLI::App& command) {
  command.add_option("--model", name, "Checkpoint folder, or a model id of the Hugging Face Hub")
      ->required();
  command.add_option("--revision", revision, "Branch, tag or commit of a model id");
  command.add_option("--device", device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--dtype", dtype, "float32, float16 or bfloat16")->capture_default_str();
  command.add_option("--device-memory", device_memory,
                     "The most to take of a card's memory, as in 8GiB (default: what is free)");
  command
      .add_option("--config-override", overrides,
                  "KEY=VALUE merged into config.json; dots reach into maps; repeatable")
      ->allow_extra_args(false);
}

std::string ModelOptions::resolve(bool quiet) const {
  const auto options = backend_options();
  if (options.device.kind == Device::Kind::cpu && options.dtype != DType::f32)
    log::warn("--dtype {}: the CPU computes in float32", dtype);
  return fetch_checkpoint(name, revision, {.quiet = quiet});
}

BackendOptions ModelOptions::backend_options() const {
  BackendOptions options{.device = choose_device(device),
                         .dtype = parse_compute_dtype(dtype, "--dtype")};
  if (!device_memory.empty()) options.device_memory = parse_bytes(device_memory, "--device-memory");
  return options;
}

Json ModelOptions::config_overrides() const {
  Json merged = Json::object();
  for (const auto& text : overrides) merged = merge_overrides(merged, override_from(text));
  return merged;
}

LoadedCheckpoint ModelOptions::load(const std::string& folder) const {
  return load_model(folder, config_overrides());
}

}  // namespace qkscope::cli
