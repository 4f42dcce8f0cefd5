// qkscope synth: writes a synthetic capture of heads with known structure.
#include <map>
#include <variant>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "qkscope/analysis.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

struct SynthArguments {
  CommonOptions common;
  PlantedCaptureOptions options;
  std::vector<int> head_counts;
  std::vector<std::string> fields;  // KEY=VALUE
  int buckets = 16;
};

using SynthField = std::variant<double*, int*, bool*>;

std::map<std::string, SynthField> synth_fields(PlantedCaptureOptions& options) {
  auto& head = options.head;
  return {{"nope_every", &options.nope_every},
          {"rope_theta", &options.rope_theta},
          {"plane_radius", &options.plane_radius},
          {"sliding_window", &options.sliding_window},
          {"full_every", &options.full_every},
          {"metadata", &options.metadata},
          {"rows_per_bucket", &head.rows_per_bucket},
          {"drift_q", &head.drift_q},
          {"drift_k", &head.drift_k},
          {"mean_q", &head.mean_q_a},
          {"mean_k", &head.mean_k_a},
          {"distance", &head.separation},
          {"noise", &head.noise},
          {"bf16", &head.round_to_bf16}};
}

void set_field(const std::string& text, PlantedCaptureOptions& options) {
  const auto fields = synth_fields(options);
  const auto equals = std::min(text.find('='), text.size());
  const auto field = fields.find(text.substr(0, equals));
  if (field == fields.end())
    reject("--set: found '{}', expected KEY=VALUE with one of {}", text, join_keys(fields));
  const auto value = text.substr(std::min(equals + 1, text.size()));
  const bool stored =
      std::visit([&](auto* to) { return CLI::detail::lexical_cast(value, *to); }, field->second);
  if (!stored) reject("--set {}: '{}' is not a value of it", field->first, value);
}

void add_options(CLI::App& command, SynthArguments& arguments) {
  auto& options = arguments.options;
  auto& head = options.head;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->capture_default_str();
  };
  command.add_option("data_root", options.data_root, "Folder to write")->required();
  add("--layers", options.layers, "Number of layers of the model")->check(integer_between(1, 1000));
  command
      .add_option("--head-counts", arguments.head_counts,
                  "Query heads and key heads per layer (default: 8,2)")
      ->delimiter(',')
      ->expected(2)
      ->type_name("N,N")
      ->check(integer_between(1, 1000));
  add("--heads", options.heads, "Query heads to write, spread over the model (0: all)");
  add("--planes", options.active_planes, "Rotating planes on RoPE layers")
      ->check(integer_between(0, 1000));
  add("--dim", head.dim, "Head dimension")->check(integer_between(2, 4096));
  add("--examples", head.examples, "Number of texts")->check(positive());
  add("--context", head.context, "Tokens per text")->check(positive());
  add("--buckets", arguments.buckets, "Position buckets over the context")->check(positive());
  add("--seed", head.seed, "Seed of the random numbers");
  command
      .add_option(
          "--set", arguments.fields,
          "KEY=VALUE; repeatable. drift_q and drift_k: drift along a, per token; mean_q and "
          "mean_k: mean along a at mid-context; distance: of query and key means along b; "
          "noise: standard deviation; rows_per_bucket: mean of sampled rows per text and "
          "bucket; nope_every: every N-th layer has no RoPE (0: none); rope_theta; "
          "plane_radius: of the first plane; sliding_window: tokens (0: full attention); "
          "full_every: with a window, every N-th layer has full attention; "
          "bf16=true: round to bfloat16; metadata=false: write none, like a foreign capture")
      ->allow_extra_args(false);
}

void run(SynthArguments& arguments) {
  auto& options = arguments.options;
  for (const auto& field : arguments.fields) set_field(field, options);
  if (!arguments.head_counts.empty()) {
    options.query_heads = arguments.head_counts[0];
    options.key_heads = arguments.head_counts[1];
  }
  options.head.bucket_size = (options.head.context + arguments.buckets - 1) / arguments.buckets;
  if (options.head.dim < 2 + 2 * options.active_planes)
    reject("--planes {} needs --dim {} or more; found {}", options.active_planes,
           2 + 2 * options.active_planes, options.head.dim);
  write_planted_capture(options);
  info("planted capture in {}", options.data_root);
}

}  // namespace

void add_synth(CLI::App& app) {
  auto [command, arguments] = add_command<SynthArguments>(
      app, "synth", "Write a capture of heads with known structure, for testing", run);
  add_options(*command, *arguments);
}

}  // namespace qkscope::cli
