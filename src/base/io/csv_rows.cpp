#include "base/io/csv_rows.h"

#include <algorithm>

namespace qkscope {

CsvParser::CsvParser(std::string_view text, CsvDialect dialect) : rest_(text), dialect_(dialect) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

CsvParser::CsvRowStatus CsvParser::read_row(std::vector<std::string>& fields) {
  while (dialect_.skip_empty_lines && (rest_.starts_with('\n') || rest_.starts_with("\r\n"))) {
    consume_char_if('\r');
    consume_char_if('\n');
    ++line_;
  }
  if (rest_.empty()) return CsvRowStatus::end;
  ++row_;
  row_line_ = line_;
  fields.clear();
  do {
    auto& field = fields.emplace_back();
    const bool quoted = rest_.starts_with('"');
    if (quoted && !read_quoted_field(field)) return CsvRowStatus::unclosed_quote;
    if (!quoted || dialect_.text_after_quotes) read_unquoted_field(field);
  } while (consume_char_if(','));
  consume_char_if('\r');
  if (consume_char_if('\n')) {
    ++line_;
  } else if (!rest_.empty()) {
    error_line_ = line_;
    return CsvRowStatus::text_after_quote;
  }
  return CsvRowStatus::row;
}

bool CsvParser::read_quoted_field(std::string& field) {
  error_line_ = line_;
  rest_.remove_prefix(1);
  while (true) {
    const auto quote = rest_.find('"');
    if (quote == std::string_view::npos) return false;
    const auto part = rest_.substr(0, quote);
    line_ += std::ranges::count(part, '\n');
    field += part;
    rest_.remove_prefix(quote + 1);
    if (!consume_char_if('"')) return true;
    field += '"';  // `""` inside quotes is one quote
  }
}

// Appends an unquoted CSV field, which ends at a comma or line end. Leaves a CR before LF in rest_.
void CsvParser::read_unquoted_field(std::string& field) {
  auto end = std::min(rest_.find_first_of(",\n"), rest_.size());
  const bool ends_row = end == rest_.size() || rest_[end] == '\n';
  if (ends_row && end > 0 && rest_[end - 1] == '\r') --end;
  field += rest_.substr(0, end);
  rest_.remove_prefix(end);
}

bool CsvParser::consume_char_if(char c) {
  if (!rest_.starts_with(c)) return false;
  rest_.remove_prefix(1);
  return true;
}

}  // namespace qkscope
