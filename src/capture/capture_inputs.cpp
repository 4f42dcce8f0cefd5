#include "capture/capture_inputs.h"

namespace qkscope {

void fetch_capture_inputs(const CaptureConfig& config, const FetchOptions& options) {
  const auto& dataset = config.dataset;  // a mistake in it shows before the large download
  fetch_dataset(dataset.path, dataset.name.value_or(""), dataset.split, options);
  fetch_tokenizer(config.tokenizer.name, options);
  fetch_checkpoint(config.model.name, config.model.revision.value_or(""), options);
}

}  // namespace qkscope
