// A checkpoint on disk: a folder of Hugging Face's with config.json and weights, whole or in
// shards, or a GGUF file that stands for such a folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/io/json_fwd.h"
#include "input/checkpoint/gguf_file.h"
#include "input/checkpoint/safetensors.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Move-only. Tensors borrow from the mapped files and live as long as this object.
class Checkpoint {
 public:
  // Weights: model.safetensors, or else the shards of model.safetensors.index.json, or else the
  // same as pytorch_model.bin, or else the only GGUF file of the folder; or `folder` is one. Other
  // files (consolidated.safetensors) are not looked at.
  static Checkpoint open(const std::string& folder);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::string& folder() const { return folder_; }
  const Json& config() const { return *config_; }  // config.json as it is on disk
  const std::string& config_source() const { return config_source_; }  // its name in messages

  // A name that a file's metadata declares as another name of a tensor counts like a tensor.
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const TensorInfo& info(const std::string& name) const;
  ConstTensorView tensor(const std::string& name) const;
  // A float8 matrix times its `scales`, one for each block, in float32: made once and kept.
  ConstTensorView scaled(const std::string& name, const std::string& scales,
                         const std::vector<std::int64_t>& block) const;
  std::vector<std::string> names() const;         // sorted
  std::uint64_t bytes() const { return bytes_; }  // of all tensors, each counted once
  std::uint64_t widened_bytes() const;            // of memory they take beside the files

 private:
  struct Place {
    TensorInfo info;
    std::size_t file;    // in files_
    std::string stored;  // the tensor's name in that file; differs from info.name for an alias
  };

  Checkpoint();
  void open_gguf(const std::string& path);
  void open_single(const std::string& file);
  void open_shards(const std::string& index);
  std::size_t add_file(const std::string& file);
  void add_tensor(const std::string& name, std::size_t file);
  void add_aliases();
  const Place& place(const std::string& name) const;

  std::string folder_;
  std::unique_ptr<const Json> config_;
  std::string config_source_;
  std::unique_ptr<const GgufFile> gguf_;  // null: the tensors are in files_
  std::unique_ptr<KeptTensors> scaled_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, Place> tensors_;
  std::set<std::pair<std::size_t, std::uint64_t>> counted_;  // file and first byte
  std::uint64_t bytes_ = 0;
};

// The weight files of a checkpoint: the one with all of them, or the index and the shards that it
// names. Empty where there are none, or where the index names one that is not there.
std::vector<std::string> weight_files(const std::string& folder);

// config.json alone, which must be a map; no weights needed. Of a GGUF file, what it stands for.
Json load_config(const std::string& folder);

// What a message calls the configuration: the path of config.json, or of the GGUF file.
std::string config_source(const std::string& folder);

// `overrides` over `config`: key by key where both hold maps, at every depth; replaced otherwise.
Json merge_overrides(Json config, const Json& overrides);

// The index of shards in the folder, and the tensors that it names, sorted; no weights needed.
struct IndexedTensors {
  std::string index;  // "": there is none
  std::vector<std::string> names;
};
IndexedTensors indexed_tensors(const std::string& folder);

}  // namespace qkscope
