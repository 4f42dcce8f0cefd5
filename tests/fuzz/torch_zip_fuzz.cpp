// PyTorch file: throws an Error, or all tensors lie inside the file.
#include <cstdint>
#include <span>

#include "expect.h"
#include "input/checkpoint/safetensors.h"
#include "memory_limit.h"

using qkscope::refused_or;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const qkscope::MemoryLimit limit(size);
  const auto file = std::as_bytes(std::span(data, size));
  refused_or([&] {
    for (const auto& [name, entry] : qkscope::parse_torch_zip_header(file, "fuzz").tensors)
      FUZZ_EXPECT(entry.begin <= entry.end && entry.end <= size);
  });
  // Mutates the pickle alone, without a zip directory.
  refused_or([&] {
    for (const auto& [name, tensor] : qkscope::read_tensor_pickle(file, "fuzz"))
      FUZZ_EXPECT(tensor.shape.size() == tensor.strides.size() && tensor.offset >= 0);
  });
  return 0;
}
