#include "sweep/inputs.h"

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "hub/cache_list.h"
#include "hub/capture_inputs.h"

namespace qkscope {

SweepInputs::SweepInputs(std::vector<const SweepRun*> runs, FetchOptions options, bool evict)
    : runs_(std::move(runs)), options_(options), evict_(evict) {}

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
  if (!evict_ || needed_after(i)) return;
  const auto& model = runs_[i]->capture.model;
  const auto freed = evict_weights(model.name, model.revision.value_or(""));
  if (freed > 0) log::info("{}: {} of weights evicted", runs_[i]->label, format_bytes(freed));
}

bool SweepInputs::needed_after(std::size_t i) const {
  const auto& model = runs_[i]->capture.model;
  return std::any_of(runs_.begin() + static_cast<std::ptrdiff_t>(i) + 1, runs_.end(),
                     [&](const SweepRun* later) {
                       return later->capture.model.name == model.name &&
                              later->capture.model.revision == model.revision;
                     });
}

}  // namespace qkscope
