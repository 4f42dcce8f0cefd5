// qkscope trace: run one text and keep what the hook points show.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/model_options.h"
#include "cli/token_input.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/text.h"
#include "qkscope/version.h"

namespace qkscope::cli {
namespace {

struct TraceOptions {
  CommonOptions common;
  ModelArguments model;
  std::string hooks;
  std::string out;
  TokenInput input;
  std::string positions;
};

void print_table(const std::vector<NamedTensor>& tensors) {
  std::size_t width = 4;
  for (const auto& tensor : tensors) width = std::max(width, tensor.name.size());
  fmt::print("{:<{}}  {:<18} {:>12} {:>12}\n", "hook", width, "shape", "mean", "rms");
  for (const auto& [name, tensor] : tensors) {
    const float* values = tensor.data<float>();
    double sum = 0.0;
    double squares = 0.0;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      sum += values[i];
      squares += static_cast<double>(values[i]) * values[i];
    }
    const auto n = static_cast<double>(std::max<std::int64_t>(1, tensor.size()));
    fmt::print("{:<{}}  {:<18} {:>12.5g} {:>12.5g}\n", name, width, tensor.shape().to_string(),
               sum / n, std::sqrt(squares / n));
  }
}

void run(const TraceOptions& options) {
  options.common.apply();
  const auto folder = options.model.fetch(options.common.quiet);
  Batch batch;
  batch.add(options.input.read(folder));
  const auto model = options.model.load(folder, batch.rows());
  const auto points = match_hooks(model.config(), split(options.hooks, ','));
  const auto positions = read_positions(options.positions, batch.rows());
  check_score_size(model.config(), points,
                   positions.empty() ? batch.rows() : static_cast<std::int64_t>(positions.size()),
                   batch.rows(), "--positions");
  Collector collector(points, positions);
  model.run(batch, collector);
  std::vector<NamedTensor> tensors;
  for (const auto& [point, activation] : collector.kept())
    tensors.push_back({hook_name(point), activation});
  write_safetensors(options.out, tensors,
                    {{"format", "pt"},
                     {"model", options.model.name},
                     {"program", fmt::format("qkscope {}", version_string())}});
  if (options.common.quiet) return;
  print_table(tensors);
  fmt::print("{} tokens, {} tensors in {}\n", batch.rows(), tensors.size(), options.out);
}

}  // namespace

void add_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  auto* command =
      app.add_subcommand("trace", "Run one text and store what chosen hook points show");
  options->model.add_to(*command);
  command
      ->add_option(
          "--hooks", options->hooks,
          "Hook names or patterns, separated by commas ('blocks.*.attn.hook_rot_q,logits')")
      ->required();
  command->add_option("--out", options->out, "File to write (safetensors, float32)")->required();
  options->input.add_to(*command);
  command->add_option("--positions", options->positions,
                      "Positions to keep: 5, 0,3,7, 0:128 or -1 (default: all). Of scores and "
                      "patterns, the query positions");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
