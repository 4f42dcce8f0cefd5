#include <algorithm>

#include "base/core/error.h"
#include "input/texts/record_reader.h"

namespace qkscope {
namespace {

class CsvReader : public RecordReader {
 public:
  CsvReader(std::string_view text, std::string where, const RecordColumns& columns)
      : where_(std::move(where)), rest_(text) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
    if (!read_row(names_)) bad_input("{}: the file is empty; expected a header line", where_);
    text_ = index_of(columns.text);
    if (columns.id) id_ = index_of(*columns.id);
  }

  bool next(Record& record) override {
    if (!read_row(fields_)) return false;
    record.where = fmt::format("{}: line {}", where_, row_line_);
    if (fields_.size() != names_.size()) {
      bad_input("{}: the row has {} fields, the header has {}", record.where, fields_.size(),
                names_.size());
    }
    record.text = std::move(fields_[text_]);
    if (id_) record.id = ExampleId::from_digits(std::move(fields_[*id_]));
    return true;
  }

  std::vector<CorpusColumn> columns() const override {
    std::vector<CorpusColumn> columns;
    for (const std::string& name : names_) columns.push_back({name, "string"});
    return columns;
  }

 private:
  std::size_t index_of(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) missing_column(where_, name, columns());
    return static_cast<std::size_t>(found - names_.begin());
  }

  // Returns false at the end of the file. Empty lines are skipped.
  bool read_row(std::vector<std::string>& fields) {
    while (!rest_.empty() && (rest_.front() == '\n' || rest_.starts_with("\r\n"))) {
      rest_.remove_prefix(rest_.front() == '\n' ? 1 : 2);
      ++line_;
    }
    if (rest_.empty()) return false;
    row_line_ = line_;
    fields.clear();
    do {
      fields.push_back(rest_.starts_with('"') ? quoted_field() : plain_field());
    } while (take(','));
    take('\r');
    if (take('\n')) {
      ++line_;
    } else if (!rest_.empty()) {
      bad_input("{}: line {}: expected a comma or a line end after a quoted field", where_, line_);
    }
    return true;
  }

  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string plain_field() {
    std::size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
    if (end > 0 && rest_[end - 1] == '\r' && (end == rest_.size() || rest_[end] == '\n')) --end;
    std::string field(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return field;
  }

  std::string quoted_field() {
    const std::int64_t first_line = line_;
    std::string field;
    rest_.remove_prefix(1);
    while (true) {
      const std::size_t quote = rest_.find('"');
      if (quote == std::string_view::npos) {
        bad_input("{}: line {}: a quoted field has no end", where_, first_line);
      }
      const std::string_view part = rest_.substr(0, quote);
      line_ += std::count(part.begin(), part.end(), '\n');
      field += part;
      rest_.remove_prefix(quote + 1);
      if (!take('"')) return field;
      field += '"';
    }
  }

  std::string where_;
  std::string_view rest_;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 1;
  std::vector<std::string> names_, fields_;
  std::size_t text_ = 0;
  std::optional<std::size_t> id_;
};

}  // namespace

RecordReaderPointer read_csv(std::string_view text, const std::string& where,
                             const RecordColumns& columns) {
  return std::make_unique<CsvReader>(text, where, columns);
}

}  // namespace qkscope
