#include "qkscope/experimental/bench.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/api/model_state.h"
#include "engine/device/backend.h"
#include "engine/device/memory_plan.h"
#include "engine/forward/forward.h"
#include "engine/ops/attention.h"
#include "qkscope/experimental/store.h"
#include "qkscope/hub.h"

namespace qkscope {
namespace {

constexpr std::int64_t kTokensPerSample = 256;

Batch random_batch(BenchBatch size, std::int64_t vocabulary) {
  std::mt19937 generator(0);
  std::vector<std::int32_t> ids(as_index(size.tokens));
  Batch batch;
  for (std::int64_t document = 0; document < size.documents; ++document) {
    for (auto& id : ids)
      id = static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(vocabulary));
    batch.add(ids);
  }
  return batch;
}

// Requests rows like a capture: q and k after RoPE at the last position of every 256 tokens.
class SampledRowsObserver : public Observer {
 public:
  explicit SampledRowsObserver(const Batch& batch) {
    for (const auto& sequence : batch.sequences) {
      for (auto end = kTokensPerSample; end < sequence.length; end += kTokensPerSample)
        rows_.push_back(sequence.begin + end - 1);
      rows_.push_back(sequence.begin + sequence.length - 1);
    }
  }

  bool wants(HookPoint point) const override {
    return point.stage == Stage::rot_q || point.stage == Stage::rot_k;
  }
  Selection selection(HookPoint) const override { return {.rows = rows_, .heads = {}}; }
  void see(HookPoint, ConstTensorView) override {}

 private:
  std::vector<std::int64_t> rows_;
};

std::vector<BenchBatch> default_batches(Device device, const ModelConfig& model) {
  const std::vector<BenchBatch> wanted = device.kind == Device::Kind::cpu
                                             ? std::vector<BenchBatch>{{1, 512}, {1, 2048}}
                                             : std::vector<BenchBatch>{{8, 4096}, {1, 32768}};
  std::vector<BenchBatch> batches;
  for (auto batch : wanted) {
    batch.tokens = std::min(batch.tokens, model.max_positions);
    if (batches.empty() || batches.back().tokens != batch.tokens) batches.push_back(batch);
  }
  return batches;
}

void check_bench_options(const BenchOptions& options) {
  for (const auto& [documents, tokens] : options.batches)
    if (documents < 1 || tokens < 1)
      bad_input("a batch of {} documents of {} tokens: expected at least one of each", documents,
                tokens);
  if (options.repeats < 1) bad_input("repeats: found {}, expected at least 1", options.repeats);
  if (!(options.ceiling_seconds > 0.0))
    bad_input("seconds of matrix products: found {}, expected more than 0",
              options.ceiling_seconds);
}

// Forwards every step to another backend, waits for it, and records seconds and FLOP of each part.
class TimedBackend : public Backend {
 public:
  explicit TimedBackend(Backend& timed) : Backend(timed.model()), timed_(timed) {}

  const std::vector<BenchPart>& part_timings() const { return parts_; }
  const std::vector<BenchKernel>& kernel_timings() const { return kernels_; }

