#include "qkscope/experimental/bench.h"

#include <algorithm>
#include <random>
#include <string>
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

// Requests the same rows as a capture: q and k after RoPE at the last of every 256 positions.
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
  void observe(HookPoint, ConstTensorView) override {}

 private:
  std::vector<std::int64_t> rows_;
};

std::vector<BenchBatch> default_batches(Device device, const ModelConfig& model) {
  std::vector<BenchBatch> batches = {{8, 4096}, {1, 32768}};
  if (device.kind == Device::Kind::cpu) batches = {{1, 512}, {1, 2048}};
  for (auto& batch : batches) batch.tokens = std::min(batch.tokens, model.max_positions);
  if (batches[0].tokens == batches[1].tokens) batches.pop_back();
  return batches;
}

void check_bench_options(const BenchOptions& options) {
  for (const auto& [documents, tokens] : options.batches)
    if (documents < 1 || tokens < 1)
      reject("a batch of {} documents of {} tokens: expected at least one of each", documents,
             tokens);
  if (options.repeats < 1) reject("repeats: found {}, expected at least 1", options.repeats);
  if (!(options.ceiling_seconds > 0.0))
    reject("seconds of matrix products: found {}, expected more than 0", options.ceiling_seconds);
}

// A step of the layer loop, identified by the hook point whose activation it computes.
struct TimedStep {
  Stage stage;
  const char* part;                // part of the pass to which the step belongs
  std::int64_t multiply_adds = 0;  // multiply-adds per row; in attention, per visible key
};

// Sums time and FLOPs of a pass by part (norms, MLP, ...), and counts layers by attention kernel.
class BenchTimer : public StepTimer {
 public:
  BenchTimer(Backend& backend, const Batch& batch, const Observer& observer, BenchResult& result)
      : backend_(backend),
        batch_(batch),
        plan_(backend.config(), observer, batch.rows()),
        result_(result) {}

  void end_step(HookPoint point) override {
    const auto steps = timed_steps(point.layer);
    const auto step = std::ranges::find(steps, point.stage, &TimedStep::stage);
    if (step == steps.end()) return;
    end_named_step(step->part);
    // The MLP runs its steps once per chunk of rows; the first chunk adds the FLOPs of all rows.
    if (std::ranges::find(counted_, point) != counted_.end()) return;
    counted_.push_back(point);
    const bool attends = point.stage == Stage::z;
    const auto count = attends ? sum_visible_keys(point.layer) : to_double(backend_.active_rows());
    find_or_add_entry(result_.parts, step->part).flop +=
        2.0 * count * to_double(step->multiply_adds);
    if (attends) ++find_or_add_entry(result_.attention, backend_.attention_kernel_name()).layers;
    start_ = Clock::now();
  }

  void end_named_step(const char* part) override {
    backend_.wait_until_idle();
    find_or_add_entry(result_.parts, part).seconds += seconds_since(start_);
    start_ = Clock::now();
  }

 private:
  // Returns the steps of a layer, or with layer -1 the steps before the first layer.
  std::vector<TimedStep> timed_steps(std::int64_t number) const {
    const auto& c = backend_.config();
    const auto& layer = c.layer(std::max<std::int64_t>(number, 0));
    const auto latents = c.latent.q_rank + c.latent.kv_rank + c.latent.d_shared;
    const auto mlp = layer.experts ? c.experts.per_token * c.experts.d_mlp : c.d_mlp_of(layer);
    const auto per_layer_inputs = (number < 0 ? c.n_layers : 2) * c.per_layer.width;
    return {
        {Stage::embed, "embedding"},
        {Stage::pos_embed, "embedding"},
        {Stage::resid_pre, "start and end"},
        {Stage::ln1_normalized, "norms"},
        {Stage::kv_latent, "q, k, v", c.d_model * latents},
        {Stage::q, "q, k, v", projection_multiply_adds(layer, number)},
        {Stage::q_normed, "norms"},
        {Stage::rot_q, "rotation"},
        {Stage::mixer_state, "mixer", mixer_multiply_adds()},
        {Stage::z, "attention", c.n_heads * (c.d_head_of(layer) + c.d_value_of(layer))},
        {Stage::mixer_out, "output", c.mixer.value_width() * c.d_model},
        {Stage::attn_out, "output", c.n_heads * c.d_value_of(layer) * c.d_model},
        {Stage::ln2_normalized, "norms"},
        {Stage::router_logits, "router", c.d_model * c.experts.count},
        {Stage::expert_weights, "router"},
        // CUDA may defer the gate/up product to the activation, so both steps are timed as one.
        {Stage::mlp_pre, "gate, up", c.d_model * (c.gated_mlp() ? 2 : 1) * mlp},
        {Stage::mlp_post, "gate, up"},
        {Stage::mlp_out, "down", mlp * c.d_model},
        {Stage::per_layer_out, "layer inputs", c.d_model * per_layer_inputs},
        {Stage::resid_post, "output"},
    };
  }

