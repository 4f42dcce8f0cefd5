#include "engine/device/cuda/memory/device_weights.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::size_t kStreamedSlots = 2;

std::vector<float> scale_values(std::vector<float> values, float factor) {
  for (auto& value : values) value *= factor;
  return values;
}

// Lays out the weights of a layer consecutively in GPU memory, starting at `base`, and uploads
// them. Without an uploader, only the total size is computed.
class WeightPlacer {
 public:
  WeightPlacer(DType dtype, void* base, WeightUploader* uploader)
      : dtype_(dtype),
        element_(element_bytes(dtype)),
        base_(static_cast<std::byte*>(base)),
        uploader_(uploader) {}

  // Matrices that `options` interleaves are first uploaded to the buffer `plain`; an expert's
  // `down` is interleaved like gate and up. GEMMs that write to the residual have residual_scale as
  // alpha, which does not scale biases: these are scaled here; for experts, in combine_experts().
  DeviceLayer place_layer(const LayerWeights& from, float residual_scale,
                          const DeviceWeightOptions& options, DeviceMemory& plain) {
    auto* const plain_gate_up = options.interleaves_gate_up ? &plain : nullptr;
    auto* const plain_expert = options.interleaves_experts ? &plain : nullptr;
    DeviceLayer to;
    const Linear none;
    const bool v_is_k = from.v.weight.values.bytes() == from.k.weight.values.bytes();
    if (from.latent.kv.weight.values.empty())
      to.qkv = place_linear({&from.q, &from.k, v_is_k ? &none : &from.v});
    else
      place_latent_attention(from, to);
    to.sinks = place_vector(from.sinks);
    to.attention_gate = place_linear({&from.attention_gate});
    to.o = place_linear({&from.o}, residual_scale);
    to.gate_up = place_linear({&from.gate, &from.up}, 1.0f, plain_gate_up);
    to.down = place_linear({&from.down}, residual_scale);
    to.mixer = place_mixer(from.mixer, residual_scale);
    to.shared_gate = place_linear({&from.shared_gate});
    to.router = place_linear({&from.router});
    to.selection_bias = place_vector(from.selection_bias);
    for (const auto& expert : from.experts) {
      to.experts_gate_up.push_back(place_linear({&expert.gate, &expert.up}, 1.0f, plain_expert));
      to.experts_down.push_back(place_linear({&expert.down}, 1.0f, plain_expert));
    }
    to.input_norm = place_norm(from.input_norm);
    to.q_norm = place_norm(from.q_norm);
    to.k_norm = place_norm(from.k_norm);
    to.v_norm = place_norm(from.v_norm);
    to.post_attention_norm = place_norm(from.post_attention_norm);
    to.mlp_norm = place_norm(from.mlp_norm);
    to.post_mlp_norm = place_norm(from.post_mlp_norm);
    to.per_layer_gate = place_linear({&from.per_layer_gate});
    to.per_layer_output = place_linear({&from.per_layer_output}, residual_scale);
    to.post_per_layer_norm = place_norm(from.post_per_layer_norm);
    return to;
  }

  DeviceNonLayerWeights place_non_layer_weights(const ModelWeights& from) {
    const Linear embedding{from.embedding, {}};
    const Linear positions{from.positions, {}};
    const Linear per_layer{from.per_layer_embedding, {}};
    return {.embedding = place_linear({&embedding}),
            .positions = place_linear({&positions}),
            .final_norm = place_norm(from.final_norm),
            .per_layer_embedding = place_linear({&per_layer}),
            .per_layer_projection = place_linear({&from.per_layer_projection}),
            .per_layer_norm = place_norm(from.per_layer_norm)};
  }

  // Stacks matrices along their rows. Biases are multiplied by `bias_factor`.
  DeviceLinear place_linear(std::initializer_list<const Linear*> parts, float bias_factor = 1.0f,
                            DeviceMemory* plain = nullptr) {
    DeviceLinear to;
    std::int64_t biases = 0;
    for (const auto* part : parts) {
      if (part->weight.values.empty()) continue;  // as in an MLP without a gate
      to.out += part->weight.out();
      to.in = part->weight.in();
      biases += std::ssize(part->bias);
    }
    const auto bytes = to.out * to.in * element_;
    auto* const placed = allocate(bytes);
    auto* bias = biases > 0 ? allocate(biases * element_) : nullptr;
    to.weight = placed;
    to.bias = bias;
    if (uploader_ == nullptr || to.out == 0) return to;
    auto* weight = plain == nullptr
                       ? placed
                       : static_cast<std::byte*>(plain->reserve(bytes, "weights of the MLP"));
    for (const auto* part : parts) {
      if (part->weight.values.empty()) continue;
      uploader_->upload_matrix(part->weight, weight);
      weight += part->weight.size() * element_;
      if (part->bias.empty()) continue;
      uploader_->upload_vector(scale_values(part->bias, bias_factor), bias, dtype_);
      bias += std::ssize(part->bias) * element_;
    }
    if (plain != nullptr)
      interleave_gate_up(plain->data(), placed, to.out / 2, to.in, uploader_->stream());
    return to;
  }