  void begin_pass(const Batch& batch) override {
    batch_ = &batch;
    kept_.clear();
    time("start and end", 0.0, &Backend::begin_pass, batch);
  }
  void embed() override { time("embedding", 0.0, &Backend::embed); }
  void embed_positions() override { time("embedding", 0.0, &Backend::embed_positions); }
  void embed_per_layer_inputs() override {
    time("layer inputs", per_layer_flop(config().n_layers), &Backend::embed_per_layer_inputs);
  }
  void project_per_layer_input(ResidualAddition addition) override {
    time("layer inputs", per_layer_flop(2), &Backend::project_per_layer_input, addition);
  }
  void scale_residual() override { time("output", 0.0, &Backend::scale_residual); }
  void begin_layer(std::int64_t layer) override {
    layer_ = layer;
    time("start and end", 0.0, &Backend::begin_layer, layer);
  }
  void keep_layer_input() override { time("norms", 0.0, &Backend::keep_layer_input); }
  void normalize(NormSite norm) override { time("norms", 0.0, &Backend::normalize, norm); }
  void project_latents() override {
    const auto& latent = config().latent;
    const auto width = latent.q_rank + latent.kv_rank + latent.d_shared;
    time("q, k, v", product_flop(active_rows(), config().d_model, width),
         &Backend::project_latents);
  }
  void project_qkv(bool values) override {
    time("q, k, v", projection_flop(values), &Backend::project_qkv, values);
  }
  void normalize_heads() override { time("norms", 0.0, &Backend::normalize_heads); }
  void apply_rope() override { time("rotation", 0.0, &Backend::apply_rope); }
  void attend() override {
    time("attention", attention_flop(), &Backend::attend);
    ++find_or_add_entry(kernels_, timed_.attention_kernel()).layers;
  }
  void project_output(ResidualAddition addition) override {
    time("output",
         product_flop(active_rows(), config().n_heads * config().d_value_of(layer()),
                      config().d_model),
         &Backend::project_output, addition);
  }
  void run_recurrent_mixer(std::span<const std::int64_t> state_rows) override {
    time("mixer", mixer_flop(), &Backend::run_recurrent_mixer, state_rows);
  }
  void project_mixer_output(ResidualAddition addition) override {
    time("output", product_flop(active_rows(), config().mixer.value_width(), config().d_model),
         &Backend::project_mixer_output, addition);
  }
  void add_update_to_residual() override { time("output", 0.0, &Backend::add_update_to_residual); }
  void project_router() override {
    time("router", product_flop(active_rows(), config().d_model, config().experts.count),
         &Backend::project_router);
  }
  void choose_experts() override { time("router", 0.0, &Backend::choose_experts); }
  std::int64_t mlp_chunk_rows() const override { return timed_.mlp_chunk_rows(); }
  // CUDA may defer the gate/up product to apply_gate(), so both steps count as one part.
  void project_gate_up(std::int64_t begin, std::int64_t count) override {
    time("gate, up",
         product_flop(count, config().d_model, (config().gated_mlp() ? 2 : 1) * mlp_width()),
         &Backend::project_gate_up, begin, count);
  }
  void apply_gate(std::int64_t count) override {
    time("gate, up", 0.0, &Backend::apply_gate, count);
  }
  void project_down(std::int64_t begin, std::int64_t count, ResidualAddition addition) override {
    time("down", product_flop(count, mlp_width(), config().d_model), &Backend::project_down, begin,
         count, addition);
  }
  void project_logits() override {
    time("logits", product_flop(active_rows(), config().d_model, config().vocab_size),
         &Backend::project_logits);
  }
  void keep_rows(std::span<const std::int64_t> rows) override {
    kept_.assign(rows.begin(), rows.end());
    time("captured rows", 0.0, &Backend::keep_rows, rows);
  }
  std::int64_t active_rows() const override { return timed_.active_rows(); }
  void read_buffer(ActivationBuffer buffer, const Selection& selection, HostReader show) override {
    time("captured rows", 0.0, &Backend::read_buffer, buffer, selection, std::move(show));
  }
  void keep_row_sums(bool keep) override { timed_.keep_row_sums(keep); }
  void finish_pass() override { time("start and end", 0.0, &Backend::finish_pass); }
  std::string describe_hardware() const override { return timed_.describe_hardware(); }
  void wait() override { timed_.wait(); }
  std::string attention_kernel() const override { return timed_.attention_kernel(); }
  double measure_flop_rate(double seconds) override { return timed_.measure_flop_rate(seconds); }

