// Observers that live in Python: each ends the pass on Ctrl-C.
#pragma once

#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "qkscope/forward.h"

namespace qkscope::python {

// Throws KeyboardInterrupt, or what another handler raised, where a signal has come.
void check_signals();

class InterruptibleCollector : public Collector {
 public:
  using Collector::Collector;
  void begin_layer(std::int64_t) override { check_signals(); }
};

// Keeps copies on the device that computes them; scores and patterns are on the host.
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

// Hands every point it wants to a Python function.
class HookRunner : public Observer {
 public:
  // call(number of the point, array) gets an array of its own, which it may keep; what it holds
  // when the call returns goes back into the pass. Scores, patterns and logits are those of `rows`
  // of the batch (empty: all), other activations come whole. With `on_device` it is a DeviceArray
  // but for scores and patterns, otherwise a NumPy array.
  HookRunner(std::vector<HookPoint> points, std::vector<std::int64_t> rows, nanobind::callable call,
             bool on_device)
      : points_(std::move(points)),
        rows_(std::move(rows)),
        call_(std::move(call)),
        on_device_(on_device) {}

  void begin_layer(std::int64_t) override { check_signals(); }
  bool wants(HookPoint point) const override { return number_of(point) < points_.size(); }
  // Nothing is computed from the logits: there is nothing to take back.
  bool edits(HookPoint point) const override { return point.stage != Stage::logits; }
  void see(HookPoint point, ConstTensorView activation) override;
  void edit(HookPoint point, TensorView activation) override;
  bool keeps_on_device() const override { return on_device_; }
  bool keep(HookPoint point, const ActivationCopy& activation) override;
  std::span<const std::int64_t> score_rows() const override { return rows_; }
  Selection selection(HookPoint point) const override {
    if (point.stage != Stage::logits) return {};
    return {.rows = rows_, .heads = {}};
  }

 private:
  std::size_t number_of(HookPoint point) const;

  std::vector<HookPoint> points_;
  std::vector<std::int64_t> rows_;  // of scores, patterns and logits; empty: all
  nanobind::callable call_;
  bool on_device_;
};

}  // namespace qkscope::python
