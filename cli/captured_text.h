// A text of a capture for `qkscope view --capture`: model, token ids and sampled positions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/capture.h"
#include "qkscope/experimental/viewer.h"

namespace qkscope::cli {

// Returns the configuration (dataset, model, tokenizer) of the run that wrote a capture, from its
// state file. Throws a bad-input error if another program wrote the file without a configuration.
CaptureConfig read_captured_config(const std::string& capture);

// One example of a captured dataset: a text, or a chunk of a text.
struct CapturedText {
  std::string title;
  std::vector<std::int32_t> ids;
  std::int64_t key = 0;  // HeadRows::example()
};
// Reads example `number` of the capture from its dataset and tokenizes it as the capture did;
// `folder` is the checkpoint folder. Throws a bad-input error if the dataset has changed.
CapturedText read_captured_text(const std::string& capture, const CaptureConfig& config,
                                const std::string& folder, std::int64_t number);

// Returns all captured query heads; those in `shown` with their sampled positions in example `key`.
std::vector<CapturedHead> read_captured_heads(const std::string& capture, std::int64_t key,
                                              const std::vector<ViewerHead>& shown);

}  // namespace qkscope::cli