  // Steps that the pass of a capture does not run, without times.
  std::unique_ptr<KeyValueStore> make_key_value_store(std::int64_t sequences,
                                                      std::int64_t positions) override {
    return timed_.make_key_value_store(sequences, positions);
  }
  void use_key_value_store(KeyValueStore& store) override { timed_.use_key_value_store(store); }
  void set_residual(ConstTensorView residual) override { timed_.set_residual(residual); }
  ConstTensorView mixer_states() override { return timed_.mixer_states(); }
  void edit_buffer(ActivationBuffer buffer,
                   const std::function<void(TensorView)>& change) override {
    timed_.edit_buffer(buffer, change);
  }
  ActivationCopy copy_buffer(ActivationBuffer buffer, const Selection& selection) override {
    return timed_.copy_buffer(buffer, selection);
  }
  void overwrite_buffer(ActivationBuffer buffer, const ActivationCopy& values) override {
    timed_.overwrite_buffer(buffer, values);
  }
  void score_rows(const RowScores& out) override { timed_.score_rows(out); }
  void recompute_pattern(const RowScores& edited) override { timed_.recompute_pattern(edited); }
  void attend_edited_rows(const RowScores& edited) override { timed_.attend_edited_rows(edited); }
  void add_moments(ActivationBuffer buffer, const MomentRequest& request,
                   MomentConsumer& sink) override {
    timed_.add_moments(buffer, request, sink);
  }
  void add_attention_statistics(const AttentionRequest& request, AttentionConsumer& sink) override {
    timed_.add_attention_statistics(request, sink);
  }

 private:
  // FLOP of a mixer: input projections, and three products of the state with a vector per token.
  double mixer_flop() const {
    const auto& c = config().mixer;
    const auto rank = c.gate_rank();
    const auto gates = rank > 0 ? rank + c.value_heads : c.value_width() + 2 * c.value_heads;
    return product_flop(active_rows(), config().d_model, c.channels() + gates) +
           product_flop(active_rows(), rank, c.value_width()) +
           product_flop(active_rows(), c.d_key, 3 * c.value_width());
  }
  const LayerConfig& layer() const { return config().layer(layer_); }
  double per_layer_flop(std::int64_t matrices) const {
    return product_flop(active_rows(), config().d_model, matrices * config().per_layer.width);
  }

  double projection_flop(bool values) const {
    const auto& c = config();
    const auto kv_heads = layer().shares_kv() ? 0 : c.n_kv_heads_of(layer());
    const auto heads = c.n_heads + (values ? 2 : 1) * kv_heads;
    if (!c.has_latent_attention())
      return product_flop(active_rows(), c.d_model, heads * c.d_head_of(layer()));
    const auto q_input = c.latent.q_rank > 0 ? c.latent.q_rank : c.d_model;
    const auto of_head = c.d_head - c.latent.d_shared + (values ? c.latent.d_value : 0);
    return product_flop(active_rows(), q_input, c.n_heads * c.d_head) +
           product_flop(active_rows(), c.latent.kv_rank, c.n_heads * of_head);
  }

  // Runs one step of the timed backend and adds its wall-clock time and FLOP to the entry `name`.
  template <typename Step, typename... Arguments>
  void time(const char* name, double flop, Step step, Arguments&&... arguments) {
    const auto start = Clock::now();
    std::invoke(step, timed_, std::forward<Arguments>(arguments)...);
    timed_.wait();
    auto& part = find_or_add_entry(parts_, name);
    part.seconds += seconds_since(start);
    part.flop += flop;
  }

  // Returns the entry with the given name; appends a new entry if there is none.
  template <typename Entry>
  static Entry& find_or_add_entry(std::vector<Entry>& entries, const std::string& name) {
    const auto found = std::ranges::find(entries, name, &Entry::name);
    return found != entries.end() ? *found : entries.emplace_back(Entry{.name = name});
  }

  static double product_flop(std::int64_t rows, std::int64_t in, std::int64_t out) {
    return 2.0 * to_double(rows) * to_double(in) * to_double(out);
  }

  // FLOP of the two attention products, q kᵀ and p v, over the visible keys of every query.
  double attention_flop() const {
    double keys = 0.0;
    for (const auto& sequence : batch_->sequences) {
      const auto [first, end] = query_range(sequence, kept_);
      for (auto query = first; query < end; ++query) {
        const auto position = row_of_query(query, kept_) - sequence.begin;
        keys +=
            to_double(position + 1 - first_visible_key(position, layer().window, layer().chunk));
      }
    }
    const auto width = config().d_head_of(layer()) + config().d_value_of(layer());
    return 2.0 * keys * to_double(config().n_heads * width);
  }

