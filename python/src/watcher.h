// Tells Python how far a run is, and ends it on Ctrl-C.
#pragma once

#include <atomic>
#include <exception>
#include <utility>

#include <nanobind/nanobind.h>

#include "hook_runner.h"

namespace qkscope::python {

// An exception in the caller's function ends the run as an interruption would, with everything
// kept, and comes out afterwards.
class Watcher {
 public:
  explicit Watcher(nanobind::object call) : call_(std::move(call)) {}

  const std::atomic<bool>* stop() const { return &stop_; }

  // Takes Ctrl-C and calls the function, where there is one; may be called without the GIL.
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
