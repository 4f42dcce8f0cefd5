// What a run is, and everything that turns the parts of a run into its final files, kept beside the
// parts: a merge needs neither the configuration nor the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "qkscope/captures.h"

namespace qkscope {

// In an identity: the fingerprints of the files that a run reads, {kind: {file: fingerprint}}.
inline constexpr char kInputs[] = "inputs";

struct Manifest {
  Json identity;            // the effective configuration, device, commits and kInputs
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

// Why a run of identity `now` is not one of identity `there`: "the configuration differs
// (capture.min_bucket_size: 128 there, 256 now)" or "the dataset changed (docs.jsonl)"; "" where
// nothing speaks against it. Inputs of a kind that only one of them knows are not compared.
std::string identity_difference(const Json& there, const Json& now);

// The same of all that a manifest says, except where to publish: that may change during a run.
std::string manifest_difference(const Manifest& there, const Manifest& now);

Json to_json(const Manifest& manifest);
// Numbers that no manifest has are bad input; `where` names the file.
Manifest manifest_from_json(const Json& json, const std::string& where);

// manifest.json: the same with the number of the format and a checksum.
std::string manifest_file(const Manifest& manifest);
Manifest load_manifest(const std::string& path);
// The same of its text; `where` names it.
Manifest parse_manifest_file(const std::string& text, const std::string& where);

}  // namespace qkscope