  // Multiply-adds per row of the q, k and v projections; a capture needs no v in its last layer.
  std::int64_t projection_multiply_adds(const LayerConfig& layer, std::int64_t number) const {
    const auto& c = backend_.config();
    const bool values = !plan_.ends_before({Stage::attn_scores, number});
    const auto kv_heads = layer.shares_kv() ? 0 : c.n_kv_heads_of(layer);
    const auto heads = c.n_heads + (values ? 2 : 1) * kv_heads;
    if (!c.has_latent_attention()) return c.d_model * heads * c.d_head_of(layer);
    const auto q_input = c.latent.q_rank > 0 ? c.latent.q_rank : c.d_model;
    const auto of_head = c.d_head - c.latent.d_shared + (values ? c.latent.d_value : 0);
    return c.n_heads * (q_input * c.d_head + c.latent.kv_rank * of_head);
  }

  // Multiply-adds per row of a recurrent mixer: input projections and three state-vector products.
  std::int64_t mixer_multiply_adds() const {
    const auto& c = backend_.config().mixer;
    const auto rank = c.gate_rank();
    const auto gates = rank > 0 ? rank + c.value_heads : c.value_width() + 2 * c.value_heads;
    const auto inputs = backend_.config().d_model * (c.channels() + gates);
    return inputs + (rank + 3 * c.d_key) * c.value_width();
  }

  // Returns the number of visible keys, summed over all active queries.
  double sum_visible_keys(std::int64_t number) const {
    const auto& layer = backend_.config().layer(number);
    const bool all_active = backend_.active_rows() == batch_.rows();
    double keys = 0.0;
    for (const auto& sequence : batch_.sequences)
      for (std::int64_t position = 0; position < sequence.length; ++position)
        if (all_active || std::ranges::binary_search(plan_.kept_rows(), sequence.begin + position))
          keys += to_double(position + 1 - first_visible_key(position, layer.window, layer.chunk));
    return keys;
  }

  template <typename Entry>
  static Entry& find_or_add_entry(std::vector<Entry>& entries, const std::string& name) {
    const auto found = std::ranges::find(entries, name, &Entry::name);
    return found != entries.end() ? *found : entries.emplace_back(Entry{.name = name});
  }

  Backend& backend_;
  const Batch& batch_;
  PassPlan plan_;
  BenchResult& result_;
  std::vector<HookPoint> counted_;          // hook points whose FLOP are in the result
  Clock::time_point start_ = Clock::now();  // start of the current step
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

  BenchReport make_report() {
    BenchReport report{.device = device_name(setup_.device),
                       .hardware = backend_->describe_hardware(),
                       .dtype = setup_.dtype,
                       .ceiling = backend_->measure_flop_rate(options_.ceiling_seconds),
                       .parameters = parameter_count(checkpoint_.config),
                       .weight_bytes = weight_bytes(),
                       .results = {}};
    for (const auto& batch : options_.batches) report.results.push_back(measure_batch(batch));
    return report;
  }

 private:
  bool runs_on_cpu() const { return setup_.device.kind == Device::Kind::cpu; }

  std::int64_t weight_bytes() const {
    const auto stored = checkpoint_.weights.embedding.values.dtype();
    return device_weight_bytes(checkpoint_.config, runs_on_cpu() ? stored : setup_.dtype);
  }

  BenchResult measure_batch(const BenchBatch& size) {
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
    BenchResult result;
    result.batch = size;
    result.seconds = seconds[(seconds.size() - 1) / 2];
    result.best_seconds = seconds.front();
    result.rows = batch.rows();
    BenchTimer timer(*backend_, batch, observer, result);
    forward(*backend_, batch, observer, {}, &timer);
    for (const auto& part : result.parts) result.flop += part.flop;
    result.activation_bytes = activation_bytes(batch.rows());
    return result;
  }

  std::int64_t activation_bytes(std::int64_t rows) const {
    if (runs_on_cpu()) return qkscope::activation_bytes(checkpoint_.config, rows, setup_);
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
    return BenchmarkSession(folder, model, options).make_report();
  });
}

}  // namespace qkscope
