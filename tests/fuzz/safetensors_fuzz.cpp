// Header of a safetensors file: throws an Error, or is consistent with the file.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/core/error.h"
#include "expect.h"
#include "input/checkpoint/safetensors.h"

namespace {

void check_file(std::string_view file) {
  qkscope::SafetensorsHeader header;
  try {
    header = qkscope::parse_safetensors_header(std::as_bytes(std::span(file)), "fuzz");
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
    return;
  }
  FUZZ_EXPECT(header.data_offset >= 8 && header.data_offset <= file.size());
  std::uint64_t covered = 0;
  for (const auto& [name, entry] : header.tensors) {
    FUZZ_EXPECT(entry.begin <= entry.end && entry.end <= file.size() - header.data_offset);
    covered += entry.end - entry.begin;
    if (!entry.readable || entry.shape.size() > qkscope::Shape::kMaxRank) continue;
    const qkscope::Shape shape{std::span(entry.shape)};
    const qkscope::ConstTensorView view(nullptr, entry.dtype, shape);
    FUZZ_EXPECT(view.size_bytes() == entry.end - entry.begin);
  }
  FUZZ_EXPECT(covered == file.size() - header.data_offset);
}

// Treats the input up to the last brace as a header with the correct length, so that mutations of
// the JSON text pass the length check.
void check_text(std::string_view input) {
  const auto length = input.rfind('}') + 1;  // 0 if there is none
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file += static_cast<char>(length >> 8 * i & 0xff);
  check_file(file.append(input));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_file(input);
  check_text(input);
  return 0;
}
