// Which files of a repository a run needs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace qkscope {

// Reads a file of the repository. Returns nullopt if the file is not cached and may not be
// downloaded.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

// Selects the needed files from `paths`, the complete listing of a repository. Returns nullopt if a
// file that the choice depends on could not be read.
using FileChoice = std::function<std::optional<std::vector<std::string>>(
    const std::vector<std::string>& paths, const FileReader& read, const std::string& where)>;

// Selects config.json, weights (single file, or index and shards) and tokenizer. Without `weights`,
// the shard index is still selected because it lists the tensors. config.json comes last, because
// download_files() links files in this order.
FileChoice checkpoint_files(bool weights);

// Returns true if the name is that of a weight file.
bool is_weight_file(const std::string& path);

// Selects config.json alone.
FileChoice config_file();

// Selects tokenizer.json and the files next to it.
FileChoice tokenizer_files();

// Selects the files of one split and the dataset card. `name` is the dataset configuration; ""
// means the default one.
FileChoice dataset_files(const std::string& name, const std::string& split);

// Formats a list for error messages: "a, b and 3 more", or "nothing" if empty.
std::string some_of(const std::vector<std::string>& paths);

}  // namespace qkscope
