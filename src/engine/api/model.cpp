#include "qkscope/model.h"

#include <algorithm>
#include <exception>
#include <type_traits>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/io/json.h"
#include "engine/api/model_state.h"
#include "engine/device/memory_plan.h"
#include "engine/forward/forward.h"
#include "engine/model/loaded_checkpoint.h"
#include "qkscope/experimental/generate.h"
#include "qkscope/experimental/store.h"
#include "qkscope/hub.h"

namespace qkscope {
namespace {

// Compute type of a checkpoint: the type of its embedding, which FP8 checkpoints do not quantise.
DType default_compute_dtype(const LoadedCheckpoint& checkpoint) {
  const auto stored = checkpoint.weights.embedding.values.dtype();
  return stored == DType::bf16 || stored == DType::f16 ? stored : DType::f32;
}

// Returns true if RoPE has the same frequencies for sequences of `length` and `other` positions.
bool same_rope_frequencies(const ModelConfig& model, std::int64_t length, std::int64_t other) {
  return std::all_of(model.ropes.begin(), model.ropes.end(), [&](const RopeConfig& rope) {
    if (rope.type != RopeType::dynamic && rope.type != RopeType::longrope) return true;
    const auto a = rope_frequencies(rope, length);
    const auto b = rope_frequencies(rope, other);
    return a.inverse == b.inverse && a.attention_factor == b.attention_factor;
  });
}

// Forwards every call to another observer and records the exception that the observer throws.
class ExceptionRecorder : public Observer {
 public:
  explicit ExceptionRecorder(Observer& observer) : observer_(observer) {}

  bool wants(HookPoint point) const override { return forward_call(&Observer::wants, point); }
  bool wants_derived() const override { return forward_call(&Observer::wants_derived); }
  void begin_layer(std::int64_t layer) override { forward_call(&Observer::begin_layer, layer); }
  Selection selection(HookPoint point) const override {
    return forward_call(&Observer::selection, point);
  }
  void observe(HookPoint point, ConstTensorView x) override {
    forward_call(&Observer::observe, point, x);
  }
  bool edits(HookPoint point) const override { return forward_call(&Observer::edits, point); }
  void edit(HookPoint point, TensorView x) override { forward_call(&Observer::edit, point, x); }
  bool keeps_on_device() const override { return forward_call(&Observer::keeps_on_device); }
  bool keep(HookPoint point, const ActivationCopy& x) override {
    return forward_call(&Observer::keep, point, x);
  }
  std::span<const std::int64_t> score_rows() const override {
    return forward_call(&Observer::score_rows);
  }

  void rethrow_if_thrown() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  template <typename Method, typename... Arguments>
  std::invoke_result_t<Method, Observer&, const Arguments&...> forward_call(
      Method method, const Arguments&... arguments) const {
    try {
      return std::invoke(method, observer_, arguments...);
    } catch (...) {
      thrown_ = std::current_exception();
      throw;
    }
  }

