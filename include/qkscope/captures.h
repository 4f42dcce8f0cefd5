// Reads captures: the index of heads and the vectors of each head. Also writes head files (the
// vectors of one head), for programs that create captures without qkscope.
// docs/reference/capture-format.md describes the files.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

enum class HeadKind : char { query = 'q', key = 'k' };

// Identifies a query or key head of a model.
struct HeadId {
  int layer = 0;
  int head = 0;
  HeadKind kind = HeadKind::query;

  auto operator<=>(const HeadId&) const = default;
};

// Heads per layer of a model.
struct HeadCounts {
  int query_heads = 0;
  int key_heads = 0;
};

// The captured heads of one layer and kind (query or key), which share the sampled positions.
struct HeadGroup {
  std::int64_t layer = 0;
  HeadKind kind = HeadKind::query;
  std::vector<std::int64_t> heads;     // ascending
  std::optional<std::int32_t> window;  // sliding window in tokens; nullopt for full attention
  std::string rope;                    // file metadata: a JSON object or "none"
  std::string rope_inv_freq;           // file metadata: a JSON list; "" without RoPE
  // Sizes of this layer if its heads differ from those of other layers; 0: the sizes of the run.
  std::int64_t head_dim = 0;
  std::int64_t heads_per_key_head = 0;
};

// One of `count` shards of a run; it processes the dataset rows with row % count == index.
struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;

  bool operator==(const Shard&) const = default;
};

// How a run of captures or statistics, or one of its shards, ended.
enum class RunOutcome {
  finished,          // the final files were written
  already_finished,  // the final files existed before
  part_finished,     // this shard is complete; a merge writes the final files
  interrupted,       // stopped early; the same command resumes
};

// How token positions are sampled.
enum class SamplerType {
  log_uniform,  // each position with probability min(1, base_rate / 2^bucket)
  uniform,      // each position with probability min(1, base_rate / min_bucket_size)
  all,          // every position
};

QKSCOPE_API std::string_view sampler_type_name(SamplerType type);  // "log_uniform"

// Parameters of the position sampler.
struct SamplerOptions {
  SamplerType type = SamplerType::log_uniform;
  double base_rate = 1.0;
  std::int64_t min_bucket_size = 128;    // positions
  std::optional<std::int64_t> max_rows;  // per example, layer and kind; not stored in metadata
};

// ---- Index of heads ----

// Heads of a capture, and the metadata in its state file _saver_state.json.
struct CaptureIndex {
  std::string data_root;             // folder that contains the head folders
  std::string model;                 // "" if the capture does not name its model
  std::vector<HeadId> queries;       // ascending
  std::vector<HeadId> keys;          // ascending
  std::optional<HeadCounts> counts;  // from _saver_state.json
  // Sampler settings from _saver_state.json, for head files whose metadata has none. base_rate is
  // not read and keeps its default.
  std::optional<SamplerOptions> sampler;
  std::string config_hash;  // of the run that wrote the capture; "" if unknown
  bool partial = false;     // files of the finished run are missing, or the run is not finished
};

// Lists the folders l{LL}h{HH}{q|k} under `data_root`. If there are none, lists the head folders
// under the only subfolder that has some, because older versions of qk-sniffer wrote one folder per
// model. Throws a bad-input error if no subfolder or more than one subfolder has heads, or if the
// capture is incomplete: the run is not finished, or a head file is missing, foreign, or of a
// different size than the state file says. With `allow_partial`, indexes the heads that exist.
QKSCOPE_API CaptureIndex index_capture(const std::string& data_root, bool allow_partial = false);

// Returns true if `name` is a valid capture argument: a folder with head folders, or a name
// REPO@BRANCH on the Hugging Face Hub. Does not contact the Hub.
QKSCOPE_API bool names_capture(const std::string& name);

// Returns the key head that a query head shares (GQA). Head counts come from the head file, else
// from `given`, else from the state file; throws a bad-input error if all are missing.
QKSCOPE_API int key_head_of(const CaptureIndex& index, const HeadId& query,
                            const std::optional<HeadCounts>& given = {});

// Returns a path such as DATA_ROOT/l03h12q/data.parquet.
QKSCOPE_API std::string head_file_path(const std::string& data_root, const HeadId& id);

// ---- One head ----

// Key-value metadata of a head file; docs/reference/capture-format.md lists the keys.
using Metadata = std::map<std::string, std::string>;

// The rows of one head file.
struct HeadRows {
  int head_dim = 0;
  std::vector<std::int32_t> bucket;            // (rows)
  std::vector<std::int32_t> example_id;        // (rows)
  std::vector<std::int64_t> example_key;       // (rows), or empty if the file has no such column
  std::vector<std::int32_t> position;          // (rows)
  std::vector<float> vectors;                  // (rows, head_dim)
  std::optional<std::int32_t> sliding_window;  // one value for all rows; nullopt: full attention
  bool window_missing = false;                 // the file has no column sliding_window
  std::vector<std::string> token_str;          // (rows), or empty if not captured

  std::int64_t size() const { return static_cast<std::int64_t>(position.size()); }
  // Returns the id of the text that a row belongs to, unique within the capture.
  std::int64_t example(std::size_t row) const {
    return example_key.empty() ? example_id[row] : example_key[row];
  }
};

// A head file in memory.
struct HeadFile {
  HeadRows rows;
  Metadata metadata;  // empty for files of other programs
};

// Reads and validates a head file. Throws a bad-input error that names the file and the row for
// missing columns, wrong types, nulls, vectors of different lengths, NaN or infinity, more than one
// sliding window, or a duplicate (example, position).
QKSCOPE_API HeadFile read_head_file(const std::string& path);

// Reads only the metadata in the Parquet footer.
QKSCOPE_API Metadata read_head_metadata(const std::string& path);

// Writes a head file atomically and creates missing folders.
QKSCOPE_API void write_head_file(const std::string& path, const HeadRows& rows,
                                 const Metadata& metadata);

// ---- Metadata of head files ----

// Whether a layer has rotary position embedding.
enum class RopeUse { rope, nope, unknown };

QKSCOPE_API std::string to_string(RopeUse use);  // "rope", "nope", "unknown"

// Returns "full", or "sliding:512" for a window of 512 tokens.
QKSCOPE_API std::string attention_name(const std::optional<std::int32_t>& window);

struct RopeInfo {
  RopeUse use = RopeUse::unknown;
  std::vector<double> inv_freq;  // radians per token, descending; empty if unknown
};

// Reads the RoPE of a head file from its metadata; `where` names the file in messages.
QKSCOPE_API RopeInfo rope_info(const Metadata& metadata, const std::string& where);

// Reads the sampler of a head file from its metadata. Returns nullopt if sampler keys are
// missing, as in captures written by other programs.
QKSCOPE_API std::optional<SamplerOptions> sampler_options(const Metadata& metadata,
                                                          const std::string& where);

// Token positions [begin, end).
struct PositionRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const PositionRange&) const = default;
};

// Returns the bucket of a position: position / min_bucket_size, or for log_uniform
// max(floor(log2(position + 1)), ceil(log2(min_bucket_size))).
QKSCOPE_API std::int32_t bucket_of(const SamplerOptions& sampler, std::int64_t position);
// Returns the token positions in a bucket; an empty range if the sampler has no such bucket.
QKSCOPE_API PositionRange positions_of_bucket(const SamplerOptions& sampler, std::int32_t bucket);

}  // namespace qkscope
