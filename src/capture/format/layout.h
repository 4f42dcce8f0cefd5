// What lies where in a capture. Every file name of a capture is spelled here and nowhere else.
//
//   DATA_ROOT/l03h12q/data.parquet   the vectors of one head
//   DATA_ROOT/examples.parquet       what the example ids of the head files stand for
//   DATA_ROOT/README.md              the dataset card
//   DATA_ROOT/_saver_state.json      written last: a capture that has it is finished
//
// And while a run is not finished:
//
//   DATA_ROOT/.parts/lock
//   DATA_ROOT/.parts/00000-of-00003/{lock,manifest.json,journal.jsonl,00000000.seg,...}
//   DATA_ROOT/.parts/final/...       files on their way to DATA_ROOT
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

}  // namespace layout

// The folder of a head, "l03h12q"; two digits, three from 100 on.
std::string folder_name(const HeadId& id);
std::optional<HeadId> parse_folder_name(std::string_view name);

// Whether a path below the data root is one of the files of a finished capture.
bool is_capture_file(std::string_view path);

// The folder of a shard's part, "00001-of-00003".
std::string part_name(const Shard& shard);
std::optional<Shard> parse_part_name(const std::string& name);

// "00000007.seg", counted from 0.
std::string segment_name(std::size_t number);

}  // namespace qkscope
