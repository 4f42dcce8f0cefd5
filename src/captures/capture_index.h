// Which heads a capture holds, and which key head each query head reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "captures/head_id.h"

namespace qkscope {

struct CaptureIndex {
  std::string data_root;
  std::string model;                 // as the capture names it; empty when it does not
  std::vector<HeadId> queries;       // ascending
  std::vector<HeadId> keys;          // ascending
  std::optional<HeadCounts> counts;  // from _saver_state.json
};

// Lists the folders l{LL}h{HH}{q|k} under `data_root`. A folder without any is bad input.
CaptureIndex index_capture(const std::string& data_root);

// The key head that `query` reads: the file's own metadata if it says so, then `given`, then the
// capture's state. Bad input when nothing says it.
int key_head_of(const CaptureIndex& index, const HeadId& query,
                const std::optional<HeadCounts>& given);

}  // namespace qkscope
