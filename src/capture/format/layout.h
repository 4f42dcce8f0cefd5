// File names of a capture. No other file of the library spells them.
//
//   DATA_ROOT/l03h12q/data.parquet   the vectors of one head
//   DATA_ROOT/examples.parquet       maps the example ids of the head files to texts
//   DATA_ROOT/README.md              the dataset card
//   DATA_ROOT/_saver_state.json      published last: a capture with this file is finished
//
// While a run is not finished:
//
//   DATA_ROOT/.parts/lock
//   DATA_ROOT/.parts/00000-of-00003/{lock,manifest.json,journal.jsonl,00000000.seg,...}
//   DATA_ROOT/.parts/final/...       final files before they are moved to DATA_ROOT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "qkscope/captures.h"

namespace qkscope {

namespace layout {

inline constexpr char kHeadFile[] = "data.parquet";
inline constexpr char kExamplesFile[] = "examples.parquet";
inline constexpr char kCardFile[] = "README.md";
inline constexpr char kStateFile[] = "_saver_state.json";

inline constexpr char kPartsFolder[] = ".parts";
inline constexpr char kFinalFolder[] = "final";
inline constexpr char kLockFile[] = "lock";
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kJournalFile[] = "journal.jsonl";
inline constexpr char kSegmentSuffix[] = ".seg";
inline constexpr char kStateSuffix[] = ".state";     // statistics: all sums up to this segment
inline constexpr char kDocumentsSuffix[] = ".docs";  // statistics: documents of this segment

}  // namespace layout

// Folder name of a head, "l03h12q", with two or more digits. Parsing other names returns nullopt.
std::string head_folder_name(const HeadId& id);
std::optional<HeadId> parse_head_folder_name(std::string_view name);

// Whether a path relative to the data root names a file of a finished capture.
bool is_capture_file(std::string_view path);

// Folder name of a part, "00001-of-00003". Parsing returns nullopt for any other name.
std::string part_name(const Shard& shard);
std::optional<Shard> parse_part_name(const std::string& name);

// File name of a segment, "00000007.seg", numbered from 0.
std::string segment_name(std::size_t number);

}  // namespace qkscope
