// From a list of head folders, on disk or on the Hub, to a CaptureIndex (qkscope/captures.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qkscope/captures.h"

namespace qkscope {

// By the folder below the root that they lie in: "" for the root itself.
using HeadsByFolder = std::map<std::string, std::vector<HeadId>>;

// The root where it has heads, else its one subfolder that has some. None and several are bad
// input; `where` names the root, and `separator` stands between it and a subfolder.
std::string only_folder(const HeadsByFolder& heads, const std::string& where,
                        const std::string& separator);

// Reads _saver_state.json of that folder, or of the root where the folder has none.
CaptureIndex make_index(const std::string& root, const std::string& folder,
                        std::vector<HeadId> heads, const std::string& where);

// Bad input that says how captures are named.
[[noreturn]] void no_such_capture(const std::string& name);

}  // namespace qkscope
