// Verification of finished folders: captures, statistics and results of analyses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

struct FolderVerification {
  std::string kind;        // "capture", "statistics" or "results"
  std::int64_t files = 0;  // verified files
  std::uint64_t bytes = 0;
  std::vector<std::string> problems;  // one sentence per missing, foreign or damaged file
};

// Compares every file of a finished folder with the sizes and checksums in its state file. Folders
// written by other programs or by version 0.1 have no checksums: their head files are read instead.
// Throws a bad-input error if the folder is unfinished or holds no capture, statistics or results.
QKSCOPE_API FolderVerification verify_folder(const std::string& folder);

}  // namespace qkscope
