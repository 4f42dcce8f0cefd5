// Everything that turns the parts of a run into its final files, kept beside the parts: a merge
// needs neither the configuration nor the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "captures/head_id.h"
#include "qkscope/captures.h"
#include "captures/sampler_options.h"
#include "io/json.h"

namespace qkscope {

// The heads of one layer and kind: they share the sampled positions.
struct HeadGroup {
  std::int64_t layer = 0;
  HeadKind kind = HeadKind::query;
  std::vector<std::int64_t> heads;  // ascending
  std::optional<std::int32_t> window;
  std::string rope;           // metadata of the files: a JSON object or "none"
  std::string rope_inv_freq;  // a JSON list; empty where there is no RoPE
};

struct Manifest {
  Json identity;            // what must be the same for a run to be continued
  std::string config_hash;  // of the effective configuration
  std::int64_t head_dim = 0;
  std::int64_t heads_per_key_head = 1;
  std::int64_t row_group_size = 0;
  bool token_strings = false;
  SamplerOptions sampler;
  std::vector<HeadGroup> groups;  // by layer, q before k
  Metadata metadata;              // the same on every head file
  std::string model_name;
  Json model_metadata;  // for _saver_state.json
  std::string repo;     // Hub dataset to load from, as the card says; "" when not published
  std::string branch;
  bool private_repo = false;

  HeadId head_id(const HeadGroup& group, std::int64_t head) const;
  Metadata file_metadata(const HeadGroup& group, std::int64_t head) const;
};

Json to_json(const Manifest& manifest);
Manifest manifest_from_json(const Json& json);

}  // namespace qkscope