  Observer& observer_;
  mutable std::exception_ptr thrown_;
};

// Calls run(observer). Observer exceptions propagate unchanged; others become qkscope::Error.
template <typename Run>
void run_with_observer(Observer& observer, Run run) {
  ExceptionRecorder recorder(observer);
  try {
    run(recorder);
  } catch (...) {
    recorder.rethrow_if_thrown();
    rethrow_as_error();
  }
}

}  // namespace

LoadedCheckpoint load_checkpoint(const std::string& folder, const ModelOptions& options) {
  const Json overrides = options.config_overrides.empty()
                             ? Json()
                             : parse_json(options.config_overrides, "config_overrides");
  auto checkpoint = load_unprocessed_checkpoint(folder, overrides);
  if (options.fold_norms) fold_norms(checkpoint);
  if (options.center_writing_weights) center_writing_weights(checkpoint);
  if (options.center_unembed) center_unembed(checkpoint);
  if (options.fold_value_biases) fold_value_biases(checkpoint);
  return checkpoint;
}

BackendOptions make_backend_options(const LoadedCheckpoint& checkpoint,
                                    const ModelOptions& options) {
  BackendOptions backend{.device = choose_device(options.device), .dtype = DType::f32};
  backend.device_memory = options.device_memory;
  backend.longest_batch = options.longest_batch;
  const auto dtype = options.dtype.empty() ? default_compute_dtype(checkpoint)
                                           : parse_compute_dtype(options.dtype, "dtype");
  if (backend.device.kind == Device::Kind::cuda) backend.dtype = dtype;
  return backend;
}

Model::State::State(std::string checkpoint_folder, const ModelOptions& options)
    : folder(std::move(checkpoint_folder)),
      checkpoint(load_checkpoint(folder, options)),
      backend_options(make_backend_options(checkpoint, options)) {
  if (backend_options.device.kind == Device::Kind::cuda)
    backend = make_backend(checkpoint, backend_options);
}

void Model::State::run_exclusively(const std::function<void()>& one_pass) {
  if (runner == std::this_thread::get_id())
    reject(
        "a hook runs the model that it hangs on: on {} a model has room for one pass at a time; "
        "run it before or after, or load it twice",
        device_name(backend_options.device));
  const std::lock_guard lock(pass);
  runner = std::this_thread::get_id();
  try {
    one_pass();
  } catch (...) {
    runner = std::thread::id();
    throw;
  }
  runner = std::thread::id();
}

Model Model::load(const std::string& folder_or_id, const ModelOptions& options) {
  return translate_exceptions([&] {
    const FetchOptions fetch{.quiet = options.quiet};
    auto folder = fetch_checkpoint(fetch_input(folder_or_id, fetch), options.revision, fetch);
    return Model(std::make_unique<State>(std::move(folder), options));
  });
}

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const {
  return state_->checkpoint.config;
}
const ModelWeights& Model::weights() const {
  return state_->checkpoint.weights;
}
const std::string& Model::folder() const {
  return state_->folder;
}
Device Model::device() const {
  return state_->backend_options.device;
}
DType Model::dtype() const {
  return state_->backend_options.dtype;
}

void Model::run(const Batch& batch, Observer& observer) const {
  run(batch, observer, {});
}

void Model::run(const Batch& batch, Observer& observer, const RunOptions& options) const {
  run_with_observer(observer, [&](Observer& recorder) {
    if (state_->backend)
      state_->run_exclusively([&] { forward(*state_->backend, batch, recorder, options); });
    else
      forward(state_->checkpoint, batch, recorder, options);
  });
}

void Model::run(const Batch& batch, Observer& observer, LayerStatistics& statistics) const {
  run_with_observer(observer, [&](Observer& recorder) {
    const auto pass = [&](Backend& backend) { forward(backend, batch, recorder, statistics); };
    if (state_->backend)
      state_->run_exclusively([&] { pass(*state_->backend); });
    else
      pass(*make_backend(state_->checkpoint, state_->backend_options));
  });
}

struct KeyValueCache::State {
  Model::State& model;
  std::int64_t positions;
  std::vector<std::int64_t> lengths;     // (sequences)
  std::unique_ptr<Backend> own_backend;  // CPU only; on CUDA the backend of the model is used
  std::unique_ptr<KvCacheMemory> store;

  Backend& backend() const { return own_backend ? *own_backend : *model.backend; }
  const ModelConfig& config() const { return model.checkpoint.config; }

  std::int64_t& length(std::int64_t sequence) {
    if (sequence < 0 || sequence >= std::ssize(lengths))
      reject("cache: found sequence {}, it has {}, numbered from 0", sequence, lengths.size());
    return lengths[as_index(sequence)];
  }

