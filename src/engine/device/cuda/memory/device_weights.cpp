#include "engine/device/cuda/memory/device_weights.h"

#include <algorithm>
#include <cstring>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/products/gated_product.h"
#include "engine/device/cuda/row_kernels.h"
#include "engine/ops/linear.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kChunk = std::int64_t{32} << 20;  // bytes of one pinned buffer
constexpr std::int64_t kPiece = std::int64_t{1} << 20;   // bytes copied by one thread at a time
constexpr std::int64_t kRowsPerTask = 32;                // rows widened on the host by one task

void copy_in_parallel(std::byte* to, const std::byte* from, std::int64_t bytes) {
  parallel_ranges(bytes, kPiece, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

ConstTensorView view_of(std::span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::f32,
          Shape{static_cast<std::int64_t>(values.size())}};
}

constexpr std::int64_t kAlignment = 256;
constexpr std::size_t kStreamedSlots = 2;

// Assigns consecutive parts of a layer's memory. Without memory only the total size is computed.
class Parts {
 public:
  Parts(const ModelConfig& model, const LayerConfig& config, DType dtype, void* base)
      : element_(static_cast<std::int64_t>(dtype_size(dtype))),
        base_(static_cast<std::byte*>(base)) {
    const auto q = model.n_heads * model.d_head;
    const auto kv = model.n_kv_heads * model.d_head;
    layer_.qkv = linear(q + 2 * kv, model.d_model, model.qkv_bias);
    if (model.has_sinks()) layer_.sinks = floats(model.n_heads);
    layer_.o = linear(model.d_model, q, model.output_bias);
    if (config.experts)
      take_experts(model);
    else
      take_mlp(model);
    const auto optional_norm = [&](const std::string& name) {
      return name.empty() ? DeviceNorm{} : norm(model.d_model, model.norm_bias);
    };
    layer_.input_norm = optional_norm(model.names.input_norm);
    layer_.mlp_norm = optional_norm(model.names.mlp_norm);
    layer_.post_attention_norm = optional_norm(model.names.post_attention_norm);
    layer_.post_mlp_norm = optional_norm(model.names.post_mlp_norm);
    if (!model.qk_norm) return;
    layer_.q_norm = norm(model.qk_norm_whole ? q : model.d_head, false);
    layer_.k_norm = norm(model.qk_norm_whole ? kv : model.d_head, false);
  }

  const DeviceLayer& layer() const { return layer_; }
  std::int64_t bytes() const { return used_; }

 private:
  void take_mlp(const ModelConfig& model) {
    const auto wide = (model.gated_mlp() ? 2 : 1) * model.d_mlp;
    layer_.gate_up = linear(wide, model.d_model, model.mlp_bias);
    layer_.down = linear(model.d_model, model.d_mlp, model.mlp_bias);
  }
  void take_experts(const ModelConfig& model) {
    const auto& experts = model.experts;
    layer_.router = linear(experts.count, model.d_model, experts.router_bias);
    layer_.experts_gate_up = all_experts(experts, 2 * experts.d_mlp, model.d_model);
    layer_.experts_down = all_experts(experts, model.d_model, experts.d_mlp);
  }
  DeviceExperts all_experts(const ExpertsConfig& experts, std::int64_t out, std::int64_t in) {
    DeviceExperts parts;
    parts.weight_stride = aligned(out * in * element_);
    parts.bias_stride = aligned(out * element_);
    parts.weight = static_cast<const std::byte*>(take(experts.count * parts.weight_stride));
    if (experts.bias)
      parts.bias = static_cast<const std::byte*>(take(experts.count * parts.bias_stride));
    return parts;
  }
  static std::int64_t aligned(std::int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  void* take(std::int64_t bytes) {
    void* part = base_ + used_;
    used_ += aligned(bytes);
    return part;
  }
  DeviceLinear linear(std::int64_t out, std::int64_t in, bool bias) {
    DeviceLinear parts;
    parts.weight = take(out * in * element_);
    if (bias) parts.bias = take(out * element_);
    return parts;
  }
  const float* floats(std::int64_t n) {
    return static_cast<const float*>(take(n * static_cast<std::int64_t>(sizeof(float))));
  }
  DeviceNorm norm(std::int64_t n, bool bias) {
    DeviceNorm parts;
    parts.weight = floats(n);
    if (bias) parts.bias = floats(n);
    return parts;
  }

  std::int64_t element_;
  std::byte* base_;
  std::int64_t used_ = 0;
  DeviceLayer layer_;
};

std::vector<float> scaled(std::vector<float> values, float factor) {
  for (auto& value : values) value *= factor;
  return values;
}

// Uploads matrices stacked along their rows, and their biases times `bias_factor`.
void upload_stacked(Uploader& uploader, std::initializer_list<const Linear*> parts,
                    const DeviceLinear& to, DType dtype, float bias_factor = 1.0f) {
  const auto element = static_cast<std::int64_t>(dtype_size(dtype));
  auto* weight = static_cast<std::byte*>(const_cast<void*>(to.weight));
  auto* bias = static_cast<std::byte*>(const_cast<void*>(to.bias));
  for (const auto* part : parts) {
    if (part->weight.values.empty()) continue;  // an MLP without a gate
    uploader.matrix(part->weight, weight);
    weight += part->weight.size() * element;
    if (part->bias.empty()) continue;
    uploader.vector(scaled(part->bias, bias_factor), bias);
    bias += static_cast<std::int64_t>(part->bias.size()) * element;
  }
}

void upload_norm(Uploader& uploader, const NormWeights& from, const DeviceNorm& to) {
  if (to.weight != nullptr) uploader.floats(from.weight, const_cast<float*>(to.weight));
  if (to.bias != nullptr) uploader.floats(from.bias, const_cast<float*>(to.bias));
}

// Returns the rows that belong to one block of a block-scaled matrix.
ConstTensorView block_of(const WeightMatrix& matrix, std::int64_t block) {
  const auto& values = matrix.values;
  const auto bytes =
      block * values.stride(0) * static_cast<std::int64_t>(dtype_size(values.dtype()));
  return {values.bytes() + bytes, values.dtype(), {values.dim(1), values.dim(2)}};
}

}  // namespace

Uploader::Uploader(DType dtype, cudaStream_t stream) : dtype_(dtype), stream_(stream) {}

void Uploader::send(const Piece& piece, const std::function<void(std::byte*)>& fill,
                    const std::function<void(const void*)>& land) {
  const auto bytes = static_cast<std::size_t>(piece.count) * dtype_size(piece.from);
  auto& buffer = buffers_[next_];
  next_ = 1 - next_;
  buffer.done.wait();
  auto* host = static_cast<std::byte*>(buffer.host.reserve(kChunk, "weights on their way"));
  fill(host);
  void* landing = piece.target != nullptr
                      ? piece.target
                      : buffer.device.reserve(kChunk, "weights that are converted");
  check(cudaMemcpyAsync(landing, host, bytes, cudaMemcpyHostToDevice, stream_),
        "copy weights to the GPU");
  land(landing);
  buffer.done.record(stream_);
}

void Uploader::copy(ConstTensorView source, void* destination, DType to, float scale) {
  QKSCOPE_ASSERT(source.is_contiguous());
  const bool as_it_is = source.dtype() == to && scale == 1.0f;
  const auto from_size = static_cast<std::int64_t>(dtype_size(source.dtype()));
  const auto to_size = static_cast<std::int64_t>(dtype_size(to));
  const auto chunk = kChunk / from_size;
  for (std::int64_t begin = 0; begin < source.size(); begin += chunk) {
    const auto count = std::min(chunk, source.size() - begin);
    void* target = static_cast<std::byte*>(destination) + begin * to_size;
    send(
        {source.dtype(), count, as_it_is ? target : nullptr},
        [&](std::byte* host) {
          copy_in_parallel(host, source.bytes() + begin * from_size, count * from_size);
        },
        [&](const void* arrived) {
          if (!as_it_is) convert(arrived, source.dtype(), target, to, count, scale, stream_);
        });
  }
}

// Uploads a weight stored as (in, out), perhaps within wider rows, as (out, in), a few rows at a
// time.
void Uploader::copy_transposed(const WeightMatrix& matrix, void* destination) {
  const auto& values = matrix.values;
  const auto size = static_cast<std::int64_t>(dtype_size(values.dtype()));
  const auto row_bytes = matrix.out() * size;
  if (row_bytes > kChunk)
    bad_input("a matrix of {} outputs is too wide to be transposed on its way to the GPU; use cpu",
              matrix.out());
  const auto chunk = kChunk / row_bytes;
  for (std::int64_t begin = 0; begin < matrix.in(); begin += chunk) {
    const auto count = std::min(chunk, matrix.in() - begin);
    send(
        {values.dtype(), count * matrix.out()},
        [&](std::byte* host) {
          parallel_ranges(count, 1, [&](std::int64_t first, std::int64_t end) {
            for (auto row = first; row < end; ++row)
              std::memcpy(host + row * row_bytes,
                          values.bytes() + (begin + row) * values.stride(1) * size,
                          static_cast<std::size_t>(row_bytes));
          });
        },
        [&](const void* arrived) {
          convert_transposed({.source = arrived,
                              .from = values.dtype(),
                              .rows = count,
                              .columns = matrix.out(),
                              .destination = destination,
                              .to = dtype_,
                              .begin = begin,
                              .stride = matrix.in(),
                              .scale = matrix.scale},
                             stream_);
        });
  }
}

// Widens a matrix to float32 on the host and uploads it: MXFP4, and rows or columns interleaved
// with another matrix.
void Uploader::copy_widened(const WeightMatrix& matrix, void* destination) {
  const auto row_bytes = matrix.in() * static_cast<std::int64_t>(sizeof(float));
  const auto element = static_cast<std::int64_t>(dtype_size(dtype_));
  if (row_bytes > kChunk)
    bad_input("a matrix of {} inputs is too wide to be widened on its way to the GPU; use cpu",
              matrix.in());
  const auto chunk = kChunk / row_bytes;
  for (std::int64_t begin = 0; begin < matrix.out(); begin += chunk) {
    const auto rows = std::min(chunk, matrix.out() - begin);
    auto* target = static_cast<std::byte*>(destination) + begin * matrix.in() * element;
    send(
        {DType::f32, rows * matrix.in()},
        [&](std::byte* host) {
          parallel_ranges(rows, kRowsPerTask, [&](std::int64_t first, std::int64_t end) {
            widen_rows(
                matrix,
                {.first = begin + first, .rows = end - first, .begin = 0, .depth = matrix.in()},
                reinterpret_cast<float*>(host) + first * matrix.in());
          });
        },
        [&](const void* arrived) {
          convert(arrived, DType::f32, target, dtype_, rows * matrix.in(), 1.0f, stream_);
        });
  }
}

void Uploader::matrix(const WeightMatrix& matrix, void* destination) {
  const bool in_turn = matrix.values.rank() == 2 && !matrix.values.is_contiguous() &&
                       !(matrix.transposed() && matrix.values.stride(0) == 1);
  if (matrix.is_mxfp4() || in_turn) return copy_widened(matrix, destination);
  if (matrix.transposed()) return copy_transposed(matrix, destination);
  if (!matrix.in_blocks()) return copy(matrix.values, destination, dtype_, matrix.scale);
  auto* to = static_cast<std::byte*>(destination);
  for (std::int64_t i = 0; i < matrix.values.dim(0); ++i) {
    const auto block = block_of(matrix, i);
    copy(block, to, dtype_, matrix.scale);
    to += block.size() * static_cast<std::int64_t>(dtype_size(dtype_));
  }
}

void Uploader::vector(std::span<const float> values, void* destination) {
  copy(view_of(values), destination, dtype_, 1.0f);
}

void Uploader::floats(std::span<const float> values, float* destination) {
  copy(view_of(values), destination, DType::f32, 1.0f);
}

void Uploader::wait() {
  for (const auto& buffer : buffers_) buffer.done.wait();
}

DeviceWeights::DeviceWeights(const LoadedCheckpoint& model, const WeightOptions& options)
    : model_(model),
      options_(options),
      uploader_(options.dtype, copies_),
      slots_(options.streamed ? kStreamedSlots : static_cast<std::size_t>(model.config.n_layers)) {
  const auto element = static_cast<std::int64_t>(dtype_size(options.dtype));
  const auto& weights = model.weights;
  uploader_.matrix(weights.embedding,
                   embedding_.reserve(weights.embedding.values.size() * element, "embeddings"));
  if (model.config.learned_positions())
    uploader_.matrix(weights.positions,
                     positions_.reserve(weights.positions.values.size() * element, "positions"));
  const auto d_model = model.config.d_model;
  const auto* norms = static_cast<const float*>(
      final_norm_values_.reserve(2 * d_model * static_cast<std::int64_t>(sizeof(float)), "norms"));
  final_norm_ = {norms, weights.final_norm.bias.empty() ? nullptr : norms + d_model};
  upload_norm(uploader_, weights.final_norm, final_norm_);
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (streamed() || !model.config.layers[i].cross_attention)
      slots_[i].memory.reserve(streamed() ? largest_layer_bytes() : layer_bytes(i), "weights");
  uploader_.wait();
  next_ = after(-1);
  thread_ = std::thread([this] { streamed() ? stream_layers() : upload_layers(); });
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
  const auto& config = model_.config;
  return Parts(config, config.layers[layer], options_.dtype, nullptr).bytes();
}

std::int64_t DeviceWeights::largest_layer_bytes() const {
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < model_.config.layers.size(); ++i)
    largest = std::max(largest, layer_bytes(i));
  return largest;
}