  // Hidden width of the MLP per row in the current layer, summed over the selected experts.
  std::int64_t mlp_width() const {
    const auto& experts = config().experts;
    return layer().experts ? experts.per_token * experts.d_mlp : config().d_mlp_of(layer());
  }

  Backend& timed_;
  const Batch* batch_ = nullptr;
  std::int64_t layer_ = 0;
  std::vector<std::int64_t> kept_;  // rows of the batch that still run; empty: all
  std::vector<BenchPart> parts_;    // in order of first use
  std::vector<BenchKernel> kernels_;
};

// Benchmarks one checkpoint on one device; records the free device memory before loading.
class BenchmarkSession {
 public:
  BenchmarkSession(const std::string& folder, const ModelOptions& model,
                   const BenchOptions& options)
      : options_(options),
        checkpoint_(load_checkpoint(folder, model)),
        setup_(make_backend_options(checkpoint_, model)),
        free_(free_memory_bytes(setup_.device)) {
    if (options_.batches.empty())
      options_.batches = default_batches(setup_.device, checkpoint_.config);
    setup_.longest_batch = 0;
    for (const auto& [documents, tokens] : options_.batches)
      setup_.longest_batch = std::max(setup_.longest_batch, documents * tokens);
    backend_ = make_backend(checkpoint_, setup_);
  }

  BenchReport report() {
    BenchReport report{.device = device_name(setup_.device),
                       .hardware = backend_->describe_hardware(),
                       .dtype = setup_.dtype,
                       .ceiling = backend_->measure_flop_rate(options_.ceiling_seconds),
                       .parameters = parameter_count(checkpoint_.config),
                       .weight_bytes = weight_bytes(),
                       .results = {}};
    for (const auto& batch : options_.batches) report.results.push_back(measure(batch));
    return report;
  }

 private:
  bool on_cpu() const { return setup_.device.kind == Device::Kind::cpu; }

  std::int64_t weight_bytes() const {
    const auto stored = checkpoint_.weights.embedding.values.dtype();
    return device_weight_bytes(checkpoint_.config, on_cpu() ? stored : setup_.dtype);
  }

  BenchResult measure(const BenchBatch& size) {
    const auto batch = random_batch(size, checkpoint_.config.vocab_size);
    SampledRowsObserver observer(batch);
    forward(*backend_, batch, observer);  // warm-up
    std::vector<double> seconds;
    for (int i = 0; i < options_.repeats; ++i) {
      const auto start = Clock::now();
      forward(*backend_, batch, observer);
      seconds.push_back(seconds_since(start));
    }
    std::ranges::sort(seconds);
    TimedBackend timed(*backend_);
    forward(timed, batch, observer);
    BenchResult result{.batch = size,
                       .seconds = seconds[(seconds.size() - 1) / 2],
                       .best_seconds = seconds.front(),
                       .rows = batch.rows(),
                       .activation_bytes = activation_bytes(batch.rows()),
                       .attention = timed.kernel_timings(),
                       .parts = timed.part_timings()};
    for (const auto& part : result.parts) result.flop += part.flop;
    return result;
  }

  std::int64_t activation_bytes(std::int64_t rows) const {
    if (on_cpu()) return qkscope::activation_bytes(checkpoint_.config, rows, setup_);
    return std::max<std::int64_t>(0, free_ - free_memory_bytes(setup_.device) - weight_bytes());
  }

  BenchOptions options_;
  LoadedCheckpoint checkpoint_;
  BackendOptions setup_;
  std::int64_t free_;  // bytes free on the GPU before the weights were uploaded
  std::unique_ptr<Backend> backend_;
};

}  // namespace

BenchReport measure_speed(const std::string& folder_or_id, const ModelOptions& model,
                          const BenchOptions& options) {
  return translate_exceptions([&] {
    check_bench_options(options);
    const FetchOptions fetch{.quiet = model.quiet};
    const auto folder = fetch_checkpoint(fetch_input(folder_or_id, fetch), model.revision, fetch);
    return BenchmarkSession(folder, model, options).report();
  });
}

}  // namespace qkscope
