// The accumulated sums of a statistics run, and their file format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

struct StatsRunState {
  Statistics statistics;  // lengths and positions are set at the end, from the list of examples
  // Shift vectors of the moments (group A) by kind, stage and layer. A GPU subtracts them from the
  // rows for numerical stability. Empty until the first batch sets them.
  std::map<std::pair<VectorKind, VectorStage>, std::vector<std::vector<float>>> shifts;
};

// Writes the file atomically, with a checksum.
void save_stats_state(const std::string& path, const StatsRunState& state);
// Reads a file written by save_stats_state(). Throws a bad-input error if the file is damaged.
StatsRunState load_stats_state(const std::string& path);

// Attention statistics (groups B and C) of one document.
struct DocumentRecord {
  std::int64_t row = 0;  // dataset row
  DocumentAttention attention;
};
void save_documents(const std::string& path, const std::vector<DocumentRecord>& documents);

// Reads a file written by save_documents(), one document at a time. Keeps the file open only during
// calls, because a merge has one reader per shard.
class DocumentFileReader {
 public:
  // Throws a bad-input error if the file is damaged.
  explicit DocumentFileReader(const std::string& path);

  bool at_end() const { return left_ == 0; }
  std::int64_t next_row() const { return row_; }  // dataset row of the next document
  DocumentAttention read_next();

 private:
  std::string path_;
  std::size_t offset_ = 0;  // of the next document in the file
  std::uint64_t left_ = 0;
  std::int64_t row_ = 0;
};

}  // namespace qkscope