void DeviceWeights::upload(std::int64_t layer, Slot& slot) {
  const auto index = static_cast<std::size_t>(layer);
  const auto& from = model_.weights.layers[index];
  auto& to = slot.layer;
  to = Parts(model_.config, model_.config.layers[index], options_.dtype,
             slot.memory.reserve(layer_bytes(index), "weights"))
           .layer();
  upload_stacked(uploader_, {&from.q, &from.k, &from.v}, to.qkv, options_.dtype);
  if (!from.sinks.empty()) uploader_.floats(from.sinks, const_cast<float*>(to.sinks));
  // residual_scale multiplies the products (alpha of the GEMM), so biases are uploaded already
  // scaled.
  const auto factor = static_cast<float>(model_.config.residual_scale);
  upload_stacked(uploader_, {&from.o}, to.o, options_.dtype, factor);
  if (from.experts.empty())
    upload_mlp(from, to);
  else
    upload_experts(from, to);
  upload_norm(uploader_, from.input_norm, to.input_norm);
  upload_norm(uploader_, from.q_norm, to.q_norm);
  upload_norm(uploader_, from.k_norm, to.k_norm);
  upload_norm(uploader_, from.post_attention_norm, to.post_attention_norm);
  upload_norm(uploader_, from.mlp_norm, to.mlp_norm);
  upload_norm(uploader_, from.post_mlp_norm, to.post_mlp_norm);
  slot.arrived.record(copies_);
}

