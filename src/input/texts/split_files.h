// Which of a dataset's files make up a split: by its card, or else by their names. The same rules
// choose from a folder on disk and from the listing of a repository.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/texts.h"

namespace qkscope {

// Endings of files that can be read. A split with several kinds of them is read by the first.
inline constexpr std::array<std::string_view, 6> kDataEndings = {".parquet", ".jsonl", ".ndjson",
                                                                 ".json",    ".csv",   ".txt"};

// `paths` are all files of the dataset, relative to it; `card` is its README.md, "" without one.
// In the order they are read. None is bad input that begins with `where` and says what is there.
std::vector<std::string> choose_split_files(const std::vector<std::string>& paths,
                                            const std::string& card, const CorpusOptions& options,
                                            const std::string& where);

// The files of the dataset at options.path, in the order they are read: the file itself, or those
// of a folder that make up the split.
std::vector<std::string> find_corpus_files(const CorpusOptions& options);

}  // namespace qkscope
