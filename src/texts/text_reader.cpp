// A plain text file is one document.
#include "io/mapped_file.h"
#include "texts/record_reader.h"

namespace qkscope {
namespace {

class TextReader : public RecordReader {
 public:
  TextReader(const std::string& path, const RecordColumns& columns) : path_(path) {
    if (columns.id) missing_column(path, *columns.id, this->columns());
  }

  bool next(Record& record) override {
    if (done_) return false;
    done_ = true;
    record.text = std::string(MappedFile(path_).text());
    record.where = path_;
    return true;
  }
  std::vector<CorpusColumn> columns() const override { return {{"text", "string"}}; }

 private:
  std::string path_;
  bool done_ = false;
};

}  // namespace

RecordReaderPointer open_text(const std::string& path, const RecordColumns& columns) {
  return std::make_unique<TextReader>(path, columns);
}

}  // namespace qkscope
