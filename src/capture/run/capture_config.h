// The configuration of a capture (qkscope/capture.h): reading it from YAML, and the part of it that
// tells one capture from another.
#pragma once

#include "base/io/json.h"
#include "qkscope/capture.h"

namespace qkscope {

struct YamlDocument;

CaptureConfig read_capture_config(const YamlDocument& document);

Json config_overrides(const ModelSource& model);  // null where there are none

// What decides the rows and the bytes of a capture, as a JSON object with one object per section.
// Batch size, folders and where to publish are not in it.
Json effective_config(const CaptureConfig& config);

}  // namespace qkscope
