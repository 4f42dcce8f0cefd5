// Shard index: throws an Error, or all shards are inside the folder.
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/core/error.h"
#include "expect.h"
#include "input/checkpoint/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto index = qkscope::parse_weight_index(text, "fuzz");
    FUZZ_EXPECT(!index.empty());
    for (const auto& [name, shard] : index) {
      const auto path = (std::filesystem::path("/folder") / shard).lexically_normal().string();
      FUZZ_EXPECT(path.starts_with("/folder/"));
    }
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
  }
  return 0;
}
