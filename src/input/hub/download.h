// Files of a repository into the cache: several at once, continued where they were cut off, and
// kept only when size and hash are right.
#pragma once

#include <string>
#include <vector>

#include "input/hub/cache.h"

namespace qkscope {

// Downloads what the cache does not hold yet and links all of it into the commit's snapshot, in the
// given order: the last link says that those before it are there.
void download_files(const HubClient& client, const Repository& repository,
                    const std::string& commit, const std::vector<RemoteFile>& files, bool quiet);

}  // namespace qkscope
