#include "qkscope/experimental/bench.h"

#include <algorithm>
#include <random>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/translate_exceptions.h"
#include "engine/api/model_state.h"
#include "engine/api/timed_backend.h"
#include "engine/device/device.h"
#include "engine/device/memory_plan.h"
#include "engine/forward/forward.h"
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

// Reads rotated q and k of every layer as a capture does: the last of every 256 positions.
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

// Returns the median; the lower one of two middle values.
double median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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

void check(const BenchOptions& options) {
  for (const auto& [documents, tokens] : options.batches)
    if (documents < 1 || tokens < 1)
      bad_input("a batch of {} documents of {} tokens: expected at least one of each", documents,
                tokens);
  if (options.repeats < 1) bad_input("repeats: found {}, expected at least 1", options.repeats);
  if (!(options.ceiling_seconds > 0.0))
    bad_input("seconds of matrix products: found {}, expected more than 0",
              options.ceiling_seconds);
}

// A checkpoint on its device; records the free device memory before loading.
class Bench {
 public:
  Bench(const std::string& folder, const ModelOptions& model, const BenchOptions& options)
      : options_(options),
        checkpoint_(load_checkpoint(folder, model)),
        setup_(make_backend_options(checkpoint_, model)),
        free_(free_memory(setup_.device)) {
    if (options_.batches.empty())
      options_.batches = default_batches(setup_.device, checkpoint_.config);
    setup_.longest_batch = 0;
    for (const auto& [documents, tokens] : options_.batches)
      setup_.longest_batch = std::max(setup_.longest_batch, documents * tokens);
    backend_ = make_backend(checkpoint_, setup_);
  }

  BenchReport report() {
    BenchReport report{.device = device_name(setup_.device),
                       .hardware = backend_->hardware(),
                       .dtype = setup_.dtype,
                       .ceiling = backend_->product_rate(options_.ceiling_seconds),
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
    TimedBackend timed(*backend_);
    forward(timed, batch, observer);
    BenchResult result{.batch = size,
                       .seconds = median(seconds),
                       .best_seconds = std::ranges::min(seconds),
                       .rows = batch.rows(),
                       .activation_bytes = activation_bytes(batch.rows()),
                       .attention = timed.kernels(),
                       .parts = timed.parts()};
    for (const auto& part : result.parts) result.flop += part.flop;
    return result;
  }

  std::int64_t activation_bytes(std::int64_t rows) const {
    if (on_cpu()) return qkscope::activation_bytes(checkpoint_.config, rows, setup_);
    return std::max<std::int64_t>(0, free_ - free_memory(setup_.device) - weight_bytes());
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
    check(options);
    const FetchOptions fetch{.quiet = model.quiet};
    const auto folder = fetch_checkpoint(fetch_input(folder_or_id, fetch), model.revision, fetch);
    return Bench(folder, model, options).report();
  });
}

}  // namespace qkscope
