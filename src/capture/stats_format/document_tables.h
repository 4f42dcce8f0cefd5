// What statistics keep of every document: attention_documents.parquet and columns/.
#pragma once

#include <memory>
#include <string>

#include "qkscope/statistics.h"

namespace qkscope {

// Both, from documents one after another.
void write_documents(const std::string& folder, const Statistics& statistics,
                     DocumentSource& documents);

// The documents of a finished folder, in order.
std::unique_ptr<DocumentSource> open_documents(const std::string& folder,
                                               const Statistics& statistics);

// columns/l03h12.parquet
std::string key_sums_file(const LayerHead& head);

}  // namespace qkscope
