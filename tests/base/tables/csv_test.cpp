#include "base/tables/csv.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/io/output_file.h"
#include "error_message.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using Type = Table::Type;

class Csv : public testing::Test {
 protected:
  Table read(const std::string& text, const std::vector<CsvColumn>& columns) const {
    write_file(path(), text);
    return read_csv_table(path(), columns);
  }
  std::string complaint(const std::string& text, const std::vector<CsvColumn>& columns) const {
    return bad_input_message([&] { read(text, columns); });
  }
  std::string path() const { return folder_.file("t.csv"); }

  TemporaryFolder folder_;
};

TEST_F(Csv, TablesRoundTrip) {
  Table table;
  table.column("text", Type::text)
      .column("real", Type::real)
      .column("integer", Type::integer)
      .column("boolean", Type::boolean);
  table.add({"a, \"b\"\nc", 0.1, std::int64_t{-3}, std::int64_t{1}});
  table.add({"", std::nan(""), std::int64_t{1} << 60, std::int64_t{0}});
  const auto back = read(table.to_csv(), {{"text", Type::text},
                                          {"real", Type::real},
                                          {"integer", Type::integer},
                                          {"boolean", Type::boolean}});
  EXPECT_EQ(back.rows(), 2);
  EXPECT_EQ(back.to_csv(), table.to_csv());
}

TEST_F(Csv, ColumnsHaveTheRequestedOrder) {
  const auto table = read(
      "\xef\xbb\xbf"
      "a,b,c\r\n1,2.5e-3,x\r\n3,,\"y\"",
      {{"c", Type::text}, {"b", Type::real}});
  EXPECT_EQ(table.columns()[0].texts, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(table.columns()[1].reals[0], 2.5e-3);
  EXPECT_TRUE(std::isnan(table.columns()[1].reals[1]));
}

TEST_F(Csv, ReadsTheHeaderAlone) {
  write_file(path(), "a,\"b,c\"\n1\n");
  EXPECT_EQ(read_csv_header(path()), (std::vector<std::string>{"a", "b,c"}));
  write_file(path(), "");
  EXPECT_THROW(read_csv_header(path()), Error);
}

TEST_F(Csv, ErrorsNameFileAndRow) {
  EXPECT_EQ(complaint("", {}), path() + ": is empty; expected a row of column names");
  EXPECT_EQ(complaint("a\n", {{"b", Type::text}}), path() + ": there is no column \"b\"");
  EXPECT_EQ(complaint("a,b\n1,2\n3\n", {{"a", Type::text}}),
            path() + ": row 3: 1 fields, expected 2");
  EXPECT_EQ(complaint("a\n1\n\n", {{"a", Type::integer}}),
            path() + ": row 3: a: found '', expected an integer");
  EXPECT_EQ(complaint("a\n1.5x\n", {{"a", Type::real}}),
            path() + ": row 2: a: found \"1.5x\", expected a number");
  EXPECT_EQ(complaint("a\nx\n", {{"a", Type::real}}),
            path() + ": row 2: a: found \"x\", expected a number");
  EXPECT_EQ(complaint("a\nyes\n", {{"a", Type::boolean}}),
            path() + ": row 2: a: found \"yes\", expected true or false");
  EXPECT_EQ(complaint("a\n\"x\n", {{"a", Type::text}}),
            path() + ": row 2: a quote is opened and not closed");
}

}  // namespace
}  // namespace qkscope
