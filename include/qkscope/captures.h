// Reading captures: which heads a capture holds, and the vectors of each; and writing head files
// for whoever makes captures with another program. docs/capture-format.md describes the files.
//
// The code is in src/capture/format: captures.cpp (the index), capture_source.cpp, head_reader.cpp,
// head_writer.cpp, metadata.cpp, buckets.cpp and layout.cpp (names).
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

struct HeadId {
  int layer = 0;
  int head = 0;
  HeadKind kind = HeadKind::query;

  auto operator<=>(const HeadId&) const = default;
};

// Of the model, per layer.
struct HeadCounts {
  int query_heads = 0;
  int key_heads = 0;
};

// The heads of one layer and kind that a capture keeps: they share the sampled positions.
struct HeadGroup {
  std::int64_t layer = 0;
  HeadKind kind = HeadKind::query;
  std::vector<std::int64_t> heads;     // ascending
  std::optional<std::int32_t> window;  // tokens; none on full attention
  std::string rope;                    // metadata of the files: a JSON object or "none"
  std::string rope_inv_freq;           // a JSON list; empty where there is no RoPE
};

// One of several runs that share a dataset: of `count` shards the one that takes rows with
// row % count == index.
struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

// How the positions of a capture are drawn.
enum class SamplerType {
  log_uniform,  // each with probability min(1, base_rate / 2^bucket)
  uniform,      // each with probability min(1, base_rate / min_bucket_size)
  all,          // every one
};

QKSCOPE_API std::string_view sampler_type_name(SamplerType type);  // "log_uniform"

struct SamplerOptions {
  SamplerType type = SamplerType::log_uniform;
  double base_rate = 1.0;
  std::int64_t min_bucket_size = 128;    // positions
  std::optional<std::int64_t> max_rows;  // of one example, layer and kind; not in the metadata
};

// ---- Which heads are there ----

struct CaptureIndex {
  std::string data_root;             // where the head folders are
  std::string model;                 // as the capture names it; empty when it does not
  std::vector<HeadId> queries;       // ascending
  std::vector<HeadId> keys;          // ascending
  std::optional<HeadCounts> counts;  // from _saver_state.json
  // Likewise, for files that do not say it; base_rate is not known.
  std::optional<SamplerOptions> sampler;
};

// Lists the folders l{LL}h{HH}{q|k} under `data_root`, or where there are none those under its one
// subfolder that has some: qk-sniffer once kept a folder per model. A folder without any is bad
// input, and so are several such subfolders.
QKSCOPE_API CaptureIndex index_capture(const std::string& data_root);

// Whether a command that takes a capture would take this: a folder with head folders, or the name
// of a capture on the Hugging Face Hub, REPO@BRANCH. Nothing is asked of the Hub.
QKSCOPE_API bool names_capture(const std::string& name);

// The key head that `query` reads: the file's own metadata if it says so, then `given`, then the
// capture's state. Bad input when nothing says it.
QKSCOPE_API int key_head_of(const CaptureIndex& index, const HeadId& query,
                            const std::optional<HeadCounts>& given = {});

// DATA_ROOT/l03h12q/data.parquet
QKSCOPE_API std::string head_file_path(const std::string& data_root, const HeadId& id);

// ---- One head ----

// What a head file says about itself: docs/capture-format.md lists the keys.
using Metadata = std::map<std::string, std::string>;

// The rows of one head file.
struct HeadRows {
  int head_dim = 0;
  std::vector<std::int32_t> bucket;            // (rows)
  std::vector<std::int32_t> example_id;        // (rows)
  std::vector<std::int64_t> example_key;       // (rows), or empty where a file has only ids
  std::vector<std::int32_t> position;          // (rows)
  std::vector<float> vectors;                  // (rows, head_dim)
  std::optional<std::int32_t> sliding_window;  // none on full attention; one value for all rows
  bool window_unsaid = false;                  // the file that was read has no such column
  std::vector<std::string> token_str;          // (rows) or empty where they were not kept

  std::int64_t size() const { return static_cast<std::int64_t>(position.size()); }
  // What tells the text of a row from all others of the capture.
  std::int64_t example(std::size_t row) const {
    return example_key.empty() ? example_id[row] : example_key[row];
  }
};

struct HeadFile {
  HeadRows rows;
  Metadata metadata;  // empty where the file has none
};

// Reads and checks everything: columns and their types, nulls, vector length, numbers that are not
// finite, more than one sliding window, the same (example, position) twice. Every complaint is bad
// input and names the file and the row.
QKSCOPE_API HeadFile read_head_file(const std::string& path);

// The footer only.
QKSCOPE_API Metadata read_head_metadata(const std::string& path);

// A whole file at once; makes the folder it lies in. The file appears under its name when it is
// complete.
QKSCOPE_API void write_head_file(const std::string& path, const HeadRows& rows,
                                 const Metadata& metadata);

// ---- What the metadata says ----

// Whether a layer has rotary position embedding.
enum class RopeUse { rope, nope, unknown };

QKSCOPE_API std::string to_string(RopeUse use);  // "rope", "nope", "unknown"

struct RopeInfo {
  RopeUse use = RopeUse::unknown;
  std::vector<double> inv_freq;  // radians per token, descending; empty when not known
};

// `where` names the file in messages.
QKSCOPE_API RopeInfo rope_info(const Metadata& metadata, const std::string& where);

// None where the metadata does not say: captures of other programs.
QKSCOPE_API std::optional<SamplerOptions> sampler_options(const Metadata& metadata,
                                                          const std::string& where);

// Positions [begin, end).
struct PositionRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const PositionRange&) const = default;
};

// The bucket that the sampler puts a position in: position / min_bucket_size, or with log_uniform
// floor(log2(position + 1)), at least ceil(log2(min_bucket_size)).
QKSCOPE_API std::int32_t bucket_of(const SamplerOptions& sampler, std::int64_t position);
// The positions of a bucket; none where the sampler has no such bucket.
QKSCOPE_API PositionRange positions_of_bucket(const SamplerOptions& sampler, std::int32_t bucket);

}  // namespace qkscope
