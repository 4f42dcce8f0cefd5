#include "forward/collector.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/text.h"

namespace qkscope {
namespace {

bool is_square(Stage stage) {
  return stage == Stage::attn_scores || stage == Stage::pattern;
}

}  // namespace

bool Collector::wants(HookPoint point) const {
  return std::find(points_.begin(), points_.end(), point) != points_.end();
}

Selection Collector::selection(HookPoint point) const {
  if (is_square(point.stage)) return {};  // computed at the kept rows only
  return {.rows = rows_, .heads = {}};
}

void Collector::see(HookPoint point, ConstTensorView activation) {
  Tensor kept(activation.shape());
  std::memcpy(kept.view().bytes(), activation.bytes(), activation.size_bytes());
  kept_.push_back({point, std::move(kept)});
}

void check_score_size(const ModelConfig& model, std::span<const HookPoint> points,
                      std::int64_t rows, std::int64_t keys, std::string_view how) {
  constexpr std::uint64_t kLimit = std::uint64_t{16} << 30;
  std::uint64_t bytes = 0;
  for (const auto point : points)
    if (is_square(point.stage))
      bytes += static_cast<std::uint64_t>(model.n_heads * rows * keys) * sizeof(float);
  if (bytes > kLimit)
    bad_input(
        "attention scores and patterns of {} query positions x {} keys would take {}; "
        "choose query positions with {}",
        rows, keys, format_bytes(bytes), how);
}

}  // namespace qkscope
