#include "model/family.h"

#include <array>

namespace qkscope {

std::span<const Family> families() {
  static constexpr std::array kFamilies = {
      Family{"llama", read_llama},
      Family{"mistral", read_mistral},
      Family{"ministral3", read_ministral3},
      Family{"qwen2", read_qwen2},
      Family{"qwen3", read_qwen3},
      Family{"smollm3", read_smollm3},
      Family{"mllama_text_model", read_mllama},
      Family{"gemma3_text", read_gemma3},
      Family{"glm", read_glm},
      Family{"glm4", read_glm4},
  };
  return kFamilies;
}

}  // namespace qkscope
