// Observer that records what it sees.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "qkscope/forward.h"

namespace qkscope {

class Recorder : public Observer {
 public:
  using Wanted = std::function<bool(const std::string&)>;

  explicit Recorder(Wanted wanted, std::vector<std::int64_t> score_rows = {})
      : wanted_(std::move(wanted)), score_rows_(std::move(score_rows)) {}

  bool wants(HookPoint point) const override { return wanted_(hook_name(point)); }
  Selection selection(HookPoint) const override { return {.rows = looked_at, .heads = {}}; }

  void observe(HookPoint point, ConstTensorView activation) override {
    Tensor copy(activation.shape());
    std::memcpy(copy.data<float>(), activation.bytes(), activation.size_bytes());
    order.push_back(hook_name(point));
    seen.insert_or_assign(hook_name(point), std::move(copy));
  }

  std::span<const std::int64_t> score_rows() const override { return score_rows_; }

  std::vector<std::int64_t> looked_at;  // rows; empty: all
  std::map<std::string, Tensor> seen;
  std::vector<std::string> order;  // in the order of firing

 private:
  Wanted wanted_;
  std::vector<std::int64_t> score_rows_;
};

}  // namespace qkscope
