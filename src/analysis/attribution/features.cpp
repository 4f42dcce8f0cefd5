#include "analysis/attribution/features.h"

#include <algorithm>

#include "base/core/error.h"

namespace qkscope {
namespace {

constexpr char kDecoder[] = ".decoder";
constexpr char kActivations[] = ".activations";

}  // namespace

FeatureFile::FeatureFile(const std::string& path, std::int64_t tokens, std::int64_t d_model)
    : file_(path) {
  for (const auto& [name, entry] : file_.header().tensors) {
    if (!name.ends_with(kDecoder) && !name.ends_with(kActivations))
      bad_input("{}: found tensor {}, expected names that end with {} or {}", path, name, kDecoder,
                kActivations);
    const auto component = name.substr(0, name.rfind('.'));
    const auto directions = matrix(component, kDecoder).shape();
    const auto activations = matrix(component, kActivations).shape();
    if (directions[1] != d_model)
      bad_input("{}: {}{} has shape {}, expected [features, {}]: the width of the model", path,
                component, kDecoder, directions.to_string(), d_model);
    if (activations[0] != tokens || activations[1] != directions[0])
      bad_input("{}: {}{} has shape {}, expected [{}, {}]: tokens of the text, features", path,
                component, kActivations, activations.to_string(), tokens, directions[0]);
    components_[component] = false;
  }
  if (components_.empty()) bad_input("{}: holds no features", path);
}

ConstTensorView FeatureFile::matrix(const std::string& component, const char* ending) const {
  const auto found = file_.header().tensors.find(component + ending);
  if (found == file_.header().tensors.end() || found->second.shape.size() != 2 ||
      !is_floating(found->second.dtype))
    bad_input(
        "{}: there is no matrix of floating-point numbers {}{}; expected COMPONENT{} and "
        "COMPONENT{}",
        file_.path(), component, ending, kDecoder, kActivations);
  return file_.tensor(found->first);
}

std::vector<ActiveFeature> FeatureFile::active(const std::string& component,
                                               std::span<const std::int64_t> positions) {
  components_[component] = true;
  const auto decoder = matrix(component, kDecoder);
  const auto stored = matrix(component, kActivations);
  std::vector<Tensor> rows;  // one per position, (1, all features)
  for (const auto position : positions)
    rows.push_back(to_float32(stored.rows(position, position + 1)));
  std::vector<ActiveFeature> active;
  for (std::int64_t feature = 0; feature < decoder.dim(0); ++feature) {
    const auto activation = [&](const Tensor& row) { return row.data<float>()[feature]; };
    if (std::ranges::all_of(
            rows, [](float x) { return x == 0; }, activation))
      continue;
    Tensor activations({std::ssize(positions), 1});
    std::ranges::transform(rows, activations.data<float>(), activation);
    active.push_back(
        {feature, to_float32(decoder.rows(feature, feature + 1)), std::move(activations)});
  }
  return active;
}

void FeatureFile::check_all_used() const {
  for (const auto& [component, used] : components_)
    if (!used)
      bad_input(
          "{}: '{}' is no component that the chosen heads read; expected names such as embed, L0H3 "
          "or 2_mlp_out of layers before them",
          file_.path(), component);
}

}  // namespace qkscope
