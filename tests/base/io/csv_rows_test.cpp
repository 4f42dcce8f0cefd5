#include "base/io/csv_rows.h"

#include <gtest/gtest.h>

namespace qkscope {
namespace {

using Fields = std::vector<std::string>;
using CsvRowStatus = CsvParser::CsvRowStatus;

TEST(CsvParser, ReadsQuotedFieldsAndBothLineEnds) {
  CsvParser rows(
      "\xef\xbb\xbf"
      "a,\"b,\"\"c\"\"\"\r\n\"x\r\ny\r\",\n,z\r");
  Fields fields;
  EXPECT_EQ(rows.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(fields, (Fields{"a", "b,\"c\""}));
  EXPECT_EQ(rows.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(fields, (Fields{"x\r\ny\r", ""}));
  EXPECT_EQ(rows.row_line_number(), 2);
  EXPECT_EQ(rows.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(fields, (Fields{"", "z"}));
  EXPECT_EQ(rows.row_number(), 3);
  EXPECT_EQ(rows.row_line_number(), 4);
  EXPECT_EQ(rows.read_row(fields), CsvRowStatus::end);
}

TEST(CsvParser, EmptyLinesAreRowsUnlessSkipped) {
  Fields fields;
  CsvParser kept("a\n\nb");
  EXPECT_EQ(kept.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(kept.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(fields, Fields{""});
  CsvParser skipping("\r\na\n\n\nb\n\n", {.skip_empty_lines = true});
  EXPECT_EQ(skipping.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(skipping.row_line_number(), 2);
  EXPECT_EQ(skipping.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(fields, Fields{"b"});
  EXPECT_EQ(skipping.row_line_number(), 5);
  EXPECT_EQ(skipping.read_row(fields), CsvRowStatus::end);
}

TEST(CsvParser, UnclosedQuotesNameTheLineOfTheField) {
  CsvParser rows("a\n\"b\nc\",\"d\n\n");
  Fields fields;
  EXPECT_EQ(rows.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(rows.read_row(fields), CsvRowStatus::unclosed_quote);
  EXPECT_EQ(rows.error_line_number(), 3);
}

TEST(CsvParser, TextAfterAClosingQuoteIsAnErrorUnlessAccepted) {
  Fields fields;
  CsvParser strict("\"a\nb\"c,d\n");
  EXPECT_EQ(strict.read_row(fields), CsvRowStatus::text_after_quote);
  EXPECT_EQ(strict.error_line_number(), 2);
  CsvParser lenient("\"a\nb\"c,d\n", {.text_after_quotes = true});
  EXPECT_EQ(lenient.read_row(fields), CsvRowStatus::row);
  EXPECT_EQ(fields, (Fields{"a\nbc", "d"}));
}

}  // namespace
}  // namespace qkscope
