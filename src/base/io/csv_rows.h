// A streaming CSV parser (RFC 4180): one row at a time, UTF-8 byte order mark skipped, LF or CRLF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

struct CsvDialect {
  bool skip_empty_lines = false;   // otherwise an empty line is a row with one empty field
  bool text_after_quotes = false;  // accepts `"a"b` as the field `ab`
};

class CsvParser {
 public:
  enum class CsvRowStatus {
    row,
    end,
    unclosed_quote,    // the quoted field that starts in error_line_number() has no end
    text_after_quote,  // error_line_number() has text between a closing quote and a separator
  };

  // `text` must outlive the parser.
  explicit CsvParser(std::string_view text, CsvDialect dialect = {});

  // Reads the next CSV row into `fields`. After an error no further row can be read.
  CsvRowStatus read_row(std::vector<std::string>& fields);

  std::int64_t row_number() const { return row_; }            // number of the row read last, from 1
  std::int64_t row_line_number() const { return row_line_; }  // line on which that row starts
  std::int64_t error_line_number() const { return error_line_; }

 private:
  bool read_quoted_field(std::string& field);
  void read_unquoted_field(std::string& field);
  bool consume_char_if(char c);

  std::string_view rest_;  // not yet parsed
  CsvDialect dialect_;
  std::int64_t row_ = 0;
  std::int64_t line_ = 1;  // line number of the first byte of rest_
  std::int64_t row_line_ = 1;
  std::int64_t error_line_ = 0;
};

}  // namespace qkscope
