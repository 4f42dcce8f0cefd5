// How the positions of a capture were drawn, as its metadata says it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace qkscope {

enum class SamplerType { log_uniform, uniform, all };

std::string_view sampler_type_name(SamplerType type);

struct SamplerOptions {
  SamplerType type = SamplerType::log_uniform;
  double base_rate = 1.0;
  std::int64_t min_bucket_size = 128;
  std::optional<std::int64_t> max_rows;  // of one example, layer and kind
};

}  // namespace qkscope
