// JSON Lines (an object per line) and JSON files that are one list of objects.
#include <algorithm>

#include "core/error.h"
#include "texts/json_row.h"
#include "texts/mapped_reader.h"
#include "texts/record_reader.h"

namespace qkscope {
namespace {

constexpr std::string_view kWhite = " \t\r\n";

// What both have in common: a mapped file that gives the text of one row after another.
class JsonReader : public RecordReader {
 public:
  JsonReader(std::string_view text, std::string where, const RecordColumns& columns)
      : where_(std::move(where)), rest_(text), columns_(columns) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
  }

  bool next(Record& record) override {
    std::string_view row;
    if (!next_row(row)) return false;
    record.where = where();
    parse_json_row(row, columns_, record);
    return true;
  }

  std::vector<CorpusColumn> columns() const override { return first_columns_; }

 protected:
  // The text of the next row; row_line_ says where it is.
  virtual bool next_row(std::string_view& row) = 0;

  std::string where() const { return fmt::format("{}: line {}", where_, row_line_); }
  void advance(std::size_t bytes) {
    line_ += std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(bytes), '\n');
    rest_.remove_prefix(bytes);
  }
  void skip_white() { advance(std::min(rest_.find_first_not_of(kWhite), rest_.size())); }

  // Looks at the first row, then starts over.
  void read_columns() {
    const std::string_view start = rest_;
    const std::int64_t line = line_;
    std::string_view row;
    if (next_row(row) && !columns_.replace_invalid) first_columns_ = json_row_columns(row, where());
    rest_ = start;
    line_ = line;
  }

  std::string where_;
  std::string_view rest_;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 1;

 private:
  RecordColumns columns_;
  std::vector<CorpusColumn> first_columns_;
};

class JsonLinesReader : public JsonReader {
 public:
  JsonLinesReader(std::string_view text, const std::string& where, const RecordColumns& columns)
      : JsonReader(text, where, columns) {
    read_columns();
  }

 private:
  bool next_row(std::string_view& row) override {
    skip_white();
    row_line_ = line_;
    row = rest_.substr(0, rest_.find('\n'));
    advance(row.size());
    return !row.empty();
  }
};

class JsonArrayReader : public JsonReader {
 public:
  JsonArrayReader(std::string_view text, const std::string& where, const RecordColumns& columns)
      : JsonReader(text, where, columns) {
    skip_white();
    if (!rest_.starts_with('[')) {
      bad_input("{}: expected a list of objects; for one object per line name the file .jsonl",
                where);
    }
    advance(1);
    read_columns();
  }

 private:
  bool next_row(std::string_view& row) override {
    if (ended_) return false;
    skip_white();
    if (rest_.starts_with(',')) {
      advance(1);
      skip_white();
    }
    row_line_ = line_;
    if (rest_.starts_with(']')) {
      advance(1);
      skip_white();
      if (!rest_.empty()) bad_input("{}: there is more after the end of the list", where());
      ended_ = true;
      return false;
    }
    const std::size_t size = value_size();
    row = rest_.substr(0, size);
    advance(size);
    skip_white();
    if (row.empty() || (!rest_.starts_with(',') && !rest_.starts_with(']'))) {
      bad_input("{}: the list of rows is broken off after this row", where());
    }
    return true;
  }

  // Bytes of the value at the front: up to the bracket that closes it.
  std::size_t value_size() const {
    int depth = 0;
    for (std::size_t at = 0; at < rest_.size(); ++at) {
      const char c = rest_[at];
      if (c == '"') {
        at = string_end(at);
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        if (--depth <= 0) return at + (depth == 0 ? 1 : 0);
      } else if (c == ',' && depth == 0) {
        return at;
      }
    }
    bad_input("{}: the list of rows has no end", where());
  }

  std::size_t string_end(std::size_t quote) const {
    for (std::size_t at = quote + 1; at < rest_.size(); ++at) {
      at = rest_.find_first_of("\"\\", at);
      if (at == std::string_view::npos) break;
      if (rest_[at] == '"') return at;
      ++at;  // what a backslash escapes
    }
    bad_input("{}: a string has no end", where());
  }

  bool ended_ = false;
};

}  // namespace

RecordReaderPointer read_json_lines(std::string_view text, const std::string& where,
                                    const RecordColumns& columns) {
  return std::make_unique<JsonLinesReader>(text, where, columns);
}

RecordReaderPointer read_json_array(std::string_view text, const std::string& where,
                                    const RecordColumns& columns) {
  return std::make_unique<JsonArrayReader>(text, where, columns);
}

RecordReaderPointer open_json_lines(const std::string& path, const RecordColumns& columns) {
  return std::make_unique<MappedReader>(path, columns, read_json_lines);
}

RecordReaderPointer open_json_array(const std::string& path, const RecordColumns& columns) {
  return std::make_unique<MappedReader>(path, columns, read_json_array);
}

}  // namespace qkscope
