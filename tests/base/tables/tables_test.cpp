#include "qkscope/tables.h"

#include <cmath>
#include <limits>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "base/tables/parquet_stream.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Table sample() {
  Table table;
  table.column("n", Table::Type::integer)
      .column("x", Table::Type::real)
      .column("s", Table::Type::text)
      .column("b", Table::Type::boolean);
  table.add({std::int64_t{-7}, 0.1, std::string("a \"quoted\", name"), std::int64_t{1}});
  table.add({std::int64_t{1} << 60, std::numeric_limits<double>::quiet_NaN(), std::string(""),
             std::int64_t{0}});
  return table;
}

std::string complaint(const std::string& path, const std::vector<std::string>& columns) {
  try {
    read_parquet_table(path, columns);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "";
}

TEST(TableReader, RoundTripsTables) {
  const TemporaryFolder folder;
  sample().write_parquet(folder.file("t.parquet"));
  const Table table = read_parquet_table(folder.file("t.parquet"));
  EXPECT_EQ(table.to_csv(), sample().to_csv());
  EXPECT_EQ(table.find("b")->type, Table::Type::boolean);
  EXPECT_TRUE(std::isnan(table.find("x")->reals[1]));
}

TEST(TableReader, ReadsNamedColumnsInTheRequestedOrder) {
  const TemporaryFolder folder;
  sample().write_parquet(folder.file("t.parquet"));
  const Table table = read_parquet_table(folder.file("t.parquet"), {"s", "n"});
  ASSERT_EQ(table.columns().size(), 2u);
  EXPECT_THAT(table.columns()[1].integers, ElementsAre(-7, std::int64_t{1} << 60));
}

TEST(TableReader, ErrorsNameTheFileAndTheColumn) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.parquet");
  EXPECT_THAT(complaint(path, {}), HasSubstr("t.parquet: there is no such file"));
  sample().write_parquet(path);
  EXPECT_THAT(complaint(path, {"y"}), HasSubstr("there is no column 'y'"));
  write_file(path, "PAR1 and no more");
  EXPECT_THAT(complaint(path, {}), HasSubstr("t.parquet: not a readable Parquet file"));
}

// Columns of types that other programs write.
TEST(TableReader, ReadsNarrowIntegersAndLargeStrings) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.parquet");
  const auto write = [&](const std::shared_ptr<arrow::Array>& array) {
    const auto stream = arrow::io::FileOutputStream::Open(path).ValueOrDie();
    const auto table =
        arrow::Table::Make(arrow::schema({arrow::field("c", array->type())}), {array});
    parquet::ArrowWriterProperties::Builder properties;
    EXPECT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), stream, 10,
                                           parquet::default_writer_properties(),
                                           properties.store_schema()->build())
                    .ok());
    EXPECT_TRUE(stream->Close().ok());
  };
  arrow::Int32Builder integers;
  ASSERT_TRUE(integers.AppendValues({3, -4}).ok());
  write(integers.Finish().ValueOrDie());
  EXPECT_THAT(read_parquet_table(path).find("c")->integers, ElementsAre(3, -4));
  arrow::LargeStringBuilder texts;
  ASSERT_TRUE(texts.Append("a").ok() && texts.AppendNull().ok());
  write(texts.Finish().ValueOrDie());
  EXPECT_THAT(read_parquet_table(path).find("c")->texts, ElementsAre("a", ""));
  write(arrow::MakeArrayOfNull(arrow::date32(), 1).ValueOrDie());
  EXPECT_THAT(complaint(path, {}),
              HasSubstr("type date32[day]; expected int32, int64, double, bool or string"));
}

TEST(TableReader, ReadsNullIntegersOnRequest) {
  const TemporaryFolder folder;
  Table table;
  table.column("n", Table::Type::integer).column("b", Table::Type::boolean);
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  table.add({std::int64_t{3}, kNothing});
  table.add({kNothing, std::int64_t{1}});
  EXPECT_EQ(table.to_csv(), "n,b\n3,\n,true\n");
  const auto path = folder.file("t.parquet");
  table.write_parquet(path);
  const Table read = read_parquet_table_with_gaps(path);
  EXPECT_THAT(read.find("n")->integers, ElementsAre(3, Table::kNoInteger));
  EXPECT_THAT(read.find("b")->integers, ElementsAre(Table::kNoInteger, 1));
  EXPECT_TRUE(std::isnan(read.find("n")->number(1)));
  EXPECT_EQ(read.find("b")->number(1), 1);
  EXPECT_THAT(complaint(path, {"n"}), HasSubstr("empty fields in a column of integers"));
  EXPECT_THAT(complaint(path, {"b"}), HasSubstr("empty fields in a column of booleans"));
}

