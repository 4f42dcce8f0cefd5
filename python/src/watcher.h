// Reports the progress of a run to Python and stops the run on Ctrl-C.
#pragma once

#include <atomic>
#include <exception>
#include <utility>

#include <nanobind/nanobind.h>

#include "hook_runner.h"

namespace qkscope::python {

// If the Python progress function throws, the run stops as if interrupted: finished work is kept,
// and the exception is rethrown after the run.
class Watcher {
 public:
  explicit Watcher(nanobind::object call) : call_(std::move(call)) {}

  const std::atomic<bool>* stop() const { return &stop_; }

  // Handles Ctrl-C and calls the progress function, if any. Acquires the GIL.
  template <typename... Progress>
  void tell(const Progress&... progress) {
    const nanobind::gil_scoped_acquire python;
    try {
      check_signals();
      if (!call_.is_none()) call_(progress...);
    } catch (const nanobind::python_error&) {
      raised_ = std::current_exception();
      stop_.store(true);
    }
  }

  void rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  nanobind::object call_;
  std::atomic<bool> stop_{false};
  std::exception_ptr raised_;
};

}  // namespace qkscope::python
