#include "analysis/attribution/features.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

constexpr std::string_view kDecoder = ".decoder";
constexpr std::string_view kActivations = ".activations";

}  // namespace

FeatureFile::FeatureFile(const std::string& path, std::int64_t tokens, std::int64_t d_model)
    : file_(path) {
  const auto& tensors = file_.header().tensors;
  const auto shape_of = [&](const std::string& name) -> const std::vector<std::int64_t>& {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.shape.size() != 2)
      bad_input("{}: there is no matrix {}; expected COMPONENT{} and COMPONENT{}", path, name,
                kDecoder, kActivations);
    if (!is_floating(found->second.dtype))
      bad_input("{}: {} has type {}, expected floating-point numbers", path, name,
                found->second.stored_dtype);
    return found->second.shape;
  };
  for (const auto& [name, entry] : tensors) {
    const bool decoder = name.ends_with(kDecoder);
    if (!decoder && !name.ends_with(kActivations))
      bad_input("{}: found tensor {}, expected names that end with {} or {}", path, name, kDecoder,
                kActivations);
    const auto component = name.substr(0, name.size() - (decoder ? kDecoder : kActivations).size());
    const auto& directions = shape_of(fmt::format("{}{}", component, kDecoder));
    const auto& activations = shape_of(fmt::format("{}{}", component, kActivations));
    if (directions[1] != d_model)
      bad_input("{}: {}{} has shape [{}], expected [features, {}]: the width of the model", path,
                component, kDecoder, fmt::join(directions, ", "), d_model);
    if (activations[0] != tokens || activations[1] != directions[0])
      bad_input("{}: {}{} has shape [{}], expected [{}, {}]: tokens of the text, features", path,
                component, kActivations, fmt::join(activations, ", "), tokens, directions[0]);
    components_.insert(component);
  }
  if (components_.empty()) bad_input("{}: holds no features", path);
}

ActiveFeatures FeatureFile::active(const std::string& component,
                                   std::span<const std::int64_t> positions) {
  used_.insert(component);
  const auto decoder = file_.tensor(fmt::format("{}{}", component, kDecoder));
  const auto stored = file_.tensor(fmt::format("{}{}", component, kActivations));
  std::vector<Tensor> rows;  // one per position, (1, all features)
  for (const auto position : positions)
    rows.push_back(to_float32(stored.rows(position, position + 1)));
  ActiveFeatures active;
  for (std::int64_t feature = 0; feature < decoder.dim(0); ++feature)
    if (std::ranges::any_of(rows,
                            [&](const Tensor& row) { return row.data<float>()[feature] != 0; }))
      active.numbers.push_back(feature);
  const auto count = std::ssize(active.numbers);
  active.directions = Tensor({count, decoder.dim(1)});
  active.activations = Tensor({std::ssize(rows), count});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto feature = active.numbers[as_index(i)];
    const Tensor direction = to_float32(decoder.rows(feature, feature + 1));
    std::copy_n(direction.data<float>(), decoder.dim(1),
                active.directions.data<float>() + i * decoder.dim(1));
    for (std::size_t row = 0; row < rows.size(); ++row)
      active.activations.data<float>()[as_index(count) * row + as_index(i)] =
          rows[row].data<float>()[feature];
  }
  return active;
}

void FeatureFile::check_all_used() const {
  for (const auto& component : components_)
    if (!used_.contains(component))
      bad_input(
          "{}: '{}' is no component that the chosen heads read; expected names such as embed, L0H3 "
          "or 2_mlp_out of layers before them",
          file_.path(), component);
}

}  // namespace qkscope
