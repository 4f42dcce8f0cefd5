// config.json: throws an Error, or gives a model with finite sizes and RoPE frequencies.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/core/error.h"
#include "base/io/json.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/model/model_config.h"
#include "engine/ops/elementwise.h"
#include "expect.h"

namespace {

void check_rope(const qkscope::RopeConfig& rope) {
  if (rope.dim > 512) return;  // larger models are slow and find no other bugs
  const qkscope::Sequence sequence{0, 40};
  const auto table = qkscope::rotary_table(rope, {&sequence, 1});
  for (const auto* tensor : {&table.cos, &table.sin})
    for (std::int64_t i = 0; i < tensor->size(); ++i)
      FUZZ_EXPECT(std::isfinite(tensor->data<float>()[i]));
}

void check(const qkscope::ModelConfig& model) {
  FUZZ_EXPECT(model.n_layers > 0 && model.n_layers <= 4096);
  FUZZ_EXPECT(static_cast<std::int64_t>(model.layers.size()) == model.n_layers);
  FUZZ_EXPECT(model.n_heads % model.n_kv_heads == 0);
  FUZZ_EXPECT(std::isfinite(model.attention_scale) && model.attention_scale > 0.0);
  FUZZ_EXPECT(model.norm_eps >= 0.0 && std::isfinite(model.logit_softcap));
  for (const auto& layer : model.layers) {
    FUZZ_EXPECT(layer.window >= 0 && layer.window <= INT32_MAX);
    FUZZ_EXPECT(layer.rope < static_cast<int>(model.ropes.size()));
  }
  FUZZ_EXPECT(qkscope::parameter_count(model) > 0);
  for (const auto& rope : model.ropes) check_rope(rope);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(qkscope::parse_model_config(qkscope::parse_json(text, "fuzz"), "fuzz"));
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
  }
  return 0;
}
