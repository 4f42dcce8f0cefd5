// A tokenizer.json: refused with an Error, or a tokenizer whose answers fit together.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/utf8.h"
#include "expect.h"
#include "qkscope/tokenizer.h"

namespace {

constexpr std::string_view kText = "It's <s> naïve,  e\u0301 世界。 12\n\n ab▁ab\r\nabab</s>";

void check(const qkscope::Tokenizer& tokenizer) {
  const auto all = tokenizer.encode(kText, {false, 0, true});
  FUZZ_EXPECT(all.offsets.size() == all.ids.size());
  FUZZ_EXPECT(tokenizer.encode(kText, {false}).ids == all.ids);
  const auto first = tokenizer.encode(kText, {false, 3}).ids;
  FUZZ_EXPECT(first.size() == std::min<std::size_t>(3, all.ids.size()));
  const auto text = tokenizer.decode(all.ids);
  FUZZ_EXPECT(qkscope::utf8::find_invalid(text) == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(qkscope::Tokenizer::from_json(text, "fuzz"));
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
  }
  return 0;
}