void DeviceWeights::upload_mlp(const LayerWeights& from, const DeviceLayer& to) {
  upload_gate_up(from, to.gate_up);
  upload_stacked(uploader_, {&from.down}, to.down, options_.dtype,
                 static_cast<float>(model_.config.residual_scale));
}

// residual_scale of experts is applied when their outputs are combined, biases included.
void DeviceWeights::upload_experts(const LayerWeights& from, const DeviceLayer& to) {
  upload_stacked(uploader_, {&from.router}, to.router, options_.dtype);
  for (std::size_t i = 0; i < from.experts.size(); ++i) {
    const auto& expert = from.experts[i];
    const auto number = static_cast<std::int64_t>(i);
    upload_stacked(uploader_, {&expert.gate, &expert.up}, to.experts_gate_up.of(number),
                   options_.dtype);
    upload_stacked(uploader_, {&expert.down}, to.experts_down.of(number), options_.dtype);
  }
}

void DeviceWeights::upload_gate_up(const LayerWeights& from, const DeviceLinear& to) {
  if (!options_.interleaves_gate_up)
    return upload_stacked(uploader_, {&from.gate, &from.up}, to, options_.dtype);
  const auto& model = model_.config;
  const auto bytes =
      2 * model.d_mlp * model.d_model * static_cast<std::int64_t>(dtype_size(options_.dtype));
  const DeviceLinear plain{.weight = plain_gate_up_.reserve(bytes, "weights of the MLP")};
  upload_stacked(uploader_, {&from.gate, &from.up}, plain, options_.dtype);
  interleave_gate_up(plain.weight, const_cast<void*>(to.weight), model.d_mlp, model.d_model,
                     copies_);
}

