#include <algorithm>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "input/texts/dataset_files.h"

namespace qkscope {
namespace {

// SAX handler that keeps only the requested columns, because a row may be much larger.
class JsonRowHandler : public nlohmann::json_sax<Json> {
 public:
  JsonRowHandler(const RecordColumns& columns, CorpusRecord& record)
      : columns_(columns), record_(record) {}

  bool has_text = false, has_id = false, id_is_nested = false;

  bool null() override {
    return handle_value([](ExampleId& id) { id = ExampleId::from_string("None"); });
  }
  bool boolean(bool v) override {
    return handle_value([=](ExampleId& id) { id = ExampleId::from_number(std::int64_t{v}); },
                        "a boolean");
  }
  bool number_integer(number_integer_t v) override {
    return handle_value([=](ExampleId& id) { id = ExampleId::from_number(std::int64_t{v}); },
                        "a number");
  }
  bool number_unsigned(number_unsigned_t v) override {
    return handle_value([=](ExampleId& id) { id = ExampleId::from_number(std::uint64_t{v}); },
                        "a number");
  }
  bool number_float(number_float_t v, const string_t& written) override {
    const bool digits = written.find_first_of(".eE") == std::string::npos;
    return handle_value(
        [&](ExampleId& id) {
          id = digits ? ExampleId::from_digits(written) : ExampleId::from_number(v);
        },
        "a number");
  }
  bool string(string_t& v) override {
    if (depth_ == 1 && in_text_) record_.text = v;
    return handle_value([&](ExampleId& id) { id = ExampleId::from_string(v); }, nullptr);
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter_container("an object"); }
  bool start_array(std::size_t) override { return enter_container("a list"); }
  bool end_object() override { return leave_container(); }
  bool end_array() override { return leave_container(); }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    in_text_ = name == columns_.text;
    in_id_ = columns_.id && name == *columns_.id;
    has_text = has_text || in_text_;
    has_id = has_id || in_id_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    std::string reason = error.what();
    reason.erase(0, reason.find(": ") + 2);
    reject("{}: not valid JSON: {}", record_.where, reason);
  }

 private:
  template <typename SetId>
  bool handle_value(SetId set_id, const char* not_text = nullptr) {
    if (depth_ == 0) reject("{}: expected a JSON object", record_.where);
    if (depth_ != 1) return true;
    if (in_text_ && not_text != nullptr) throw_text_type_error(not_text);
    if (in_id_) set_id(record_.id);
    return true;
  }
  bool enter_container(const char* kind) {
    if (depth_ == 0 && std::string_view(kind) != "an object")
      reject("{}: expected a JSON object, found {}", record_.where, kind);
    if (depth_ == 1 && in_text_) throw_text_type_error(kind);
    if (depth_ == 1 && in_id_) id_is_nested = true;
    ++depth_;
    return true;
  }
  bool leave_container() {
    --depth_;
    return true;
  }
  [[noreturn]] void throw_text_type_error(const char* found) const {
    reject("{}: column '{}' holds {}, expected a string", record_.where, columns_.text, found);
  }

  const RecordColumns& columns_;
  CorpusRecord& record_;
  int depth_ = 0;
  bool in_text_ = false, in_id_ = false;
};

// Rejects invalid UTF-8 and zero bytes, at which nlohmann::json would stop reading.
void check_row_encoding(std::string_view text, const std::string& where) {
  if (text.find('\0') != std::string_view::npos) reject("{}: not valid JSON: a zero byte", where);
  if (const auto at = find_invalid_utf8(text); at != std::string_view::npos)
    reject("{}: not UTF-8 at byte {} of the row; {}", where, at, kInvalidUtf8Advice);
}

// Returns the keys of a JSON object with the types of their values.
std::vector<CorpusColumn> json_row_columns(std::string_view text, const std::string& where) {
  check_row_encoding(text, where);
  std::vector<CorpusColumn> columns;
  const Json row = parse_json(text, where);
  if (!row.is_object()) reject("{}: expected a JSON object", where);
  for (const auto& [name, value] : row.items())
    columns.push_back({name, value.is_number_integer() ? "int64"
                             : value.is_number_float() ? "double"
                                                       : value.type_name()});
  return columns;
}

// Extracts the requested columns from one row. Errors start with record.where.
void parse_json_row(std::string_view text, const RecordColumns& columns, CorpusRecord& record) {
  record.text.reset();
  std::string replaced;
  if (columns.replace_invalid && find_invalid_utf8(text) != std::string_view::npos) {
    replaced = replace_invalid_utf8(text);
    text = replaced;
  }
  check_row_encoding(text, record.where);
  JsonRowHandler handler(columns, record);
  Json::sax_parse(text, &handler);
  if (!handler.has_text)
    throw_missing_column(record.where, columns.text, json_row_columns(text, record.where));
  if (columns.id && !handler.has_id)
    throw_missing_column(record.where, *columns.id, json_row_columns(text, record.where));
  if (handler.id_is_nested)
    record.id = ExampleId::from_string(parse_json(text, record.where)[*columns.id].dump());
}

constexpr std::string_view kWhiteSpace = " \t\r\n";

// Reads rows that are JSON objects: one per line, or the elements of one list.
class JsonReader : public RecordReader {
 public:
  enum class Format { lines, list };

