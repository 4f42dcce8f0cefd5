// A reader of a text in memory put over a mapped file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/mapped_file.h"
#include "texts/record_reader.h"

namespace qkscope {

class MappedReader : public RecordReader {
 public:
  using Read = RecordReaderPointer (*)(std::string_view, const std::string&, const RecordColumns&);

  MappedReader(const std::string& path, const RecordColumns& columns, Read read)
      : file_(path), reader_(read(file_.text(), path, columns)) {}

  bool next(Record& record) override { return reader_->next(record); }
  std::vector<CorpusColumn> columns() const override { return reader_->columns(); }

 private:
  MappedFile file_;
  RecordReaderPointer reader_;
};

}  // namespace qkscope
