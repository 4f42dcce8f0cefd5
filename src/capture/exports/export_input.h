// What the exports take from statistics, with the refusals they share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "base/numerics/matrix.h"
#include "qkscope/experimental/exports.h"
#include "qkscope/statistics.h"

namespace qkscope {

// A place in a vector.
inline std::size_t at(std::int64_t place) {
  return static_cast<std::size_t>(place);
}

// RoPE as the statistics' layers have it.
struct ExportRope {
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
  std::string text(const std::string& key) const;  // of the metadata; "" where it is not there
  std::string model_name() const;                  // as people know it

  std::int64_t layers() const { return layers_; }  // of the model, cross-attention counted in
  std::int64_t heads() const { return statistics_.heads; }
  std::int64_t key_heads() const { return statistics_.key_heads; }
  std::int64_t heads_per_key() const { return heads() / key_heads(); }
  std::int64_t dim() const { return statistics_.dim; }
  bool rotated(std::int64_t layer) const;  // whether the layer has RoPE
  // Whether statistics have moments of the layer: not of cross-attention.
  bool runs_on_text(std::int64_t layer) const;

  // Of one layer: all rows, or a set of them ("all", "first", "body"). Missing ones are bad input.
  HeadMoments moments(VectorKind kind, VectorStage stage, std::int64_t layer,
                      const std::string& set) const;

  // Refusals. Each is one sentence that names what the reader cannot represent.
  void refuse_interleaved() const;
  void refuse_partial_rotary() const;
  // The one RoPE of all layers that have it; refused where they differ or none has.
  ExportRope one_rope() const;
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const ExportOptions& options_;
  Statistics statistics_;
  std::int64_t layers_ = 0;
};

// The scatter matrix of one head.
Matrix scatter_of(const HeadMoments& moments, std::int64_t head);

// A folder to write into: made, or there and empty, or --overwrite was given.
void prepare_folder(const ExportOptions& options, const std::string& folder);
// The same for a file.
void prepare_file(const ExportOptions& options, const std::string& file);

}  // namespace qkscope
