// What a run has added up so far, and the file that holds it between two kills.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

struct RunState {
  Statistics statistics;  // lengths and positions follow at the end, from the list of examples
  // Per kind, stage and layer of group A: what a GPU takes off its rows; empty until it is fixed.
  std::map<std::pair<VectorKind, VectorStage>, std::vector<std::vector<float>>> shifts;
};

// All of it, with a checksum; appears whole or not at all.
void save_state(const std::string& path, const RunState& state);
// Damage is bad input.
RunState load_state(const std::string& path);

// The documents of one segment of a run: their share of groups B and C.
struct DocumentRecord {
  std::int64_t row = 0;  // in the dataset
  DocumentAttention attention;
};
void save_documents(const std::string& path, const std::vector<DocumentRecord>& documents);
std::vector<DocumentRecord> load_documents(const std::string& path);

}  // namespace qkscope
