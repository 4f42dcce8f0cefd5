// qkscope trace: runs one text and stores the activations of chosen hook points.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/token_input.h"
#include "qkscope/experimental/text.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tokenizer.h"
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

// Adds the tokens to the metadata, as vocabulary entries and as text, if there is a tokenizer.
void add_token_texts(const std::string& folder, const std::vector<std::int32_t>& ids,
                     std::map<std::string, std::string>& metadata) {
  if (!has_tokenizer(folder)) return;
  const auto tokenizer = Tokenizer::load(folder);
  Json tokens = Json::array();
  Json texts = Json::array();
  for (const auto id : ids) {
    tokens.push_back(tokenizer.token_string(id));
    texts.push_back(tokenizer.decode(std::span(&id, 1)));
  }
  metadata["tokens"] = dump_json(tokens);
  metadata["token_texts"] = dump_json(texts);
}

ConstTensorView integers(const auto& values, DType dtype) {
  return {std::as_bytes(std::span(values)).data(), dtype, Shape({std::ssize(values)})};
}

void run(TraceOptions& options) {
  const auto folder = options.model.fetch(options.common.quiet);
  Batch batch;
  const auto ids = options.input.read(folder);
  batch.add(ids);
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
  const auto hooked = tensors;
  auto kept = positions;  // position of each row of the tensors
  if (kept.empty())
    for (std::int64_t i = 0; i < batch.rows(); ++i) kept.push_back(i);
  tensors.push_back({"token_ids", integers(ids, DType::i32)});
  tensors.push_back({"positions", integers(kept, DType::i64)});
  std::map<std::string, std::string> metadata = {
      {"format", "pt"},
      {"model", options.model.name},
      {"program", fmt::format("qkscope {}", version_string())}};
  add_token_texts(folder, ids, metadata);
  write_safetensors(options.out, tensors, metadata);
  if (options.common.quiet) return;
  print_table(hooked);
  fmt::print("{} tokens, {} tensors in {}\n", batch.rows(), hooked.size(), options.out);
}

}  // namespace

void add_trace(CLI::App& app) {
  auto [command, options] = add_command<TraceOptions>(
      app, "trace", "Run one text and store the activations of chosen hook points", run);
  options->model.add_to(*command);
  start_section(*command, "Hooks");
  command
      ->add_option(
          "--hooks", options->hooks,
          "Hook names or patterns, separated by commas ('blocks.*.attn.hook_rot_q,logits')")
      ->required();
  command->add_option("--out", options->out, "File to write (safetensors, float32)")
      ->type_name("FILE")
      ->required();
  options->input.add_to(*command);
  start_section(*command, "Hooks");
  command->add_option("--positions", options->positions,
                      "Positions to keep: 5, 0,3,7, 0:128 or -1 (default: all); for scores and "
                      "patterns, query positions");
}

}  // namespace qkscope::cli