TEST(ParquetStream, RoundTripsRowGroups) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.parquet");
  {
    ParquetTableWriter file(path);
    file.append(sample());
    file.append(sample());
    file.finish();
  }
  const ParquetTableReader file(path);
  ASSERT_EQ(file.row_group_count(), 2);
  EXPECT_EQ(file.read_row_group(1).to_csv(), sample().to_csv());
  EXPECT_EQ(read_parquet_table(path).rows(), 4);
}

TEST(Table, RefusesRowsThatDoNotFit) {
  Table table;
  table.column("n", Table::Type::integer).column("x", Table::Type::real);
  table.add({std::int64_t{1}, std::int64_t{2}});  // real columns accept integers
  const auto message = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([&] { table.add({std::int64_t{1}}); }), HasSubstr("1 cells; expected 2"));
  EXPECT_THAT(message([&] { table.add({1.5, 1.5}); }), HasSubstr("column 'n' is a real number"));
  EXPECT_THAT(message([&] {
                table.add({std::int64_t{1}, std::string("a")});
              }),
              HasSubstr("column 'x' is text"));
  EXPECT_THAT(message([&] { table.column("late", Table::Type::text); }),
              HasSubstr("'late' is declared after 1 rows"));
  EXPECT_THAT(message([&] {
                Table text;
                text.column("s", Table::Type::text).add({std::int64_t{1}});
              }),
              HasSubstr("column 's' is an integer"));
  EXPECT_THAT(message([] {
                Table({{"a", Table::Type::integer, {1, 2}, {}, {}},
                       {"b", Table::Type::integer, {1}, {}, {}}});
              }),
              HasSubstr("'b'"));
  EXPECT_EQ(Table(std::vector<Table::Column>()).rows(), 0);
  EXPECT_EQ(table.find("none"), nullptr);
  EXPECT_EQ(table.rows(), 1);
}

TEST(Table, WritesFullPrecisionQuotesAndEmptyForNan) {
  Table table;
  table.column("n", Table::Type::integer)
      .column("x", Table::Type::real)
      .column("s", Table::Type::text)
      .column("b", Table::Type::boolean);
  table.add({std::int64_t{1}, 0.1, "a \"b\", c", std::int64_t{1}});
  table.add({std::int64_t{-2}, std::numeric_limits<double>::quiet_NaN(), "plain", std::int64_t{0}});
  table.add({std::int64_t{3}, 1.0 / 3, "", std::int64_t{0}});
  EXPECT_EQ(
      table.to_csv(),
      "n,x,s,b\n1,0.1,\"a \"\"b\"\", c\",true\n-2,,plain,false\n3,0.3333333333333333,,false\n");
}

TEST(Table, StoresRealsWithoutADictionary) {
  const TemporaryFolder folder;
  sample().write_parquet(folder.file("t.parquet"));
  const auto metadata = parquet::ParquetFileReader::OpenFile(folder.file("t.parquet"))->metadata();
  const auto group = metadata->RowGroup(0);
  const auto dictionary = [&](int column) {
    return group->ColumnChunk(column)->has_dictionary_page();
  };
  EXPECT_TRUE(dictionary(0));
  EXPECT_FALSE(dictionary(1));
  EXPECT_TRUE(dictionary(2));
  EXPECT_EQ(group->ColumnChunk(1)->compression(), parquet::Compression::ZSTD);
}

TEST(Table, WritesTheShortestRoundTripForm) {
  Table table;
  table.column("n", Table::Type::integer).column("x", Table::Type::real);
  table.add({std::numeric_limits<std::int64_t>::max(), -2.2250738585072014e-308});
  table.add({std::numeric_limits<std::int64_t>::min() + 1, 1e300});
  table.add({std::int64_t{0}, -0.0});
  table.add({std::int64_t{-1}, 123456789012345680.0});
  EXPECT_EQ(table.to_csv(),
            "n,x\n9223372036854775807,-2.2250738585072014e-308\n-9223372036854775807,1e+300\n"
            "0,-0\n-1,1.2345678901234568e+17\n");
}

}  // namespace
}  // namespace qkscope
