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

#include <optional>
#include <string>
#include <string_view>

#include "base/io/json.h"
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
// it is empty if there are no attention statistics (groups B and C).
void write_statistics(const std::string& folder, const Statistics& statistics,
                      DocumentSource& documents);

// Write and read stats.safetensors only.
void write_sums_file(const std::string& path, const Statistics& statistics);
Statistics read_sums_file(const std::string& path);

// Convert settings to JSON and back, for files and for the identity of a run.
Json statistics_settings_to_json(const StatisticsSettings& settings);
// Throws a bad-input error for unknown names; `where` names the file in messages.
StatisticsSettings statistics_settings_from_json(const Json& json, const std::string& where);

// Parses the name of a kind (q, k or v), stage (pre or post), scheme (fp8 ...) or scale (channel
// ...) as spelled in files and configurations. Returns nullopt for any other name.
template <typename T>
std::optional<T> enumerator_from_name(std::string_view name);

}  // namespace qkscope
