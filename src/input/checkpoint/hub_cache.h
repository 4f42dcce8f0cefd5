// Read-only access to the local Hugging Face cache: validates ids and revisions, finds snapshots.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "qkscope/hub.h"

namespace qkscope {

// Returns "" if the variable is not set.
std::string environment_variable(const char* name);

// Returns true for a valid Hub id, "name" or "org/name". A valid id cannot lead outside its folder.
bool is_repository_id(const std::string& id);

// Returns true if no component of the path is empty, "." or "..".
bool is_normalized_relative_path(const std::string& path);

// Returns true for a valid branch, tag or commit. Slashes are allowed ("refs/pr/3"), ".." is not.
bool is_valid_revision(const std::string& revision);

bool is_commit_hash(const std::string& text);  // 40 hexadecimal digits

// Returns HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::string hugging_face_home();

// Returns HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. Expands a leading ~.
std::string hub_cache_folder();

// Returns the cache folder of a repository, models--ORG--NAME or datasets--ORG--NAME, which
// contains blobs, refs and snapshots.
std::string repository_cache_folder(RepositoryKind kind, const std::string& id);

// Inverse of repository_cache_folder(). Returns nullopt for any other name.
std::optional<RepositoryName> parse_cache_folder_name(const std::string& folder_name);

// Returns the cached branches and tags, each with the commit it points to.
std::map<std::string, std::string> cached_refs(const std::string& repository_cache_folder);

// Resolves a revision to a commit from the cache. Returns "" if the revision is not cached.
std::string cached_commit(RepositoryKind kind, const std::string& id, const std::string& revision);

// Returns the folder of a checkpoint. A local folder or GGUF file is returned unchanged; otherwise
// the model id is looked up in the cache. `revision` is a cached branch or tag, a commit, or a
// commit prefix of at least 7 digits; "" means main.
std::string resolve_checkpoint_path(const std::string& path_or_id, const std::string& revision);

// Returns the path of a dataset: the given path if it exists, else the cached main branch of a
// dataset id. Any other string is returned unchanged, so that the reader reports the error.
std::string resolve_dataset_path(const std::string& path_or_id);

}  // namespace qkscope
