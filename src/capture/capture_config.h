// The configuration of a capture run: the YAML file with its overrides, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/head_selection.h"
#include "capture/position_sampler.h"
#include "captures/manifest.h"
#include "core/dtype.h"
#include "io/json.h"

namespace qkscope {

struct YamlDocument;

struct DatasetConfig {
  std::string path;
  std::optional<std::string> name;
  std::string split = "train";
  std::string text_column = "text";
  std::optional<std::string> id_column;
  std::optional<std::int64_t> max_samples;
};

struct ModelSource {
  std::string name;
  std::optional<std::string> revision;
  DType dtype = DType::f16;
  std::string device_map = "auto";  // auto, cpu, cuda or cuda:N
  Json config_overrides;            // null or a map
};

struct TokenizerConfig {
  std::string name;  // the model's where the file does not say
  std::int64_t max_length = 4096;
};

struct InferenceConfig {
  std::int64_t batch_size = 1;
  std::optional<DType> autocast_dtype;
  bool debug_logging = false;
  std::int64_t debug_log_every_n_batches = 1;
};

struct CaptureSettings {
  bool queries = true;
  bool keys = true;
  HeadFilter heads;
  SamplerOptions sampler;
  bool pre_rope = false;
  bool token_strings = false;
};

struct OutputConfig {
  std::string data_root = "data";
  std::optional<std::string> hf_repo_id;
  std::optional<std::string> hf_branch;
  bool private_repo = false;
  std::int64_t write_batch_size = 4096;  // rows of a row group
};

struct CaptureConfig {
  DatasetConfig dataset;
  ModelSource model;
  TokenizerConfig tokenizer;
  InferenceConfig inference;
  CaptureSettings capture;
  OutputConfig output;
};

// `overrides` are KEY=VALUE with dotted keys. Unknown keys, wrong types and values out of range are
// bad input that names the key, its line and what was expected.
CaptureConfig read_capture_config(const std::string& file,
                                  const std::vector<std::string>& overrides = {});
CaptureConfig read_capture_config(const YamlDocument& document);

// What decides the rows and the bytes of a capture, as a JSON object with one object per section.
// Batch size, folders and where to publish are not in it.
Json effective_config(const CaptureConfig& config);

}  // namespace qkscope
