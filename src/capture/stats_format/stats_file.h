// A finished folder of statistics. docs/statistics.md describes the files.
//
//   stats.safetensors               the sums themselves: everything else but documents follows
//   channels.parquet                moments per channel (group A)
//   attention.parquet               columns of groups B and C per head and bucket
//   attention_documents.parquet     the same per document
//   distance.parquet                how attention is spread over distances (group C)
//   columns/l03h12.parquet          key sums of the heads that were asked for (group C)
//   retrieval.parquet               trials
//   examples.parquet                what the example ids stand for; written by who makes statistics
//   stats_state.json                comes last and marks the end
#pragma once

#include <memory>
#include <string>

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

}  // namespace stats_layout

// Everything but examples.parquet, into a folder that is there and empty. `documents` is read once,
// in order; it has none where groups B and C are off.
void write_statistics(const std::string& folder, const Statistics& statistics,
                      DocumentSource& documents);

// stats.safetensors alone: the sums, without the tables that follow from them.
void write_sums(const std::string& path, const Statistics& statistics);
Statistics read_sums(const std::string& path);

}  // namespace qkscope
