#include "study/sweep_inputs.h"

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "hub/cache_list.h"
#include "qkscope/capture.h"

namespace qkscope {

SweepInputs::SweepInputs(std::vector<const SweepRun*> runs, FetchOptions options, bool evict)
    : runs_(std::move(runs)), options_(options), evict_(evict), released_(runs_.size()) {}

void SweepInputs::fetch(std::size_t i) {
  if (ahead_.valid()) ahead_.wait();
  fetch_capture_inputs(runs_[i]->capture, options_);
}

void SweepInputs::fetch_ahead(std::size_t i) {
  auto options = options_;
  options.quiet = true;  // the run at work has the progress line
  ahead_ = std::async(std::launch::async, [config = runs_[i]->capture, options] {
    try {
      fetch_capture_inputs(config, options);
    } catch (const Error&) {  // fetch() meets it again, as the failure of that run
    }
  });
}

void SweepInputs::release(std::size_t i) {
  if (!evict_) return;
  const std::lock_guard lock(mutex_);
  released_[i] = true;
  const auto& model = runs_[i]->capture.model;
  for (std::size_t other = 0; other < runs_.size(); ++other) {
    const auto& its = runs_[other]->capture.model;
    if (!released_[other] && its.name == model.name && its.revision == model.revision) return;
  }
  const auto freed = evict_weights(model.name, model.revision.value_or(""));
  if (freed > 0) log::info("{}: {} of weights evicted", runs_[i]->label, format_bytes(freed));
}

}  // namespace qkscope
