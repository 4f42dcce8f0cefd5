#include "engine/device/memory_plan.h"

#include <map>
#include <string>

#include <unistd.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/ops/linear.h"
#include "engine/ops/mixer.h"

namespace qkscope {
namespace {

// Bytes of the cuBLAS workspace and of the buffers that stage activations for observers.
constexpr std::int64_t kCudaWorkspace = std::int64_t{192} << 20;
// GPU memory to keep free: this many bytes or this fraction (1 / 32), whichever is larger.
constexpr std::int64_t kLeastReserve = std::int64_t{256} << 20;
constexpr std::int64_t kReservedShare = 32;
constexpr std::int64_t kStatisticsValues = std::int64_t{120} << 20;  // 96 MiB plus 25 %
constexpr std::int64_t kStatisticsBins = std::int64_t{64} << 20;
constexpr std::int64_t kStatisticsResults = std::int64_t{64} << 20;
constexpr std::int64_t kDefaultBatch = 4096;  // rows assumed if the longest batch is unknown

std::int64_t rotary_table_width(const ModelConfig& model) {
  std::int64_t per_row = 0;
  for (const auto& rope : model.ropes) per_row += rope.dim;
  return per_row;
}

// Number of floats in the CPU buffers of experts: router outputs, gate and up of a chunk, scratch.
std::int64_t expert_buffer_floats(const ModelConfig& model, std::int64_t rows) {
  const auto& experts = model.experts;
  if (experts.count == 0) return 0;
  const auto slots = std::min(rows, cpu_expert_chunk_rows(model)) * experts.per_token;
  const auto at_a_time = std::min<std::int64_t>(slots, kMostExpertRows);
  const auto shared =
      experts.shared_d_mlp > 0 ? 2 * experts.shared_d_mlp + model.d_model : std::int64_t{0};
  return rows * (experts.count + 2 * experts.per_token) + 2 * slots * experts.d_mlp +
         at_a_time * (2 * model.d_model + 3 * experts.d_mlp) + std::min(rows, kCpuMlpRows) * shared;
}

std::int64_t element_size(DType dtype) {
  return static_cast<std::int64_t>(dtype_size(dtype));
}

// Bytes of CUDA buffers for experts: router outputs; input, gate, up and gated rows of a chunk.
std::int64_t expert_bytes_on_cuda(const ModelConfig& model, std::int64_t rows, DType dtype) {
  const auto& experts = model.experts;
  if (experts.count == 0) return 0;
  const auto element = element_size(dtype);
  const auto slots = std::min(rows, cuda_expert_chunk_rows(model)) * experts.per_token;
  // reserve_with_slack() allocates 25 % more than it is asked for.
  const auto roomy = ((slots + kExpertRowUnit) * (model.d_model + 3 * experts.d_mlp) +
                      std::min(rows, cuda_expert_chunk_rows(model)) * 3 * experts.shared_d_mlp) *
                         element +
                     (2 * slots + experts.count) * 4;
  return rows * (experts.count * element + 8 * experts.per_token) + roomy / 4 * 5;
}

// Returns the bytes of a recurrent mixer on CUDA: projections, convolved q, k and v, output, kept
// rows of the output, rates, decays and chunk matrices (partial chunks at most double their
// number). A short convolution has projections of k, v and z instead of convolved vectors.
std::int64_t mixer_bytes_on_cuda(const ModelConfig& model, std::int64_t rows, DType dtype) {
  const auto& mixer = model.mixer;
  const auto latent = mixer.gate_rank() > 0 ? std::max(mixer.d_key, mixer.d_value) : 0;
  const auto width = 2 * mixer.channels() + 3 * mixer.value_width() + mixer.value_heads +
                     mixer.decays() + latent + 8;
  const auto chunks = has_chunked_kernel(mixer, dtype) ? 2 * rows / kCudaRecurrenceChunk : 0;
  return rows * (width * element_size(dtype) + 4 * (mixer.value_heads + mixer.decays())) +
         chunks * mixer.value_heads * (cuda_recurrence_matrix_bytes(mixer) + kCudaChunkFactorBytes);
}

std::int64_t activation_bytes_on_cuda(const ModelConfig& model, std::int64_t rows, DType dtype) {
  std::int64_t qkv = 0;
  std::int64_t hidden = model.d_model;
  auto d_mlp = model.d_mlp;
  std::int64_t shared = 0;  // keys and values that later layers use
  for (std::int64_t i = 0; i < std::ssize(model.layers); ++i) {
    const auto& layer = model.layer(i);
    const auto d_head = model.d_head_of(layer), d_value = model.d_value_of(layer);
    const auto kv = model.n_kv_heads_of(layer) * (d_head + d_value);
    qkv = std::max(qkv, model.n_heads * d_head + kv);
    hidden = std::max(hidden, model.n_heads * std::max(d_head, d_value));
    d_mlp = std::max(d_mlp, model.d_mlp_of(layer));
    if (std::ranges::count(model.layers, i, &LayerConfig::kv_layer) > 0) shared += kv;
  }
  const auto latents = model.latent.q_rank + model.latent.kv_rank + model.latent.d_shared;
  const bool keeps_updates = !model.names.post_attention_norm.empty() ||
                             !model.names.post_mlp_norm.empty() || model.learned_positions() ||
                             model.experts.count > 0;
  const auto residuals = 1 + (keeps_updates ? 1 : 0) + (model.parallel_residual ? 1 : 0);
  const auto gates = model.has_attention_gate() ? 2 : 0;                // of all rows, of kept rows
  const auto per_layer = (model.n_layers + 2) * model.per_layer.width;  // of all, and of one layer
  const auto per_row = residuals * model.d_model + hidden + qkv + shared + latents +
                       gates * model.n_heads * model.d_head + per_layer + rotary_table_width(model);
  const auto elements =
      rows * per_row + (model.gated_mlp() ? 3 : 2) * std::min(rows, kCudaMlpRows) * d_mlp;
  const auto row_sums = model.has_sinks() ? rows * model.n_heads * 8 : 0;
  const auto row_numbers = rows * std::int64_t{6} * 4 + row_sums;
  return elements * element_size(dtype) + row_numbers + kCudaWorkspace +
         expert_bytes_on_cuda(model, rows, dtype) +
         (model.has_recurrence() ? mixer_bytes_on_cuda(model, rows, dtype) : 0);
}

std::int64_t largest_layer_elements(const ModelConfig& model) {
  std::map<std::string, std::int64_t> layers;  // by "layers.N"
  for (const auto& spec : expected_tensors(model)) {
    if (!spec.name.starts_with(model.names.layers + ".")) continue;
    const auto end = spec.name.find('.', model.names.layers.size() + 1);
    layers[spec.name.substr(0, end)] += spec.shape.count();
  }
  std::int64_t largest = 0;
  for (const auto& [name, elements] : layers) largest = std::max(largest, elements);
  return largest;
}

std::string format_non_negative_bytes(std::int64_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
}

[[noreturn]] void throw_cache_too_large(std::int64_t sequences, std::int64_t positions,
                                        std::int64_t bytes, std::int64_t room) {
  reject(
      "keys and values of {} {} of {} tokens take {}, there is room for {}; take fewer texts or "
      "fewer new tokens",
      sequences, sequences == 1 ? "text" : "texts", positions, format_non_negative_bytes(bytes),
      format_non_negative_bytes(room));
}

}  // namespace

std::int64_t cpu_expert_chunk_rows(const ModelConfig& model) {
  constexpr std::int64_t kRowsOfEach = 128;
  return std::max(kCpuMlpRows, kRowsOfEach * model.experts.count / model.experts.per_token);
}

std::int64_t cpu_activation_bytes(const ModelConfig& model, std::int64_t rows) {
  auto d_head = model.d_head;  // of the widest layer
  auto d_mlp = model.d_mlp;
  for (const auto& layer : model.layers) {
    d_head = std::max(d_head, model.d_head_of(layer));
    d_mlp = std::max(d_mlp, model.d_mlp_of(layer));
  }
  const auto d_value = model.has_latent_attention() ? model.latent.d_value : d_head;
  const auto q_width = model.n_heads * d_head;
  const auto kv_width = model.n_kv_heads * (d_head + d_value);
  const auto z_width = (model.has_attention_gate() ? 2 : 1) * model.n_heads * d_value;
  const auto latents = model.has_latent_attention()
                           ? model.latent.q_rank + model.latent.kv_rank + q_width
                           : 0;  // q_width: keys without RoPE part, before they are copied into k
  const auto heads = q_width + z_width + (model.has_equal_heads() ? 1 : 3) * kv_width + latents;
  const auto mlp_rows = std::min(rows, kCpuMlpRows);
  // Total floats of packed operands (gemm.h): largest input + keys and values + shared weights.
  const auto mlp_products = model.gated_mlp() ? 2 : 1;
  const auto widest = std::max({model.d_model, q_width, model.mixer.value_width()});
  const auto packed = std::max(rows * widest, mlp_rows * d_mlp) + rows * kv_width +
                      std::min(kMostSharedWeights, mlp_products * model.d_model * d_mlp);
  const auto residuals = (model.parallel_residual ? 4 : 3) * model.d_model;
  const auto per_layer = (model.n_layers + 2) * model.per_layer.width;  // of all, and of one layer
  // Number of floats per row of a recurrent mixer: q, k, v, gates, output, rates and decays.
  const auto& mixer = model.mixer;
  const auto mixed = mixer.channels() + 2 * mixer.value_width() + mixer.value_heads +
                     mixer.decays() + mixer.gate_rank();
  const auto floats = rows * (residuals + heads + rotary_table_width(model) + per_layer + mixed) +
                      mlp_products * mlp_rows * d_mlp + packed + expert_buffer_floats(model, rows);
  return floats * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t activation_bytes(const ModelConfig& model, std::int64_t rows,
                              const BackendOptions& options) {
  return options.device.kind == Device::Kind::cpu
             ? cpu_activation_bytes(model, rows)
             : activation_bytes_on_cuda(model, rows, options.dtype);
}

std::int64_t statistics_bytes(const ModelConfig& model, std::int64_t rows,
                              const EnabledStatistics& statistics, const BackendOptions& options) {
  const auto row_sums = statistics.attention ? rows * model.n_heads * 8 : 0;
  if (options.device.kind == Device::Kind::cpu) return row_sums;
  // Bytes of the buffers in device/cuda/statistics: sums of row segments, statistics of individual
  // queries, histogram bins and results.
  const auto d = model.d_head;
  const bool tensor_cores = options.dtype != DType::f32 && d <= 128;
  const auto products = tensor_cores ? 2 * d * (d + 16) : 4 * d * (d + 1);
  const auto segments = 256 + (rows / 1024 + 2 * statistics.buckets) * model.n_heads;
  const auto moments = statistics.moments ? segments * (products + 69 * d) : 0;
  const auto values = statistics.attention ? kStatisticsValues : 0;
  const auto bins = statistics.all_keys ? kStatisticsBins : 0;
  return moments + row_sums + values + bins + kStatisticsResults;
}

std::int64_t kv_bytes_per_token(const ModelConfig& model, DType dtype) {
  std::int64_t width = 0;
  for (const auto& layer : model.layers)
    if (layer.has_attention() && !layer.shares_kv())
      width += model.n_kv_heads_of(layer) * (model.d_head_of(layer) + model.d_value_of(layer));
  return width * element_size(dtype);
}

std::int64_t recurrent_state_bytes(const ModelConfig& model) {
  if (!model.has_recurrence()) return 0;
  return std::ranges::count_if(model.layers, &LayerConfig::has_state) *
         mixer_state_floats(model.mixer) * static_cast<std::int64_t>(sizeof(float));
}

void check_cache_fits_host(const ModelConfig& model, std::int64_t sequences,
                           std::int64_t positions) {
  const auto memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  // A pass keeps two copies of the recurrent states: those from before the pass and updated ones.
  const auto bytes = sequences * (positions * kv_bytes_per_token(model, DType::f32) +
                                  2 * recurrent_state_bytes(model));
  if (bytes > memory) throw_cache_too_large(sequences, positions, bytes, memory);
}

std::int64_t usable_memory_bytes(const BackendOptions& options) {
  const auto free = free_memory_bytes(options.device);
  const auto usable =
      std::max<std::int64_t>(0, free - std::max(kLeastReserve, free / kReservedShare));
  return options.device_memory > 0 ? std::min(options.device_memory, usable) : usable;
}

std::int64_t max_batch_tokens(const ModelConfig& model, const BackendOptions& options,
                              std::int64_t wanted, std::int64_t room) {
  std::int64_t fit = 0;
  for (std::int64_t too_many = wanted + 1; too_many - fit > 1;) {
    const auto middle = fit + (too_many - fit) / 2;
    (activation_bytes(model, middle, options) <= room ? fit : too_many) = middle;
  }
  return fit;
}

std::int64_t device_weight_bytes(const ModelConfig& model, DType dtype) {
  std::int64_t count = 0;
  for (const auto& spec : expected_tensors(model)) count += spec.shape.count();
  return count * element_size(dtype);
}

std::int64_t streamed_weight_bytes(const ModelConfig& model, DType dtype) {
  const auto positions = model.learned_positions() ? model.max_positions : 0;
  const auto& [width, tokens] = model.per_layer;
  const auto embedding = (model.embedding_rows + positions) * model.d_model +
                         model.n_layers * width * (tokens + model.d_model);
  // The widest MLP matrix needs a second buffer, which is used to interleave gate and up.
  const auto waiting = 2 * model.d_mlp * model.d_model;
  const auto running = std::ranges::count(model.layers, false, &LayerConfig::cross_attention);
  const auto layers = largest_layer_elements(model) * std::min<std::int64_t>(running, 2);
  return (embedding + waiting + layers) * element_size(dtype);
}

GpuMemoryBudget::GpuMemoryBudget(const ModelConfig& model, const BackendOptions& options)
    : model_(model), options_(options), limit_(usable_memory_bytes(options)) {
  const auto rows = options.longest_batch > 0 ? options.longest_batch : kDefaultBatch;
  const auto activations = activation_bytes(model, rows, options);
  streams_ = options.stream_weights || weight_bytes(false) + activations > limit_;
  log::debug("device memory: {} of weights{}, {} of activations at {} tokens, {} may be used",
             format_non_negative_bytes(weight_bytes(streams_)), streams_ ? " (streamed)" : "",
             format_non_negative_bytes(activations), rows, format_non_negative_bytes(limit_));
  check_rows_fit(rows);
}

std::int64_t GpuMemoryBudget::weight_bytes(bool streamed) const {
  return streamed ? streamed_weight_bytes(model_, options_.dtype)
                  : device_weight_bytes(model_, options_.dtype);
}

std::int64_t GpuMemoryBudget::reserve_cache(std::int64_t sequences, std::int64_t positions) {
  const auto states = std::ranges::count_if(model_.layers, &LayerConfig::has_state) *
                      cuda_mixer_state_bytes(model_.mixer);
  const auto bytes = sequences * (positions * kv_bytes_per_token(model_, options_.dtype) + states);
  const auto rest = weight_bytes(streams_) + activation_bytes(model_, sequences, options_);
  auto caches = caches_->load();
  do {
    if (rest + caches + bytes > limit_)
      throw_cache_too_large(sequences, positions, bytes, limit_ - rest - caches);
  } while (!caches_->compare_exchange_weak(caches, caches + bytes));
  return bytes;
}

void GpuMemoryBudget::check_rows_fit(std::int64_t rows) const {
  const auto caches = caches_->load();
  const auto weights = weight_bytes(streams_) + caches;
  const auto activations = activation_bytes(model_, rows, options_);
  if (weights + activations <= limit_) return;
  const auto longest = max_batch_tokens(model_, options_, rows, limit_ - weights);
  reject(
      "device memory: {} tokens at a time need {} for weights{}{} and {} for activations, {} may "
      "be used; {}",
      rows, format_non_negative_bytes(weights), streams_ ? " (streamed)" : "",
      caches > 0 ? " and cached keys and values" : "", format_non_negative_bytes(activations),
      format_non_negative_bytes(limit_),
      longest > 0 ? fmt::format("up to {} tokens fit: take fewer documents at a time or a smaller "
                                "tokenizer.max_length",
                                longest)
                  : std::string("not even one token fits: use a larger GPU or device cpu"));
}

}  // namespace qkscope
