// What a run is, and everything that turns the parts of a run into its final files, kept beside the
// parts: a merge needs neither the configuration nor the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "qkscope/captures.h"

namespace qkscope {

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
  Json model_metadata;  // for the state file
  std::string repo;     // Hub dataset to load from, as the dataset card says; "": not published
  std::string branch;
  bool private_repo = false;

  HeadId head_id(const HeadGroup& group, std::int64_t head) const;
  Metadata file_metadata(const HeadGroup& group, std::int64_t head) const;
};

// Of an effective configuration (what decides the rows and bytes of a capture): 16 hex digits.
std::string config_hash(const Json& effective);

// "capture.min_bucket_size: 128 there, 256 now", one per difference.
std::vector<std::string> config_differences(const Json& there, const Json& now);

Json to_json(const Manifest& manifest);
Manifest manifest_from_json(const Json& json);

}  // namespace qkscope