  void check_batch_follows_cache(const Batch& batch) {
    std::vector<bool> seen(lengths.size());
    for (const auto& sequence : batch.sequences) {
      const auto cached = length(sequence.slot);
      if (sequence.past != cached)
        reject("cache: a batch goes on at position {} of sequence {}, of which {} are there",
               sequence.past, sequence.slot, cached);
      if (sequence.end() > positions)
        reject("cache: sequence {} would have {} tokens, there is room for {}", sequence.slot,
               sequence.end(), positions);
      if (cached > 0 && !same_rope_frequencies(config(), cached, sequence.end()))
        reject(
            "cache: between {} and {} tokens RoPE changes its frequencies; forget sequence {} and "
            "run its whole text",
            cached, sequence.end(), sequence.slot);
      if (seen[as_index(sequence.slot)])
        reject("cache: sequence {} is twice in a batch", sequence.slot);
      seen[as_index(sequence.slot)] = true;
    }
  }
};

KeyValueCache::KeyValueCache(const Model& model, std::int64_t sequences, std::int64_t positions) {
  translate_exceptions([&] {
    if (sequences < 1 || positions < 1)
      reject("cache: room for {} texts of {} tokens; expected at least one of each", sequences,
             positions);
    auto& owner = *model.state_;
    state_ = std::make_unique<State>(State{owner, positions, {}, nullptr, nullptr});
    state_->lengths.resize(as_index(sequences));
    if (!owner.backend) state_->own_backend = make_backend(owner.checkpoint);
    if (!owner.backend) check_cache_fits_host(owner.checkpoint.config, sequences, positions);
    state_->store = state_->backend().make_kv_cache(sequences, positions);
  });
}

KeyValueCache::~KeyValueCache() = default;
KeyValueCache::KeyValueCache(KeyValueCache&&) noexcept = default;
KeyValueCache& KeyValueCache::operator=(KeyValueCache&&) noexcept = default;

std::int64_t KeyValueCache::sequences() const {
  return std::ssize(state_->lengths);
}

std::int64_t KeyValueCache::positions() const {
  return state_->positions;
}

std::int64_t KeyValueCache::length(std::int64_t sequence) const {
  return translate_exceptions([&] { return state_->length(sequence); });
}

void KeyValueCache::shorten(std::int64_t sequence, std::int64_t length) {
  translate_exceptions([&] {
    auto& cached = state_->length(sequence);
    if (length < 0 || length > cached)
      reject("cache: sequence {} cannot be shortened to {} tokens, it has {}", sequence, length,
             cached);
    if (length > 0 && !same_rope_frequencies(state_->config(), length, cached)) length = 0;
    // A recurrent state cannot be rewound to an earlier position.
    if (length < cached && state_->config().has_recurrence()) length = 0;
    cached = length;
  });
}

bool KeyValueCache::can_extend(std::int64_t sequence, std::int64_t more) const {
  return translate_exceptions([&] {
    const auto cached = state_->length(sequence);
    return cached == 0 || same_rope_frequencies(state_->config(), cached, cached + more);
  });
}

void KeyValueCache::add_to(Batch& batch, std::int64_t sequence,
                           std::span<const std::int32_t> ids) const {
  translate_exceptions([&] {
    const auto past = state_->length(sequence);
    batch.add(ids);
    batch.sequences.back().past = past;
    batch.sequences.back().slot = sequence;
  });
}

void KeyValueCache::run(const Batch& batch, Observer& observer) {
  run_with_observer(observer, [&](Observer& recorder) {
    state_->check_batch_follows_cache(batch);
    const auto pass = [&] { forward(state_->backend(), batch, recorder, *state_->store); };
    if (state_->own_backend)
      pass();
    else
      state_->model.run_exclusively(pass);
    for (const auto& sequence : batch.sequences) state_->length(sequence.slot) = sequence.end();
  });
}

std::int64_t cache_bytes_per_token(const Model& model) {
  const auto dtype = model.device().kind == Device::Kind::cpu ? DType::f32 : model.dtype();
  return translate_exceptions([&] { return kv_bytes_per_token(model.config(), dtype); });
}

}  // namespace qkscope