  std::int64_t bytes() const { return used_; }

 private:
  void place_latent_attention(const LayerWeights& from, DeviceLayer& to) {
    to.qkv = place_linear({&from.q});
    to.latent = {.kv = place_linear({&from.latent.kv}),
                 .rotated_key = place_linear({&from.latent.rotated_key}),
                 .q = place_linear({&from.latent.q}),
                 .k = place_linear({&from.k}),
                 .v = place_linear({&from.v}),
                 .kv_norm = place_norm(from.latent.kv_norm),
                 .q_norm = place_norm(from.latent.q_norm)};
  }

  std::byte* allocate(std::int64_t bytes) {
    auto* part = base_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return part;
  }

  DeviceMixer place_mixer(const MixerWeights& from, float residual_scale) {
    const bool in_ranks = !from.z_latent.weight.values.empty();
    const Linear none;
    const auto* const z = in_ranks ? &none : &from.z;
    const auto* const a = in_ranks ? &none : &from.a;
    return {.projection = place_linear({&from.q, &from.k, &from.v, z, &from.b, a}),
            .z_latent = place_linear({&from.z_latent}),
            .z = place_linear({in_ranks ? &from.z : &none}),
            .a_latent = place_linear({&from.a_latent}),
            .a = place_linear({in_ranks ? &from.a : &none}),
            .vectors = {.convolution = place_vector(from.convolution),
                        .convolution_bias = place_vector(from.convolution_bias),
                        .a_log = place_vector(from.a_log),
                        .dt_bias = place_vector(from.dt_bias),
                        .skip = place_vector(from.skip),
                        .norm = place_vector(from.norm)},
            .output = place_linear({&from.output}, residual_scale)};
  }

  const float* place_vector(const std::vector<float>& from) {
    if (from.empty()) return nullptr;
    auto* to = allocate(std::ssize(from) * kFloatBytes);
    if (uploader_ != nullptr) uploader_->upload_vector(from, to, DType::f32);
    return reinterpret_cast<const float*>(to);
  }

  DeviceNorm place_norm(const NormWeights& from) {
    const auto* weight = place_vector(from.weight);
    return {weight, place_vector(from.bias)};
  }

  DType dtype_;
  std::int64_t element_;  // bytes
  std::byte* base_;
  WeightUploader* uploader_;
  std::int64_t used_ = 0;
};

// Calls place(placement) twice: to compute the size of weights, and to upload them to `memory`.
template <typename Place>
auto allocate_and_upload(DType dtype, DeviceMemory& memory, const char* what,
                         WeightUploader& uploader, Place place) {
  WeightPlacer sizes(dtype, nullptr, nullptr);
  place(sizes);
  WeightPlacer placement(dtype, memory.reserve(sizes.bytes(), what), &uploader);
  return place(placement);
}

}  // namespace

DeviceWeights::DeviceWeights(const LoadedCheckpoint& model, const DeviceWeightOptions& options)
    : model_(model),
      options_(options),
      uploader_(options.dtype, copies_),
      slots_(options.streamed ? kStreamedSlots : as_index(model.config.n_layers)) {
  non_layer_ = allocate_and_upload(
      options.dtype, non_layer_memory_, "embeddings", uploader_,
      [&](WeightPlacer& to) { return to.place_non_layer_weights(model.weights); });
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (is_streamed() || !model.config.layers[i].cross_attention)
      slots_[i].memory.reserve(is_streamed() ? largest_layer_bytes() : layer_bytes(i), "weights");
  uploader_.wait_for_uploads();
  next_ = next_layer(-1);
  thread_ = std::thread([this] { run_uploads(); });
}

DeviceWeights::~DeviceWeights() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::int64_t DeviceWeights::layer_bytes(std::size_t layer) const {
  WeightPlacer placement(options_.dtype, nullptr, nullptr);
  DeviceMemory unused;
  placement.place_layer(model_.weights.layers[layer], 1.0f, {}, unused);
  return placement.bytes();
}

std::int64_t DeviceWeights::largest_layer_bytes() const {
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < model_.weights.layers.size(); ++i)
    largest = std::max(largest, layer_bytes(i));
  return largest;
}

