// Writes examples.parquet: what the 32-bit example_id of the head files stands for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace qkscope {

struct ExampleRow {
  std::int32_t example_id = 0;   // the low 32 bits of the key
  std::int64_t example_key = 0;  // what seeds the sampling
  std::string source_id;         // as the dataset writes it
  std::int32_t tokens = 0;
  bool truncated = false;
};

class ExamplesWriter {
 public:
  ExamplesWriter(const std::string& path, std::int64_t row_group_size);
  ~ExamplesWriter();
  ExamplesWriter(const ExamplesWriter&) = delete;
  ExamplesWriter& operator=(const ExamplesWriter&) = delete;

  void append(const ExampleRow& row);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
