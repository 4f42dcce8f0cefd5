// Tables per document: attention_documents.parquet and the folder columns/.
#pragma once

#include <memory>
#include <string>

#include "qkscope/statistics.h"

namespace qkscope {

// Writes both from a stream of documents.
void write_documents(const std::string& folder, const Statistics& statistics,
                     DocumentSource& documents);

// Reads the documents of a finished folder in order.
std::unique_ptr<DocumentSource> open_documents(const std::string& folder,
                                               const Statistics& statistics);

// Returns a relative path such as "columns/l03h12.parquet".
std::string key_sums_file(const LayerHead& head);

}  // namespace qkscope