void DeviceWeights::upload_layer(std::int64_t layer, LayerSlot& slot) {
  const auto index = as_index(layer);
  WeightPlacer placement(options_.dtype, slot.memory.reserve(layer_bytes(index), "weights"),
                         &uploader_);
  slot.layer =
      placement.place_layer(model_.weights.layers[index],
                            static_cast<float>(model_.config.residual_scale), options_, plain_);
  slot.arrived.record(copies_);
}

DeviceLinear DeviceWeights::output_head() {
  const auto& from = model_.weights.head;
  const auto& config = model_.config;
  if (from.weight.values.bytes() == model_.weights.embedding.values.bytes())
    return {.weight = non_layer_.embedding.weight, .out = config.vocab_size, .in = config.d_model};
  if (head_memory_.data() == nullptr) {
    // uploader_ belongs to the upload thread, so this upload needs a separate uploader.
    WeightUploader uploader(options_.dtype, copies_);
    head_ = allocate_and_upload(
        options_.dtype, head_memory_, "the output embedding", uploader, [&](WeightPlacer& to) {
          return to.place_linear({&from}, static_cast<float>(config.logit_scale));
        });
    uploader.wait_for_uploads();
  }
  return head_;
}

std::int64_t DeviceWeights::next_layer(std::int64_t layer) const {
  const auto count = model_.config.n_layers;
  do layer = (layer + 1) % count;
  while (model_.config.layers[as_index(layer)].cross_attention);
  return layer;
}

const DeviceLayer& DeviceWeights::acquire_layer(std::int64_t layer, cudaStream_t stream) {
  if (!is_streamed()) {
    const auto& slot = wait_for_layer(layer);
    slot.arrived.make_stream_wait(stream);
    return slot.layer;
  }
  std::unique_lock lock(mutex_);
  const auto holder = [&]() -> LayerSlot* {
    for (auto& slot : slots_)
      if (slot.holds == layer) return &slot;
    return nullptr;
  };
  for (auto& slot : slots_) {
    if (!slot.in_use || slot.holds == layer) continue;
    slot.left.record(stream);
    slot.in_use = false;
    slot.holds = -1;
  }
  if (holder() == nullptr && next_ != layer) {  // an earlier pass ended early: restart
    for (auto& slot : slots_) slot.holds = -1;
    next_ = layer;
  }
  changed_.notify_all();
  changed_.wait(lock, [&] { return failed_ || holder() != nullptr; });
  if (failed_) std::rethrow_exception(failed_);
  auto& slot = *holder();
  slot.in_use = true;
  slot.arrived.make_stream_wait(stream);
  return slot.layer;
}

const DeviceWeights::LayerSlot& DeviceWeights::wait_for_layer(std::int64_t layer) {
  const auto& slot = slots_[as_index(layer)];
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || slot.holds == layer; });
  if (slot.holds != layer) std::rethrow_exception(failed_);
  return slot;
}

void DeviceWeights::wait_for_uploads() {
  if (is_streamed()) return;
  for (std::int64_t layer = 0; layer < model_.config.n_layers; ++layer)
    if (!model_.config.layers[as_index(layer)].cross_attention)
      wait_for_layer(layer).arrived.wait();
}

void DeviceWeights::run_uploads() {
  try {
    check(cudaSetDevice(options_.device), "use the GPU");
    is_streamed() ? stream_layers() : upload_layers();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failed_ = std::current_exception();
    changed_.notify_all();
  }
}

// Uploads every layer into its own slot, in the order in which a pass uses the layers.
void DeviceWeights::upload_layers() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (model_.config.layers[i].cross_attention) continue;
    upload_layer(static_cast<std::int64_t>(i), slots_[i]);
    const std::lock_guard lock(mutex_);
    slots_[i].holds = static_cast<std::int64_t>(i);
    changed_.notify_all();
    if (stopping_) break;
  }
  check(cudaStreamSynchronize(copies_), "wait for the weights");
  plain_ = {};
}

// Fills free slots with the next layers. A layer counts as resident once its copies are enqueued.
void DeviceWeights::stream_layers() {
  std::unique_lock lock(mutex_);
  while (true) {
    LayerSlot* free = nullptr;
    changed_.wait(lock, [&] {
      for (auto& slot : slots_)
        if (slot.holds < 0) free = &slot;
      return stopping_ || free != nullptr;
    });
    if (stopping_) return;
    const auto layer = next_;
    lock.unlock();
    free->left.make_stream_wait(copies_);
    upload_layer(layer, *free);
    lock.lock();
    if (next_ == layer) {  // false if restarted from another layer meanwhile
      free->holds = layer;
      next_ = next_layer(layer);
    }
    changed_.notify_all();
  }
}

}  // namespace qkscope::cuda
