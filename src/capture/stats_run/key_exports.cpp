#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "capture/stats_run/stats_plan.h"
#include "input/checkpoint/safetensors.h"

namespace qkscope {
namespace {

constexpr char kScalesFile[] = "kv_scales.safetensors";
constexpr char kFiltersFile[] = "model.safetensors";
constexpr char kFilters[] = "q_filters";

std::string file_in(const std::string& path, const char* name) {
  return is_folder(path) ? path + "/" + name : path;
}

// Finds the key scale of a layer under any prefix before "layers".
ConstTensorView scale_of(const SafetensorsFile& file, std::int64_t layer) {
  const auto suffix = fmt::format("layers.{}.self_attn.k_scale", layer);
  for (const auto& [name, tensor] : file.header().tensors)
    if (name == suffix || name.ends_with("." + suffix)) return file.tensor(name);
  bad_input("{}: has no {}; expected the fp8-kv export of this model", file.path(), suffix);
}

}  // namespace

std::string key_scales_file(const std::string& path) {
  return file_in(path, kScalesFile);
}

std::string key_filters_file(const std::string& path) {
  return file_in(path, kFiltersFile);
}

std::vector<float> read_key_scales(const std::string& path, const ModelConfig& model) {
  const SafetensorsFile file(key_scales_file(path));
  std::vector<float> scales;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    const auto scale = scale_of(file, layer);
    const bool per_head = scale.size() == model.n_kv_heads;
    if (scale.dtype() != DType::f32 || (scale.size() != 1 && !per_head))
      bad_input("{}: the scales of layer {} are {} x {}; expected 1 or {} (key heads) of float32",
                file.path(), layer, scale.size(), dtype_name(scale.dtype()), model.n_kv_heads);
    for (std::int64_t head = 0; head < model.n_kv_heads; ++head)
      scales.push_back(scale.data<float>()[per_head ? head : 0]);
  }
  for (const float scale : scales)
    if (!(scale > 0.0f))
      bad_input("{}: holds the scale {}; expected more than 0", file.path(), scale);
  return scales;
}

std::vector<float> read_key_filters(const std::string& path, const ModelConfig& model) {
  const SafetensorsFile file(key_filters_file(path));
  if (!file.header().tensors.contains(kFilters))
    bad_input("{}: has no tensor {}; expected a q-filters export", file.path(), kFilters);
  const auto filters = file.tensor(kFilters);
  const Shape expected = {model.n_layers, model.n_kv_heads, model.d_head};
  if (filters.dtype() != DType::f32 || filters.shape() != expected)
    bad_input("{}: {} is {} of shape {}; expected float32 of shape {} for this model", file.path(),
              kFilters, dtype_name(filters.dtype()), filters.shape().to_string(),
              expected.to_string());
  return {filters.data<float>(), filters.data<float>() + filters.size()};
}

}  // namespace qkscope
