// The examples of a capture and examples.parquet, which maps the 32-bit example_id of the head
// files to the texts of the dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace qkscope {

struct ExampleRecord {
  std::int64_t row = 0;   // dataset row
  std::int64_t key = 0;   // 64-bit id that seeds the sampler
  std::string source_id;  // id in the dataset
  std::int32_t tokens = 0;
  bool truncated = false;
  std::uint64_t text = 0;  // checksum of the text; stored in parts only
};

// Id of an example in the head files: the low 32 bits of its key.
constexpr std::int32_t example_id(std::int64_t key) {
  return static_cast<std::int32_t>(static_cast<std::uint64_t>(key));
}

// Writes examples.parquet.
class ExamplesWriter {
 public:
  ExamplesWriter(const std::string& path, std::int64_t row_group_size);
  ~ExamplesWriter();
  ExamplesWriter(const ExamplesWriter&) = delete;
  ExamplesWriter& operator=(const ExamplesWriter&) = delete;

  void append(const ExampleRecord& example);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
