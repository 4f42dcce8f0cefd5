// Parquet file of texts: gives rows until the end, or throws an Error.
#include <cstdint>
#include <optional>

#include "base/core/error.h"
#include "expect.h"
#include "input/texts/dataset_files.h"
#include "memory_file.h"
#include "memory_limit.h"

namespace {

void check(const std::string& path, const std::optional<std::string>& id) {
  constexpr int kMostRows = 100'000;  // a few bytes can encode millions of equal rows
  try {
    const auto reader = qkscope::open_parquet_records(path, {"text", id});
    FUZZ_EXPECT(!reader->columns().empty());
    qkscope::CorpusRecord record;
    for (int row = 0; row < kMostRows && reader->read_record(record); ++row) {
    }
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const qkscope::MemoryLimit limit(size);
  const qkscope::MemoryFile file({data, size});
  check(file.path(), std::nullopt);
  check(file.path(), "id");
  return 0;
}
