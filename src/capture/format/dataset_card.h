// Content of the dataset card and of the state file of a capture.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "capture/format/manifest.h"

namespace qkscope {

using BucketCounts = std::map<std::int32_t, std::int64_t>;  // bucket to rows over all heads

struct CaptureSummary {
  std::int64_t examples = 0;
  std::int64_t non_finite = 0;  // rows whose vector holds NaN or infinity
  BucketCounts buckets;
};

// README.md with YAML front matter for the Hub: one dataset configuration per head file.
std::string dataset_card(const Manifest& manifest, const CaptureSummary& summary);

// _saver_state.json: model_name, model_metadata and bucket_counts as qk-sniffer writes them, the
// identity of the run, and the publishing destination.
Json saver_state(const Manifest& manifest, const CaptureSummary& summary);

}  // namespace qkscope
