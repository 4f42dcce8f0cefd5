// YAML configuration of a capture: throws an Error, or is accepted.
#include <cstdint>
#include <string>

#include "base/core/error.h"
#include "expect.h"
#include "qkscope/capture.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto config = qkscope::parse_capture_config(text, {});
    FUZZ_EXPECT(!config.dataset.path.empty() && !config.model.name.empty());
    FUZZ_EXPECT(config.tokenizer.max_length >= 0 && config.inference.batch_size > 0);
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
  }
  return 0;
}
