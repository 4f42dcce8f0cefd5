// tokenizer.json: throws an Error, or gives a consistent tokenizer. The part after a byte 0xFF,
// which no tokenizer.json contains, is the text to encode; a default text is used without one.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/core/error.h"
#include "base/core/text.h"
#include "expect.h"
#include "qkscope/tokenizer.h"

namespace {

constexpr std::string_view kText = "It's <s> naïve,  e\u0301 世界。 12\n\n ab▁ab\r\nabab</s>";

void check(const qkscope::Tokenizer& tokenizer, std::string_view text) {
  const auto all = tokenizer.encode(text, {false, 0, true});
  FUZZ_EXPECT(all.offsets.size() == all.ids.size());
  FUZZ_EXPECT(tokenizer.encode(text, {false}).ids == all.ids);
  for (const std::size_t wanted : {1, 3, 20}) {
    const auto first = tokenizer.encode(text, {false, static_cast<std::int64_t>(wanted)}).ids;
    FUZZ_EXPECT(first.size() == std::min(wanted, all.ids.size()));
  }
  const auto decoded = tokenizer.decode(all.ids);
  FUZZ_EXPECT(qkscope::find_invalid_utf8(decoded) == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto mark = input.find('\xff');
  const auto text = mark == std::string_view::npos ? kText : input.substr(mark + 1);
  try {
    check(qkscope::Tokenizer::from_json(input.substr(0, mark), "fuzz"), text);
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
  }
  return 0;
}
