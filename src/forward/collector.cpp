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

void Collector::see(HookPoint point, ConstTensorView activation) {
  // Squares have been computed at the kept rows only.
  const bool whole = rows_.empty() || is_square(point.stage);
  Shape shape = activation.shape();
  if (!whole) shape[0] = static_cast<std::int64_t>(rows_.size());
  Tensor kept(shape);
  const auto pieces = whole ? std::size_t{1} : rows_.size();
  const auto bytes = kept.view().size_bytes() / pieces;
  for (std::size_t i = 0; i < pieces; ++i) {
    const auto row = whole ? 0 : static_cast<std::size_t>(rows_[i]);
    std::memcpy(kept.view().bytes() + i * bytes, activation.bytes() + row * bytes, bytes);
  }
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
