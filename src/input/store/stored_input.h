// Checkpoints, tokenizers and datasets in an object store: plain objects whose names mirror the
// files of a folder. They are downloaded before use, like those of the Hub.
#pragma once

#include <string>

#include "qkscope/hub.h"

namespace qkscope {

// Returns a local copy of the file or folder at an address; a local path or Hub name is returned
// unchanged. Objects whose size or modification time changed are downloaded again, but only once
// per process, so that inputs stay constant during a run.
std::string local_input(const std::string& path_or_address, const FetchOptions& options);

}  // namespace qkscope
