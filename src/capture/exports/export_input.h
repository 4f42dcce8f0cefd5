// Declares ExportInput (finished statistics of a model) and one export function per format.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/core/numbers.h"
#include "base/io/json.h"
#include "base/numerics/matrix.h"
#include "qkscope/experimental/exports.h"
#include "qkscope/model.h"
#include "qkscope/statistics.h"

namespace qkscope {

// RoPE parameters, read from the metadata of the statistics.
struct RopeParameters {
  std::string type;  // "default", "yarn", ...
  double theta = 0;
  std::int64_t dim = 0;
  std::vector<double> inv_freq;  // (dim / 2)
  double attention_scaling = 1;  // multiplies cos and sin
};

class ExportInput {
 public:
  explicit ExportInput(const ExportOptions& options);

  const ExportOptions& options() const { return options_; }
  const Statistics& statistics() const { return statistics_; }
  std::string metadata_text(const std::string& key) const;  // a metadata value; "" when missing
  std::string model_name() const;                           // a path is reduced to its last folder

  std::int64_t layer_count() const { return layers_; }  // number, with cross-attention layers
  std::int64_t head_count() const { return statistics_.heads; }
  std::int64_t key_head_count() const { return statistics_.key_heads; }
  std::int64_t query_heads_per_key_head() const { return head_count() / key_head_count(); }
  std::int64_t head_dim() const { return statistics_.dim; }
  bool has_rope(std::int64_t layer) const;

  // Returns the moments of one layer over a set of rows: "first" (leading positions of each
  // document), "body" (the others) or "all". Throws a bad-input error if the statistics lack them.
  HeadMoments moments(VectorKind kind, VectorStage stage, std::int64_t layer,
                      const std::string& set) const;

  // Throw a bad-input error for interleaved or partial RoPE, which some formats cannot represent.
  void check_no_interleaved_rope() const;
  void check_no_partial_rotary() const;
  // Returns the RoPE that all RoPE layers share. Bad input if layers differ or none has RoPE.
  RopeParameters common_rope() const;
  [[noreturn]] void reject_export(const std::string& why) const;

 private:
  const ExportOptions& options_;
  Statistics statistics_;
  std::int64_t layers_ = 0;
};

// Returns the scatter matrix of one head, shape (dim, dim): the sum of centred outer products.
Matrix scatter_matrix(const HeadMoments& moments, std::int64_t head);

// Named tensors of a safetensors file, kept in memory until the file is written.
class SafetensorsBuilder {
 public:
  Tensor& add(const std::string& name, const Shape& shape, DType dtype = DType::f32) {
    named_.push_back({name, kept_.emplace_back(shape, dtype)});
    return kept_.back();
  }
  const std::vector<NamedTensor>& named_tensors() const { return named_; }

 private:
  std::deque<Tensor> kept_;
  std::vector<NamedTensor> named_;
};

// Creates the output folder. A non-empty folder is a bad-input error unless --overwrite is given.
void make_output_folder(const ExportOptions& options, const std::string& folder);
// Creates the parent folder of an output file. An existing file requires --overwrite.
void make_folder_for_output_file(const ExportOptions& options, const std::string& file);

// Export functions, one per target format. Each returns the file or folder it wrote.
std::string export_expected_attention(const ExportInput& input);
std::string export_q_filters(const ExportInput& input);
std::string export_triattention_statistics(const ExportInput& input);
std::string export_triattention_binary_statistics(const ExportInput& input);
std::string export_fp8_kv_scales(const ExportInput& input);
std::string export_key_ranges(const ExportInput& input);
std::string export_duo_attention(const ExportInput& input);
std::string export_retrieval_heads(const ExportInput& input);

}  // namespace qkscope
