// Builds a CaptureIndex (qkscope/captures.h) from a list of head folders, on disk or on the Hub.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qkscope/captures.h"

namespace qkscope {

// Maps a folder below the root ("" for the root itself) to its heads.
using HeadsByFolder = std::map<std::string, std::vector<HeadId>>;

// Returns the root if it has heads, else the only subfolder with heads. Throws bad input for none or
// several; the message names the root `where` and joins it with a subfolder by `separator`.
std::string only_folder(const HeadsByFolder& heads, const std::string& where,
                        const std::string& separator);

// Reads _saver_state.json of the folder, or of the root if the folder has none.
CaptureIndex make_index(const std::string& root, const std::string& folder,
                        std::vector<HeadId> heads, const std::string& where);

// Throws bad input that explains how captures are named.
[[noreturn]] void no_such_capture(const std::string& name);

}  // namespace qkscope
