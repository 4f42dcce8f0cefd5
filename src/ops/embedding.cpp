#include "ops/embedding.h"

#include "core/convert.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace qkscope {

void embed(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale,
           TensorView y) {
  const auto width = table.values.dim(1);
  const float factor = scale * table.scale;
  parallel_for(static_cast<std::int64_t>(ids.size()), [&](std::int64_t row) {
    const auto id = ids[static_cast<std::size_t>(row)];
    QKSCOPE_ASSERT(id >= 0 && id < table.values.dim(0));
    const std::span<float> out(y.data<float>() + row * width, static_cast<std::size_t>(width));
    widen(table.values.rows(id, id + 1), out);
    if (factor != 1.0f)
      for (float& value : out) value *= factor;
  });
}

}  // namespace qkscope
