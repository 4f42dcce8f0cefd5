// Which files make up a split of a dataset, in order.
#pragma once

#include <string>
#include <vector>

#include "texts/corpus.h"
#include "texts/record_reader.h"

namespace qkscope {

std::vector<std::string> find_corpus_files(const CorpusOptions& options);

// By the ending of the name.
RecordReaderPointer open_records(const std::string& path, const RecordColumns& columns);

}  // namespace qkscope
