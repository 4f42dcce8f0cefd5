// Reads the configuration of a capture (qkscope/capture.h) from YAML and extracts the part that
// identifies the capture.
#pragma once

#include "base/io/json.h"
#include "qkscope/capture.h"

namespace qkscope {

struct YamlDocument;

CaptureConfig read_capture_config(const YamlDocument& document);

Json config_overrides(const ModelSource& model);  // null if there are none

// Returns the settings that determine the rows and bytes of a capture, one JSON object per section.
// Leaves out batch size, folders and the publishing destination.
Json effective_config(const CaptureConfig& config);

}  // namespace qkscope
