// A Parquet file under a name of its own until it is whole.
#pragma once

#include <memory>
#include <string>

#include <arrow/type_fwd.h>

namespace qkscope {

class WholeParquetFile {
 public:
  WholeParquetFile(const std::string& path, const arrow::Schema& schema);
  ~WholeParquetFile();  // without finish() nothing stays behind
  WholeParquetFile(const WholeParquetFile&) = delete;
  WholeParquetFile& operator=(const WholeParquetFile&) = delete;

  void append(const arrow::Table& rows);  // a row group
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
