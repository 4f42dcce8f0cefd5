// What a run has added up so far, and the file that holds it between two kills.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

struct StatsRunState {
  Statistics statistics;  // lengths and positions follow at the end, from the list of examples
  // Per kind, stage and layer of group A: what a GPU takes off its rows; empty until it is fixed.
  std::map<std::pair<VectorKind, VectorStage>, std::vector<std::vector<float>>> shifts;
};

// All of it, with a checksum; appears whole or not at all.
void save_state(const std::string& path, const StatsRunState& state);
// Damage is bad input.
StatsRunState load_state(const std::string& path);

// The documents of one segment of a run: their share of groups B and C.
struct DocumentRecord {
  std::int64_t row = 0;  // in the dataset
  DocumentAttention attention;
};
void save_documents(const std::string& path, const std::vector<DocumentRecord>& documents);

// The documents of such a file one after another. The file is open during the calls alone, and one
// document is in memory: a merge has one of these for every shard.
class DocumentFile {
 public:
  explicit DocumentFile(const std::string& path);  // damage is bad input

  bool done() const { return left_ == 0; }
  std::int64_t row() const { return row_; }  // of the next document, in the dataset
  DocumentAttention take();

 private:
  std::string path_;
  std::size_t offset_ = 0;  // of the next document, in the file
  std::uint64_t left_ = 0;
  std::int64_t row_ = 0;
};

}  // namespace qkscope
