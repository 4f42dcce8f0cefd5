// qkscope trace: run one text and keep what the hook points show.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "checkpoint/safetensors_writer.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/model_options.h"
#include "cli/token_input.h"
#include "core/error.h"
#include "core/text.h"
#include "core/version.h"
#include "forward/forward.h"

namespace qkscope::cli {
namespace {

struct TraceOptions {
  CommonOptions common;
  ModelOptions model;
  std::string hooks;
  std::string out;
  TokenInput input;
  std::string positions;
};

// Keeps the wanted positions of everything it is shown.
class Collector : public Observer {
 public:
  Collector(const std::vector<HookPoint>& points, std::vector<std::int64_t> positions)
      : points_(points), positions_(std::move(positions)) {}

  bool wants(HookPoint point) const override {
    return std::find(points_.begin(), points_.end(), point) != points_.end();
  }
  std::span<const std::int64_t> score_rows() const override { return positions_; }

  void see(HookPoint point, ConstTensorView activation) override {
    const bool by_position = point.stage != Stage::attn_scores && point.stage != Stage::pattern;
    Shape shape = activation.shape();
    std::vector<std::int64_t> rows = positions_;
    if (!by_position || rows.empty())
      rows = {0};  // everything in one piece
    else
      shape[0] = static_cast<std::int64_t>(rows.size());
    Tensor kept(shape);
    const auto piece = kept.view().size_bytes() / rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(kept.view().bytes() + i * piece,
                  activation.bytes() + static_cast<std::size_t>(rows[i]) * piece, piece);
    kept_.emplace_back(hook_name(point), std::move(kept));
  }

  std::vector<NamedTensor> tensors() const {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : kept_) named.push_back({name, tensor});
    return named;
  }

 private:
  const std::vector<HookPoint>& points_;
  std::vector<std::int64_t> positions_;
  std::vector<std::pair<std::string, Tensor>> kept_;
};

// A square that cannot be held is refused before it is computed.
void check_size(const ModelConfig& model, const std::vector<HookPoint>& points, std::int64_t length,
                std::int64_t rows) {
  constexpr std::uint64_t kLimit = std::uint64_t{16} << 30;
  std::uint64_t bytes = 0;
  for (const auto point : points)
    if (point.stage == Stage::attn_scores || point.stage == Stage::pattern)
      bytes += static_cast<std::uint64_t>(model.n_heads * rows * length) * sizeof(float);
  if (bytes > kLimit)
    bad_input(
        "attention scores and patterns of {} query positions x {} keys would take {}; "
        "choose query positions with --positions",
        rows, length, format_bytes(bytes));
}

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
  const auto folder = options.model.resolve(options.common.quiet);
  const auto model = options.model.load(folder);
  const auto points = match_hooks(model.config, split(options.hooks, ','));
  Batch batch;
  batch.add(options.input.read(folder));
  check_batch(batch, model.config);
  const auto positions = read_positions(options.positions, batch.rows());
  check_size(model.config, points, batch.rows(),
             positions.empty() ? batch.rows() : static_cast<std::int64_t>(positions.size()));
  Collector collector(points, positions);
  forward(model, batch, collector);
  const auto tensors = collector.tensors();
  write_safetensors(options.out, tensors,
                    {{"format", "pt"},
                     {"model", options.model.name},
                     {"program", fmt::format("qkscope {}", kVersion)}});
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
