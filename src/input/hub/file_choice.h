// Which files of a repository a run needs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace qkscope {

// The content of a file of the repository; nothing where it is not here and may not be fetched.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

// The files of `paths`, which are all the repository has, that are needed. Nothing when a file that
// decides it could not be read.
using FileChoice = std::function<std::optional<std::vector<std::string>>(
    const std::vector<std::string>& paths, const FileReader& read, const std::string& where)>;

// config.json, the weights (one file, or the index and the shards it names) and the
// tokenizer. Without `weights` the index stays: it names the tensors. The order is that of the
// links in a snapshot: config.json last.
FileChoice checkpoint_files(bool weights);

// Whether the file holds weights, by its name.
bool is_weight_file(const std::string& path);

// config.json alone.
FileChoice config_file();

// tokenizer.json and what is read beside it.
FileChoice tokenizer_files();

// The files of one split, and the dataset card that says which they are. `name`: the dataset's
// configuration, "" for the default one.
FileChoice dataset_files(const std::string& name, const std::string& split);

// For messages: "a, b and 3 more", "nothing" where there is none.
std::string some_of(const std::vector<std::string>& paths);

}  // namespace qkscope
