// Large files into the Hub's storage, by the Git LFS protocol.
#pragma once

#include <vector>

#include "capture/publish/dataset_repository.h"

namespace qkscope {

// Sends those that the storage does not hold yet, whole or in parts as it asks. An upload that was
// interrupted goes on with the files that are missing.
void upload_large_files(const HubClient& client, const Repository& repository,
                        const std::string& branch, const std::vector<LocalFile>& files, bool quiet);

}  // namespace qkscope
