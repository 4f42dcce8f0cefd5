// Selects the files of a dataset split by the dataset card, or else by file names. The same rules
// apply to local folders and to file listings of the Hub.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/texts.h"

namespace qkscope {

// Supported file extensions in order of preference: a split in several formats is read in the
// first.
inline constexpr std::array<std::string_view, 6> kDataEndings = {".parquet", ".jsonl", ".ndjson",
                                                                 ".json",    ".csv",   ".txt"};

// Returns the files of a split in reading order. `paths` lists all files of the dataset relative to
// its root; `card` is the content of README.md or "". Throws bad input starting with `where` if no
// file matches.
std::vector<std::string> choose_split_files(const std::vector<std::string>& paths,
                                            const std::string& card, const CorpusOptions& options,
                                            const std::string& where);

// Returns the files of the dataset at options.path in reading order: the file itself, or the files
// of the split inside a folder.
std::vector<std::string> find_corpus_files(const CorpusOptions& options);

}  // namespace qkscope
