#include "captures/sampler_options.h"

namespace qkscope {

std::string_view sampler_type_name(SamplerType type) {
  switch (type) {
    case SamplerType::log_uniform:
      return "log_uniform";
    case SamplerType::uniform:
      return "uniform";
    case SamplerType::all:
      return "all";
  }
  return "";
}

}  // namespace qkscope
