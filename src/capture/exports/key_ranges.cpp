// Ranges of keys and values per channel, for whoever quantises them.
#include <algorithm>
#include <cmath>
#include <deque>

#include <fmt/format.h>

#include "capture/exports/consumers.h"
#include "qkscope/model.h"

namespace qkscope {
namespace {

// Tensors of one file, which keep their numbers until it is written.
class RangeTensors {
 public:
  void add(const std::string& prefix, const HeadMoments& moments) {
    const Shape shape{moments.heads, moments.dim};
    const auto fill = [&](const char* name, auto value) {
      Tensor& tensor = kept_.emplace_back(shape);
      for (std::int64_t i = 0; i < tensor.size(); ++i)
        tensor.data<float>()[i] = static_cast<float>(value(static_cast<std::size_t>(i)));
      named_.push_back({prefix + name, tensor});
    };
    fill("min", [&](std::size_t i) { return moments.min[i]; });
    fill("max", [&](std::size_t i) { return moments.max[i]; });
    fill("absmax", [&](std::size_t i) { return std::max(-moments.min[i], moments.max[i]); });
    fill("mean", [&](std::size_t i) { return moments.mean[i]; });
    fill("std", [&](std::size_t i) { return deviation(moments, static_cast<std::int64_t>(i)); });
  }
  const std::vector<NamedTensor>& all() const { return named_; }

 private:
  static double deviation(const HeadMoments& moments, std::int64_t i) {
    const auto channel = i % moments.dim;
    const auto place = i / moments.dim * triangle_size(moments.dim) +
                       triangle_index(moments.dim, channel, channel);
    return std::sqrt(moments.m2[static_cast<std::size_t>(place)] /
                     static_cast<double>(moments.n() - 1));
  }

  std::deque<Tensor> kept_;
  std::vector<NamedTensor> named_;
};

}  // namespace

std::string export_key_ranges(const ExportInput& input) {
  const auto& set = input.options().set;
  RangeTensors tensors;
  for (const auto layer : input.statistics().layers) {
    using enum VectorStage;
    const auto prefix = fmt::format("layers.{}.", layer);
    tensors.add(prefix + "k.pre.", input.moments(VectorKind::key, pre, layer, set));
    tensors.add(prefix + "k.post.", input.moments(VectorKind::key, post, layer, set));
    tensors.add(prefix + "v.pre.", input.moments(VectorKind::value, pre, layer, set));
  }
  prepare_file(input.options(), input.options().out);
  write_safetensors(input.options().out, tensors.all(),
                    {{"rope_style", input.statistics().interleaved ? "interleaved" : "half"},
                     {"stage", "pre: before RoPE; post: what enters the dot product"},
                     {"set", set},
                     {"model", input.model_name()}});
  return input.options().out;
}

}  // namespace qkscope
