#include "engine/api/timed_backend.h"

#include <algorithm>

#include "base/core/clock.h"
#include "engine/ops/attention.h"

namespace qkscope {
namespace {

// Keys that the queries of a sequence see, all together.
double visible_keys(std::int64_t length, std::int64_t window) {
  const auto growing = window > 0 ? std::min(length, window) : length;
  const auto all = static_cast<double>(growing) * static_cast<double>(growing + 1) / 2.0;
  return all + static_cast<double>(length - growing) * static_cast<double>(window);
}

}  // namespace

BenchPart& TimedBackend::part(const std::string& name) {
  const auto found = std::find_if(parts_.begin(), parts_.end(),
                                  [&](const BenchPart& part) { return part.name == name; });
  if (found != parts_.end()) return *found;
  return parts_.emplace_back(BenchPart{.name = name});
}

template <typename Step>
void TimedBackend::time(const char* name, double flop, Step step) {
  const auto start = Clock::now();
  step();
  timed_.wait();
  auto& taken = part(name);
  taken.seconds += seconds_since(start);
  taken.flop += flop;
}

double TimedBackend::product_flop(std::int64_t rows, std::int64_t in, std::int64_t out) const {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
}

double TimedBackend::attention_flop() const {
  const auto window = config().layers[static_cast<std::size_t>(layer_)].window;
  double keys = 0.0;
  for (const auto& sequence : batch_->sequences) {
    if (kept_.empty()) {
      keys += visible_keys(sequence.length, window);
      continue;
    }
    const auto [first, end] = queries_of(sequence, kept_);
    for (auto query = first; query < end; ++query) {
      const auto position = row_of_query(query, kept_) - sequence.begin;
      keys += static_cast<double>(position + 1 - first_visible_key(position, window));
    }
  }
  return 4.0 * keys * static_cast<double>(config().n_heads * config().d_head);
}

void TimedBackend::begin(const Batch& batch) {
  batch_ = &batch;
  kept_.clear();
  time("start and end", 0.0, [&] { timed_.begin(batch); });
}

void TimedBackend::embed() {
  time("embedding", 0.0, [&] { timed_.embed(); });
}

void TimedBackend::embed_positions() {
  time("embedding", 0.0, [&] { timed_.embed_positions(); });
}

void TimedBackend::put_residual(ConstTensorView residual) {
  time("embedding", 0.0, [&] { timed_.put_residual(residual); });
}

void TimedBackend::keep_layer_input() {
  time("norms", 0.0, [&] { timed_.keep_layer_input(); });
}

void TimedBackend::begin_layer(std::int64_t layer) {
  layer_ = layer;
  time("start and end", 0.0, [&] { timed_.begin_layer(layer); });
}

void TimedBackend::normalize(Norm norm) {
  time("norms", 0.0, [&] { timed_.normalize(norm); });
}

void TimedBackend::project_qkv(bool values) {
  const auto heads = config().n_heads + (values ? 2 : 1) * config().n_kv_heads;
  time("q, k, v", product_flop(running_rows(), config().d_model, heads * config().d_head),
       [&] { timed_.project_qkv(values); });
}

void TimedBackend::normalize_heads() {
  time("norms", 0.0, [&] { timed_.normalize_heads(); });
}

void TimedBackend::rotate() {
  time("rotation", 0.0, [&] { timed_.rotate(); });
}

void TimedBackend::attend() {
  time("attention", attention_flop(), [&] { timed_.attend(); });
  const auto name = timed_.attention_kernel();
  auto kernel = std::find_if(kernels_.begin(), kernels_.end(),
                             [&](const BenchKernel& known) { return known.name == name; });
  if (kernel == kernels_.end()) kernel = kernels_.insert(kernel, BenchKernel{.name = name});
  ++kernel->layers;
}

void TimedBackend::project_output(Addition addition) {
  time("output", product_flop(running_rows(), config().n_heads * config().d_head, config().d_model),
       [&] { timed_.project_output(addition); });
}

void TimedBackend::add_update() {
  time("output", 0.0, [&] { timed_.add_update(); });
}

std::int64_t TimedBackend::mlp_width() const {
  const auto& experts = config().experts;
  return config().layers[static_cast<std::size_t>(layer_)].experts
             ? experts.per_token * experts.d_mlp
             : config().d_mlp;
}

void TimedBackend::project_router() {
  time("router", product_flop(running_rows(), config().d_model, config().experts.count),
       [&] { timed_.project_router(); });
}

void TimedBackend::choose_experts() {
  time("router", 0.0, [&] { timed_.choose_experts(); });
}

// A GPU may compute the product where the activation is asked for: both are one part.
void TimedBackend::project_gate_up(std::int64_t begin, std::int64_t count) {
  time("gate, up",
       product_flop(count, config().d_model, (config().gated_mlp() ? 2 : 1) * mlp_width()),
       [&] { timed_.project_gate_up(begin, count); });
}

void TimedBackend::gate(std::int64_t count) {
  time("gate, up", 0.0, [&] { timed_.gate(count); });
}

void TimedBackend::project_down(std::int64_t begin, std::int64_t count, Addition addition) {
  time("down", product_flop(count, mlp_width(), config().d_model),
       [&] { timed_.project_down(begin, count, addition); });
}

void TimedBackend::project_logits() {
  time("logits", product_flop(running_rows(), config().d_model, config().vocab_size),
       [&] { timed_.project_logits(); });
}

void TimedBackend::keep_rows(std::span<const std::int64_t> rows) {
  kept_.assign(rows.begin(), rows.end());
  time("captured rows", 0.0, [&] { timed_.keep_rows(rows); });
}

void TimedBackend::read(Buffer buffer, const Selection& selection, Show show) {
  time("captured rows", 0.0, [&] { timed_.read(buffer, selection, std::move(show)); });
}

void TimedBackend::edit(Buffer buffer, const std::function<void(TensorView)>& change) {
  time("captured rows", 0.0, [&] { timed_.edit(buffer, change); });
}

ActivationCopy TimedBackend::copy(Buffer buffer, const Selection& selection) {
  ActivationCopy copied;
  time("captured rows", 0.0, [&] { copied = timed_.copy(buffer, selection); });
  return copied;
}

void TimedBackend::put(Buffer buffer, const ActivationCopy& values) {
  time("captured rows", 0.0, [&] { timed_.put(buffer, values); });
}

void TimedBackend::score_rows(const RowScores& out) {
  time("scores", 0.0, [&] { timed_.score_rows(out); });
}

void TimedBackend::pattern_of_edited_scores(const RowScores& edited) {
  time("scores", 0.0, [&] { timed_.pattern_of_edited_scores(edited); });
}

void TimedBackend::attend_edited_rows(const RowScores& edited) {
  time("scores", 0.0, [&] { timed_.attend_edited_rows(edited); });
}

void TimedBackend::add_moments(Buffer buffer, const MomentRequest& request, MomentSink& sink) {
  time("statistics", 0.0, [&] { timed_.add_moments(buffer, request, sink); });
}

void TimedBackend::add_attention(const AttentionRequest& request, AttentionSink& sink) {
  time("statistics", 0.0, [&] { timed_.add_attention(request, sink); });
}

void TimedBackend::finish() {
  time("start and end", 0.0, [&] { timed_.finish(); });
}

}  // namespace qkscope
