// Files of finished statistics. docs/reference/statistics.md describes them.
//
//   stats.safetensors               all sums; all tables but those per document derive from them
//   channels.parquet                moments per channel (group A)
//   attention.parquet               groups B and C per head and bucket
//   attention_documents.parquet     groups B and C per head and document
//   distance.parquet                attention mass by distance (group C)
//   columns/l03h12.parquet          key sums of selected heads (group C)
//   retrieval.parquet               retrieval trials
//   examples.parquet                maps example ids to texts; written by capture/stats_run
//   stats_state.json                published last: a folder with this file is finished
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/numbers.h"
#include "base/io/json.h"
#include "base/tables/empty_table.h"
#include "qkscope/statistics.h"

namespace qkscope {

namespace stats_layout {

inline constexpr char kSumsFile[] = "stats.safetensors";
inline constexpr char kChannelsFile[] = "channels.parquet";
inline constexpr char kAttentionFile[] = "attention.parquet";
inline constexpr char kDocumentsFile[] = "attention_documents.parquet";
inline constexpr char kDistanceFile[] = "distance.parquet";
inline constexpr char kColumnsFolder[] = "columns";
inline constexpr char kRetrievalFile[] = "retrieval.parquet";
inline constexpr char kStateFile[] = "stats_state.json";
inline constexpr char kFormatName[] = "qkscope statistics 1";  // in kSumsFile and kStateFile

}  // namespace stats_layout

// Writes all files except examples.parquet into an existing empty folder. Reads `documents` once;
// it is empty without attention statistics (group B: near keys, group C: all keys).
void write_statistics(const std::string& folder, const Statistics& statistics,
                      DocumentSource& documents);

// Write and read only stats.safetensors, the file that holds all accumulated sums.
void write_accumulated_sums(const std::string& path, const Statistics& statistics);
Statistics read_accumulated_sums(const std::string& path);

// Convert settings to JSON and back, for files and for the identity of a run.
Json statistics_settings_to_json(const StatisticsSettings& settings);
// Throws a bad-input error for unknown names; `where` names the file in messages.
StatisticsSettings statistics_settings_from_json(const Json& json, const std::string& where);

// Parses the name of a vector kind (q, k, v), vector stage (pre or post RoPE), quantization scheme
// (fp8 ...) or quantization scale (channel ...). Returns nullopt for any other name.
template <typename T>
std::optional<T> enum_from_name(std::string_view name);

// ---- Tables ----

// Writes all tables for which the statistics contain data into an existing folder.
void write_statistics_tables(const std::string& folder, const Statistics& statistics,
                             DocumentSource& documents);

// attention.parquet: a row per head and position bucket of the queries (null: all positions).
Table attention_table(const Statistics& statistics);
// distance.parquet: attention mass by distance from query to key, in power-of-two bands.
Table attention_by_distance_table(const Statistics& statistics);

// Reads needle-in-a-haystack trials from retrieval.parquet; returns none if there is no such file.
std::vector<RetrievalTrial> read_retrieval_trials(const std::string& folder,
                                                  const Statistics& statistics);

// ---- Tables per document ----

// Writes attention_documents.parquet and the folder columns/ from a stream of documents.
void write_document_tables(const std::string& folder, const Statistics& statistics,
                           DocumentSource& documents);

// Opens the per-document tables, to read documents in order. Returns nullptr without such tables.
std::unique_ptr<DocumentSource> open_document_source(const std::string& folder,
                                                     const Statistics& statistics);

// ---- Leading columns of tables that have a row per query head ----

// Column declarations in the syntax of empty_table().
inline constexpr char kHeadColumns[] = "integer layer, integer head, integer k_head, text rope";

// Returns the cells for the columns in kHeadColumns. `layer` is an index into Statistics::layers.
inline std::vector<Table::Cell> head_id_cells(const Statistics& s, std::int64_t layer,
                                              std::int64_t head) {
  const bool rope = s.rotary[as_index(layer)] > 0;
  return {s.layers[as_index(layer)], head, head / (s.heads / s.key_heads),
          std::string(rope ? "rope" : "nope")};
}

}  // namespace qkscope
