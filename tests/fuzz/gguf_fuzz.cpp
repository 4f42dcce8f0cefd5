// GGUF file: throws an Error, or all tensors lie inside the file; the same for its model and
// tokenizer.
#include <cstdint>
#include <span>

#include "expect.h"
#include "input/checkpoint/gguf.h"
#include "input/tokenizer/tokenizer_file.h"

using qkscope::refused_or;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  refused_or([&] {
    const auto header = qkscope::parse_gguf(file, "fuzz");
    for (const auto& [name, tensor] : header.tensors) {
      FUZZ_EXPECT(tensor.begin <= tensor.end && tensor.end <= size);
      FUZZ_EXPECT(static_cast<std::uint64_t>(tensor.element_count() / tensor.type->elements) *
                      tensor.type->bytes ==
                  tensor.end - tensor.begin);
    }
    refused_or([&] { qkscope::read_gguf_model(header, file, "fuzz"); });
    refused_or([&] {
      const auto tokenizer = qkscope::parse_gguf_tokenizer({header, "fuzz"});
      for (const auto& merge : tokenizer.model.merges)
        FUZZ_EXPECT(merge.left >= 0 && merge.right >= 0 && merge.into >= 0);
    });
  });
  return 0;
}
