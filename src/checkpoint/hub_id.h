// What the Hugging Face Hub calls things: ids of repositories, revisions, commits.
#pragma once

#include <string>

#include "qkscope/hub.h"

namespace qkscope {

// "name" or "org/name" by the rules of the Hub, and nothing that could leave a folder.
bool is_repository_id(const std::string& id);

// A branch or tag may hold slashes ("refs/pr/3"), but no step out of a folder.
bool is_revision(const std::string& revision);

bool is_commit(const std::string& text);         // all 40 hexadecimal digits
bool is_commit_prefix(const std::string& text);  // seven digits or more

}  // namespace qkscope
