// Reading captures: which heads a capture holds, and the vectors of each.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

enum class HeadKind : char { query = 'q', key = 'k' };

struct HeadId {
  int layer = 0;
  int head = 0;
  HeadKind kind = HeadKind::query;

  auto operator<=>(const HeadId&) const = default;
};

// Of the model, per layer.
struct HeadCounts {
  int query_heads = 0;
  int key_heads = 0;
};

// What a head file says about itself: docs/capture-format.md lists the keys.
using Metadata = std::map<std::string, std::string>;

// The rows of one head file.
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

// Whether a layer has rotary position embedding.
enum class RopeUse { rope, nope, unknown };

// One of several runs that share a dataset: of `count` shards the one that takes rows with
// row % count == index.
struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

}  // namespace qkscope