DeviceLinear DeviceWeights::head() {
  const auto& from = model_.weights.head;
  if (from.weight.values.bytes() == model_.weights.embedding.values.bytes())
    return {embedding(), nullptr};
  if (head_.data() == nullptr) {
    const auto element = static_cast<std::int64_t>(dtype_size(options_.dtype));
    // The streaming thread owns uploader_, so this upload needs one of its own.
    Uploader uploader(options_.dtype, copies_);
    uploader.matrix(from.weight,
                    head_.reserve(from.weight.values.size() * element, "the output embedding"));
    if (!from.bias.empty())
      uploader.vector(scaled(from.bias, static_cast<float>(model_.config.logit_scale)),
                      head_bias_.reserve(static_cast<std::int64_t>(from.bias.size()) * element,
                                         "the output embedding"));
    uploader.wait();
  }
  return {head_.data(), head_bias_.data()};
}

std::int64_t DeviceWeights::after(std::int64_t layer) const {
  const auto count = model_.config.n_layers;
  do layer = (layer + 1) % count;
  while (model_.config.layers[static_cast<std::size_t>(layer)].cross_attention);
  return layer;
}

const DeviceLayer& DeviceWeights::layer(std::int64_t layer, cudaStream_t stream) {
  if (!streamed()) {
    const auto& slot = wait_for(layer);
    slot.arrived.make_stream_wait(stream);
    return slot.layer;
  }
  std::unique_lock lock(mutex_);
  const auto holder = [&]() -> Slot* {
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

const DeviceWeights::Slot& DeviceWeights::wait_for(std::int64_t layer) {
  const auto& slot = slots_[static_cast<std::size_t>(layer)];
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || slot.holds == layer; });
  if (slot.holds != layer) std::rethrow_exception(failed_);
  return slot;
}

