// Readers of text datasets: give rows until the end or throw an Error, and never more rows than
// bytes.
#include <cstdint>
#include <string_view>

#include "base/core/error.h"
#include "expect.h"
#include "input/texts/dataset_files.h"

namespace {

using Read = qkscope::RecordReaderPointer (*)(std::string_view, const std::string&,
                                              const qkscope::RecordColumns&);

void check(Read read, std::string_view text, bool replace) {
  try {
    const auto reader = read(text, "fuzz", {"text", "id", replace});
    reader->columns();
    std::size_t rows = 0;
    for (qkscope::CorpusRecord record; reader->read_record(record);)
      FUZZ_EXPECT(++rows <= text.size());
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Read read : {qkscope::make_json_lines_reader, qkscope::make_json_array_reader,
                          qkscope::make_csv_reader}) {
    check(read, text, false);
    check(read, text, true);
  }
  return 0;
}
