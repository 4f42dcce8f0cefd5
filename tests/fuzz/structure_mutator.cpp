// Makes libFuzzer use structure-aware mutations every other time.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "mutate_structure.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const auto changed =
      qkscope::mutate_structure({reinterpret_cast<const char*>(data), size}, seed / 2);
  if (changed.empty() || changed.size() > max_size ||
      changed == std::string_view(reinterpret_cast<const char*>(data), size))
    return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
