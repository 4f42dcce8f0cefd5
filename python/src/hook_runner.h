// Observers that call Python functions; Ctrl-C ends the forward pass.
#pragma once

#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "qkscope/forward.h"

namespace qkscope::python {

// Runs pending Python signal handlers. Throws KeyboardInterrupt, or whatever a handler raises.
void check_signals();

class InterruptibleCollector : public Collector {
 public:
  using Collector::Collector;
  void begin_layer(std::int64_t) override { check_signals(); }
};

// Collects activations on the device that computed them, but scores and patterns on the host.
class DeviceCollector : public InterruptibleCollector {
 public:
  using InterruptibleCollector::InterruptibleCollector;
  bool keeps_on_device() const override { return true; }
  bool keep(HookPoint point, const ActivationCopy& activation) override {
    copies_.emplace_back(point, activation);
    return false;
  }
  const std::vector<std::pair<HookPoint, ActivationCopy>>& copies() const { return copies_; }

 private:
  std::vector<std::pair<HookPoint, ActivationCopy>> copies_;
};

// Calls a Python function with the activation of every chosen hook point.
class HookRunner : public Observer {
 public:
  struct Wanted {
    std::vector<HookPoint> points;
    std::vector<std::int64_t> score_rows;  // query rows of scores and patterns; empty: all
    std::vector<std::int64_t> logit_rows;  // empty: all
  };

  // `call(index of the hook point, array)` gets its own copy of the activation. The content of the
  // array after the call replaces the activation in the forward pass. The array is a DeviceArray
  // with `on_device`, except for scores and patterns, otherwise a NumPy array.
  HookRunner(Wanted wanted, nanobind::callable call, bool on_device)
      : wanted_(std::move(wanted)), call_(std::move(call)), on_device_(on_device) {}

  void begin_layer(std::int64_t) override { check_signals(); }
  bool wants(HookPoint point) const override { return number_of(point) < wanted_.points.size(); }
  bool wants_derived() const override { return true; }
  // Edited logits need no write-back, because the pass computes nothing from them.
  bool edits(HookPoint point) const override {
    return point.stage != Stage::logits && can_be_edited(point.stage);
  }
  // Only logits use a row selection; hooks receive all rows of other activations.
  Selection selection(HookPoint point) const override {
    if (point.stage != Stage::logits) return {};
    return {.rows = wanted_.logit_rows, .heads = {}};
  }
  void observe(HookPoint point, ConstTensorView activation) override;
  void edit(HookPoint point, TensorView activation) override;
  bool keeps_on_device() const override { return on_device_; }
  bool keep(HookPoint point, const ActivationCopy& activation) override;
  std::span<const std::int64_t> score_rows() const override { return wanted_.score_rows; }

 private:
  std::size_t number_of(HookPoint point) const;

  Wanted wanted_;
  nanobind::callable call_;
  bool on_device_;
};

}  // namespace qkscope::python
