// Models and datasets that the Hugging Face tools have downloaded: found in their cache on disk, by
// id.
#pragma once

#include <string>

namespace qkscope {

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. A leading ~ stands for the home folder.
std::string hub_cache_folder();

// The folder of a checkpoint. An existing local folder is returned as it is (it has no revisions);
// otherwise a model id, "org/name" or "name", is looked up in the cache. `revision`: a branch or
// tag that was downloaded, a commit, or at least seven digits of one; "" means main.
std::string resolve_checkpoint(const std::string& name_or_folder, const std::string& revision);

// A dataset's file or folder: the path itself where it exists, else the main branch of a dataset id
// in the cache. What can be neither is returned as it is, for the reader to complain about.
std::string resolve_dataset(const std::string& path_or_id);

}  // namespace qkscope
