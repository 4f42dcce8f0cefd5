#include "engine/device/cuda/attention/hopper_kernel.h"

#include "engine/device/cuda/attention/hopper_heads.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kLongText = 8192;

const HopperHeads* kernel_for(std::int64_t d_head, bool softcap, std::int64_t longest) {
  static const HopperHeads long_texts = hopper_heads_64_in_long_texts();
  static const HopperHeads kernels[] = {hopper_heads_64(),         hopper_heads_96(),
                                        hopper_heads_128(),        hopper_heads_256(),
                                        hopper_capped_heads_128(), hopper_capped_heads_256()};
  if (d_head == long_texts.d_head && !softcap && longest >= kLongText) return &long_texts;
  for (const auto& kernel : kernels)
    if (kernel.d_head == d_head && kernel.softcap == softcap) return &kernel;
  return nullptr;
}

}  // namespace

int hopper_tile_rows(std::int64_t d_head, bool softcap, std::int64_t longest) {
  const auto* kernel = kernel_for(d_head, softcap, longest);
  return kernel != nullptr ? kernel->tile_rows : 0;
}

cudaError_t hopper_attention(const HopperArguments& arguments, cudaStream_t stream) {
  const auto* kernel = kernel_for(arguments.d_head, arguments.softcap > 0, arguments.longest);
  return kernel != nullptr ? kernel->attend(arguments, stream) : cudaErrorNotSupported;
}

}  // namespace qkscope::cuda
