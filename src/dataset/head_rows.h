// The rows of one head file in memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace qkscope {

using Metadata = std::map<std::string, std::string>;

struct HeadRows {
  int head_dim = 0;
  std::vector<std::int32_t> bucket;            // (rows)
  std::vector<std::int32_t> example_id;        // (rows)
  std::vector<std::int32_t> position;          // (rows)
  std::vector<float> vectors;                  // (rows, head_dim)
  std::optional<std::int32_t> sliding_window;  // none on full attention; one value for all rows
  std::vector<std::string> token_str;          // (rows) or empty

  std::int64_t size() const { return static_cast<std::int64_t>(position.size()); }
};

}  // namespace qkscope