void DeviceWeights::wait() {
  if (streamed()) return;
  for (std::int64_t layer = 0; layer < model_.config.n_layers; ++layer)
    if (!model_.config.layers[static_cast<std::size_t>(layer)].cross_attention)
      wait_for(layer).arrived.wait();
}

// Uploads every layer into its own slot, in the order in which a pass needs them.
void DeviceWeights::upload_layers() {
  try {
    check(cudaSetDevice(options_.device), "use the GPU");
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (model_.config.layers[i].cross_attention) continue;
      upload(static_cast<std::int64_t>(i), slots_[i]);
      const std::lock_guard lock(mutex_);
      slots_[i].holds = static_cast<std::int64_t>(i);
      changed_.notify_all();
      if (stopping_) break;
    }
    check(cudaStreamSynchronize(copies_), "wait for the weights");
    plain_gate_up_ = {};
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failed_ = std::current_exception();
    changed_.notify_all();
  }
}

// Fills free slots with the next layers. A layer counts as resident once its copies are enqueued.
void DeviceWeights::stream_layers() {
  try {
    check(cudaSetDevice(options_.device), "use the GPU");
    std::unique_lock lock(mutex_);
    while (true) {
      Slot* free = nullptr;
      changed_.wait(lock, [&] {
        for (auto& slot : slots_)
          if (slot.holds < 0) free = &slot;
        return stopping_ || free != nullptr;
      });
      if (stopping_) return;
      const auto layer = next_;
      lock.unlock();
      free->left.make_stream_wait(copies_);
      upload(layer, *free);
      lock.lock();
      if (next_ == layer) {  // false if restarted from another layer meanwhile
        free->holds = layer;
        next_ = after(layer);
      }
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failed_ = std::current_exception();
    changed_.notify_all();
  }
}

}  // namespace qkscope::cuda
