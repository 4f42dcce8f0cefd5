// Exports for kvpress: query statistics of ExpectedAttentionStatsPress and filters of QFilterPress.
#include <algorithm>

#include "base/core/error.h"
#include "base/numerics/matrix.h"
#include "capture/exports/export_input.h"
#include "qkscope/model.h"

namespace qkscope {
namespace {

// Returns a tensor of zeros. Cross-attention layers have no statistics, so their rows stay zero.
Tensor make_zero_tensor(const Shape& shape) {
  Tensor tensor(shape);
  std::fill_n(tensor.data<float>(), tensor.size(), 0.0f);
  return tensor;
}

// Returns the first eigenvector of a head's uncentred second moment; its sign follows the mean.
std::vector<double> principal_direction(const HeadMoments& moments, std::int64_t head) {
  Matrix second = scatter_matrix(moments, head);
  const std::span<const double> mean(moments.mean.data() + head * moments.dim,
                                     as_index(moments.dim));
  const auto n = static_cast<double>(moments.n());
  for (std::int64_t i = 0; i < moments.dim; ++i)
    for (std::int64_t j = 0; j < moments.dim; ++j)
      second(i, j) = second(i, j) / n + mean[as_index(i)] * mean[as_index(j)];
  const Eigenpairs eigen = symmetric_eigenpairs(second);
  std::vector<double> direction(eigen.vectors.row(0), eigen.vectors.row(0) + moments.dim);
  if (dot(direction, mean) < 0)
    for (double& x : direction) x = -x;
  return direction;
}

}  // namespace

std::string export_expected_attention(const ExportInput& input) {
  input.check_no_interleaved_rope();
  input.check_no_partial_rotary();
  const auto dim = input.head_dim();
  Tensor mean = make_zero_tensor({input.layer_count(), input.head_count(), dim});
  Tensor covariance = make_zero_tensor({input.layer_count(), input.head_count(), dim, dim});
  for (const auto layer : input.statistics().layers) {
    const auto moments = input.moments(VectorKind::query, VectorStage::pre, layer, "body");
    float* const means = mean.data<float>() + layer * input.head_count() * dim;
    std::ranges::transform(moments.mean, means, [](double x) { return static_cast<float>(x); });
    float* out = covariance.data<float>() + layer * input.head_count() * dim * dim;
    for (std::int64_t head = 0; head < input.head_count(); ++head)
      for (const double x : scatter_matrix(moments, head).data)
        *out++ = static_cast<float>(x / static_cast<double>(moments.n() - 1));
  }
  const auto& folder = input.options().out;
  const auto& lengths = input.statistics().lengths;
  make_output_folder(input.options(), folder);
  write_json_file(folder + "/config.json", {{"num_layers", input.layer_count()},
                                            {"num_heads", input.head_count()},
                                            {"head_dim", dim},
                                            {"n_sink", input.statistics().settings.first},
                                            {"num_samples", lengths.size()},
                                            {"sample_seq_len", *std::ranges::max_element(lengths)},
                                            {"dataset_name", input.metadata_text("dataset")},
                                            {"model_name", input.model_name()}});
  const NamedTensor tensors[] = {{"query_mean", mean}, {"query_cov", covariance}};
  write_safetensors(folder + "/model.safetensors", tensors);
  return folder;
}

std::string export_q_filters(const ExportInput& input) {
  const auto dim = input.head_dim();
  const auto group = input.query_heads_per_key_head();
  Tensor filters = make_zero_tensor({input.layer_count(), input.key_head_count(), dim});
  for (const auto layer : input.statistics().layers) {
    const auto moments = input.moments(VectorKind::query, VectorStage::post, layer, "all");
    for (std::int64_t key = 0; key < input.key_head_count(); ++key) {
      std::vector<double> mean(as_index(dim));
      for (std::int64_t head = key * group; head < (key + 1) * group; ++head)
        add_scaled(-1.0 / static_cast<double>(group), principal_direction(moments, head), mean);
      float* const out = filters.data<float>() + (layer * input.key_head_count() + key) * dim;
      std::ranges::transform(mean, out, [](double x) { return static_cast<float>(x); });
    }
  }
  auto folder = input.options().out;
  if (const auto& name = input.options().kvpress_name; !name.empty()) {
    if (name.find_first_of("/\\") != std::string::npos || name.front() == '.')
      reject("--kvpress-name {}: expected the model's name without an organisation", name);
    folder += "/nthngdy/" + name + "_qfilt";
  }
  make_output_folder(input.options(), folder);
  write_json_file(folder + "/config.json", {{"num_layers", input.layer_count()},
                                            {"num_kv_heads", input.key_head_count()},
                                            {"kv_head_dim", dim}});
  const NamedTensor tensors[] = {{"q_filters", filters}};
  write_safetensors(folder + "/model.safetensors", tensors);
  return folder;
}

}  // namespace qkscope
