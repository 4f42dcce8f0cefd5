// A checkpoint on disk: a Hugging Face folder with config.json and weights (single file or shards),
// or a GGUF file presented as such a folder.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/io/json_fwd.h"
#include "input/checkpoint/gguf.h"
#include "input/checkpoint/safetensors.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Move-only. Tensor views point into mapped files and must not outlive the Checkpoint.
class Checkpoint {
 public:
  // Opens the first weights found in `folder`, in this order: model.safetensors,
  // model.safetensors.index.json with its shards, pytorch_model.bin, pytorch_model.bin.index.json,
  // a single GGUF file. `folder` may also be the path of a GGUF file. Other weight files
  // (consolidated.safetensors) are ignored.
  static Checkpoint open(const std::string& folder);
  Checkpoint() = default;  // without files

  const std::string& folder() const { return folder_; }
  const Json& config() const { return *config_; }                  // content of config.json
  const std::string& config_path() const { return config_path_; }  // for error messages

  // Tensors include aliases declared in the metadata of a safetensors file.
  bool has_tensor(const std::string& name) const { return tensors_.contains(name); }
  const TensorInfo& tensor_info(const std::string& name) const { return find_tensor(name).info; }
  ConstTensorView tensor(const std::string& name) const;
  // Returns a float8 matrix with block scales as float32, converted on first use and then cached.
  ConstTensorView dequantized_float8(const std::string& name, const std::string& scales,
                                     const std::vector<std::int64_t>& block) const;
  std::vector<std::string> tensor_names() const;       // sorted
  std::uint64_t size_bytes() const { return bytes_; }  // shared storage counts once
  // Additional memory in bytes for dequantized tensors.
  std::uint64_t dequantized_bytes() const { return gguf_ ? gguf_->dequantized_bytes() : 0; }

 private:
  struct TensorLocation {
    TensorInfo info;
    std::size_t file;    // index into files_
    std::string stored;  // name in the file; differs from info.name for an alias
  };

  void open_gguf(const std::string& path);
  void open_shards(const std::string& index);
  std::size_t add_file(const std::string& file);
  void add_tensor(const std::string& name, std::size_t file);
  void add_tensor_aliases();
  const TensorLocation& find_tensor(const std::string& name) const;

  std::string folder_;
  std::shared_ptr<const Json> config_;
  std::string config_path_;
  std::unique_ptr<const GgufFile> gguf_;  // null if the tensors are in files_
  std::unique_ptr<TensorCache> dequantized_ = std::make_unique<TensorCache>();
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, TensorLocation> tensors_;
  std::set<std::pair<std::size_t, std::uint64_t>> counted_;  // (file, offset)
  std::uint64_t bytes_ = 0;
};

// Returns the weight files of a checkpoint: a single file, or the index and its shards. Empty if
// there are no weights or a shard is missing.
std::vector<std::string> weight_files(const std::string& folder);

// Parses a config.json. Infinity, as written by Python, becomes {"__float__": "Infinity"}.
Json load_config_file(const std::string& path);

// Reads config.json, which must be a JSON object; weights need not exist. For a GGUF file, returns
// the equivalent config.json.
Json load_config(const std::string& folder);

// Returns the path of the configuration for error messages: config.json or the GGUF file.
std::string config_path(const std::string& folder);

// Merges `overrides` into `config`: objects are merged recursively, other values are replaced.
Json merge_overrides(Json config, const Json& overrides);

// Tensor names listed in the shard index of a folder, sorted. The shards themselves need not exist.
struct ShardIndex {
  std::string index;  // path of the index file; "" if there is none
  std::vector<std::string> names;
};
ShardIndex read_shard_index(const std::string& folder);

// ---- Weight files and the shard index

// File names of a weight format: a single file, and the index of a sharded checkpoint.
struct WeightFileNames {
  const char* single;
  const char* index;
};
// Weight file formats in order of preference.
inline constexpr std::array kWeightFormats = {
    WeightFileNames{"model.safetensors", "model.safetensors.index.json"},
    WeightFileNames{"pytorch_model.bin", "pytorch_model.bin.index.json"},
};

// Parses a shard index and returns a map from tensor name to shard file. Throws a bad-input error
// for a shard path outside the checkpoint folder. Error messages start with `where`.
std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where);

// ---- Block-wise quantized float8 weights: one scale per block of rows and columns

// Returns the shape of the scale matrix for a weight of `shape` (rows, columns) and blocks of
// `block` (rows, columns). Rounds up: blocks at the bottom and right edge may be partial.
std::vector<std::int64_t> float8_scales_shape(const std::vector<std::int64_t>& shape,
                                              const std::vector<std::int64_t>& block);

// Dequantizes float8 `values` (out, in) to float32 by multiplying every value by the scale of its
// block. `scales` may have any floating-point dtype and must have the shape float8_scales_shape().
Tensor dequantize_float8(ConstTensorView values, ConstTensorView scales,
                         const std::vector<std::int64_t>& block);

}  // namespace qkscope