  JsonReader(std::string_view text, std::string where, const RecordColumns& columns, Format format)
      : format_(format), where_(std::move(where)), rest_(text), columns_(columns) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
    if (format == Format::list) {
      skip_white_space();
      if (!rest_.starts_with('['))
        reject("{}: expected a list of objects; for one object per line name the file .jsonl",
               where_);
      consume_bytes(1);
    }
    read_first_columns();
  }

  bool read_record(CorpusRecord& record) override {
    std::string_view row;
    if (!next_row(row)) return false;
    record.where = row_location();
    parse_json_row(row, columns_, record);
    return true;
  }

  std::vector<CorpusColumn> columns() const override { return first_columns_; }

 private:
  // Finds the text of the next row and stores its line number in row_line_.
  bool next_row(std::string_view& row) {
    return format_ == Format::list ? next_element(row) : next_line(row);
  }

  std::string row_location() const { return fmt::format("{}: line {}", where_, row_line_); }
  void consume_bytes(std::size_t bytes) {
    line_ += std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(bytes), '\n');
    rest_.remove_prefix(bytes);
  }
  void skip_white_space() {
    consume_bytes(std::min(rest_.find_first_not_of(kWhiteSpace), rest_.size()));
  }

  // Reads the column names from the first row, then rewinds.
  void read_first_columns() {
    const std::string_view start = rest_;
    const std::int64_t line = line_;
    std::string_view row;
    if (next_row(row) && !columns_.replace_invalid)
      first_columns_ = json_row_columns(row, row_location());
    rest_ = start;
    line_ = line;
    ended_ = false;
  }

  bool next_line(std::string_view& row) {
    skip_white_space();
    row_line_ = line_;
    row = rest_.substr(0, rest_.find('\n'));
    consume_bytes(row.size());
    return !row.empty();
  }

  bool next_element(std::string_view& row) {
    if (ended_) return false;
    skip_white_space();
    if (rest_.starts_with(',')) {
      consume_bytes(1);
      skip_white_space();
    }
    row_line_ = line_;
    if (rest_.starts_with(']')) {
      consume_bytes(1);
      skip_white_space();
      if (!rest_.empty()) reject("{}: there is more after the end of the list", row_location());
      ended_ = true;
      return false;
    }
    row = rest_.substr(0, json_value_size());
    consume_bytes(row.size());
    skip_white_space();
    if (row.empty() || (!rest_.starts_with(',') && !rest_.starts_with(']')))
      reject("{}: the list of rows is broken off after this row", row_location());
    return true;
  }

  // Returns the size in bytes of the JSON value at the front of the unread text.
  std::size_t json_value_size() const {
    int depth = 0;
    for (std::size_t at = 0; at < rest_.size(); ++at) {
      const char c = rest_[at];
      if (c == '"') {
        at = find_string_end(at);
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        if (--depth <= 0) return at + (depth == 0 ? 1 : 0);
      } else if (c == ',' && depth == 0) {
        return at;
      }
    }
    reject("{}: the list of rows has no end", row_location());
  }

  std::size_t find_string_end(std::size_t quote) const {
    auto at = rest_.find_first_of("\"\\", quote + 1);
    while (at != std::string_view::npos && rest_[at] == '\\')  // skip the escaped character
      at = rest_.find_first_of("\"\\", at + 2);
    if (at != std::string_view::npos) return at;
    reject("{}: a string has no end", row_location());
  }

  Format format_;
  std::string where_;
  std::string_view rest_;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 1;
  bool ended_ = false;  // after the closing bracket of a list
  RecordColumns columns_;
  std::vector<CorpusColumn> first_columns_;
};

}  // namespace

RecordReaderPointer make_json_lines_reader(std::string_view text, const std::string& where,
                                           const RecordColumns& columns) {
  return std::make_unique<JsonReader>(text, where, columns, JsonReader::Format::lines);
}

RecordReaderPointer make_json_array_reader(std::string_view text, const std::string& where,
                                           const RecordColumns& columns) {
  return std::make_unique<JsonReader>(text, where, columns, JsonReader::Format::list);
}

}  // namespace qkscope
