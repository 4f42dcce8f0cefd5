// The manifest identifies a run and contains everything needed to assemble its parts into the final
// files, so that a merge needs neither the configuration nor the model. Every part has a copy.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/file_list.h"
#include "base/io/json.h"
#include "qkscope/captures.h"

namespace qkscope {

// Key in Manifest::identity for fingerprints of the input files, {kind: {file: fingerprint}}.
inline constexpr char kInputs[] = "inputs";

template <typename T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

struct Manifest {
  Json identity;            // effective configuration, device, commits and kInputs
  std::string config_hash;  // hash of the effective configuration
  std::int64_t head_dim = 0;
  std::int64_t heads_per_key_head = 1;
  std::int64_t row_group_size = 0;
  bool token_strings = false;
  SamplerOptions sampler;
  std::vector<HeadGroup> groups;  // ascending by layer, q before k
  Metadata metadata;              // written to every head file
  std::string model_name;
  Json model_metadata;  // model_metadata of the state file
  std::string repo;     // Hub dataset to publish to; "" for none
  std::string branch;
  bool private_repo = false;

  std::int64_t head_dim_of(const HeadGroup& group) const {
    return group.head_dim > 0 ? group.head_dim : head_dim;
  }
  HeadId head_id(const HeadGroup& group, std::int64_t head) const;
  Metadata head_file_metadata(const HeadGroup& group, std::int64_t head) const;
};

// Returns 16 hex digits that identify a configuration: the settings that determine rows and bytes.
std::string config_hash(const Json& effective);

// Describes why two identities belong to different runs: "the configuration differs
// (capture.min_bucket_size: 128 there, 256 now)" or "the dataset changed (docs.jsonl)". Returns ""
// if they agree. A kind of input is compared only if both identities list it.
std::string describe_identity_difference(const Json& there, const Json& now);

// Describes why two manifests belong to different runs, or returns "" if they agree. Ignores the
// publishing destination, which may change during a run.
std::string describe_manifest_difference(const Manifest& there, const Manifest& now);

Json to_json(const Manifest& manifest);

// Parses a manifest. A value out of range is a bad-input error; `where` names the file in messages.
Manifest manifest_from_json(const Json& json, const std::string& where);

// The content of manifest.json: the manifest with a format number and a checksum.
std::string manifest_file_content(const Manifest& manifest);
Manifest load_manifest(const std::string& path);
// Parses the content of manifest.json; `where` names the source in messages.
Manifest parse_manifest_file(std::string_view text, const std::string& where);

// ---- Files of a finished capture that are derived from the manifest ----

using BucketCounts = std::map<std::int32_t, std::int64_t>;  // rows over all heads by bucket

struct CaptureSummary {
  std::int64_t examples = 0;
  std::int64_t non_finite = 0;  // rows whose vector holds NaN or infinity
  BucketCounts buckets;
  FileList files;  // head files and examples.parquet
};

// README.md with YAML front matter for the Hub: one dataset configuration per head file.
std::string dataset_card(const Manifest& manifest, const CaptureSummary& summary);

// _saver_state.json: model_name, model_metadata and bucket_counts as qk-sniffer writes them, the
// identity of the run, and the publishing destination.
Json capture_state_json(const Manifest& manifest, const CaptureSummary& summary);

}  // namespace qkscope
