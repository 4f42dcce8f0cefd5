#include "capture/capture_inputs.h"

namespace qkscope {

void fetch_capture_inputs(const CaptureConfig& config, const FetchOptions& options) {
  CorpusOptions corpus;
  corpus.path = config.dataset.path;
  corpus.name = config.dataset.name;
  corpus.split = config.dataset.split;
  fetch_dataset(corpus, options);  // a mistake in it shows before the large download
  fetch_tokenizer(config.tokenizer.name, options);
  fetch_checkpoint(config.model.name, config.model.revision.value_or(""), options);
}

}  // namespace qkscope
