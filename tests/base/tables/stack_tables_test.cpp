#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <parquet/arrow/reader.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "base/tables/parquet_stream.h"
#include "qkscope/tables.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using Type = Table::Type;

class StackTables : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }

  std::string complaint(const std::vector<NamedTableFile>& files) const {
    try {
      concat_tables("sweep", files, file("out"));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_FALSE(path_exists(file("out")));
      return error.what();
    }
    return "accepted";
  }

  // Counts the nulls of a column.
  std::int64_t nulls(const std::string& path, const std::string& column) const {
    const auto stream = arrow::io::ReadableFile::Open(path).ValueOrDie();
    parquet::arrow::FileReaderBuilder builder;
    EXPECT_TRUE(builder.Open(stream).ok());
    std::unique_ptr<parquet::arrow::FileReader> reader;
    EXPECT_TRUE(builder.Build(&reader).ok());
    std::int64_t count = 0;
    for (int group = 0; group < reader->num_row_groups(); ++group) {
      std::shared_ptr<arrow::Table> table;
      EXPECT_TRUE(reader->RowGroup(group)->ReadTable(&table).ok());
      count += table->GetColumnByName(column)->null_count();
    }
    return count;
  }

  void write_first() const {
    Table table;
    table.column("model", Type::text).column("layer", Type::integer).column("r", Type::real);
    table.add({"a", std::int64_t{1}, 0.5});
    table.add({"b", std::int64_t{2}, 1.5});
    table.write_parquet(file("first"));
  }

  TemporaryFolder folder_;
};

TEST_F(StackTables, ColumnsAreJoinedByName) {
  write_first();
  Table second;
  second.column("layer", Type::integer).column("note", Type::text).column("model", Type::text);
  second.add({std::int64_t{7}, "new", "c"});
  second.write_parquet(file("second"));
  EXPECT_EQ(concat_tables("sweep", {{"x", file("first")}, {"y", file("second")}}, file("out")), 3);

  const auto table = read_parquet_table_with_gaps(file("out"));
  std::vector<std::string> names;
  for (const auto& column : table.columns()) names.push_back(column.name);
  EXPECT_EQ(names, (std::vector<std::string>{"sweep", "model", "layer", "r", "note"}));
  EXPECT_EQ(table.find("sweep")->texts, (std::vector<std::string>{"x", "x", "y"}));
  EXPECT_EQ(table.find("model")->texts, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(table.find("layer")->integers, (std::vector<std::int64_t>{1, 2, 7}));
  EXPECT_EQ(table.find("r")->reals[1], 1.5);
  EXPECT_EQ(nulls(file("out"), "r"), 1);
  EXPECT_EQ(nulls(file("out"), "note"), 2);  // null, not an empty string
}

TEST_F(StackTables, RowGroupsAreKept) {
  ParquetTableWriter writer(file("long"));
  for (std::int64_t i = 0; i < 3; ++i) {
    Table part;
    part.column("i", Type::integer);
    part.add({i});
    writer.append(part);
  }
  writer.finish();
  EXPECT_EQ(concat_tables("sweep", {{"x", file("long")}, {"y", file("long")}}, file("out")), 6);
  EXPECT_EQ(ParquetTableReader(file("out")).row_group_count(), 6);
}

TEST_F(StackTables, AnEmptyTableKeepsItsColumns) {
  Table empty;
  empty.column("note", Type::text);
  empty.write_parquet(file("empty"));
  EXPECT_EQ(concat_tables("sweep", {{"x", file("empty")}}, file("out")), 0);
  EXPECT_EQ(read_parquet_table(file("out")).columns().size(), 2u);
}

TEST_F(StackTables, ConflictingColumnsAreRefused) {
  write_first();
  Table other;
  other.column("layer", Type::real);
  other.add({0.25});
  other.write_parquet(file("other"));
  EXPECT_THAT(complaint({{"x", file("first")}, {"y", file("other")}}),
              HasSubstr("its column \"layer\" is double, that of " + file("first") + " is int64"));
  Table taken;
  taken.column("sweep", Type::text);
  taken.write_parquet(file("taken"));
  EXPECT_THAT(complaint({{"x", file("taken")}}), HasSubstr("column \"sweep\""));
}

TEST_F(StackTables, UnreadableFilesAreNamed) {
  write_file(file("text"), "no table");
  EXPECT_THAT(complaint({{"x", file("text")}}), HasSubstr("not a readable Parquet file"));
  EXPECT_THAT(complaint({{"x", file("missing")}}), HasSubstr("missing"));
}

}  // namespace
}  // namespace qkscope
