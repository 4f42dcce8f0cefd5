// Models and datasets that the Hugging Face tools have downloaded: the ids and revisions that the
// Hub knows them by, and where they lie in the cache on disk.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "qkscope/hub.h"

namespace qkscope {

// "name" or "org/name" by the rules of the Hub, and nothing that could leave a folder.
bool is_repository_id(const std::string& id);

// A branch or tag may hold slashes ("refs/pr/3"), but no step out of a folder.
bool is_revision(const std::string& revision);

bool is_commit(const std::string& text);         // all 40 hexadecimal digits
bool is_commit_prefix(const std::string& text);  // seven digits or more

// HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::string hugging_face_home();

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. A leading ~ stands for the home folder.
std::string hub_cache_folder();

// Where a repository lies in the cache: models--ORG--NAME or datasets--ORG--NAME, with blobs, refs
// and snapshots in it.
std::string cached_repository(RepositoryKind kind, const std::string& id);

// The repository whose folder has this name; nothing for any other name.
std::optional<RepositoryName> repository_of_folder(const std::string& folder_name);

// Branches and tags that were downloaded, and the commit each stands for.
std::map<std::string, std::string> cached_refs(const std::string& cached_repository);

// The commit a revision stands for in the cache; "" where the cache does not know it.
std::string cached_commit(RepositoryKind kind, const std::string& id, const std::string& revision);

// The folder of a checkpoint. An existing local folder or GGUF file is returned as it is (it has no
// revisions); otherwise a model id, "org/name" or "name", is looked up in the cache. `revision`: a
// branch or tag that was downloaded, a commit, or at least seven digits of one; "" means main.
std::string resolve_checkpoint(const std::string& name_or_folder, const std::string& revision);

// A dataset's file or folder: the path itself where it exists, else the main branch of a dataset id
// in the cache. What can be neither is returned as it is, for the reader to complain about.
std::string resolve_dataset(const std::string& path_or_id);

}  // namespace qkscope
