#include "capture/stats_run/pattern_rows.h"

#include <algorithm>
#include <numeric>

#include "base/core/numbers.h"
#include "base/core/thread_pool.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBlockBytes = 64ll << 20;  // of the rows of a layer that are held

}  // namespace

PatternRows::PatternRows(const ModelConfig& model, std::span<const std::int32_t> text, Take take)
    : tokens_(std::ssize(text)), heads_(model.n_heads), take_(std::move(take)) {
  batch_.add(text);
}

void PatternRows::run(const Model& model) {
  const auto row_bytes = heads_ * tokens_ * static_cast<std::int64_t>(sizeof(float));
  const auto block = std::clamp<std::int64_t>(kBlockBytes / row_bytes, 1, tokens_);
  for (std::int64_t begin = 0; begin < tokens_; begin += block) {
    rows_.resize(as_index(std::min(block, tokens_ - begin)));
    std::iota(rows_.begin(), rows_.end(), begin);
    model.run(batch_, *this);
  }
}

void PatternRows::see(HookPoint point, ConstTensorView pattern) {
  const auto rows = std::ssize(rows_);
  parallel_for(heads_, [&](std::int64_t head) {
    for (std::int64_t r = 0; r < rows; ++r)
      take_(point.layer, head, rows_[as_index(r)],
            pattern.data<float>() + (head * rows + r) * tokens_);
  });
}

}  // namespace qkscope
