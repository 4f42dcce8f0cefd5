// Passes everything on to another observer and remembers what that one threw: an exception of the
// caller's own comes out of the library as it is.
#pragma once

#include <exception>

#include "qkscope/forward.h"

namespace qkscope {

class WatchedObserver : public Observer {
 public:
  explicit WatchedObserver(Observer& observer) : observer_(observer) {}

  bool wants(HookPoint point) const override {
    return watch([&] { return observer_.wants(point); });
  }
  bool wants_derived() const override {
    return watch([&] { return observer_.wants_derived(); });
  }
  void begin_layer(std::int64_t layer) override {
    watch([&] { observer_.begin_layer(layer); });
  }
  Selection selection(HookPoint point) const override {
    return watch([&] { return observer_.selection(point); });
  }
  void see(HookPoint point, ConstTensorView activation) override {
    watch([&] { observer_.see(point, activation); });
  }
  bool edits(HookPoint point) const override {
    return watch([&] { return observer_.edits(point); });
  }
  void edit(HookPoint point, TensorView activation) override {
    watch([&] { observer_.edit(point, activation); });
  }
  bool keeps_on_device() const override {
    return watch([&] { return observer_.keeps_on_device(); });
  }
  bool keep(HookPoint point, const ActivationCopy& activation) override {
    return watch([&] { return observer_.keep(point, activation); });
  }
  std::span<const std::int64_t> score_rows() const override {
    return watch([&] { return observer_.score_rows(); });
  }

  void rethrow_if_thrown() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  template <typename Call>
  auto watch(Call call) const -> decltype(call()) {
    try {
      return call();
    } catch (...) {
      thrown_ = std::current_exception();
      throw;
    }
  }

  Observer& observer_;
  mutable std::exception_ptr thrown_;
};

}  // namespace qkscope
