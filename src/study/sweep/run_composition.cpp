// Composition tables of a sweep: contributions of components to the queries and keys of heads.
#include "base/core/error.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "capture/run/example_source.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/forward.h"
#include "qkscope/hub.h"
#include "qkscope/version.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

std::string composition_record_path(const std::string& results) {
  return results + "/composition.json";
}

// Returns the settings and the version that identify the composition tables.
Json composition_record(const CompositionSection& section) {
  const auto& options = section.options;
  return {{"heads", section.heads},           {"texts", section.texts},
          {"max_tokens", section.max_tokens}, {"samples", options.samples},
          {"uniform", options.uniform},       {"seed", options.seed},
          {"biases", options.biases},         {"top", options.top},
          {"qkscope", version_string()}};
}

// Returns the first texts of the run's dataset as token ids.
std::vector<std::vector<std::int32_t>> read_texts(const RunPlan& plan,
                                                  const CompositionSection& section) {
  std::vector<std::vector<std::int32_t>> texts;
  ExampleSource source(plan, {});
  for (Example example; std::ssize(texts) < section.texts && source.next(example);) {
    if (std::ssize(example.ids) > section.max_tokens)
      example.ids.resize(static_cast<std::size_t>(section.max_tokens));
    if (!example.ids.empty()) texts.push_back(std::move(example.ids));
  }
  return texts;
}

}  // namespace

CompositionSection read_composition_section(YamlSection section) {
  CompositionSection read;
  read.heads = section.required_text("heads");
  read.texts = section.integer("texts", 1).value_or(read.texts);
  read.max_tokens = section.integer("max_tokens", 1).value_or(read.max_tokens);
  auto& options = read.options;
  options.samples = section.integer("samples", 1).value_or(options.samples);
  options.top = section.integer("top", 1).value_or(options.top);
  options.uniform = section.boolean("uniform").value_or(false);
  options.biases = section.boolean("biases").value_or(false);
  options.seed = static_cast<std::uint64_t>(section.integer("seed", 0).value_or(0));
  section.reject_unknown_keys();
  return read;
}

bool has_up_to_date_composition_scores(const CompositionSection& section,
                                       const std::string& results) {
  try {
    return load_json(composition_record_path(results)) == composition_record(section);
  } catch (const Error&) {
    return false;
  }
}

void write_composition_scores(const SweepConfig& config, const SweepRun& run,
                              const std::string& results, const FetchOptions& fetch) {
  fetch_capture_inputs(run.capture, fetch);
  const auto plan = make_run_plan(run.capture, config.compute);
  const auto& backend = plan.workers.front();
  const auto overrides = config_overrides(run.capture.model);
  const auto model = Model::load(plan.model_folder,
                                 {.device = device_name(backend.device),
                                  .dtype = std::string(dtype_name(backend.dtype)),
                                  .config_overrides = overrides.is_null() ? "" : overrides.dump(),
                                  .device_memory = backend.device_memory,
                                  .longest_batch = config.composition->max_tokens,
                                  .quiet = true});
  auto options = config.composition->options;
  options.heads = parse_heads(config.composition->heads, model.config());
  options.label = run.label;
  options.on_text = [&](std::int64_t) {
    if (fetch.stop != nullptr && fetch.stop->load()) bad_input("stopped");
  };
  const auto found = composition(model, read_texts(plan, *config.composition), options);
  for (const auto& [name, table] : {std::pair("composition", &found.pairs),
                                    std::pair("composition_components", &found.components)}) {
    table->write_csv(fmt::format("{}/{}.csv", results, name));
    table->write_parquet(fmt::format("{}/{}.parquet", results, name));
  }
  write_file(composition_record_path(results),
             composition_record(*config.composition).dump(2) + "\n");
}

}  // namespace qkscope
