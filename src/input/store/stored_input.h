// Checkpoints, tokenizers and datasets at an address: objects that others put there, by the names
// that files have in a folder. They are fetched before they are read, as those of the Hub are.
#pragma once

#include <string>

#include "qkscope/hub.h"

namespace qkscope {

// A path or a name on the Hub as it is. Of an address the local copy, a file where it names one
// object and else a folder: what is not there yet, or has another size or time in the store than
// when it was fetched, is fetched. Once in a process: what it reads does not change under it.
std::string local_input(const std::string& path_or_address, const FetchOptions& options);

}  // namespace qkscope
