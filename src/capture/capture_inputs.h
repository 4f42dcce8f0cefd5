// What a capture reads, fetched before it begins: checkpoint, tokenizer and dataset.
#pragma once

#include "capture/capture_config.h"
#include "qkscope/hub.h"

namespace qkscope {

// Afterwards everything the configuration names is a local path or in the cache.
void fetch_capture_inputs(const CaptureConfig& config, const FetchOptions& options);

}  // namespace qkscope
