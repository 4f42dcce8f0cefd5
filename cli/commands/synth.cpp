#include <memory>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "qkscope/analysis.h"

namespace qkscope::cli {
namespace {

struct SynthCommand {
  CommonOptions common;
  PlantedCaptureOptions options;
  int buckets = 16;
  bool no_metadata = false;

  void add_to(CLI::App& command);
  void run();
};

void SynthCommand::add_to(CLI::App& command) {
  auto& head = options.head;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->capture_default_str();
  };
  command.add_option("data_root", options.data_root, "Folder to write")->required();
  add("--layers", options.layers, "Layers of the model")->check(CLI::Range(1, 1000));
  add("--q-heads", options.query_heads, "Query heads per layer")->check(CLI::Range(1, 1000));
  add("--k-heads", options.key_heads, "Key heads per layer")->check(CLI::Range(1, 1000));
  add("--heads", options.heads, "Query heads to write, spread over the model (0: all)");
  add("--nope-every", options.nope_every, "Every N-th layer is without RoPE (0: none)");
  add("--rope-theta", options.rope_theta, "Base of the RoPE frequencies");
  add("--planes", options.active_planes, "Rotating planes on RoPE layers")
      ->check(CLI::Range(0, 1000));
  add("--plane-radius", options.plane_radius, "Radius of the first plane");
  add("--sliding-window", options.sliding_window, "Window in tokens (0: full attention)");
  add("--full-every", options.full_every,
      "With a window: every N-th layer has full attention (0: none)");
  add("--dim", head.dim, "Head dimension")->check(CLI::Range(2, 4096));
  add("--examples", head.examples, "Texts")->check(positive());
  add("--context", head.context, "Tokens per text")->check(positive());
  add("--buckets", buckets, "Position buckets over the context")->check(positive());
  add("--rows-per-bucket", head.rows_per_bucket, "Rows sampled per text and bucket, on average")
      ->check(positive());
  add("--drift-q", head.drift_q, "Drift of the queries along a, per token");
  add("--drift-k", head.drift_k, "Drift of the keys along a, per token");
  add("--mean-q", head.mean_q_a, "Mean of the queries along a at mid-context");
  add("--mean-k", head.mean_k_a, "Mean of the keys along a at mid-context");
  add("--distance", head.separation, "Distance of query and key means along b");
  add("--noise", head.noise, "Standard deviation of the noise in every direction");
  add("--seed", head.seed, "Seed of everything random");
  command.add_flag("--bf16", head.round_to_bf16, "Round as a model in bfloat16 would");
  command.add_flag("--no-metadata", no_metadata, "Write no metadata, like a foreign capture");
  common.add_to(command);
}

void SynthCommand::run() {
  common.apply();
  options.metadata = !no_metadata;
  options.head.bucket_size = (options.head.context + buckets - 1) / buckets;
  if (options.head.dim < 2 + 2 * options.active_planes)
    bad_input("--planes {} needs --dim {} or more; found {}", options.active_planes,
              2 + 2 * options.active_planes, options.head.dim);
  write_planted_capture(options);
  info("planted capture in {}", options.data_root);
}

}  // namespace

void add_synth(CLI::App& app) {
  auto* command =
      app.add_subcommand("synth", "Write a capture of heads with known structure, for testing");
  const auto synth = std::make_shared<SynthCommand>();
  synth->add_to(*command);
  command->callback([synth] { synth->run(); });
}

}  // namespace qkscope::cli
