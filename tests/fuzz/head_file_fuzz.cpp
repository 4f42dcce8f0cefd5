// Head file of a capture: throws an Error, or has consistent rows.
#include <cmath>
#include <cstdint>

#include "base/core/error.h"
#include "expect.h"
#include "memory_file.h"
#include "memory_limit.h"
#include "qkscope/captures.h"

namespace {

void check(const qkscope::HeadFile& file) {
  const auto count = file.rows.position.size();
  FUZZ_EXPECT(file.rows.example_id.size() == count && file.rows.bucket.size() == count);
  FUZZ_EXPECT(count == 0 || file.rows.vectors.size() % count == 0);
  const auto rope = qkscope::rope_info(file.metadata, "fuzz");
  for (const auto frequency : rope.inv_freq) FUZZ_EXPECT(std::isfinite(frequency));
  if (const auto sampler = qkscope::sampler_options(file.metadata, "fuzz"))
    for (const auto position : file.rows.position) qkscope::bucket_of(*sampler, position);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const qkscope::MemoryLimit limit(size);
  const qkscope::MemoryFile file({data, size});
  try {
    check(qkscope::read_head_file(file.path()));
  } catch (const qkscope::Error& error) {
    FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
  }
  return 0;
}
