// The texts that go with a capture: the dataset card and the state file.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "capture/format/manifest.h"

namespace qkscope {

using BucketCounts = std::map<std::int32_t, std::int64_t>;  // rows of all heads, by bucket

struct CaptureSummary {
  std::int64_t examples = 0;
  std::int64_t non_finite = 0;  // rows whose vector holds NaN or infinity
  BucketCounts buckets;
};

// README.md as the Hub takes it: one configuration per head file in its front matter.
std::string dataset_card(const Manifest& manifest, const CaptureSummary& summary);

// _saver_state.json: model_name, model_metadata and bucket_counts as the Python prototype wrote
// them, the configuration that tells a finished run from another, and where it is to be published.
Json saver_state(const Manifest& manifest, const CaptureSummary& summary);

}  // namespace qkscope
